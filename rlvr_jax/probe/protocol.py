"""What a probe is for a run: fitted once before RL, then frozen and read in updates.

    ProbeConfig.fit          stage `probe`: chooses features on the policy's completions
    ProbeConfig.load         stage `train`: returns a `Probe`, its arrays on the mesh
    Probe.reader.features    in every update: residual stream [B, T, D] -> [B, T, R]
    Probe.observer.observe   in logged updates: sums of whatever else it watches
    Probe.read_texts         in logged steps: the same on texts that never change
    Probe.write_step         in logged steps: what goes to disk, and the metrics
    Probe.write_noise        after RL: what noise in the weights does to those texts

Only `fit`, `load` and `features` have to be written for a probe to steer RL by RFGO.
"""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from job_jax.metrics import MetricsWriter
from job_jax.steps import StopSignal
from job_jax.workdir import Workdir
from rlvr_jax.config import Config
from rlvr_jax.learn.probe_inputs import FeatureReader, Observer
from rlvr_jax.probe.labeled_corpus import LabeledCorpus
from rlvr_jax.probe.reference_texts import ReferenceTexts
from rlvr_jax.types import ReasoningFeatures

PROBE_DIR = "probe"  # of a workdir: what `fit` writes and `load` reads


@dataclasses.dataclass(frozen=True, kw_only=True)
class FitInputs:
    """What a probe is fitted to, and where it goes. Made by stage `probe`.

    `corpus` has the residual stream of the policy's completions before RL, with their
    outcomes; `activations` is the directory that it reads. Files go to `directory`,
    written by the primary process alone. `workdir`, `writer` and `stop_signal` are for
    a fit that is a training job of its own.
    """

    config: Config
    mesh: Mesh
    directory: Path
    activations: Path
    corpus: LabeledCorpus
    tokenize: Callable[[str], Sequence[int]]
    workdir: Workdir
    writer: MetricsWriter
    stop_signal: StopSignal


@dataclasses.dataclass(frozen=True, kw_only=True)
class Probe:
    """A fitted probe with R features. Made by `ProbeConfig.load`.

    The sizes of `weights` add up to 1; a positive weight marks a feature of correct
    completions. `rms` is each feature's root mean square over tokens before RL, the
    unit that RFGO starts from. Derive from this class to override the methods below.
    """

    layer: int
    feature_names: tuple[str, ...]
    weights: tuple[float, ...]
    rms: tuple[float, ...]
    reader: FeatureReader
    observer: Observer | None = None

    def make_features(
        self, scale: Sequence[float], *, proxy_strength: float, key: jax.Array
    ) -> ReasoningFeatures:
        """Returns how features count in one step; `scale` is their running rms."""
        return ReasoningFeatures(
            weights=np.array(self.weights, np.float32),
            scale=np.array(scale, np.float32),
            proxy_strength=np.float32(proxy_strength),
            key=key,
        )

    def read_texts(self, graphdef: Any, params: Any, texts: ReferenceTexts) -> Any:
        """Returns what the probe finds in texts on the mesh: a pytree, or None.

        Called before the update of a logged step, and after the last step.
        """
        return None

    def write_step(
        self,
        directory: Path,
        *,
        run: str,
        step: int,
        rollout_sums: Any,
        texts: ReferenceTexts,
        text_stats: Any,
    ) -> dict[str, float]:
        """Writes a logged step's statistics below `directory` and returns its metrics.

        `rollout_sums` are the observer's, None after the last step; `text_stats` are
        those of `read_texts`. All processes call it, the primary one writes. What an
        interrupted attempt wrote for this step or later ones is to be replaced.
        """
        return {}

    def write_noise(
        self,
        directory: Path,
        graphdef: Any,
        *,
        before: Any,
        after: Any,
        texts: ReferenceTexts,
        step: int,
        key: jax.Array,
    ) -> None:
        """Writes below `directory` what weight noise does to what the probe reads.

        `before` and `after` are the policy's parameters before RL and after `step`
        steps, on the mesh as the texts are: the noise is to be as large as what RL did.
        All processes call it, the primary one writes.
        """
