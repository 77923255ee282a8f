"""The probe `sae`: its settings, and how it is fitted before RL.

    completions on disk -> sae_jax.train, or an autoencoder that exists
                        -> the latents that are reasoning features

leaves in the workdir

    sae/            the autoencoder in SAELens' layout, and selection.json
    sae_replicas/   the autoencoders of other seeds
"""

import dataclasses
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Float

from job_jax.processes import broadcast, is_primary
from job_jax.schema import check
from rlvr_jax.config import Config
from rlvr_jax.config.probe import FeatureSelectionConfig, ProbeConfig, ProbeSAEConfig
from rlvr_jax.probe.abstract_sae import (
    abstract_sae,
    external_shapes,
    lower_sae_programs,
    on_mesh,
)
from rlvr_jax.probe.checks import load_external_sae
from rlvr_jax.probe.feature_selection import select_features
from rlvr_jax.probe.latent_stats import SAEObserver
from rlvr_jax.probe.named_features import check_named_features
from rlvr_jax.probe.protocol import FitInputs
from rlvr_jax.probe.sae_probe import (
    LatentReader,
    SAEProbe,
    TopKReader,
    shard_sae,
)
from rlvr_jax.probe.selection import FeatureSelection
from sae_jax import io, train
from sae_jax.formats.record import SAERecord
from sae_jax.optimize import replicas
from sae_jax.sae import TSAE
from sae_jax.stats.quality import seed_cosine

SELECTION_FILE = "selection.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SAEProbeConfig(ProbeConfig):
    """A temporal sparse autoencoder; R of its latents are the features.

    Stage `probe` trains it on the policy's completions before RL, or reads the one at
    `sae_path`.
    """

    sae_path: str = ""  # a directory or file that sae_jax.load reads; "": train one
    sae_model_name: str = ""  # the model's name in that autoencoder; "": `name`
    sae: ProbeSAEConfig = ProbeSAEConfig()
    features: FeatureSelectionConfig = FeatureSelectionConfig()

    def __post_init__(self) -> None:
        """Refuses a model name without an autoencoder."""
        super().__post_init__()
        check(
            self.sae_path != "" or self.sae_model_name == "",
            f"sae_model_name={self.sae_model_name!r} does nothing without a sae_path; "
            "remove it",
        )

    @property
    def shuffles_weights(self) -> bool:
        """Returns whether token weights are shuffled, as a control of RFGO."""
        return self.features.control == "shuffled_weights"

    def check_before_run(
        self, config: Config, tokenize: Callable[[str], Sequence[int]]
    ) -> None:
        """Raises ConfigError if the autoencoder or a named feature cannot be used."""
        latents = self.sae.architecture.latents
        if self.sae_path:
            latents = self._load_external(config).tsae.latents
        check_named_features(self.features, latents, tokenize=tokenize)

    def fit(self, inputs: FitInputs) -> dict[str, Any]:
        """Trains or copies the autoencoder, and returns the selected features."""
        config = inputs.config
        if self.sae_path:
            tsae, cosine_Z = self._use_external(inputs), None
        else:
            tsae, cosine_Z = self._train(inputs)
        selection = select_features(
            self.features,
            tsae,
            inputs.corpus,
            layer=self.layer,
            seed_cosine=cosine_Z,
            tokenize=inputs.tokenize,
            seed=config.seed,
        )
        if is_primary():
            _warn_of(selection)
            selection.save(inputs.workdir.path / train.SAE_DIR / SELECTION_FILE)
        return selection.summary()

    def load(self, directory: Path, mesh: Mesh) -> SAEProbe:
        """Returns the probe that `fit` left in the workdir."""
        sae_dir = directory.parent / train.SAE_DIR
        tsae = shard_sae(io.load(sae_dir), mesh)
        return SAEProbe.of_selection(
            tsae, FeatureSelection.load(sae_dir / SELECTION_FILE)
        )

    def batch_sizes(self) -> dict[str, int]:
        """Returns the pairs of a training step, which the mesh must divide."""
        return {"probe.sae.batch_size": self.sae.batch_size}

    def abstract_reader(
        self, hidden_size: int
    ) -> tuple[LatentReader | TopKReader, int]:
        """Returns the shapes of the latents' reader, and how many latents it reads.

        An autoencoder that keeps the k largest is read whole. If the one at `sae_path`
        does not exist yet, one with thresholds is assumed.
        """
        R = self.features.num_features
        shape = jax.ShapeDtypeStruct
        tsae = external_shapes(self.sae_path) if self.sae_path else None
        if tsae is not None and tsae.top_k is not None:
            return jax.eval_shape(lambda t: TopKReader.of_latents(t, range(R)), tsae), R
        columns = LatentReader(
            center=shape((hidden_size,), np.float32),
            encoder=shape((hidden_size, R), np.float32),
            bias=shape((R,), np.float32),
            threshold=shape((R,), np.float32),
        )
        return columns, R

    def abstract_observer(self, hidden_size: int, mesh: Mesh) -> SAEObserver | None:
        """Returns the shapes of an observer of all latents; None without the file."""
        tsae = self._abstract_sae(hidden_size, mesh)
        return None if tsae is None else SAEObserver(tsae=tsae)

    def lower_programs(self, config: Config, mesh: Mesh, **policy: Any) -> dict:
        """Returns the programs that read texts by an autoencoder, and that train it."""
        tsae = self._abstract_sae(config.model.hidden_size, mesh)
        if tsae is None:
            return {}
        sae = None if self.sae_path else self.sae
        return lower_sae_programs(config, sae, tsae, mesh, **policy)

    def memory_bytes(self, hidden_size: int) -> int:
        """Returns the autoencoder's bytes in float32; 0 if its file is missing."""
        latents = self.sae.architecture.latents
        if self.sae_path:
            tsae = external_shapes(self.sae_path)
            latents = tsae.latents if tsae else 0
        return 2 * 4 * hidden_size * latents

    def fit_bytes(self, hidden_size: int) -> int:
        """Returns about how many bytes training takes: each replica has four copies.

        They are weights, gradient and two moments. A step also has each latent of both
        tokens of a pair, and as many gradients. 0 if nothing is trained.
        """
        Z, count = self.sae.architecture.latents, self._num_replicas
        weights, latents = 2 * hidden_size * Z, 4 * self.sae.batch_size * Z
        return 4 * count * (4 * weights + latents)

    def fit_flops(self, hidden_size: int) -> float:
        """Returns the FLOPs of training: 6 for each weight and token; 0 without it."""
        tokens = 2 * self.sae.batch_size * self.sae.train.steps
        weights = 2 * hidden_size * self.sae.architecture.latents
        return 6.0 * self._num_replicas * tokens * weights

    @property
    def _num_replicas(self) -> int:
        """Returns how many autoencoders are trained together."""
        if self.sae_path:
            return 0
        train = self.sae.train
        has_baseline = train.no_contrast_baseline and self.sae.loss.alpha > 0
        return train.num_seeds * (1 + has_baseline)

    def _abstract_sae(self, hidden_size: int, mesh: Mesh) -> TSAE | None:
        """Returns the autoencoder's shapes on the mesh; None if the file is missing."""
        if not self.sae_path:
            return abstract_sae(self.sae, hidden_size, mesh)
        shapes = external_shapes(self.sae_path)
        return None if shapes is None else on_mesh(shapes, mesh)

    def _load_external(self, config: Config) -> SAERecord:
        return load_external_sae(
            self.sae_path,
            config,
            layer=self.layer,
            model_name=self.sae_model_name or config.name,
        )

    def _use_external(self, inputs: FitInputs) -> TSAE:
        """Returns the autoencoder at `sae_path`, and keeps a copy in the workdir."""
        workdir, record = inputs.workdir, self._load_external(inputs.config)
        if not _is_recorded(inputs) and is_primary():
            io.save(workdir.path / train.SAE_DIR, record.tsae, metadata=record.metadata)
            workdir.update_summary(
                {train.STAGE: {"path": self.sae_path, "format": record.format}}
            )
        return record.tsae

    def _train(self, inputs: FitInputs) -> tuple[TSAE, Float[np.ndarray, " Z"] | None]:
        """Returns the autoencoder of the first seed, and its latents' seed cosines."""
        config, path = inputs.config, inputs.workdir.path
        job = self.sae.make_train_config(
            name=config.name,
            seed=config.seed,
            activations_dir=str(inputs.activations),
            checkpoint=config.checkpoint,
            log_every=config.log.progress_every,
        )
        if not _is_recorded(inputs):
            source, metadata = train.open_source(
                job.pairs, seed=job.seed, mesh=inputs.mesh
            )
            train.train(
                job,
                source,
                mesh=inputs.mesh,
                workdir=inputs.workdir,
                writer=inputs.writer,
                stop=inputs.stop_signal,
                metadata=metadata,
            )
        tsae = io.load(path / train.SAE_DIR)
        first, *rest = replicas(job)
        decoders = [
            io.load(path / train.REPLICAS_DIR / replica.name).decoder
            for replica in rest
            if replica.alpha == first.alpha
        ]
        return tsae, seed_cosine(tsae.decoder, decoders) if decoders else None


def _warn_of(selection: FeatureSelection) -> None:
    """Warns if a selection cannot guide: it is empty, or has dead latents."""
    if selection.refusal:
        print(
            f"warning: no reasoning features, RFGO is off: {selection.refusal}",
            file=sys.stderr,
        )
    if selection.dead:
        print(
            f"warning: reasoning features {list(selection.dead)} hardly fire on the "
            f"policy's {selection.num_completions} completions; they cannot guide",
            file=sys.stderr,
        )


def _is_recorded(inputs: FitInputs) -> bool:
    """Returns whether summary.json has an autoencoder from an earlier attempt."""
    return broadcast(lambda: train.STAGE in inputs.workdir.read_summary())
