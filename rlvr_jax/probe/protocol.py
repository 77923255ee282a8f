"""The interface of a probe: fitted once before RL, then frozen and read in updates.

    ProbeConfig.fit          stage `probe`: chooses features on the policy's completions
    ProbeConfig.load         stage `train`: returns a `Probe`, its arrays on the mesh
    Probe.reader.features    in every update: residual stream [B, T, D] -> [B, T, R]
    Probe.observer.observe   in logged updates: sums of other statistics
    Probe.read_texts         in logged steps: the same on texts that never change
    Probe.write_step         in logged steps: writes files, returns the metrics
    Probe.write_noise        after RL: measures weight noise on those texts

To steer RL by RFGO a probe only needs `fit`, `load` and `features`.
"""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh
from jaxtyping import PyTree

from job_jax.metrics import MetricsWriter
from job_jax.steps import StopSignal
from job_jax.workdir import Workdir
from rlvr_jax.config import Config
from rlvr_jax.learn.probe_inputs import FeatureReader, Observer
from rlvr_jax.probe.reference_texts import ReferenceTexts
from rlvr_jax.types import ReasoningFeatures

if TYPE_CHECKING:  # the loop of training needs no corpora
    from rlvr_jax.probe.labeled_corpus import LabeledCorpus

PROBE_DIR = "probe"  # in a workdir: `fit` writes it and `load` reads it


@dataclasses.dataclass(frozen=True, kw_only=True)
class FitInputs:
    """The inputs of a probe's fit, and where its files go. Made by stage `probe`.

    `corpus` has the residual stream of the policy's completions before RL, with their
    outcomes; `activations` is the directory that it reads. Files go to `directory`, and
    only the primary process writes them. `workdir`, `writer` and `stop_signal` are for
    a fit that is itself a training job.
    """

    config: Config
    mesh: Mesh
    directory: Path
    activations: Path
    corpus: "LabeledCorpus"
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
        """Returns the features' weights in one step; `scale` is their running rms."""
        return ReasoningFeatures(
            weights=np.array(self.weights, np.float32),
            scale=np.array(scale, np.float32),
            proxy_strength=np.float32(proxy_strength),
            key=key,
        )

    def read_texts(
        self, graphdef: nnx.GraphDef, params: nnx.State, texts: ReferenceTexts
    ) -> Any:
        """Returns the probe's statistics of texts on the mesh: a pytree, or None.

        Called before the update of a logged step, and after the last step.
        """
        return None

    def write_step(
        self,
        directory: Path,
        *,
        run: str,
        step: int,
        rollout_sums: PyTree,
        texts: ReferenceTexts,
        text_stats: PyTree,
    ) -> dict[str, float]:
        """Writes a logged step's statistics below `directory` and returns its metrics.

        `rollout_sums` come from the observer (None after the last step), `text_stats`
        from `read_texts`. All processes call it, and the primary one writes. It must
        replace anything that an interrupted attempt wrote for this or later steps.
        """
        return {}

    def write_noise(
        self,
        directory: Path,
        graphdef: nnx.GraphDef,
        *,
        before: nnx.State,
        after: nnx.State,
        texts: ReferenceTexts,
        step: int,
        key: jax.Array,
    ) -> None:
        """Writes below `directory` how weight noise changes the probe's statistics.

        `before` and `after` are the policy's parameters before RL and after `step`
        steps, on the mesh like the texts: the noise must be as large as RL's change.
        All processes call it, and the primary one writes.
        """
