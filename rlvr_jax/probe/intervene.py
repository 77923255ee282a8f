"""Causes: latents changed while the policy answers, and what changes with them.

Every arm answers the same held-out problems with the same sampling keys: the policy as
it is (clean), with the latents edited (target), and the controls: random latents that
fire as often and move the stream as far, a random direction that moves every token
exactly as far, and a null edit that moves nothing and must give the clean completions.
A target that does no more than its controls is no cause, however large its effect.
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from job_jax.schema import ConfigError
from rlvr_jax.config import Config
from rlvr_jax.metrics.bootstrap import RatioStatistic
from rlvr_jax.models import Activations, Transformer
from rlvr_jax.probe.checks import check_sae_fits
from rlvr_jax.probe.intervene_metrics import correctness, intervention_metrics
from rlvr_jax.probe.sae import SAEProbeConfig
from rlvr_jax.rollouts.graded import GradedCompletion, grade_completions
from rlvr_jax.rollouts.sample import sample_problems
from rlvr_jax.run.load import LoadedPolicy
from rlvr_jax.run.setup import RunSetup
from rlvr_jax.sampler import ScopedIntervention
from rlvr_jax.types import Problem, Rollouts
from sae_jax.edits import (
    MODES,
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
    "CONTROLS",
    "MODES",
    "Arm",
    "ArmResult",
    "Calibration",
    "InterventionSpec",
    "Kind",
    "NullEditError",
    "calibrate",
    "check_null_edit",
    "load_fitting_sae",
    "make_arms",
    "run_arm",
]

Kind = Literal["clean", "target", "random latents", "random direction", "null"]
CONTROLS: tuple[Kind, ...] = ("random latents", "random direction")

# Clean completion tokens that firing rates and distances are measured on.
_CALIBRATION_TOKENS = 32_768


class NullEditError(RuntimeError):
    """The edit of gain 0 changed completions: no arm's effect can be trusted."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class InterventionSpec:
    """What is edited, how strongly, and how many controls are drawn."""

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
                f"num_controls={self.num_controls}; a claim takes at least one control"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arm:
    """One way to answer the problems: the edit that is applied while sampling.

    `mean_shift` is the mean distance |delta x| by which it moves a clean token.
    """

    kind: Kind
    strength: float = 0.0
    control_index: int = 0
    latents: tuple[int, ...] = ()
    edit: LatentEdit | None = None
    mean_shift: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArmResult:
    """How an arm answered. `correct` is [N, G]; `tokens` [B, T] are its completions.

    `graded` are the same as text, in the same order. `metrics` are those of
    `intervention_metrics`, and "kl": KL(arm || clean) in nats per token on the arm's
    own completions, from all logits at temperature 1.
    """

    arm: Arm
    metrics: dict[str, RatioStatistic]
    correct: np.ndarray
    tokens: np.ndarray
    graded: tuple[GradedCompletion, ...] = ()

    def token_match_rate(self, other: "ArmResult") -> float:
        """Returns the share of completions that are the other's, token for token."""
        return float((self.tokens == other.tokens).all(axis=1).mean())


class Calibration(NamedTuple):
    """Residual stream of clean completions [N, D], and how latents fire on it."""

    residuals: np.ndarray
    firing: FiringStats


def load_fitting_sae(
    path: str, config: Config, *, layer: int, latents: Sequence[int]
) -> SAERecord:
    """Returns an autoencoder that fits the policy and the layer, and has the latents.

    Raises ConfigError if it is of another width, layer or model, and if it does not
    have these latents.
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

    At most 32,768 tokens; a completion's last token is left out, since nothing is
    predicted from it.
    """
    blocks: list[np.ndarray] = []
    for part, rollouts in _sample_batches(policy, problems, None):
        residual_BTD = jax.device_get(
            _residuals(
                policy.setup.graphdef,
                policy.params,
                _on_mesh(policy.setup, rollouts),
                layer=layer,
            )
        )
        index_T = np.arange(residual_BTD.shape[1])
        mask_BT = index_T[None] < rollouts.lengths[:, None] - 1
        rows = len(mask_BT) // len(rollouts.prompts.lengths) * len(part)
        blocks.append(residual_BTD[:rows][mask_BT[:rows]])
        if sum(map(len, blocks)) >= _CALIBRATION_TOKENS:
            break
    residuals = np.concatenate(blocks)[:_CALIBRATION_TOKENS].astype(np.float32)
    return Calibration(residuals, measure_firing(tsae, residuals))


def make_arms(
    spec: InterventionSpec, tsae: TSAE, calibration: Calibration, *, seed: int
) -> list[Arm]:
    """Returns every edited arm: one null edit, each strength's target and controls.

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
            Arm(
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
    policy: LoadedPolicy, problems: Sequence[Problem], arm: Arm, *, scope: Any
) -> ArmResult:
    """Returns how an arm answers the problems, eval.num_samples times each."""
    setup, config = policy.setup, policy.setup.config.eval
    intervention = None
    if arm.edit is not None:
        edit = setup.replicate(arm.edit)
        intervention = ScopedIntervention(intervention=edit, scope=scope)
    G = config.num_samples
    graded: list[GradedCompletion] = []
    tokens, kl = [], []
    for part, rollouts in _sample_batches(policy, problems, intervention):
        graded += grade_completions(setup, part, rollouts)
        tokens.append(rollouts.tokens[: len(part) * G])
        divergence_B = np.zeros(len(tokens[-1]))
        if intervention is not None:
            padded_B = _kl_from_clean(
                setup.graphdef, policy.params, _on_mesh(setup, rollouts), intervention
            )
            divergence_B = np.asarray(padded_B, np.float64)[: len(divergence_B)]
        kl.append(divergence_B)
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
    """Raises NullEditError unless an edit of gain 0 left every completion as it was."""
    differs_B = (null.tokens != clean.tokens).any(axis=1)
    if differs_B.any():
        first = int(np.flatnonzero(differs_B)[0])
        raise NullEditError(
            f"the null edit of latents {list(null.arm.latents)}, of gain 0, changed "
            f"{int(differs_B.sum())} of {len(differs_B)} completions (the first is "
            f"number {first}): editing alone changes what is sampled, so no effect is "
            "the latents'; compute in float32 (model.compute_dtype=float32), or mend "
            "the intervention"
        )


def _sample_batches(
    policy: LoadedPolicy,
    problems: Sequence[Problem],
    intervention: ScopedIntervention | None,
) -> Iterator[tuple[list[Problem], Rollouts]]:
    """Yields batches of held-out problems with their rollouts, in NumPy."""
    config = policy.setup.config.eval
    return sample_problems(
        policy.setup,
        policy.params,
        problems,
        sampling=config.sampling,
        num_samples=config.num_samples,
        batch_size=config.batch_size,
        stream="eval",
        weight_version=policy.step,
        intervention=intervention,
    )


def _on_mesh(setup: RunSetup, rollouts: Rollouts) -> Rollouts:
    """Returns rollouts (in NumPy) on the mesh, split over the batch."""
    return jax.tree.map(
        lambda x: (setup.shard_batch if x.ndim else setup.replicate)(x), rollouts
    )


def _hidden_states(
    policy: Transformer,
    rollouts: Rollouts,
    intervention: ScopedIntervention | None,
    *,
    taps: tuple[int, ...] = (),
) -> tuple[jax.Array, Activations]:
    """Returns the hidden state [B, D] that token 0 is drawn from, and the rest's."""
    prompts, edit = rollouts.prompts, intervention
    states = policy.hidden_states(
        prompts.tokens,
        prompts.lengths,
        rollouts.tokens,
        capture_layers=taps,
        intervention=None if edit is None else edit.intervention,
        prompt_intervention=None if edit is None else edit.for_prompts(prompts),
    )
    return states.first, states.completions


@functools.partial(jax.jit, static_argnames=("graphdef", "layer"))
def _residuals(
    graphdef: Any, params: Any, rollouts: Rollouts, *, layer: int
) -> jax.Array:
    """Returns the residual stream of completions after a layer, [B, T, D]."""
    policy: Transformer = nnx.merge(graphdef, params)
    return _hidden_states(policy, rollouts, None, taps=(layer,))[1].captured[0]


@functools.partial(jax.jit, static_argnames="graphdef")
def _kl_from_clean(
    graphdef: Any, params: Any, rollouts: Rollouts, intervention: ScopedIntervention
) -> jax.Array:
    """Returns KL(edited || clean) summed over each completion's tokens, [B].

    The logits of one position exist at a time.
    """
    policy: Transformer = nnx.merge(graphdef, params)

    def states(edited: ScopedIntervention | None) -> jax.Array:
        first_BD, rest = _hidden_states(policy, rollouts, edited)
        hidden_BTD = jnp.concatenate([first_BD[:, None], rest.hidden[:, :-1]], axis=1)
        return hidden_BTD.swapaxes(0, 1)

    def of_token(hidden: tuple[jax.Array, jax.Array]) -> jax.Array:
        ours_BV, clean_BV = (
            jax.nn.log_softmax(policy.logits(each_BD[:, None])[:, 0])
            for each_BD in hidden
        )
        return (jnp.exp(ours_BV) * (ours_BV - clean_BV)).sum(axis=-1)

    kl_TB = jax.lax.map(of_token, (states(intervention), states(None)))
    index_T = jnp.arange(kl_TB.shape[0], dtype=jnp.int32)
    return jnp.where(index_T[:, None] < rollouts.lengths[None], kl_TB, 0.0).sum(axis=0)
