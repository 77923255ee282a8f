"""What a step of the large recipes would take on slices that are not there.

    python -m benchmarks.scaling [--cells=small@v5e:4x4,...] [--exponents]
        [--reports=DIR]

PREDICTED, not measured. Each cell compiles a recipe's programs for a slice
(`--compile_only`, extra [tpu]); layers are scanned, so that depth costs no compilation.
FLOPs, bytes and collectives are counted as often as they run, those of attention's
kernels by hand, and a chip's published peaks turn them into seconds: "at best" is the
slowest of products, memory and links (all overlap), "in turn" is their sum (nothing
does). Every completion runs to the limit. Slices grow with the batch: as many prompts a
chip as in the recipe. `--exponents` varies one thing at a time, by a factor of two, and
prints how seconds grow with it. With `--reports` what was compiled is kept there, and
read instead where it is.

One JSON line a cell on standard output, a table on standard error.
"""

import argparse
import dataclasses
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.channel import ROOT
from rlvr_jax.config import Config
from rlvr_jax.plan.program_costs import ProgramCosts
from rlvr_jax.plan.step_programs import vocab_size
from rlvr_jax.plan.topology import Topology, parse_topology
from rlvr_jax.run.cli import parse
from rlvr_jax.sampler.stages import decode_stages

# What a step runs; the report also has a logged step's gradient, and stage `probe`.
_STEP = (
    "reshard",
    "sampler",
    "scorer",
    "scorer_entropies",
    "scorer_features",
    "gradient",
    "update",
)
_COSTS = tuple(field.name for field in dataclasses.fields(ProgramCosts))

# What each slice overrides of the recipe, which is written for the smallest of its own.
_CELLS: dict[str, dict[str, Any]] = {
    "small@v5e:2x2": {},
    "small@v5e:4x4": {
        "mesh.data": 4,
        "train.batch_size": 128,
    },
    "small@v5e:8x8": {
        "mesh.data": 16,
        "train.batch_size": 512,
    },
    "small@v5e:16x16": {
        "mesh.data": 64,
        "train.batch_size": 2048,
    },
    "small@v6e:2x2": {},
    "medium@v5e:4x4": {},
    "medium@v5e:8x8": {
        "mesh.data": 4,
        "train.batch_size": 512,
    },
    "medium@v5e:16x16": {
        "mesh.data": 16,
        "train.batch_size": 2048,
    },
    "medium@v6e:4x4": {},
    "large@v5e:16x16": {},
    "large@v6e:16x16": {},
}
_BASE_CELL = "small@v5e:2x2"
_VARIED: dict[str, tuple[str, dict[str, Any]]] = {
    "batch": ("small@v5e:2x2", {"train.batch_size": 64}),
    "completion length": (
        "small@v5e:2x2",
        {"model.max_seq_len": 512 + 2048, "train.sampling.max_new_tokens": 2048},
    ),
    "width": (
        "small@v5e:2x2",
        {"model.hidden_size": 1792, "model.intermediate_size": 9728},
    ),
    "devices": (
        "small@v5e:2x4",
        {"mesh.data": 2, "train.grad_accum_steps": 4},
    ),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prediction:
    """A step's seconds on a slice, by part; written by `predict_cell`.

    `at_best` and `in_turn` are those of `Chip.predict_seconds`.
    """

    cell: str
    tokens: int  # completions' tokens of a step
    at_best: dict[str, float]
    in_turn: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """Returns the prediction as one JSON line has it."""
        return {
            **dataclasses.asdict(self),
            "tokens_per_s": [
                self.tokens / sum(self.in_turn.values()),
                self.tokens / sum(self.at_best.values()),
            ],
        }


def predict_cell(
    cell: str,
    overrides: Mapping[str, Any],
    *,
    compile_cell: Callable[[str, Mapping[str, Any]], dict[str, Any]],
) -> Prediction:
    """Returns the prediction of a "recipe@slice" from its programs at two depths.

    `compile_cell` returns the report of `--compile_only`.
    """
    config = _load_cell(cell, overrides)
    topology = parse_topology(cell.partition("@")[2])
    programs = compile_cell(cell, overrides)["programs"]
    runs, kernels = runs_per_step(config), kernel_flops(config)
    seconds = {}
    for program in _STEP:
        if "flops" in programs.get(program, {}):
            costs = ProgramCosts(**{name: programs[program][name] for name in _COSTS})
            costs += ProgramCosts(flops=kernels.get(program, 0.0) / topology.num_chips)
            seconds[program] = topology.chip.predict_seconds(
                costs.times(runs.get(program, 1))
            )
    train = config.train
    return Prediction(
        cell=cell,
        tokens=train.batch_size * train.group_size * train.sampling.max_new_tokens,
        at_best={program: each["overlapped"] for program, each in seconds.items()},
        in_turn={program: each["in_turn"] for program, each in seconds.items()},
    )


def kernel_flops(config: Config) -> dict[str, float]:
    """Returns what attention's kernels add to a micro-batch's programs, on all chips.

    Of keys that a mask hides nothing counts. Backward takes 5 products where forward
    takes 2, and `model.remat` has those of forward once more.
    """
    model, train = config.model, config.train
    T = train.sampling.max_new_tokens
    S = model.max_seq_len - T
    pairs = S**2 / 2 + train.rows_per_group * (T * S + T**2 / 2)
    width = model.num_heads * model.head_dim
    forward = 4.0 * model.num_layers * width * pairs * train.groups_per_micro_batch
    remat = 0.0 if model.remat == "none" else 1.0
    scorers = ("scorer", "scorer_entropies", "scorer_features")
    return {**dict.fromkeys(scorers, forward), "gradient": forward * (3.5 + remat)}


def runs_per_step(config: Config) -> dict[str, int]:
    """Returns how often a step runs the programs that it runs more than once."""
    train = config.train
    gradients = train.optimizer_steps_per_batch * train.grad_accum_steps
    scores = gradients // train.num_epochs
    return {
        "gradient": gradients,
        "update": train.optimizer_steps_per_batch,
        **dict.fromkeys(("scorer", "scorer_entropies", "scorer_features"), scores),
    }


def decode_bytes(config: Config, topology: Topology) -> dict[str, float]:
    """Returns the bytes of a chip's memory that a decoded token of all rows moves.

    Counted, not compiled, as a mean over completions that go to the limit: `weights`
    and the layers' keys and values are read, `logits` written and read once. `cache`
    has the columns of a stage (`sampler.stages`), of which `cache_filled` hold a token.
    """
    model, train = config.model, config.train
    tensor = config.sampler.tensor_parallel or config.mesh.tensor
    vocab, T = vocab_size(config), train.sampling.max_new_tokens
    prompts = train.batch_size * tensor / topology.num_chips
    rows = prompts * train.group_size
    size = np.dtype(model.compute_dtype).itemsize
    N, K, H = model.num_heads, model.num_kv_heads, model.head_dim
    layer = model.hidden_size * (2 * (N + K) * H + 3 * model.intermediate_size)
    weights = model.num_layers * layer + vocab * model.hidden_size
    shared = tensor if K % tensor == 0 else 1
    token = 2 * model.num_layers * K * H * size / shared
    filled, columns = 0, 0
    for stage in decode_stages(max(1, round(rows)), T):
        columns += max(0, stage.columns - filled) * stage.columns
        filled = max(filled, stage.columns)
    return {
        "weights": size * weights / tensor,
        "cache": rows * token * columns / T,
        "cache_filled": rows * token * T / 2,
        "prompts": prompts * token * (model.max_seq_len - T),
        "logits": 2 * 4.0 * rows * vocab / tensor,
    }


def fit_exponent(before: float, after: float, factor: float) -> float:
    """Returns the x by which seconds grow as factor ** x."""
    return math.log(after / before) / math.log(factor)


def load_recipe(recipe: str, overrides: Mapping[str, Any]) -> Config:
    """Returns configs/RECIPE.py with overrides by dotted path."""
    path = str(ROOT / f"configs/{recipe}.py")
    return parse([f"--config={path}", "--dry_run", *_override_flags(overrides)]).config


def _load_cell(cell: str, overrides: Mapping[str, Any]) -> Config:
    return load_recipe(cell.partition("@")[0], overrides)


def _override_flags(overrides: Mapping[str, Any]) -> list[str]:
    return [f"--config.{path}={value}" for path, value in overrides.items()]


def compile_by_command(cell: str, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what `--compile_only` prints, in a process of its own."""
    recipe, _, slice_ = cell.partition("@")
    _log(f"compiling {cell} {dict(overrides)}")
    printed = subprocess.run(
        [
            *(sys.executable, "-m", "rlvr_jax.main"),
            *(f"--config=configs/{recipe}.py", "--compile_only"),
            f"--topology={slice_}",
            *_override_flags(overrides),
        ],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        check=True,
    )
    report: dict[str, Any] = json.loads(printed.stdout)
    return report


def keep_reports(
    compile_cell: Callable[[str, Mapping[str, Any]], dict[str, Any]], folder: Path
) -> Callable[[str, Mapping[str, Any]], dict[str, Any]]:
    """Returns `compile_cell` that reads a report where the folder has it, or writes."""
    folder.mkdir(parents=True, exist_ok=True)

    def kept(cell: str, overrides: Mapping[str, Any]) -> dict[str, Any]:
        settings = [f"{path}={value}" for path, value in overrides.items()]
        path = folder / f"{'+'.join([cell, *settings])}.json"
        if not path.exists():
            path.write_text(json.dumps(compile_cell(cell, overrides), indent=1))
        report: dict[str, Any] = json.loads(path.read_text())
        return report

    return kept


def main(argv: Sequence[str]) -> int:
    """Returns the exit code of the command."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scaling", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("--cells", default=",".join(_CELLS), help="recipe@slice,...")
    parser.add_argument(
        "--exponents", action="store_true", help="also vary one thing at a time"
    )
    parser.add_argument("--reports", type=Path, help="keep what was compiled here")
    parser.add_argument(
        "--decode_bytes",
        action="store_true",
        help="print what a decoded token moves, by part; compile nothing",
    )
    flags = parser.parse_args(argv)
    cells = [cell for cell in flags.cells.split(",") if cell]
    if unknown := set(cells) - set(_CELLS):
        parser.error(f"{sorted(unknown)} are none of {', '.join(_CELLS)}")
    if flags.decode_bytes:
        _print_decode_bytes(cells, exponents=flags.exponents)
        return 0
    compile_cell = compile_by_command
    if flags.reports:
        compile_cell = keep_reports(compile_cell, flags.reports)
    found = {}
    for cell in cells:
        found[cell] = predict_cell(cell, _CELLS[cell], compile_cell=compile_cell)
        print(json.dumps(found[cell].to_json()), flush=True)
    print(format_table(list(found.values())), file=sys.stderr)
    if flags.exponents:
        _print_exponents(compile_cell)
    return 0


def _print_decode_bytes(cells: Sequence[str], *, exponents: bool) -> None:
    """Prints `decode_bytes` of the cells, and how those of a step grow with a thing."""

    def moved(cell: str, overrides: Mapping[str, Any]) -> dict[str, float]:
        slice_ = parse_topology(cell.partition("@")[2])
        return decode_bytes(_load_cell(cell, overrides), slice_)

    def of_step(cell: str, overrides: Mapping[str, Any]) -> float:
        tokens = _load_cell(cell, overrides).train.sampling.max_new_tokens
        parts = moved(cell, overrides)
        return tokens * (sum(parts.values()) - parts["cache_filled"])

    for cell in cells:
        print(json.dumps({"cell": cell, **moved(cell, _CELLS[cell])}))
    if exponents:
        base = of_step(_BASE_CELL, {})
        for name, varied in _VARIED.items():
            exponent = round(fit_exponent(base, of_step(*varied), 2.0), 2)
            print(json.dumps({"base": _BASE_CELL, "doubled": name, "bytes": exponent}))


def _print_exponents(
    compile_cell: Callable[[str, Mapping[str, Any]], dict[str, Any]],
) -> None:
    """Prints how a part's seconds in turn grow with one thing, all else equal."""
    base = predict_cell(_BASE_CELL, {}, compile_cell=compile_cell)
    for name, (cell, overrides) in _VARIED.items():
        varied = predict_cell(cell, overrides, compile_cell=compile_cell)
        exponents = {
            part: round(fit_exponent(seconds, varied.in_turn[part], 2.0), 2)
            for part, seconds in base.in_turn.items()
        }
        print(json.dumps({"base": _BASE_CELL, "doubled": name, "exponents": exponents}))


def format_table(predictions: Sequence[Prediction]) -> str:
    """Returns the predictions as a Markdown table."""
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
        best, turn = sum(each.at_best.values()), sum(each.in_turn.values())
        rates = f"{each.tokens / turn:,.0f} - {each.tokens / best:,.0f}"
        lines.append(
            "| " + " | ".join([each.cell, *cells, _range(best, turn), rates]) + " |"
        )
    return "\n".join(lines)


def _range(low: float, high: float) -> str:
    return f"{low:.3g} - {high:.3g}"


def _log(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
