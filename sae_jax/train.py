"""`python -m sae_jax.train --config=FILE --workdir=DIR [--config.a.b=v]`.

Trains every clone (seeds, and their alpha = 0 twins) on one stream of pairs, finds
each one's inference threshold on held-out documents, measures it there, and writes

    DIR/sae/               the first clone, in SAELens' layout
    DIR/sae_clones/NAME/   the others
    DIR/summary.json       under "tsae": the data, what was left out, a row a clone

Exit code 0: done; 1: failed; 2: bad usage or config; 75: stopped by a signal after a
checkpoint, run again to go on.
"""

import functools
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from absl import flags
from jax.sharding import Mesh

from job_jax import processes
from job_jax.checkpoint import CheckpointReadError, latest_step
from job_jax.command import UsageError, command_flags, exit_code, read_command
from job_jax.config_io import to_json
from job_jax.mesh import batch_sharding, check_batch, device_name, make_mesh, start_jax
from job_jax.metrics import MetricsWriter, NonFiniteMetricError
from job_jax.processes import is_primary, on_host, wait_for_all
from job_jax.schema import ConfigError
from job_jax.steps import StageSteps, StopSignal
from job_jax.workdir import Workdir
from sae_jax import io, synthetic
from sae_jax.calibrate import calibrate
from sae_jax.config import Config, PairsConfig
from sae_jax.optimize import Clone, clones, dictionaries, init_state
from sae_jax.optimize import step as optimizer_step
from sae_jax.pairs import PairSource, ShuffledPairs, counts
from sae_jax.quality import QualitySums, measure, report
from sae_jax.sae import TSAE
from sae_jax.shards import ActivationShards
from sae_jax.tokens import Documents
from sae_jax.types import StepReport

STAGE = "tsae"
SAE_DIR, CLONES_DIR = "sae", "sae_clones"

# What a user can mend.
_FAILURES = (CheckpointReadError, NonFiniteMetricError, OSError)
# Sections that say how a run is executed and watched, not what it computes.
_MAY_CHANGE = ("mesh.", "log.", "checkpoint.")

_USAGE = """\
usage: python -m sae_jax.train --config=FILE --workdir=DIR [--config.a.b=v ...]

Trains temporal sparse autoencoders on pairs of activations. Run again, it goes on where
it stopped.
"""


def main(argv: Sequence[str]) -> int:
    """Returns the exit code of the command."""
    return exit_code(lambda: _command(argv), _FAILURES)


def _command(argv: Sequence[str]) -> None:
    values = command_flags()
    flags.DEFINE_string(
        "workdir", None, "where the run lives; made if missing", flag_values=values
    )
    _, config = read_command(argv, values, usage=_USAGE, default=Config())
    if not values.workdir:
        raise UsageError("--workdir=DIR is missing; say where the run shall live")
    start_jax(config.mesh)
    workdir = Workdir(Path(values.workdir), config, may_change=_MAY_CHANGE)
    if is_done(config, workdir):
        print(f"finished: {workdir.path} has nothing left to do")
        return
    stop = StopSignal()
    stop.install()
    mesh = make_mesh(config.mesh)
    source, metadata = open_source(config.pairs, seed=config.seed)
    check_batch(config.pairs.batch_size, mesh, "pairs.batch_size")
    workdir.record(config, device=device_name())
    print(f"tokens left out: {counts(source.skipped)}", file=sys.stderr)
    with jax.set_mesh(mesh), MetricsWriter(workdir.path) as writer:
        summary = train(
            config,
            source,
            mesh=mesh,
            workdir=workdir,
            writer=writer,
            stop=stop,
            metadata=metadata,
        )
    workdir.update_summary(
        {"config": to_json(config), "seed": config.seed, "device": device_name()}
    )
    print(_table(summary["clones"]))


def open_source(
    config: PairsConfig, *, seed: int
) -> tuple[ShuffledPairs, dict[str, Any]]:
    """Returns the pairs of the config's shards, or of the synthetic world, and whence.

    What is returned beside them goes into the metadata of every autoencoder. Raises
    ConfigError.
    """
    if not config.path:
        world = synthetic.world(seed=seed)
        return ShuffledPairs(world, config, seed=seed), {"model_name": "synthetic"}
    shards = ActivationShards(config.path)
    if config.verify:
        shards.verify()
    index = shards.index
    metadata = {
        "model_name": index.model,
        "hook_name": index.hook,
        "hf_hook_name": f"model.layers.{index.layer}",
        "context_size": index.context_size,
    }
    return ShuffledPairs(shards, config, seed=seed), metadata


def train(
    config: Config,
    source: PairSource,
    *,
    mesh: Mesh,
    workdir: Workdir,
    writer: MetricsWriter,
    stop: StopSignal,
    metadata: Mapping[str, Any],
) -> dict[str, Any]:
    """Trains, calibrates, measures and saves all clones; goes on where it stopped.

    `mesh` is current. `metadata` says where the activations are from (`model_name`,
    `hook_name`, ...). Returns what stands in summary.json under "tsae". Raises
    StoppedError after a checkpoint if a signal came.
    """
    steps = _fitted(
        config, source, mesh=mesh, workdir=workdir, writer=writer, stop=stop
    )
    trained = dictionaries(steps.state)
    held_out = list(source.held_out())
    rows = {}
    for index, clone in enumerate(clones(config)):
        stop.check()
        tsae = on_host(trained.clone(index)).on_host()
        tsae, sums, row = _measured(tsae, held_out, k=config.sae.k)
        known = {
            "seed": clone.seed,
            "alpha": clone.alpha,
            "k": config.sae.k,
            "l0": row["l0"]["bisected"],
            "data_hash": source.data_hash,
            "roles": list(config.pairs.roles),
            "run": config.name,
        }
        if is_primary():
            io.save(
                _place(workdir, index, clone),
                tsae,
                metadata={**metadata, **known},
                firing_rate=sums.firing / sums.tokens,
            )
        rows[clone.name] = {"seed": clone.seed, "alpha": clone.alpha, **row}
    speed = steps.host["speed"]
    summary = {
        "data_hash": source.data_hash,
        "left_out": dict(source.skipped),
        "steps": config.train.steps,
        "pairs": config.train.steps * config.pairs.batch_size,
        "pairs_per_s": speed["pairs"] / speed["seconds"] if speed["pairs"] else None,
        "clones": rows,
    }
    workdir.update_summary({"stages": {STAGE: steps.seconds}, STAGE: summary})
    wait_for_all()
    return summary


def is_done(config: Config, workdir: Workdir) -> bool:
    """Returns whether all clones have been trained, measured and saved."""
    saved = latest_step(workdir.checkpoints / STAGE) or 0
    return saved == config.train.steps and STAGE in workdir.read_summary()


def _fitted(
    config: Config,
    source: PairSource,
    *,
    mesh: Mesh,
    workdir: Workdir,
    writer: MetricsWriter,
    stop: StopSignal,
) -> StageSteps:
    """Returns the stage after its last step."""
    place = functools.partial(processes.placed, layout=batch_sharding(mesh))
    copies = clones(config)
    shown = [f"{copies[0].name}/{name}" for name in ("fve", "l0", "dead")]
    with StageSteps(
        STAGE,
        config.train.steps,
        directory=workdir.checkpoints,
        checkpoint=config.checkpoint,
        progress_every=config.log.every,
        writer=writer,
        stop=stop,
    ) as steps:
        first = place(next(source.stream(0, 1)))
        steps.begin(
            lambda: init_state(first, config=config),
            host={"data_hash": source.data_hash, "speed": {"pairs": 0, "seconds": 0.0}},
        )
        if steps.host["data_hash"] != source.data_hash:
            raise ConfigError(
                f"{workdir.path} was trained on other activations than "
                f"pairs.path={config.pairs.path!r} holds now; use another --workdir"
            )
        clock = _ReportClock(steps, config)
        batches = source.stream(steps.first, steps.total)
        found = None
        for step, pairs in zip(steps, batches, strict=True):
            placed = place(pairs)  # while the step before is still at work
            # One step in flight: without this, a run on two virtual CPU devices hung in
            # an all-reduce until XLA ended it.
            jax.block_until_ready(found)
            steps.state, found = optimizer_step(steps.state, placed, config=config)
            metrics, new_pairs = None, 0
            if _is_reported(step + 1, config):
                metrics = _metrics(copies, on_host(found))
                new_pairs = clock.lap(step + 1)
            steps.end(step, metrics, shown=shown, tokens=new_pairs, skipped=False)
    return steps


def _is_reported(done: int, config: Config) -> bool:
    """Returns whether metrics are written after so many steps.

    Every checkpoint is reported, so that none is written of values that are not finite.
    """
    due = done % config.log.every == 0 or done % config.checkpoint.every == 0
    return due or done == config.train.steps


class _ReportClock:
    """Adds up pairs and seconds between reports, less the first: it compiles."""

    def __init__(self, steps: StageSteps, config: Config) -> None:
        self._speed = steps.host["speed"]
        self._batch = config.pairs.batch_size
        self._first = self._done = steps.first
        self._last = 0.0

    def lap(self, done: int) -> int:
        """Returns the pairs since the last report; so many steps are done."""
        now, pairs = time.monotonic(), (done - self._done) * self._batch
        if self._done > self._first:
            self._speed["pairs"] += pairs
            self._speed["seconds"] += now - self._last
        self._last, self._done = now, done
        return pairs


def _metrics(copies: Sequence[Clone], found: StepReport) -> dict[str, float]:
    """Returns "seed0/loss": ... of every clone."""
    return {
        f"{clone.name}/{name}": values_C[index].item()
        for index, clone in enumerate(copies)
        for name, values_C in vars(found).items()
    }


def _measured(
    tsae: TSAE, held_out: Sequence[Documents], *, k: int
) -> tuple[TSAE, QualitySums, dict[str, Any]]:
    """Returns the calibrated dictionary, its sums and its figures on held-out tokens.

    `l0` holds the active latents a token at the threshold that training left, and at
    the one found by bisection; all else is measured with the latter.
    """
    before = report(_sums(tsae, held_out), high=tsae.high)["l0"]["all"]
    tsae = calibrate(tsae, held_out, k=k)
    sums = _sums(tsae, held_out)
    found = report(sums, high=tsae.high)
    return (
        tsae,
        sums,
        {
            "fve": found["fve"],
            "fve_high": found["fve_high"],
            "cosine": found["cosine"],
            "l0": {"ema": before, "bisected": found["l0"]["all"]},
            "alive": found["alive"],
            "smoothness": found["smoothness"],
            "tokens": found["tokens"],
        },
    )


def _sums(tsae: TSAE, held_out: Sequence[Documents]) -> QualitySums:
    first, *rest = (measure(tsae, d.x, d.counted).on_host() for d in held_out)
    return functools.reduce(lambda a, b: a + b, rest, first)


def _place(workdir: Workdir, index: int, clone: Clone) -> Path:
    return workdir.path / (SAE_DIR if index == 0 else f"{CLONES_DIR}/{clone.name}")


def _table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns the clones as lines of text."""
    lines = [f"{'clone':<12} {'alpha':>6} {'FVE':>6} {'L0':>6} {'alive':>6} smoothness"]
    for name, row in rows.items():
        smoothness = ", ".join(f"{g} {s:.3f}" for g, s in row["smoothness"].items())
        lines.append(
            f"{name:<12} {row['alpha']:>6g} {row['fve']:>6.3f} "
            f"{row['l0']['bisected']:>6.1f} {row['alive']['all']:>6.3f} {smoothness}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
