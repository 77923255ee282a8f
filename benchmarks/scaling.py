"""Predicts the time of a step of the large recipes on slices that we do not have.

    python -m benchmarks.scaling [--cells=small@v5e:4x4,...] [--programs=NAME,...]
        [--reports=DIR] [--exponents] [--decode_bytes]

PREDICTED, not measured. Each cell compiles a recipe's programs for a slice
(`--compile_only`, extra [tpu]). Layers are scanned, so depth costs no compilation.
FLOPs, bytes and collectives are counted as often as they run; the FLOPs of attention's
kernels are counted by hand. A chip's published peaks turn them into seconds. "At best"
is the slowest of products, memory and links, if all overlap. "In turn" is their sum, if
nothing overlaps. Every completion runs to the limit. Slices grow with the batch: the
prompts per chip are as in the recipe. With `--reports`, each compiled program's report
is stored there, and read instead of compiling if it exists.

`--exponents` compiles small shapes, doubles one setting twice, and fits how FLOPs,
bytes of memory and bytes sent grow with it (`--cells= --exponents` does nothing else).

Prints one JSON line per cell or fit to standard output, and a table to standard error.
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.exponents import print_decode_exponents, print_exponents
from benchmarks.step_costs import (
    STEP_PROGRAMS,
    CompileCell,
    compile_by_command,
    decode_bytes,
    keep_reports,
    load_cell,
    step_costs,
)
from rlvr_jax.plan.topology import parse_topology

# The overrides of each cell. A recipe is written for the smallest of its slices.
_CELLS: dict[str, dict[str, Any]] = {
    "small@v5e:2x2": {},
    "small@v5e:4x4": {"mesh.data": 4, "train.batch_size": 128},
    "small@v5e:8x8": {"mesh.data": 16, "train.batch_size": 512},
    "small@v5e:16x16": {"mesh.data": 64, "train.batch_size": 2048},
    "small@v6e:2x2": {},
    "medium@v5e:4x4": {},
    "medium@v5e:8x8": {"mesh.data": 4, "train.batch_size": 512},
    "medium@v5e:16x16": {"mesh.data": 16, "train.batch_size": 2048},
    "medium@v6e:4x4": {},
    "large@v5e:8x8": {"mesh.fsdp": 16, "train.batch_size": 32},
    "large@v5e:16x16": {},
    "large@v6e:8x8": {"mesh.fsdp": 16, "train.batch_size": 32},
    "large@v6e:16x16": {},
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prediction:
    """A step's seconds on a slice, by part; made by `predict_cell`.

    `at_best` and `in_turn` come from `Chip.predict_seconds`. `missing` are programs of
    the step without a prediction.
    """

    cell: str
    tokens: int  # completion tokens in a step
    at_best: dict[str, float]
    in_turn: dict[str, float]
    missing: list[str]

    def to_json(self) -> dict[str, Any]:
        """Returns the prediction as data for a JSON line."""
        return {**dataclasses.asdict(self), "tokens_per_s": self.tokens_per_s()}

    def tokens_per_s(self) -> list[float] | None:
        """Returns the slice's tokens per second, in turn and at best.

        Returns None if a program is missing.
        """
        if self.missing:
            return None
        return [
            self.tokens / sum(self.in_turn.values()),
            self.tokens / sum(self.at_best.values()),
        ]


def predict_cell(
    cell: str,
    overrides: Mapping[str, object],
    *,
    compile_cell: CompileCell,
    programs: Sequence[str] = STEP_PROGRAMS,
) -> Prediction:
    """Returns the prediction of a "recipe@slice" from its programs."""
    train = load_cell(cell, overrides).train
    chip = parse_topology(cell.partition("@")[2]).chip
    costs, missing = step_costs(cell, overrides, programs, compile_cell=compile_cell)
    seconds = {name: chip.predict_seconds(each) for name, each in costs.items()}
    return Prediction(
        cell=cell,
        tokens=train.batch_size * train.group_size * train.sampling.max_new_tokens,
        at_best={program: each["overlapped"] for program, each in seconds.items()},
        in_turn={program: each["in_turn"] for program, each in seconds.items()},
        missing=missing,
    )


def main(argv: Sequence[str]) -> int:
    """Returns the exit code of the command."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scaling", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("--cells", default=",".join(_CELLS), help="recipe@slice,...")
    parser.add_argument(
        "--programs", default=",".join(STEP_PROGRAMS), help="compile only these"
    )
    parser.add_argument(
        "--exponents", action="store_true", help="also vary one setting at a time"
    )
    parser.add_argument("--reports", type=Path, help="store compile reports here")
    parser.add_argument(
        "--decode_bytes",
        action="store_true",
        help="print the bytes that a decoded token moves, by part; compile nothing",
    )
    flags = parser.parse_args(argv)
    cells, programs = _split(flags.cells), _split(flags.programs)
    for given, known in ((cells, _CELLS), (programs, STEP_PROGRAMS)):
        if unknown := set(given) - set(known):
            parser.error(f"unknown {sorted(unknown)}; choose from {', '.join(known)}")
    if flags.decode_bytes:
        _print_decode_bytes(cells, exponents=flags.exponents)
        return 0
    compile_cell: CompileCell = compile_by_command
    if flags.reports:
        compile_cell = keep_reports(compile_cell, flags.reports)
    found = []
    for cell in cells:
        found.append(
            predict_cell(
                cell, _CELLS[cell], compile_cell=compile_cell, programs=programs
            )
        )
        print(json.dumps(found[-1].to_json()), flush=True)
    if found:
        print(format_table(found), file=sys.stderr)
    if flags.exponents:
        print_exponents(compile_cell)
    return 0


def _split(names: str) -> list[str]:
    return [name for name in names.split(",") if name]


def _print_decode_bytes(cells: Sequence[str], *, exponents: bool) -> None:
    """Prints `decode_bytes` of the cells, and how they grow along each axis."""
    for cell in cells:
        config = load_cell(cell, _CELLS[cell])
        moved = decode_bytes(config, parse_topology(cell.partition("@")[2]))
        print(json.dumps({"cell": cell, **moved}))
    if exponents:
        print_decode_exponents()


def format_table(predictions: Sequence[Prediction]) -> str:
    """Returns the predictions as a Markdown table; a step needs all its programs."""
    parts = list(dict.fromkeys(part for each in predictions for part in each.at_best))
    lines = [
        "| predicted seconds, at best - in turn | "
        + " | ".join([*parts, "step", "tokens/s"])
        + " |",
        "|---" * (len(parts) + 3) + "|",
    ]
    for each in predictions:
        cells = [
            _range(each.at_best[part], each.in_turn[part])
            if part in each.at_best
            else "-"
            for part in parts
        ]
        whole = ["-", "-"]
        if rates := each.tokens_per_s():
            step = _range(sum(each.at_best.values()), sum(each.in_turn.values()))
            whole = [step, f"{rates[0]:,.0f} - {rates[1]:,.0f}"]
        lines.append("| " + " | ".join([each.cell, *cells, *whole]) + " |")
    return "\n".join(lines)


def _range(low: float, high: float) -> str:
    return f"{low:.3g} - {high:.3g}"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
