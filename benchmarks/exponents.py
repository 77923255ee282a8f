"""How a step's gradients and decoding grow with batch, length, width and chips.

COMPILED, not measured: one setting of a base is doubled twice, and a line is fitted to
the logarithms of a chip's FLOPs, bytes of memory and bytes sent. The base is
configs/small.py on four chips with few layers, a small vocabulary and short texts, so
the exponents hold for small shapes. There are 22 programs, minutes of a core each.
"""

import dataclasses
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.step_costs import (
    COSTS,
    CompileCell,
    decode_bytes,
    load_cell,
    step_costs,
)
from rlvr_jax.config import Config
from rlvr_jax.plan.program_costs import ProgramCosts
from rlvr_jax.plan.topology import parse_topology

FACTORS = (1, 2, 4)
# v5e slices, by their number of chips divided by the base's four.
_SLICES = {1: "v5e:2x2", 2: "v5e:2x4", 4: "v5e:4x4"}
_RECIPE = "small"
SMALL_SHAPES: dict[str, Any] = {
    "model.num_layers": 4,
    "model.hidden_size": 512,
    "model.intermediate_size": 2048,
    "model.num_heads": 8,
    "model.num_kv_heads": 2,
    "model.max_seq_len": 128 + 256,
    "pretrained.vocab_size": 8192,
    "probe.layer": 2,
    "train.batch_size": 32,
    "train.grad_accum_steps": 4,
    "train.sampling.max_new_tokens": 256,
    "eval.sampling.max_new_tokens": 256,
}
AXES = ("batch", "length", "width", "devices", "slice")
_ON_LARGER_SLICES = ("devices", "slice")
_PROGRAMS = {"gradient": "gradients of a step", "sampler": "decoding of a step"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fit:
    """How a program's costs on a chip grow along one axis; made by `fit_axis`.

    `costs` are for a whole step, at the axis' `values`. `exponents` has one per field
    of ProgramCosts, None if a cost is 0.
    """

    program: str
    axis: str
    values: tuple[int, ...]
    costs: tuple[ProgramCosts, ...]
    exponents: dict[str, float | None]


def vary_axis(axis: str, base: Config, factor: int) -> dict[str, Any]:
    """Returns the overrides that make a base `factor` times as large along one axis.

    batch: prompts, in the same number of micro-batches. length: tokens of completions.
    width: hidden and intermediate size and heads. devices: `mesh.fsdp`, with fewer
    micro-batches by the same factor, so that a device's micro-batch does not change.
    slice: `mesh.data` and prompts.
    """
    model, train = base.model, base.train
    if axis == "batch":
        return {"train.batch_size": train.batch_size * factor}
    if axis == "length":
        length = train.sampling.max_new_tokens
        return {
            "model.max_seq_len": model.max_seq_len + (factor - 1) * length,
            "train.sampling.max_new_tokens": factor * length,
        }
    if axis == "width":
        return {
            "model.hidden_size": model.hidden_size * factor,
            "model.intermediate_size": model.intermediate_size * factor,
            "model.num_heads": model.num_heads * factor,
            "model.num_kv_heads": model.num_kv_heads * factor,
        }
    if axis == "slice":
        return {
            "mesh.data": factor,
            "train.batch_size": train.batch_size * factor,
        }
    return {
        "mesh.fsdp": base.mesh.fsdp * factor,
        "train.grad_accum_steps": max(1, train.grad_accum_steps // factor),
    }


def _value_of(axis: str, cell: str, config: Config) -> int:
    if axis in _ON_LARGER_SLICES:
        return parse_topology(cell.partition("@")[2]).num_chips
    return {
        "batch": config.train.batch_size,
        "length": config.train.sampling.max_new_tokens,
        "width": config.model.hidden_size,
    }[axis]


def axis_points(
    axis: str, shapes: Mapping[str, object], factors: Sequence[int] = FACTORS
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the cells with overrides that are 1, 2 and 4 times as large on an axis."""
    base = load_cell(f"{_RECIPE}@{_SLICES[1]}", shapes)
    for factor in factors:
        changed = vary_axis(axis, base, factor) if factor > 1 else {}
        slice_ = _SLICES[factor if axis in _ON_LARGER_SLICES else 1]
        yield f"{_RECIPE}@{slice_}", {**shapes, **changed}


def fit_exponent(values: Sequence[float], costs: Sequence[float]) -> float | None:
    """Returns x of the least-squares line log cost = x log value + constant.

    Returns None if a cost is 0.
    """
    if min(costs) <= 0:
        return None
    slope, _ = np.polyfit(np.log(values), np.log(costs), 1)
    return round(float(slope), 2)


def fit_axis(
    program: str,
    axis: str,
    *,
    compile_cell: CompileCell,
    shapes: Mapping[str, object] = SMALL_SHAPES,
    factors: Sequence[int] = FACTORS,
) -> Fit:
    """Returns how a program's costs grow along one axis.

    Raises ValueError if a program has no costs, because it did not fit or its text
    could not be read.
    """
    values, costs = [], []
    for cell, overrides in axis_points(axis, shapes, factors):
        found, _ = step_costs(cell, overrides, (program,), compile_cell=compile_cell)
        if program not in found:
            raise ValueError(f"{program} of {cell} {overrides} has no costs")
        values.append(_value_of(axis, cell, load_cell(cell, overrides)))
        costs.append(found[program])
    return Fit(
        program=program,
        axis=axis,
        values=tuple(values),
        costs=tuple(costs),
        exponents={
            name: fit_exponent(values, [vars(each)[name] for each in costs])
            for name in COSTS
        },
    )


def print_exponents(compile_cell: CompileCell) -> None:
    """Prints each fit as a JSON line, and a table of all fits to standard error."""
    fits = []
    for program in _PROGRAMS:
        for axis in AXES:
            fits.append(fit_axis(program, axis, compile_cell=compile_cell))
            print(json.dumps(dataclasses.asdict(fits[-1])), flush=True)
    print(format_fits(fits), file=sys.stderr)


def print_decode_exponents() -> None:
    """Prints how a step's decode bytes, counted by hand at full size, grow by axis."""
    for axis in AXES:
        values, moved = [], []
        for cell, overrides in axis_points(axis, {}):
            config = load_cell(cell, overrides)
            parts = decode_bytes(config, parse_topology(cell.partition("@")[2]))
            token = sum(parts.values()) - parts["cache_filled"]
            values.append(_value_of(axis, cell, config))
            moved.append(token * config.train.sampling.max_new_tokens)
        exponent = fit_exponent(values, moved)
        print(json.dumps({"axis": axis, "values": values, "hbm_bytes": exponent}))


def format_fits(fits: Sequence[Fit]) -> str:
    """Returns the fits as a Markdown table, with exponents and the points behind."""
    lines = [
        "| of a chip | grows with | at | TFLOP | GB moved | GB sent "
        "| exponents: FLOP, moved, sent |",
        "|---|---|---|--:|--:|--:|--:|",
    ]
    for fit in fits:
        points = [
            " ".join(f"{vars(each)[name] / unit:.3g}" for each in fit.costs)
            for name, unit in zip(COSTS, (1e12, 1e9, 1e9), strict=True)
        ]
        exponents = ", ".join(
            "-" if fit.exponents[name] is None else f"{fit.exponents[name]:.2f}"
            for name in COSTS
        )
        lines.append(
            f"| {_PROGRAMS[fit.program]} | {fit.axis} "
            f"| {' '.join(map(str, fit.values))} | {' | '.join(points)} "
            f"| {exponents} |"
        )
    return "\n".join(lines)
