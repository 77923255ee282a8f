"""The costs of a recipe's step on a chip of a slice: compiled, and counted by hand.

A cell is "recipe@slice", such as "small@v5e:2x2", with overrides of the recipe by
dotted path.
"""

import dataclasses
import hashlib
import json
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

# Programs of a step. A logged step's gradient and the stage `probe` have others.
STEP_PROGRAMS = (
    "reshard",
    "update",
    "sampler",
    "scorer",
    "scorer_entropies",
    "scorer_features",
    "gradient",
)
COSTS = tuple(field.name for field in dataclasses.fields(ProgramCosts))


# Compiles programs of a cell with overrides; returns the report of `--compile_only`.
CompileCell = Callable[[str, Mapping[str, Any], Sequence[str]], dict[str, Any]]


def step_costs(
    cell: str,
    overrides: Mapping[str, object],
    programs: Sequence[str],
    *,
    compile_cell: CompileCell,
) -> tuple[dict[str, ProgramCosts], list[str]]:
    """Returns a chip's costs of a whole step by program, and programs without costs.

    The FLOPs of attention's kernels are added by hand. A program has no costs if it did
    not fit, could not be read or was not requested. Programs that the recipe does not
    run are in neither result.
    """
    config = load_cell(cell, overrides)
    num_chips = parse_topology(cell.partition("@")[2]).num_chips
    report = compile_cell(cell, overrides, programs)
    runs, kernels = runs_per_step(config), kernel_flops(config)
    found = {}
    for program, stats in report["programs"].items():
        if "flops" in stats and program in STEP_PROGRAMS:
            costs = ProgramCosts(**{name: stats[name] for name in COSTS})
            costs += ProgramCosts(flops=kernels.get(program, 0.0) / num_chips)
            found[program] = costs.times(runs.get(program, 1))
    run = {*report["programs"], *report.get("not_compiled", ())}
    missing = [name for name in STEP_PROGRAMS if name in run and name not in found]
    return found, missing


def kernel_flops(config: Config) -> dict[str, float]:
    """Returns the FLOPs that attention's kernels add to a micro-batch, on all chips.

    Masked keys do not count. The backward pass takes 5 products and the forward pass 2,
    and `model.remat` repeats the forward pass.
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
    """Returns the runs per step of programs that may run more than once."""
    train = config.train
    gradients = train.optimizer_steps_per_batch * train.grad_accum_steps
    scores = gradients // train.num_epochs
    return {
        "gradient": gradients,
        "update": train.optimizer_steps_per_batch,
        **dict.fromkeys(("scorer", "scorer_entropies", "scorer_features"), scores),
    }


def decode_bytes(config: Config, topology: Topology) -> dict[str, float]:
    """Returns the bytes of a chip's memory that decoding one token of all rows moves.

    Counted, not compiled, as a mean over completions that run to the limit. `weights`
    and the layers' keys and values are read; `logits` are written and read once.
    `cache` has all columns of a stage (`sampler.stages`); `cache_filled` only has the
    columns that hold a token.
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


def load_recipe(recipe: str, overrides: Mapping[str, object]) -> Config:
    """Returns configs/RECIPE.py with overrides by dotted path."""
    path = str(ROOT / f"configs/{recipe}.py")
    return parse([f"--config={path}", "--dry_run", *_override_flags(overrides)]).config


def load_cell(cell: str, overrides: Mapping[str, object]) -> Config:
    """Returns the config of a cell."""
    return load_recipe(cell.partition("@")[0], overrides)


def _override_flags(overrides: Mapping[str, object]) -> list[str]:
    return [f"--config.{path}={value}" for path, value in overrides.items()]


def compile_by_command(
    cell: str, overrides: Mapping[str, object], programs: Sequence[str]
) -> dict[str, Any]:
    """Returns the report of `--compile_only`, which runs in a separate process."""
    recipe, _, slice_ = cell.partition("@")
    settings = " ".join(f"{path}={value}" for path, value in overrides.items())
    print(f"{cell} {settings}: {', '.join(programs)}", file=sys.stderr, flush=True)
    printed = subprocess.run(
        [
            *(sys.executable, "-m", "rlvr_jax.main"),
            *(f"--config=configs/{recipe}.py", "--compile_only"),
            *(f"--topology={slice_}", f"--programs={','.join(programs)}"),
            *_override_flags(overrides),
        ],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        check=True,
    )
    report: dict[str, Any] = json.loads(printed.stdout)
    return report


def keep_reports(compile_cell: CompileCell, folder: Path) -> CompileCell:
    """Returns a `compile_cell` that stores its reports, one file per cell.

    It compiles programs one at a time, and reads the reports that are already stored.
    """
    folder.mkdir(parents=True, exist_ok=True)

    def kept(
        cell: str, overrides: Mapping[str, object], programs: Sequence[str]
    ) -> dict[str, Any]:
        path = folder / f"{_file_name(cell, overrides)}.json"
        report: dict[str, Any] = {"overrides": dict(overrides), "programs": {}}
        if path.exists():
            report = json.loads(path.read_text())
        for program in programs:
            rest = report.get("not_compiled")
            if program in report["programs"] or (
                rest is not None and program not in rest
            ):
                continue
            new = compile_cell(cell, overrides, (program,))
            merged = {**report["programs"], **new["programs"]}
            phases = {**report.get("phases", {}), **new.get("phases", {})}
            rest = [name for name in new.get("not_compiled", ()) if name not in merged]
            report |= {
                **new,
                "programs": merged,
                "phases": phases,
                "not_compiled": rest,
            }
            # Whether one program fits says nothing about the recipe.
            report = {k: v for k, v in report.items() if k not in ("fits", "shrink")}
            path.write_text(json.dumps(report, indent=1))
        return report

    return kept


def _file_name(cell: str, overrides: Mapping[str, object]) -> str:
    if not overrides:
        return cell
    settings = json.dumps(dict(overrides), sort_keys=True)
    return f"{cell}+{hashlib.sha256(settings.encode()).hexdigest()[:12]}"
