"""`python -m sae_jax.train --config=FILE --workdir=DIR [--config.a.b=v]`.

Trains every replica (each seed, and its baseline without contrast) on the same stream
of pairs. Then it calibrates each inference threshold on documents of half of the
held-out problems, measures each replica on documents of the other half, and writes

    DIR/sae/                 the first replica, in SAELens' layout
    DIR/sae_replicas/NAME/   the others
    DIR/summary.json         under "tsae": the data, skipped tokens, a row per replica

Exit code 0: done; 1: failed; 2: bad usage or config; 75: stopped by a signal after a
checkpoint (run the same command again to continue).
"""

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh

from job_jax.checkpoint import CheckpointReadError
from job_jax.command import parse_command, run_command
from job_jax.config_io import to_json
from job_jax.files import latest_step
from job_jax.flags import ConfigFlags
from job_jax.mesh import check_batch, describe_devices, make_mesh, start_jax
from job_jax.metrics import MetricsWriter, NonFiniteMetricError
from job_jax.processes import assert_equal_across, is_primary
from job_jax.steps import StopSignal
from job_jax.workdir import Workdir
from job_jax.working import working
from sae_jax.capture.stream import StreamedPairs
from sae_jax.config import Config, PairsConfig
from sae_jax.data import synthetic
from sae_jax.data.buffered import BufferedPairs
from sae_jax.data.pairs import PairSource, ShuffledPairs, format_counts
from sae_jax.data.shard_index import describe_source
from sae_jax.data.views import open_activations
from sae_jax.optimize import replicas
from sae_jax.training import HeldOut, Job, make_program, run_steps, save_replicas

STAGE = "tsae"
SAE_DIR, REPLICAS_DIR = "sae", "sae_replicas"

# Errors that a user can fix.
USER_ERRORS = (CheckpointReadError, NonFiniteMetricError, OSError)
# Sections that determine how a run is executed and watched, not its results.
MUTABLE_SECTIONS = ("mesh.", "log.", "checkpoint.")

_USAGE = """\
usage: python -m sae_jax.train --config=FILE --workdir=DIR [--config.a.b=v ...]

Trains temporal sparse autoencoders on pairs of activations, from disk (pairs.path) or
straight from a model and a text (stream.model, stream.text). To resume an interrupted
run, run the same command again.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainFlags(ConfigFlags):
    """The flags of this command."""

    workdir: str  # directory of the run; made if missing


def main(argv: Sequence[str]) -> int:
    """Returns the exit code of the command."""
    return run_command(lambda: _run_command(argv), USER_ERRORS)


def _run_command(argv: Sequence[str]) -> None:
    flags, _, config = parse_command(argv, TrainFlags, usage=_USAGE, default=Config())
    start_jax(config.mesh, multi_process=True)
    assert_equal_across({"config": to_json(config)})
    workdir = Workdir(Path(flags.workdir), config, mutable_sections=MUTABLE_SECTIONS)
    if is_finished(config, workdir):
        if is_primary():
            print(f"finished: {workdir.path} has nothing left to do")
        return
    stop = StopSignal()
    stop.install()
    with working(config.name):
        summary = _train_in(workdir, config, stop)
    if is_primary():
        print(_format_table(summary["replicas"]))


def _train_in(workdir: Workdir, config: Config, stop: StopSignal) -> dict[str, Any]:
    """Opens the data and trains; returns the results that go to summary.json."""
    mesh = make_mesh(config.mesh)
    check_batch(config.pairs.batch_size, mesh, "pairs.batch_size")
    with working("opening the activations"):
        if config.stream.model:
            stream = StreamedPairs(config.stream, config.pairs, config.seed)
            source: PairSource = stream
            metadata = stream.metadata
        else:
            source, metadata = open_source(config.pairs, seed=config.seed, mesh=mesh)
    workdir.write_config(config, device=describe_devices())
    if source.skipped and is_primary():
        print(f"tokens left out: {format_counts(source.skipped)}", file=sys.stderr)
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
        {"config": to_json(config), "seed": config.seed, "device": describe_devices()}
    )
    return summary


def open_source(
    config: PairsConfig, *, seed: int, mesh: Mesh
) -> tuple[PairSource, dict[str, Any]]:
    """Opens the config's activation shards, or makes synthetic data if it names none.

    The batches will be used on `mesh`. Returns the pairs and the metadata (model, hook,
    context size) to save with every autoencoder trained on them. Raises ConfigError if
    they cannot be read.
    """
    if not config.path:
        world = synthetic.make_synthetic_data(seed=seed)
        return ShuffledPairs(world, config, seed=seed), {"model_name": "synthetic"}
    shards = open_activations(config.path, config.beside)
    if config.verify:
        shards.verify()
    index = shards.index
    metadata = describe_source(
        model=index.model,
        hook=index.hook,
        layer=index.layer,
        context_size=index.context_size,
    )
    if config.buffer_tokens:
        return BufferedPairs(shards, config, seed=seed, mesh=mesh), metadata
    return ShuffledPairs(shards, config, seed=seed), metadata


def train(
    config: Config,
    source: PairSource,
    *,
    mesh: Mesh,
    workdir: Workdir,
    writer: MetricsWriter,
    stop: StopSignal,
    metadata: Mapping[str, object],
) -> dict[str, Any]:
    """Trains, calibrates, measures and saves all replicas, resuming from a checkpoint.

    `mesh` must be the current mesh. `metadata` describes the origin of the activations
    (`model_name`, `hook_name`, ...). Returns the results, which it also writes to
    summary.json under "tsae". Raises StoppedError after a checkpoint if a signal came.
    """
    job = Job(
        config=config,
        source=source,
        mesh=mesh,
        workdir=workdir,
        writer=writer,
        stop=stop,
    )
    state, speed, seconds = run_steps(job, make_program(config), stage=STAGE)
    first, *others = (replica.name for replica in replicas(config))
    rows = save_replicas(
        job,
        config,
        state,
        HeldOut.read(source),
        metadata=metadata,
        directories={first: workdir.path / SAE_DIR}
        | {name: workdir.path / REPLICAS_DIR / name for name in others},
    )
    summary = {
        "data_hash": source.data_hash,
        "skipped_tokens": dict(source.skipped),
        "steps": config.train.steps,
        "pairs": config.train.steps * config.pairs.batch_size,
        "pairs_per_s": speed["pairs"] / speed["seconds"] if speed["pairs"] else None,
        "seconds": seconds,
        "replicas": rows,
    }
    workdir.update_summary({STAGE: summary})
    workdir.share()
    return summary


def is_finished(config: Config, workdir: Workdir) -> bool:
    """Returns whether all replicas have been trained, measured and saved."""
    saved = latest_step(workdir.checkpoints / STAGE) or 0
    return saved == config.train.steps and STAGE in workdir.read_summary()


def _format_table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns a header and one line of text per replica."""
    lines = [
        f"{'replica':<18} {'alpha':>6} {'FVE':>6} {'L0':>6} {'alive':>6} "
        f"{'relative smoothness':<30} autocorrelation"
    ]
    for name, row in rows.items():
        smoothness, autocorrelation = (
            ", ".join(f"{group} {value:.3f}" for group, value in row[kind].items())
            for kind in ("relative_smoothness", "autocorrelation")
        )
        lines.append(
            f"{name:<18} {row['alpha']:>6g} {row['fve']:>6.3f} "
            f"{row['l0']['calibrated']:>6.1f} {row['alive']['all']:>6.3f} "
            f"{smoothness:<30} {autocorrelation}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
