"""Causal tests: latents are changed while the policy answers, and effects are measured.

Every arm answers the same held-out problems with the same sampling keys: the unedited
policy (clean), the edited latents (target), and the controls. There are two controls:
random latents that fire as often and move the stream as far, and a random direction
that moves every token exactly as far. A null edit moves nothing and must reproduce the
clean completions. A target that does no more than its controls is not a cause, however
large its effect.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from job_jax.schema import ConfigError
from rlvr_jax.config import Config
from rlvr_jax.metrics.bootstrap import RatioStatistic
from rlvr_jax.probe.checks import check_sae_fits
from rlvr_jax.probe.edited_policy import (
    clean_residuals,
    kl_from_clean,
    sample_edited,
)
from rlvr_jax.probe.intervene_metrics import correctness, intervention_metrics
from rlvr_jax.probe.sae import SAEProbeConfig
from rlvr_jax.rollouts.graded import GradedCompletion, grade_completions
from rlvr_jax.run.load import LoadedPolicy
from rlvr_jax.sampler import ScopedIntervention
from rlvr_jax.types import Problem, Rollouts
from sae_jax.edits import (
    FiringStats,
    LatentEdit,
    Mode,
    check_latents,
    make_latent_edit,
    match_shift,
    mean_shift,
    measure_firing,
    rate_matched_latents,
)
from sae_jax.formats.record import SAERecord
from sae_jax.io import load_record
from sae_jax.sae import TSAE

__all__ = [
    "CALIBRATION_TOKENS",
    "CONTROLS",
    "ArmResult",
    "Calibration",
    "EditArm",
    "InterventionSpec",
    "Kind",
    "Mode",
    "NullEditError",
    "calibrate",
    "check_null_edit",
    "load_fitting_sae",
    "make_arms",
    "predicting_tokens",
    "run_arm",
]

Kind = Literal[
    "clean", "target", "random latents", "random direction", "null", "few-shot"
]
CONTROLS: tuple[Kind, ...] = ("random latents", "random direction")

# How many clean completion tokens are used to measure firing rates and distances.
CALIBRATION_TOKENS = 32_768


class NullEditError(RuntimeError):
    """The edit of gain 0 changed completions, so no arm's effect can be trusted."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class InterventionSpec:
    """The latents to edit, how strongly, and how many controls to draw."""

    layer: int
    latents: tuple[int, ...]
    mode: Mode
    strengths: tuple[float, ...]
    num_controls: int  # of random latents, and of random directions
    scope: Literal["completion", "predicting", "everywhere"]

    def __post_init__(self) -> None:
        """Refuses a spec without strengths or without controls."""
        if not self.strengths:
            raise ConfigError("no strengths; name some, such as 1")
        if self.num_controls < 1:
            raise ConfigError(
                f"num_controls={self.num_controls}; a claim needs at least one control"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EditArm:
    """One way to answer the problems: the edit that is applied while sampling.

    `mean_shift` is the mean distance |delta x| that it moves a clean token.
    """

    kind: Kind
    strength: float = 0.0
    control_index: int = 0
    latents: tuple[int, ...] = ()
    edit: LatentEdit | None = None
    mean_shift: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArmResult:
    """An arm's answers. `correct` is [N, G]; `tokens` [B, T] are its completions.

    `graded` are the same completions as text, in the same order. `metrics` come from
    `intervention_metrics`, plus "kl": KL(arm || clean) in nats per token on the arm's
    own completions, from all logits at temperature 1.
    """

    arm: EditArm
    metrics: dict[str, RatioStatistic]
    correct: np.ndarray
    tokens: np.ndarray
    graded: tuple[GradedCompletion, ...] = ()

    def token_match_rate(self, other: "ArmResult") -> float:
        """Returns the fraction of completions equal to the other's in every token."""
        return float((self.tokens == other.tokens).all(axis=1).mean())


class Calibration(NamedTuple):
    """Residual stream of clean completions [N, D], and how latents fire on it."""

    residuals: np.ndarray
    firing: FiringStats


def load_fitting_sae(
    path: str, config: Config, *, layer: int, latents: Sequence[int]
) -> SAERecord:
    """Returns an autoencoder that fits the policy and the layer, and has the latents.

    Raises ConfigError if its width, layer or model differs, or if it lacks a latent.
    """
    if not 0 <= layer < config.model.num_layers:
        raise ConfigError(
            f"layer={layer}; the policy has layers 0..{config.model.num_layers - 1}"
        )
    record = load_record(path)
    probe = config.probe
    named = probe.sae_model_name if isinstance(probe, SAEProbeConfig) else ""
    check_sae_fits(record, path, config, layer=layer, model_name=named or config.name)
    check_latents(record.tsae, latents)
    return record


def calibrate(
    policy: LoadedPolicy, tsae: TSAE, problems: Sequence[Problem], *, layer: int
) -> Calibration:
    """Returns the residual stream of the unedited policy on its own completions.

    There are at most 32,768 tokens. A completion's last token is left out, since it
    predicts nothing.
    """
    blocks: list[np.ndarray] = []
    for part, rollouts in sample_edited(policy, problems, None):
        residual_BTD = clean_residuals(policy, rollouts, layer=layer)
        blocks.append(residual_BTD[predicting_tokens(rollouts, len(part))])
        if sum(map(len, blocks)) >= CALIBRATION_TOKENS:
            break
    residuals = np.concatenate(blocks)[:CALIBRATION_TOKENS].astype(np.float32)
    return Calibration(residuals, measure_firing(tsae, residuals))


def predicting_tokens(rollouts: Rollouts, num_problems: int) -> np.ndarray:
    """Returns which completion tokens [B, T] predict another one.

    Rows beyond those of the first `num_problems` fill up the batch and do not count.
    """
    index_T = np.arange(rollouts.tokens.shape[1])
    mask_BT = index_T[None] < rollouts.lengths[:, None] - 1
    rows = len(mask_BT) // len(rollouts.prompts.lengths) * num_problems
    return mask_BT & (np.arange(len(mask_BT)) < rows)[:, None]


def make_arms(
    spec: InterventionSpec, tsae: TSAE, calibration: Calibration, *, seed: int
) -> list[EditArm]:
    """Returns every edited arm: one null edit, and each strength's target and controls.

    Random latents and directions are drawn once and serve all strengths.
    """
    residuals, firing = calibration.residuals, calibration.firing
    sets = rate_matched_latents(
        firing.rate, spec.latents, num_draws=spec.num_controls, seed=seed
    )
    directions = np.random.default_rng(seed).normal(
        size=(spec.num_controls, tsae.width)
    )

    def make_edit(latents: tuple[int, ...], strength: float) -> LatentEdit:
        return make_latent_edit(
            tsae,
            latents,
            layer=spec.layer,
            mode=spec.mode,
            strength=strength,
            mean_when_active=firing.mean_when_active,
        )

    arms = []
    for strength in spec.strengths:
        target = make_edit(spec.latents, strength)
        edits: list[tuple[Kind, int, tuple[int, ...], LatentEdit]] = []
        if strength == spec.strengths[0]:
            edits.append(("null", 0, spec.latents, target.with_scale(0.0)))
        edits.append(("target", 0, spec.latents, target))
        for index, latents in enumerate(sets):
            other = match_shift(make_edit(latents, strength), target, residuals)
            edits.append(("random latents", index, latents, other))
        for index, direction in enumerate(directions):
            edits.append(("random direction", index, (), target.toward(direction)))
        arms += [
            EditArm(
                kind=kind,
                strength=strength,
                control_index=index,
                latents=latents,
                edit=edit,
                mean_shift=mean_shift(edit, residuals),
            )
            for kind, index, latents, edit in edits
        ]
    return arms


def run_arm(
    policy: LoadedPolicy, problems: Sequence[Problem], arm: EditArm, *, scope: Any
) -> ArmResult:
    """Returns an arm's answers to the problems, eval.num_samples per problem."""
    setup, config = policy.setup, policy.setup.config.eval
    intervention = None
    if arm.edit is not None:
        edit = setup.replicate(arm.edit)
        intervention = ScopedIntervention(edits=(edit,), scope=scope)
    G = config.num_samples
    graded: list[GradedCompletion] = []
    tokens, kl = [], []
    for part, rollouts in sample_edited(policy, problems, intervention):
        graded += grade_completions(setup, part, rollouts)
        tokens.append(rollouts.tokens[: len(part) * G])
        kl.append(kl_from_clean(policy, rollouts, intervention)[: len(tokens[-1])])
    metrics = intervention_metrics(
        setup.config.task, graded, num_samples=G, k=config.ks
    )
    return ArmResult(
        arm=arm,
        metrics=metrics
        | {
            "kl": RatioStatistic(
                numerator=np.concatenate(kl).reshape(-1, G).sum(axis=1),
                denominator=metrics["length"].numerator,
            )
        },
        correct=correctness(graded, G),
        tokens=np.concatenate(tokens),
        graded=tuple(graded),
    )


def check_null_edit(null: ArmResult, clean: ArmResult) -> None:
    """Raises NullEditError if an edit of gain 0 changed any completion."""
    differs_B = (null.tokens != clean.tokens).any(axis=1)
    if differs_B.any():
        first = int(np.flatnonzero(differs_B)[0])
        raise NullEditError(
            f"the null edit of latents {list(null.arm.latents)}, of gain 0, changed "
            f"{int(differs_B.sum())} of {len(differs_B)} completions (the first is "
            f"number {first}): editing alone changes the sampled tokens, so no effect "
            "is due to the latents; compute in float32 (model.compute_dtype=float32), "
            "or fix the intervention"
        )
