"""Reads what a probe left in a workdir: features/, sae/. Nothing is computed anew.

features/step_NNNNNN.npz   sums of every latent: fixed texts by prompt (split
                           "probe"), own completions by band (split "rollout")
features/validity.jsonl    does the frozen dictionary still explain the policy
sae/                       the dictionary, and selection.json: the reward features
sae_clones/NAME/           dictionaries of other seeds
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

from job_jax.command import UsageError
from rlvr_jax.analysis.workdir import Run
from sae_jax import io
from sae_jax.feature_statistics import FeatureTable
from sae_jax.quality import stability
from sae_jax.train import CLONES_DIR, SAE_DIR

FEATURES_DIR, VALIDITY_FILE = "features", "validity.jsonl"
SELECTION_FILE = "selection.json"
FIXED, OWN = "probe", "rollout"  # splits

_WEIGHTS_FILE = "sae_weights.safetensors"


class NoFeaturesError(UsageError):
    """The run has no features, too few, or others. The message says which."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureLog:
    """What a probe logged. `steps` are RL steps done; `selection` is {} without one."""

    run: Run
    steps: tuple[int, ...]
    dictionary: str  # its digest, which tells one T-SAE from another
    selection: dict[str, Any]
    validity: tuple[dict[str, Any], ...]

    @property
    def weights(self) -> dict[int, float]:
        """Returns the reward features, each with its weight."""
        if not self.selection:
            return {}
        chosen = zip(self.selection["latents"], self.selection["weights"], strict=True)
        return dict(chosen)

    def table(self, step: int) -> FeatureTable:
        """Returns all rows of a step."""
        return FeatureTable.load(_file(self.run, step))

    @functools.cached_property
    def stability(self) -> Float[np.ndarray, " Z"]:
        """Returns each latent's cosine with its partners in other seeds' dictionaries.

        NaN where no other seed was trained and the selection does not know it.
        """
        path = self.run.path
        tsae = io.load(path / SAE_DIR)
        others = [
            io.load(clone).decoder
            for clone in sorted((path / CLONES_DIR).glob("*"))
            if not clone.name.endswith("_twin")  # another loss, not another seed
        ]
        if others:
            return np.asarray(stability(tsae.decoder, others))
        found = np.full(len(tsae.decoder), np.nan)
        if (known := self.selection.get("stability")) is not None:
            found[self.selection["latents"]] = known
        return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drop:
    """Explained variance that a band's texts have lost since step 0."""

    split: str
    band: str  # "": all
    before: float
    after: float

    @property
    def lost(self) -> float:
        """Returns how much."""
        return self.before - self.after


def logged(run: Run) -> bool:
    """Returns whether features were logged at any step."""
    return bool(_steps(run))


def read_log(run: Run) -> FeatureLog:
    """Returns what the run's probe logged. Raises NoFeaturesError where it did not."""
    steps = _steps(run)
    if not steps:
        raise NoFeaturesError(
            f"{run.path} has no features logged: {FEATURES_DIR}/step_*.npz is not "
            "there. Set probe.source (stage or path) and probe.log_every above 0, and "
            "train again"
        )
    weights = run.path / SAE_DIR / _WEIGHTS_FILE
    if not weights.is_file():
        raise NoFeaturesError(
            f"{run.path} has features and no dictionary they are of: "
            f"{SAE_DIR}/{_WEIGHTS_FILE} is missing"
        )
    selection = run.path / SAE_DIR / SELECTION_FILE
    validity = run.path / FEATURES_DIR / VALIDITY_FILE
    return FeatureLog(
        run=run,
        steps=steps,
        dictionary=hashlib.sha256(weights.read_bytes()).hexdigest()[:12],
        selection=json.loads(selection.read_text()) if selection.is_file() else {},
        validity=tuple(
            json.loads(line)
            for line in (
                validity.read_text() if validity.is_file() else ""
            ).splitlines()
        ),
    )


def drops(log: FeatureLog, step: int) -> list[Drop]:
    """Returns what each band's texts lost by `step`, the most first.

    Up to their last measurement: a run that has ended samples no more completions.
    """
    fve: dict[tuple[str, str], dict[int, float]] = {}
    for line in sorted(log.validity, key=lambda line: line["step"]):
        value = line["fve"]
        if line["step"] <= step and value is not None and math.isfinite(value):
            of_texts = fve.setdefault((line["split"], line["band"]), {})
            of_texts[line["step"]] = value
    found = [
        Drop(split=split, band=band, before=at[0], after=at[max(at)])
        for (split, band), at in fve.items()
        if 0 in at and len(at) > 1
    ]
    return sorted(found, key=lambda drop: -drop.lost)


def same_dictionary(logs: list[FeatureLog]) -> None:
    """Raises NoFeaturesError where two runs were read with other dictionaries."""
    for log in logs[1:]:
        if log.dictionary != logs[0].dictionary:
            named = " and ".join(
                f"{each.run.path} with {each.dictionary} ({_latents(each)} latents)"
                for each in (logs[0], log)
            )
            raise NoFeaturesError(
                f"features of two T-SAEs cannot be compared: {named}. Train both runs "
                "with one, by probe.source=path"
            )


def _latents(log: FeatureLog) -> int:
    return log.table(log.steps[0]).statistics.sum.shape[1]


def _steps(run: Run) -> tuple[int, ...]:
    names = (file.name for file in (run.path / FEATURES_DIR).glob("step_*.npz"))
    matches = (re.fullmatch(r"step_(\d+)\.npz", name) for name in names)
    return tuple(sorted(int(match[1]) for match in matches if match))


def _file(run: Run, step: int) -> pathlib.Path:
    return run.path / FEATURES_DIR / f"step_{step:06d}.npz"
