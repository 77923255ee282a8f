"""`python -m sae_jax.train --config=FILE --workdir=DIR [--config.a.b=v]`.

Trains every replica (seeds, and beside each the baseline without contrast) on the same
stream of pairs, calibrates its inference threshold on the documents of half of the
held-out problems, measures it on those of the other half, and writes

    DIR/sae/                 the first replica, in SAELens' layout
    DIR/sae_replicas/NAME/   the others
    DIR/summary.json         under "tsae": the data, the skipped tokens, a row a replica

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
from job_jax.checkpoint import CheckpointReadError
from job_jax.command import UsageError, define_config_flags, parse_command, run_command
from job_jax.config_io import to_json
from job_jax.files import latest_step
from job_jax.mesh import (
    await_on_cpu,
    batch_sharding,
    check_batch,
    describe_devices,
    make_mesh,
    output_shapes,
    start_jax,
)
from job_jax.metrics import MetricsWriter, NonFiniteMetricError
from job_jax.processes import device_get, is_primary
from job_jax.schema import ConfigError
from job_jax.steps import StageSteps, StopSignal
from job_jax.workdir import Workdir
from sae_jax import io
from sae_jax.calibrate import calibrate_threshold
from sae_jax.capture.stream import StreamedPairs
from sae_jax.config import Config, PairsConfig
from sae_jax.data import synthetic
from sae_jax.data.pairs import PairSource, ShuffledPairs, format_counts
from sae_jax.data.shard_index import describe_source
from sae_jax.data.shards import ActivationShards
from sae_jax.data.tokens import Documents
from sae_jax.optimize import (
    Replica,
    TrainState,
    inference_dictionaries,
    init_state,
    replicas,
)
from sae_jax.optimize import train_step as optimizer_step
from sae_jax.sae import TSAE
from sae_jax.stats.quality import QualitySums, measure_quality, quality_report
from sae_jax.types import StepMetrics

STAGE = "tsae"
SAE_DIR, REPLICAS_DIR = "sae", "sae_replicas"

# What a user can mend.
_USER_ERRORS = (CheckpointReadError, NonFiniteMetricError, OSError)
# Sections that say how a run is executed and watched, not what it computes.
_MUTABLE_SECTIONS = ("mesh.", "log.", "checkpoint.")

_USAGE = """\
usage: python -m sae_jax.train --config=FILE --workdir=DIR [--config.a.b=v ...]

Trains temporal sparse autoencoders on pairs of activations: from a disk (pairs.path) or
straight from a model and a text (stream.model, stream.text). Run again, it goes on
where it stopped.
"""


def main(argv: Sequence[str]) -> int:
    """Returns the exit code of the command."""
    return run_command(lambda: _run_command(argv), _USER_ERRORS)


def _run_command(argv: Sequence[str]) -> None:
    values = define_config_flags()
    flags.DEFINE_string(
        "workdir", None, "where the run lives; made if missing", flag_values=values
    )
    _, config = parse_command(argv, values, usage=_USAGE, default=Config())
    if not values.workdir:
        raise UsageError("--workdir=DIR is missing; say where the run shall live")
    start_jax(config.mesh)
    workdir = Workdir(Path(values.workdir), config, mutable_sections=_MUTABLE_SECTIONS)
    if is_finished(config, workdir):
        print(f"finished: {workdir.path} has nothing left to do")
        return
    stop = StopSignal()
    stop.install()
    mesh = make_mesh(config.mesh)
    if config.stream.model:
        stream = StreamedPairs(config.stream, config.pairs, config.seed)
        source: PairSource = stream
        metadata = stream.metadata
    else:
        source, metadata = open_source(config.pairs, seed=config.seed)
    check_batch(config.pairs.batch_size, mesh, "pairs.batch_size")
    workdir.write_config(config, device=describe_devices())
    if source.skipped:
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
    print(_format_table(summary["replicas"]))


def open_source(
    config: PairsConfig, *, seed: int
) -> tuple[ShuffledPairs, dict[str, Any]]:
    """Opens the config's activation shards, or makes synthetic data if it names none.

    Returns the pairs and the metadata (model, hook, context size) that is saved with
    every autoencoder trained on them. Raises ConfigError where they cannot be read.
    """
    if not config.path:
        world = synthetic.make_synthetic_data(seed=seed)
        return ShuffledPairs(world, config, seed=seed), {"model_name": "synthetic"}
    shards = ActivationShards(config.path)
    if config.verify:
        shards.verify()
    index = shards.index
    metadata = describe_source(
        model=index.model,
        hook=index.hook,
        layer=index.layer,
        context_size=index.context_size,
    )
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
    """Trains, calibrates, measures and saves all replicas, resuming from a checkpoint.

    `mesh` must be the current mesh. `metadata` says where the activations are from
    (`model_name`, `hook_name`, ...). Returns what it writes to summary.json under
    "tsae". Raises StoppedError after a checkpoint if a signal came.
    """
    state, speed, seconds = _run_steps(
        config, source, mesh=mesh, workdir=workdir, writer=writer, stop=stop
    )
    trained = inference_dictionaries(state)
    calibration = list(source.calibration_documents())
    evaluation = list(source.eval_documents())
    rows = {}
    for index, replica in enumerate(replicas(config)):
        stop.check()
        tsae = device_get(trained.replica(index)).to_host()
        tsae, sums, row = _calibrate_and_measure(
            tsae, calibration, evaluation, k=config.sae.k
        )
        provenance = {
            "seed": replica.seed,
            "alpha": replica.alpha,
            "k": config.sae.k,
            "l0": row["l0"]["calibrated"],
            "data_hash": source.data_hash,
            "roles": list(source.roles),
            "run": config.name,
        }
        if is_primary():
            io.save(
                _sae_directory(workdir, index, replica),
                tsae,
                metadata={**metadata, **provenance},
                firing_rate=sums.firing_count / sums.tokens,
            )
        rows[replica.name] = {"seed": replica.seed, "alpha": replica.alpha, **row}
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


def _run_steps(
    config: Config,
    source: PairSource,
    *,
    mesh: Mesh,
    workdir: Workdir,
    writer: MetricsWriter,
    stop: StopSignal,
) -> tuple[TrainState, dict[str, float], float]:
    """Returns the last state, its throughput, and the seconds of work."""
    to_mesh = functools.partial(processes.device_put, sharding=batch_sharding(mesh))
    copies = replicas(config)
    shown = [f"{copies[0].name}/{name}" for name in ("fve", "l0", "dead")]
    with StageSteps(
        STAGE,
        config.train.steps,
        directory=workdir.checkpoints,
        checkpoint=config.checkpoint,
        progress_every=config.log.every,
        writer=writer,
        stop_signal=stop,
    ) as steps:
        first_batch = to_mesh(next(source.iter_batches(0, 1)))
        state, saved = steps.resume_or_init(
            init=lambda: init_state(first_batch, config=config),
            abstract=lambda: output_shapes(init_state, first_batch, config=config),
        )
        host_state = saved or {
            "data_hash": source.data_hash,
            "speed": {"pairs": 0, "seconds": 0.0},
        }
        if host_state["data_hash"] != source.data_hash:
            raise ConfigError(
                f"{workdir.path} was trained on other activations than "
                f"pairs.path={config.pairs.path!r} holds now; use another --workdir"
            )
        clock = _ThroughputTimer(host_state["speed"], steps.start_step, config)
        batches = source.iter_batches(steps.start_step, steps.num_steps)
        step_metrics = None
        for step, pairs in zip(steps, batches, strict=True):
            batch = to_mesh(pairs)  # while the step before is still at work
            jax.block_until_ready(step_metrics)  # one step in flight
            # On several CPU devices neither: a transfer still under way held the thread
            # that a step's all-reduce needed, and the run hung.
            state, step_metrics = await_on_cpu(
                optimizer_step(state, await_on_cpu(batch), config=config)
            )
            metrics, new_pairs = None, 0
            if _is_report_step(step + 1, config):
                metrics = _replica_metrics(copies, device_get(step_metrics))
                new_pairs = clock.lap(step + 1)
            steps.commit(
                step,
                state,
                metrics,
                host_state=lambda: host_state,
                displayed=shown,
                tokens=new_pairs,
            )
    return state, host_state["speed"], steps.seconds


def _is_report_step(steps_done: int, config: Config) -> bool:
    """Returns whether metrics are written after so many steps.

    Every checkpoint is reported, so that none is written of values that are not finite.
    """
    due = (
        steps_done % config.log.every == 0 or steps_done % config.checkpoint.every == 0
    )
    return due or steps_done == config.train.steps


class _ThroughputTimer:
    """Adds up pairs and seconds between reports, without the first, which compiles."""

    def __init__(
        self, speed: dict[str, float], start_step: int, config: Config
    ) -> None:
        self._speed = speed
        self._batch = config.pairs.batch_size
        self._first = self._done = start_step
        self._last = 0.0

    def lap(self, steps_done: int) -> int:
        """Returns the pairs trained on since the last call."""
        now, pairs = time.monotonic(), (steps_done - self._done) * self._batch
        if self._done > self._first:
            self._speed["pairs"] += pairs
            self._speed["seconds"] += now - self._last
        self._last, self._done = now, steps_done
        return pairs


def _replica_metrics(
    copies: Sequence[Replica], step_metrics: StepMetrics
) -> dict[str, float]:
    """Returns every replica's metrics under its name: {"seed0/loss": ...}."""
    return {
        f"{replica.name}/{name}": values_C[index].item()
        for index, replica in enumerate(copies)
        for name, values_C in vars(step_metrics).items()
    }


def _calibrate_and_measure(
    tsae: TSAE,
    calibration: Sequence[Documents],
    evaluation: Sequence[Documents],
    *,
    k: int,
) -> tuple[TSAE, QualitySums, dict[str, Any]]:
    """Returns the calibrated autoencoder, its quality sums and its figures.

    `l0` holds the active latents a token at the training's moving-average threshold
    (`ema`) and at the calibrated one; all else is measured with the calibrated one.
    """
    before = quality_report(_quality_sums(tsae, evaluation), num_high=tsae.num_high)
    tsae = calibrate_threshold(tsae, calibration, k=k)
    sums = _quality_sums(tsae, evaluation)
    figures = quality_report(sums, num_high=tsae.num_high)
    return (
        tsae,
        sums,
        {
            "fve": figures["fve"],
            "fve_high": figures["fve_high"],
            "cosine": figures["cosine"],
            "l0": {"ema": before["l0"]["all"], "calibrated": figures["l0"]["all"]},
            "alive": figures["alive"],
            "smoothness": figures["smoothness"],
            "relative_smoothness": figures["relative_smoothness"],
            "autocorrelation": figures["autocorrelation"],
            "tokens": figures["tokens"],
        },
    )


def _quality_sums(tsae: TSAE, documents: Sequence[Documents]) -> QualitySums:
    first, *rest = (measure_quality(tsae, d.x, d.mask).to_host() for d in documents)
    return functools.reduce(lambda a, b: a + b, rest, first)


def _sae_directory(workdir: Workdir, index: int, replica: Replica) -> Path:
    return workdir.path / (SAE_DIR if index == 0 else f"{REPLICAS_DIR}/{replica.name}")


def _format_table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns one line of text a replica, under a header."""
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
