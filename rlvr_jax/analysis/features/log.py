"""Reads what a probe wrote into a workdir: features/, sae/.

features/step_NNNNNN.npz   sums of every latent: reference texts by prompt (split
                           "reference"), own completions by band (split "rollout")
features/sae_fidelity.jsonl  how well the frozen autoencoder still explains the policy
features/noise_NNNNNN.npz  the reference texts under noise in the weights
sae/                       the autoencoder, and selection.json: the reward features
sae_replicas/NAME/         autoencoders of other seeds
"""

import dataclasses
import functools
import hashlib
import json
import math
import pathlib
import re
from typing import Any

import numpy as np
from jaxtyping import Float

from job_jax.flags import UsageError
from rlvr_jax.probe.weight_noise import NoiseReadings, noise_file
from rlvr_jax.report.run_files import RunArtifacts
from sae_jax import io
from sae_jax.stats.feature_statistics import FeatureTable
from sae_jax.stats.quality import seed_cosine
from sae_jax.train import REPLICAS_DIR, SAE_DIR

FEATURES_DIR, FIDELITY_FILE = "features", "sae_fidelity.jsonl"
SELECTION_FILE = "selection.json"
REFERENCE, ROLLOUT = "reference", "rollout"  # splits

_WEIGHTS_FILE = "sae_weights.safetensors"


class NoFeaturesError(UsageError):
    """The run's features are missing, too few or incompatible; the message says so."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureLog:
    """What a probe logged. `steps` are RL steps done; `selection` is {} without one."""

    run: RunArtifacts
    steps: tuple[int, ...]
    sae_digest: str  # of the autoencoder's weights
    selection: dict[str, Any]
    fidelity: tuple[dict[str, Any], ...]

    @property
    def reads_directions(self) -> bool:
        """Returns whether raw directions give the reward, instead of latents."""
        has_feature = bool(self.selection) and len(self.selection["latents"]) > 0
        directions = ("direction", "random_directions")
        return has_feature and self.selection["control"] in directions

    @property
    def reward_weights(self) -> dict[int, float]:
        """Returns the latents that give reward, with weights; {} for directions."""
        if not self.selection or self.reads_directions:
            return {}
        chosen = zip(self.selection["latents"], self.selection["weights"], strict=True)
        return dict(chosen)

    def table(self, step: int) -> FeatureTable:
        """Returns all rows of a step."""
        return FeatureTable.load(_features_file(self.run, step))

    def noise(self, step: int) -> NoiseReadings:
        """Returns the texts' readings under noise as large as RL's change at a step."""
        path = noise_file(self.run.path, step)
        if not path.is_file():
            raise NoFeaturesError(
                f"{path} is missing: the readings of reference texts under weight "
                "noise; `python -m rlvr_jax.analysis features` computes them from the "
                f"checkpoint of step {step}"
            )
        return NoiseReadings.load(path)

    @functools.cached_property
    def seed_cosine(self) -> Float[np.ndarray, " Z"]:
        """Returns each latent's cosine with the nearest latents of other seeds.

        It is NaN if no other seed was trained and the selection has no cosine.
        """
        path = self.run.path
        tsae = io.load(path / SAE_DIR)
        others = [
            io.load(replica).decoder
            for replica in sorted((path / REPLICAS_DIR).glob("*"))
            if not replica.name.endswith(
                "_no_contrast"
            )  # another loss, not another seed
        ]
        if others:
            return np.asarray(seed_cosine(tsae.decoder, others))
        cosines = np.full(len(tsae.decoder), np.nan)
        if (selected := self.selection.get("seed_cosine")) is not None:
            cosines[self.selection["latents"]] = selected
        return cosines


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExplainedVarianceDrop:
    """Explained variance of a band's texts at step 0 and later."""

    split: str
    band: str  # "": all
    before: float
    after: float

    @property
    def growth(self) -> float:
        """Returns by how much the unexplained part grew, relative to step 0."""
        return (self.before - self.after) / max(1 - self.before, 1e-6)


def has_features(run: RunArtifacts) -> bool:
    """Returns whether features were logged at any step."""
    return bool(_logged_steps(run))


def read_feature_log(run: RunArtifacts) -> FeatureLog:
    """Returns the log of the run's probe. Raises NoFeaturesError without one."""
    steps = _logged_steps(run)
    if not steps:
        raise NoFeaturesError(
            f"{run.path} has no features logged: {FEATURES_DIR}/step_*.npz is missing; "
            "set probe.name=sae and probe.log_every above 0, and train again"
        )
    weights = run.path / SAE_DIR / _WEIGHTS_FILE
    if not weights.is_file():
        raise NoFeaturesError(
            f"{run.path} has features but not their autoencoder: "
            f"{SAE_DIR}/{_WEIGHTS_FILE} is missing"
        )
    selection = run.path / SAE_DIR / SELECTION_FILE
    fidelity = run.path / FEATURES_DIR / FIDELITY_FILE
    lines = fidelity.read_text().splitlines() if fidelity.is_file() else []
    return FeatureLog(
        run=run,
        steps=steps,
        sae_digest=hashlib.sha256(weights.read_bytes()).hexdigest()[:12],
        selection=json.loads(selection.read_text()) if selection.is_file() else {},
        fidelity=tuple(json.loads(line) for line in lines),
    )


def explained_variance_drops(log: FeatureLog, step: int) -> list[ExplainedVarianceDrop]:
    """Returns the loss of explained variance of each band's texts, the largest first.

    It runs from step 0 to the last measurement up to `step`.
    """
    fve: dict[tuple[str, str], dict[int, float]] = {}
    for line in sorted(log.fidelity, key=lambda line: line["step"]):
        value = line["fve"]
        if line["step"] <= step and value is not None and math.isfinite(value):
            by_step = fve.setdefault((line["split"], line["band"]), {})
            by_step[line["step"]] = value
    drops = [
        ExplainedVarianceDrop(split=split, band=band, before=at[0], after=at[max(at)])
        for (split, band), at in fve.items()
        if 0 in at and len(at) > 1
    ]
    return sorted(drops, key=lambda drop: -drop.growth)


def check_same_sae(logs: list[FeatureLog]) -> None:
    """Raises NoFeaturesError if two runs were read with different autoencoders."""
    for log in logs[1:]:
        if log.sae_digest != logs[0].sae_digest:
            both = " and ".join(
                f"{side.run.path} with {side.sae_digest} ({_num_latents(side)} latents)"
                for side in (logs[0], log)
            )
            raise NoFeaturesError(
                f"features of two T-SAEs cannot be compared: {both}; train both runs "
                "with the same one (probe.sae_path)"
            )


def _num_latents(log: FeatureLog) -> int:
    return log.table(log.steps[0]).statistics.sum.shape[1]


def _logged_steps(run: RunArtifacts) -> tuple[int, ...]:
    names = (file.name for file in (run.path / FEATURES_DIR).glob("step_*.npz"))
    matches = (re.fullmatch(r"step_(\d+)\.npz", name) for name in names)
    return tuple(sorted(int(match[1]) for match in matches if match))


def _features_file(run: RunArtifacts, step: int) -> pathlib.Path:
    return run.path / FEATURES_DIR / f"step_{step:06d}.npz"
