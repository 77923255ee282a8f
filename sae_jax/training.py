"""Shared parts of all autoencoder training: steps over batches, figures, and files.

A `Program` is one training, or several trainings side by side on the same batches.
"""

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import jax
from jax.sharding import Mesh

from job_jax import processes
from job_jax.mesh import await_on_cpu, batch_sharding, output_shapes
from job_jax.metrics import MetricsWriter
from job_jax.processes import device_get, is_primary
from job_jax.schema import ConfigError
from job_jax.steps import StageSteps, StopSignal
from job_jax.workdir import Workdir
from job_jax.working import working
from sae_jax import io
from sae_jax.calibrate import calibrate_threshold
from sae_jax.config import Config
from sae_jax.data.pairs import PairSource
from sae_jax.data.tokens import Documents
from sae_jax.optimize import (
    Replica,
    TrainState,
    inference_dictionaries,
    init_state,
    replicas,
    train_step,
)
from sae_jax.sae import TSAE
from sae_jax.stats.quality import QualitySums, measure_quality, quality_report
from sae_jax.types import Pairs, StepMetrics

State = TypeVar("State")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """Immutable context of a training. `mesh` must be the current mesh.

    Only those sections of `config` are used that all programs of the job share: the
    number of steps, the pairs, logging and checkpoints.
    """

    config: Config
    source: PairSource
    mesh: Mesh
    workdir: Workdir
    writer: MetricsWriter
    stop: StopSignal


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program(Generic[State]):
    """The functions of a training. Made by `make_program` or `side_by_side`.

    `abstract` returns the shapes of the result of `init`. `step` returns the next state
    and a report, which `name_metrics` turns into metrics. `shown` maps words of the
    progress line to names of metrics.
    """

    init: Callable[[Pairs], State]
    abstract: Callable[[Pairs], State]
    step: Callable[[State, Pairs], tuple[State, Any]]
    name_metrics: Callable[[Any], dict[str, float]]
    shown: Mapping[str, str]


class HeldOut(NamedTuple):
    """The documents that no step reads, for calibrating the threshold and measuring."""

    calibration: Sequence[Documents]
    evaluation: Sequence[Documents]

    @classmethod
    def read(cls, source: PairSource) -> "HeldOut":
        """Reads the documents into memory."""
        return cls(list(source.calibration_documents()), list(source.eval_documents()))


def make_program(config: Config) -> Program[TrainState]:
    """Returns the training of every replica of one config."""
    copies = replicas(config)
    return Program(
        init=functools.partial(init_state, config=config),
        abstract=lambda batch: output_shapes(init_state, batch, config=config),
        step=functools.partial(train_step, config=config),
        name_metrics=functools.partial(_name_metrics, copies),
        shown={name: f"{copies[0].name}/{name}" for name in ("fve", "l0", "dead")},
    )


def side_by_side(
    programs: Mapping[str, Program[TrainState]],
) -> Program[dict[str, TrainState]]:
    """Combines several named trainings into one, which runs each on every batch."""
    first, *_ = programs

    def step(
        states: dict[str, TrainState], batch: Pairs
    ) -> tuple[dict[str, TrainState], dict[str, StepMetrics]]:
        done = {
            name: await_on_cpu(program.step(states[name], batch))
            for name, program in programs.items()
        }
        return (
            {name: state for name, (state, _) in done.items()},
            {name: report for name, (_, report) in done.items()},
        )

    def name_metrics(reports: dict[str, StepMetrics]) -> dict[str, float]:
        return {
            f"{name}/{metric}": value
            for name, report in reports.items()
            for metric, value in programs[name].name_metrics(report).items()
        }

    return Program(
        init=lambda batch: {name: p.init(batch) for name, p in programs.items()},
        abstract=lambda batch: {n: p.abstract(batch) for n, p in programs.items()},
        step=step,
        name_metrics=name_metrics,
        shown={word: f"{first}/{name}" for word, name in programs[first].shown.items()},
    )


def run_steps(
    job: Job, program: Program[State], *, stage: str
) -> tuple[State, dict[str, float], float]:
    """Runs all steps; returns the last state, its throughput, and the seconds of work.

    It continues from the newest checkpoint. Raises ConfigError if the checkpoint was
    trained on other activations, and StoppedError after a checkpoint if a signal came.
    """
    config, source = job.config, job.source
    to_mesh = functools.partial(processes.device_put, sharding=batch_sharding(job.mesh))
    with StageSteps(
        stage,
        config.train.steps,
        directory=job.workdir.checkpoints,
        checkpoint=config.checkpoint,
        progress_every=config.log.every,
        writer=job.writer,
        stop_signal=job.stop,
    ) as steps:
        with working("reading the first pairs"):
            first_batch = to_mesh(next(source.iter_batches(0, 1)))
        state, saved = steps.resume_or_init(
            init=lambda: program.init(first_batch),
            abstract=lambda: program.abstract(first_batch),
        )
        host_state = saved or {
            "data_hash": source.data_hash,
            "speed": {"pairs": 0, "seconds": 0.0},
        }
        _check_same_data(job, host_state["data_hash"])
        clock = _ThroughputTimer(host_state["speed"], steps.start_step, config)
        batches = source.iter_batches(steps.start_step, steps.num_steps)
        report = None
        for step, pairs in zip(steps, batches, strict=True):
            batch = to_mesh(pairs)  # while the previous step is still running
            jax.block_until_ready(report)  # keep only one step in flight
            # With several CPU devices, wait for both: a running transfer held the
            # thread that a step's all-reduce needed, and the run hung.
            state, report = await_on_cpu(program.step(state, await_on_cpu(batch)))
            metrics, new_pairs = None, 0
            if _is_report_step(step + 1, config):
                metrics = program.name_metrics(device_get(report))
                new_pairs = clock.lap(step + 1)
            steps.commit(
                step,
                state,
                metrics,
                host_state=lambda: host_state,
                displayed=program.shown,
                tokens=new_pairs,
            )
    return state, host_state["speed"], steps.seconds


def save_replicas(
    job: Job,
    config: Config,
    state: TrainState,
    held_out: HeldOut,
    *,
    metadata: Mapping[str, object],
    directories: Mapping[str, Path],
) -> dict[str, dict[str, Any]]:
    """Calibrates, measures and saves the replicas of a config; returns their figures.

    `directories` maps a replica's name to where it is saved; other replicas are not
    saved. Raises StoppedError between two replicas if a signal came.
    """
    trained, rows = inference_dictionaries(state), {}
    for index, replica in enumerate(replicas(config)):
        job.stop.check()
        with working(f"calibrating and measuring {replica.name}"):
            tsae, sums, row = _calibrate_and_measure(
                device_get(trained.replica(index)).to_host(), held_out, k=config.sae.k
            )
        if replica.name in directories and is_primary():
            provenance = _describe_training(config, replica, job.source, row)
            io.save(
                directories[replica.name],
                tsae,
                metadata={**metadata, **provenance},
                firing_rate=sums.firing_count / sums.tokens,
            )
        rows[replica.name] = {"seed": replica.seed, "alpha": replica.alpha, **row}
    return rows


def _check_same_data(job: Job, data_hash: str) -> None:
    if data_hash != job.source.data_hash:
        raise ConfigError(
            f"{job.workdir.path} was trained on other activations than "
            f"pairs.path={job.config.pairs.path!r} holds now; use another --workdir"
        )


def _is_report_step(steps_done: int, config: Config) -> bool:
    """Returns whether metrics are written after this many steps.

    They are written before every checkpoint, so that no checkpoint holds non-finite
    values.
    """
    due = (
        steps_done % config.log.every == 0 or steps_done % config.checkpoint.every == 0
    )
    return due or steps_done == config.train.steps


class _ThroughputTimer:
    """Adds up pairs and seconds between reports, except the first, which compiles."""

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


def _name_metrics(
    copies: Sequence[Replica], step_metrics: StepMetrics
) -> dict[str, float]:
    """Returns every replica's metrics under its name: {"seed0/loss": ...}."""
    return {
        f"{replica.name}/{name}": values_C[index].item()
        for index, replica in enumerate(copies)
        for name, values_C in vars(step_metrics).items()
    }


def _calibrate_and_measure(
    tsae: TSAE, held_out: HeldOut, *, k: int
) -> tuple[TSAE, QualitySums, dict[str, Any]]:
    """Returns the calibrated autoencoder, its quality sums and its figures.

    `l0` holds the active latents a token at the training's moving-average threshold
    (`ema`) and at the calibrated one. All other figures use the calibrated one.
    """
    calibration, evaluation = held_out
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


def _describe_training(
    config: Config, replica: Replica, source: PairSource, figures: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the metadata about its training that is saved with an autoencoder."""
    return {
        "seed": replica.seed,
        "alpha": replica.alpha,
        "k": config.sae.k,
        "l0": figures["l0"]["calibrated"],
        "data_hash": source.data_hash,
        "roles": list(source.roles),
        "run": config.name,
    }
