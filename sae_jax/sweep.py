"""`python -m sae_jax.sweep --config=FILE --workdir=DIR --k=16,32 [--latents=... ...]`.

Trains a dictionary for every combination on the same batches, reading each batch once,
calibrates and measures each dictionary as `sae_jax.train` does, and writes

    DIR/saes/NAME/       each dictionary (its first seed), in SAELens' layout
    DIR/summary.json     under "sweep": a row for each, with `on_frontier`

A dictionary is on the frontier if no other explains as much variance with fewer latents
a token. The exit codes are the same as for `sae_jax.train`.
"""

import dataclasses
import itertools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from job_jax.command import parse_command, run_command
from job_jax.config_io import to_json
from job_jax.files import latest_step
from job_jax.flags import ConfigFlags, UsageError
from job_jax.mesh import check_batch, describe_devices, make_mesh, start_jax
from job_jax.metrics import MetricsWriter
from job_jax.schema import ConfigSection
from job_jax.steps import StopSignal
from job_jax.workdir import Workdir
from sae_jax.config import Config
from sae_jax.optimize import TrainState, replicas
from sae_jax.train import MUTABLE_SECTIONS, USER_ERRORS, open_source
from sae_jax.training import (
    HeldOut,
    Job,
    make_program,
    run_steps,
    save_replicas,
    side_by_side,
)

STAGE = "sweep"
SAES_DIR = "saes"

_USAGE = """\
usage: python -m sae_jax.sweep --config=FILE --workdir=DIR [--k=16,32] [--latents=...]
           [--alpha=...] [--learning_rate=...] [--config.a.b=v ...]

Trains a dictionary for every combination of the given numbers, with train.num_seeds
seeds each, on the same batches of activations (pairs.path). Each batch is read only
once. Prints a table that marks the frontier of L0 and variance explained. To resume an
interrupted sweep, run the same command again.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Grid(ConfigSection):
    """Numbers to try for some fields; (): only the recipe's number."""

    k: tuple[int, ...] = ()  # active latents a token, such as 1,2
    latents: tuple[int, ...] = ()  # Z, such as 1,2
    alpha: tuple[float, ...] = ()  # weights of the contrast, such as 1,2
    learning_rate: tuple[float, ...] = ()  # peaks, such as 1,2


_GRID = [field.name for field in dataclasses.fields(Grid)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepFlags(Grid, ConfigFlags):
    """The flags of this command."""

    workdir: str  # directory of the sweep; made if missing


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepConfig(Grid, Config):
    """A recipe, and numbers to try for some of its fields."""

    def variants(self) -> dict[str, Config]:
        """Returns the config of each combination by its name. Raises ConfigError.

        >>> list(SweepConfig(k=(16, 32), alpha=(0.0,)).variants())
        ['k16_alpha0.0', 'k32_alpha0.0']
        """
        grid = {name: vars(self)[name] for name in _GRID if vars(self)[name]}
        found = {}
        for values in itertools.product(*grid.values()):
            chosen = dict(zip(grid, values, strict=True))
            name = "_".join(f"{key}{value}" for key, value in chosen.items())
            found[name or "recipe"] = self._variant(chosen)
        return found

    def _variant(self, chosen: Mapping[str, Any]) -> Config:
        names = [field.name for field in dataclasses.fields(Config)]
        base = Config(**{name: vars(self)[name] for name in names})
        sae = {key: chosen[key] for key in ("k", "latents") if key in chosen}
        loss = {key: chosen[key] for key in ("alpha",) if key in chosen}
        rate = {key: chosen[key] for key in ("learning_rate",) if key in chosen}
        return dataclasses.replace(
            base,
            sae=dataclasses.replace(base.sae, **sae),
            loss=dataclasses.replace(base.loss, **loss),
            optimizer=dataclasses.replace(base.optimizer, **rate),
            train=dataclasses.replace(base.train, no_contrast_baseline=False),
        )


def main(argv: Sequence[str]) -> int:
    """Returns the exit code of the command."""
    return run_command(lambda: _run_command(argv), USER_ERRORS)


def _run_command(argv: Sequence[str]) -> None:
    flags, _, base = parse_command(argv, SweepFlags, usage=_USAGE, default=Config())
    if base.stream.model:
        raise UsageError(
            f"stream.model={base.stream.model}: a sweep reads from disk; collect the "
            "activations first, and set pairs.path"
        )
    grid = {name: tuple(dict.fromkeys(vars(flags)[name])) for name in _GRID}
    config = SweepConfig(**vars(base) | grid)
    variants = config.variants()
    start_jax(base.mesh)
    workdir = Workdir(Path(flags.workdir), config, mutable_sections=MUTABLE_SECTIONS)
    if _is_finished(config, workdir):
        print(f"finished: {workdir.path} has nothing left to do")
        return
    stop = StopSignal()
    stop.install()
    mesh = make_mesh(base.mesh)
    check_batch(base.pairs.batch_size, mesh, "pairs.batch_size")
    source, metadata = open_source(base.pairs, seed=base.seed, mesh=mesh)
    workdir.write_config(config, device=describe_devices())
    with jax.set_mesh(mesh), MetricsWriter(workdir.path) as writer:
        job = Job(
            config=base,
            source=source,
            mesh=mesh,
            workdir=workdir,
            writer=writer,
            stop=stop,
        )
        programs = {name: make_program(each) for name, each in variants.items()}
        states, _, _ = run_steps(job, side_by_side(programs), stage=STAGE)
        rows = _save_all(job, variants, states, metadata=metadata)
    workdir.update_summary(
        {STAGE: rows, "config": to_json(config), "device": describe_devices()}
    )
    workdir.share()
    print(format_sweep(rows))


def _is_finished(config: SweepConfig, workdir: Workdir) -> bool:
    saved = latest_step(workdir.checkpoints / STAGE) or 0
    return saved == config.train.steps and STAGE in workdir.read_summary()


def _save_all(
    job: Job,
    variants: Mapping[str, Config],
    states: Mapping[str, TrainState],
    *,
    metadata: Mapping[str, object],
) -> dict[str, Any]:
    """Saves all variants; returns a row each, with means over its seeds and figures."""
    held_out = HeldOut.read(job.source)
    rows: dict[str, dict[str, Any]] = {}
    for name, config in variants.items():
        first, *_ = replicas(config)
        saved = {first.name: job.workdir.path / SAES_DIR / name}
        found = save_replicas(
            job, config, states[name], held_out, metadata=metadata, directories=saved
        )
        seeds = list(found.values())
        rows[name] = {
            "k": config.sae.k,
            "latents": config.sae.latents,
            "alpha": config.loss.alpha,
            "learning_rate": config.optimizer.learning_rate,
            "fve": float(np.mean([each["fve"] for each in seeds])),
            "l0": float(np.mean([each["l0"]["calibrated"] for each in seeds])),
            "alive": float(np.mean([each["alive"]["all"] for each in seeds])),
            "seeds": seeds,
        }
    for row in rows.values():
        row["on_frontier"] = is_on_frontier(row, list(rows.values()))
    return rows


def is_on_frontier(
    row: Mapping[str, float], rows: Sequence[Mapping[str, float]]
) -> bool:
    """Returns whether no other row explains as much variance with fewer latents.

    >>> rows = [{"l0": 8, "fve": 0.7}, {"l0": 16, "fve": 0.9}, {"l0": 17, "fve": 0.8}]
    >>> [is_on_frontier(row, rows) for row in rows]
    [True, True, False]
    """
    return not any(
        other["l0"] <= row["l0"]
        and other["fve"] >= row["fve"]
        and (other["l0"], other["fve"]) != (row["l0"], row["fve"])
        for other in rows
    )


def format_sweep(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns the rows as a table sorted by L0; a star marks the frontier."""
    lines = [f"{'L0':>8} {'FVE':>7} {'over seeds':>15} {'alive':>6}  dictionary"]
    for name, row in sorted(rows.items(), key=lambda item: item[1]["l0"]):
        each = [seed["fve"] for seed in row["seeds"]]
        ends = f"{min(each):.3f} - {max(each):.3f}"
        star = "*" if row["on_frontier"] else ""
        lines.append(
            f"{row['l0']:>8.1f} {row['fve']:>7.3f} {ends:>15} {row['alive']:>6.3f}  "
            f"{name} {star}".rstrip()
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
