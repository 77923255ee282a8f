"""Trains and measures a run's crosscoder and the crosscoders of its controls."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Int

from job_jax.config import MeshConfig
from job_jax.mesh import describe_devices, make_mesh
from job_jax.metrics import MetricsWriter
from job_jax.schema import ConfigSection, PositiveInt, check
from job_jax.steps import StopSignal
from job_jax.workdir import Workdir
from sae_jax import config as autoencoder
from sae_jax import io, train
from sae_jax.data.corpus import Corpus, open_corpus
from sae_jax.data.pairs import ShuffledPairs
from sae_jax.data.views import JoinedShards, ProblemSubset
from sae_jax.optimize import replicas
from sae_jax.sae import TSAE
from sae_jax.stats.crosscoder import (
    MIN_PROBLEMS,
    CrosscoderSums,
    LatentChanges,
    decoder_blocks,
    measure_changes,
    sum_by_problem,
)

_MEASURED = 4  # one in 4 problems is for measuring, and not trained on
_ROLES = ("response",)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CrosscoderSettings(ConfigSection):
    """What a crosscoder is trained on, and how."""

    num_problems: PositiveInt = 512  # training problems whose completions are read
    # completions per problem, from each of the two policies
    num_samples: PositiveInt = 4
    latents: PositiveInt = 512  # latents of a crosscoder
    k: PositiveInt = 16  # active latents per token, on average
    train_steps: PositiveInt = 2000  # training steps of each crosscoder
    batch_size: PositiveInt = 1024  # tokens per step

    def __post_init__(self) -> None:
        """Raises ConfigError for impossible settings, before anything is sampled."""
        super().__post_init__()
        check(
            self.num_problems >= MIN_PROBLEMS * _MEASURED,
            f"--num_problems={self.num_problems} is too few: a quarter of them is for "
            f"measuring, which needs at least {MIN_PROBLEMS}; give "
            f"{MIN_PROBLEMS * _MEASURED} or more",
        )
        self.make_job(name="crosscoder", paths=("",), num_seeds=1)

    def make_job(
        self, *, name: str, paths: Sequence[str], num_seeds: int
    ) -> autoencoder.Config:
        """Returns the config of `sae_jax.train` for activations in these folders."""
        warmup = min(50, self.train_steps // 10)
        return autoencoder.Config(
            name=name,
            sae=autoencoder.SAEConfig(
                latents=self.latents, k=self.k, group_fractions=(1.0,)
            ),
            loss=autoencoder.LossConfig(
                alpha=0.0, group_weights=(1.0,), dead_after_tokens=200_000
            ),
            optimizer=autoencoder.OptimizerConfig(
                learning_rate=1e-3, warmup_steps=warmup
            ),
            pairs=autoencoder.PairsConfig(
                path=paths[0],
                beside=tuple(paths[1:]),
                batch_size=self.batch_size,
                roles=_ROLES,
            ),
            train=autoencoder.TrainConfig(
                steps=self.train_steps,
                num_seeds=num_seeds,
                threshold_start_step=self.train_steps // 10,
                threshold_decay=0.99,
            ),
            log=autoencoder.LogConfig(every=max(1, self.train_steps // 5)),
        )


class Fitted(NamedTuple):
    """A crosscoder and its measured changes. Made by `fit_crosscoders`."""

    tsae: TSAE
    sums: CrosscoderSums
    changes: LatentChanges


class Problems(NamedTuple):
    """Problem numbers: two halves for training, and the rest for measuring."""

    halves: tuple[Int[np.ndarray, " P"], Int[np.ndarray, " Q"]]
    measured: Int[np.ndarray, " R"]

    @property
    def trained(self) -> Int[np.ndarray, " S"]:
        """Returns both halves."""
        return np.concatenate(self.halves)


def split_problems(number_P: Int[np.ndarray, " P"]) -> Problems:
    """Returns the problems in three parts, by a random split that is always the same.

    >>> split = split_problems(np.arange(16))
    >>> [len(part) for part in (*split.halves, split.measured)]
    [6, 6, 4]
    """
    order_P = np.random.default_rng(0).permutation(number_P)
    measured, trained = np.split(order_P, [len(order_P) // _MEASURED])
    first, second = np.array_split(trained, 2)
    return Problems((first, second), measured)


def open_measured(paths: Sequence[Path]) -> Corpus:
    """Returns the texts of the problems for measuring, as the checkpoints read them."""
    corpus = open_corpus(
        paths[0], None, beside=paths[1:], roles=_ROLES, drop_duplicates=True
    )
    shards = corpus.shards
    problems = split_problems(np.unique(shards.column("problem")))
    measured = np.isin(shards.column("problem"), problems.measured)
    return dataclasses.replace(
        corpus, document_ids=np.unique(shards.column("sequence")[measured])
    )


def fit_crosscoders(
    paths: Sequence[Path],
    directory: Path,
    settings: CrosscoderSettings,
    *,
    stop: StopSignal,
    half: int | None = None,
    num_seeds: int = 1,
) -> list[Fitted]:
    """Returns crosscoders of some seeds; trains them in `directory` if not there yet.

    `paths` are the activations of the checkpoints. Crosscoders are trained on one
    `half` of the training problems, or on all, and measured on problems that none was
    trained on. Raises ConfigError if there are too few texts.
    """
    job = settings.make_job(
        name=directory.name, paths=[str(path) for path in paths], num_seeds=num_seeds
    )
    data = JoinedShards(paths)
    problems = split_problems(np.unique(data.column("problem")))
    chosen = problems.trained if half is None else problems.halves[half]
    workdir = Workdir(directory, job, mutable_sections=("mesh.", "log.", "checkpoint."))
    if not train.is_finished(job, workdir):
        print(f"crosscoder {directory.name}", file=sys.stderr)
        source = ShuffledPairs(ProblemSubset(data, chosen), job.pairs, seed=job.seed)
        mesh = make_mesh(MeshConfig(), jax.devices()[:1])
        workdir.write_config(job, device=describe_devices())
        with jax.set_mesh(mesh), MetricsWriter(directory) as writer:
            train.train(
                job,
                source,
                mesh=mesh,
                workdir=workdir,
                writer=writer,
                stop=stop,
                metadata={"checkpoints": [path.name for path in paths]},
            )
    corpus, fitted = open_measured(paths), []
    for tsae in _load_replicas(directory, job):
        sums = sum_by_problem(tsae, corpus, len(paths))
        changes = measure_changes(sums, decoder_blocks(tsae, len(paths)))
        fitted.append(Fitted(tsae, sums, changes))
    return fitted


def _load_replicas(directory: Path, job: autoencoder.Config) -> list[TSAE]:
    others = directory / train.REPLICAS_DIR
    return [
        io.load(directory / train.SAE_DIR),
        *(io.load(others / replica.name) for replica in replicas(job)[1:]),
    ]
