"""What a step of the large recipes would take on slices that are not there.

    python -m benchmarks.scaling [--cells=small@v5e:4x4,...] [--exponents]

PREDICTED, not measured. Each cell compiles a recipe's programs for a slice
(`--compile_only`, extra [tpu]) at two depths; FLOPs, bytes and collectives are linear
in depth, so the recipe's own depth lies on their line. A chip's published peaks turn
them into seconds: "at best" is the slowest of products, memory and links (all overlap),
"in turn" is their sum (nothing does). Every completion runs to the limit. Slices grow
with the batch: as many prompts a chip as in the recipe. `--exponents` varies one thing
at a time, by a factor of two, and prints how seconds grow with it.

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
from typing import Any

from benchmarks.channel import ROOT
from rlvr_jax.config import Config
from rlvr_jax.plan.program_costs import ProgramCosts
from rlvr_jax.plan.topology import parse_topology
from rlvr_jax.run.cli import parse

DEPTHS = (2, 4)
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
    "medium@v5e:4x4": {},
    "medium@v5e:8x8": {
        "mesh.data": 4,
        "train.batch_size": 512,
    },
    "medium@v5e:16x16": {
        "mesh.data": 16,
        "train.batch_size": 2048,
    },
    "large@v5e:16x16": {},
}
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
    recipe, _, slice_ = cell.partition("@")
    config = load_recipe(recipe, overrides)
    reports = [
        compile_cell(cell, {**overrides, "model.num_layers": depth, "probe.layer": 1})
        for depth in DEPTHS
    ]
    costs = {
        program: extrapolate_costs(
            [report["programs"][program] for report in reports],
            config.model.num_layers,
        )
        for program in _STEP
        if program in reports[0]["programs"]
    }
    chip = parse_topology(slice_).chip
    runs = runs_per_step(config)
    seconds = {
        program: chip.predict_seconds(costs[program].times(runs.get(program, 1)))
        for program in costs
    }
    train = config.train
    return Prediction(
        cell=cell,
        tokens=train.batch_size * train.group_size * train.sampling.max_new_tokens,
        at_best={program: each["overlapped"] for program, each in seconds.items()},
        in_turn={program: each["in_turn"] for program, each in seconds.items()},
    )


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


def extrapolate_costs(
    programs: Sequence[Mapping[str, float]], num_layers: int
) -> ProgramCosts:
    """Returns a program's costs at another depth than the two of DEPTHS.

    Everything outside the layers is the line's value at depth 0.
    """
    shallow, deep = programs
    share = (num_layers - DEPTHS[0]) / (DEPTHS[1] - DEPTHS[0])
    return ProgramCosts(
        **{
            name: shallow[name] + share * (deep[name] - shallow[name])
            for name in _COSTS
        }
    )


def fit_exponent(before: float, after: float, factor: float) -> float:
    """Returns the x by which seconds grow as factor ** x."""
    return math.log(after / before) / math.log(factor)


def load_recipe(recipe: str, overrides: Mapping[str, Any]) -> Config:
    """Returns configs/RECIPE.py with overrides by dotted path."""
    path = str(ROOT / f"configs/{recipe}.py")
    return parse([f"--config={path}", "--dry_run", *_override_flags(overrides)]).config


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


def main(argv: Sequence[str]) -> int:
    """Returns the exit code of the command."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scaling", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("--cells", default=",".join(_CELLS), help="recipe@slice,...")
    parser.add_argument(
        "--exponents", action="store_true", help="also vary one thing at a time"
    )
    flags = parser.parse_args(argv)
    cells = [cell for cell in flags.cells.split(",") if cell]
    if unknown := set(cells) - set(_CELLS):
        parser.error(f"{sorted(unknown)} are none of {', '.join(_CELLS)}")
    found = {}
    for cell in cells:
        found[cell] = predict_cell(cell, _CELLS[cell], compile_cell=compile_by_command)
        print(json.dumps(found[cell].to_json()), flush=True)
    print(format_table(list(found.values())), file=sys.stderr)
    if flags.exponents:
        _print_exponents()
    return 0


def _print_exponents() -> None:
    """Prints how a part's seconds in turn grow with one thing, all else equal."""
    base_cell = "small@v5e:2x2"
    base = predict_cell(base_cell, {}, compile_cell=compile_by_command)
    for name, (cell, overrides) in _VARIED.items():
        varied = predict_cell(cell, overrides, compile_cell=compile_by_command)
        exponents = {
            part: round(fit_exponent(seconds, varied.in_turn[part], 2.0), 2)
            for part, seconds in base.in_turn.items()
        }
        print(json.dumps({"base": base_cell, "doubled": name, "exponents": exponents}))


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
