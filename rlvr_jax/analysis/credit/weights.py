"""Token weights of a fixed policy's completions: RFGO's, and two to compare with.

Tokens are scored by the movement of reasoning features, by the movement of random
latents with equal firing rates, and by their surprise. Each kind of score becomes
weights in RFGO's way.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from job_jax.flags import Flags, UsageError
from job_jax.schema import NonNegativeFloat
from rlvr_jax.config import Config, RFGOConfig
from rlvr_jax.learn.rfgo import feature_movement, rfgo_token_weights
from rlvr_jax.probe.sae_probe import make_reader
from rlvr_jax.probe.selection import FeatureSelection
from rlvr_jax.types import Rollouts
from sae_jax.edits import measure_firing, rate_matched_latents
from sae_jax.sae import TSAE

FEATURES, SURPRISE = "reasoning features", "surprise, -log p"


@dataclasses.dataclass(frozen=True, kw_only=True)
class WeightFlags(Flags):
    """The flags of the commands that measure token weights."""

    lambda_w: NonNegativeFloat = 0.5  # as train.rfgo.lambda_w


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenWeights:
    """A run's reasoning features, and draws of random latents to compare with."""

    tsae: TSAE
    selection: FeatureSelection
    config: RFGOConfig
    draws: Sequence[Sequence[int]]

    @classmethod
    def draw(
        cls,
        tsae: TSAE,
        selection: FeatureSelection,
        config: RFGOConfig,
        residual: Float[np.ndarray, "B T D"],
        rollouts: Rollouts,
        *,
        num_draws: int,
    ) -> Self:
        """Returns the features with draws of latents that fire as often here."""
        B, T = residual.shape[:2]
        _, has_activation_BT = _masks(np.array(rollouts.lengths[:B]), T)
        read = residual[has_activation_BT].astype(np.float32)
        rate = measure_firing(tsae, read).rate
        draws = rate_matched_latents(
            rate, selection.latents, num_draws=num_draws, seed=0
        )
        return cls(tsae=tsae, selection=selection, config=config, draws=draws)

    def weigh(
        self, residual: Float[np.ndarray, "B T D"], rollouts: Rollouts
    ) -> tuple[dict[str, Float[np.ndarray, "B T"]], list[Float[np.ndarray, "B T"]]]:
        """Returns the weights by features and by surprise, and by each draw."""
        B = len(residual)
        lengths = np.array(rollouts.lengths[:B])

        def weigh_by(latents: Sequence[int]) -> Float[np.ndarray, "B T"]:
            chosen = dataclasses.replace(self.selection, latents=tuple(latents))
            wide = jnp.asarray(residual, jnp.float32)
            f = np.asarray(make_reader(self.tsae, chosen).features(wide))
            return weigh_by_movement(f, self.selection.weights, lengths, self.config)

        logprobs = np.asarray(rollouts.logprobs[:B])
        kinds = {
            FEATURES: weigh_by(self.selection.latents),
            SURPRISE: weigh_by_surprise(logprobs, lengths, self.config),
        }
        return kinds, [weigh_by(latents) for latents in self.draws]


def load_selection(workdir: Path) -> FeatureSelection:
    """Returns the reasoning features of a run. Raises UsageError if it has none."""
    file = workdir / "sae/selection.json"
    if not file.is_file():
        raise UsageError(
            f"{workdir} has no {file.relative_to(workdir)}: give a run whose stage "
            "probe is finished, with probe.name=sae"
        )
    selection = FeatureSelection.load(file)
    if selection.refusal or selection.control != "none":
        why = selection.refusal or f"probe.features.control={selection.control}"
        raise UsageError(f"{workdir} has no reasoning features: {why}")
    return selection


def check_weights_exist(config: Config) -> None:
    """Raises UsageError if completions are episodes, or the token score is another."""
    if config.environment.enabled:
        raise UsageError(
            "only completions of one turn have token weights, and these are episodes; "
            "give a run with environment.name=none"
        )
    if (score := config.train.rfgo.token_score) != "temporal_diff":
        raise UsageError(
            f"train.rfgo.token_score={score} is not supported here; give a run with "
            "temporal_diff"
        )
    if (source := config.train.rfgo.features_of) != "policy":
        raise UsageError(
            f"train.rfgo.features_of={source} is not supported here; give a run with "
            "features_of=policy"
        )


def weigh_by_movement(
    f: Float[np.ndarray, "B T R"],
    sizes: Sequence[float],
    lengths: np.ndarray,
    config: RFGOConfig,
) -> Float[np.ndarray, "B T"]:
    """Returns RFGO's token weights by how far features move; `sizes` are |s_k|.

    Each feature is scaled by its root mean square over these tokens.
    """
    mask_BT, has_activation_BT = _masks(lengths, f.shape[1])
    f = np.where(has_activation_BT[:, :, None], f, 0.0)
    mean_square_R = (f**2).sum(axis=(0, 1)) / max(1, has_activation_BT.sum())
    scale_R = np.sqrt(np.where(mean_square_R > 0, mean_square_R, 1.0))
    score_BT, scored_BT = feature_movement(
        jnp.asarray(f),
        jnp.asarray(np.abs(sizes) / scale_R),
        jnp.asarray(has_activation_BT),
    )
    return _weigh(score_BT, mask_BT, scored_BT, config)


def weigh_by_surprise(
    logprobs: Float[np.ndarray, "B T"], lengths: np.ndarray, config: RFGOConfig
) -> Float[np.ndarray, "B T"]:
    """Returns token weights by -log p, computed from scores in RFGO's way.

    Only tokens whose features can move are scored, so both kinds of weights cover the
    same tokens.
    """
    mask_BT, has_activation_BT = _masks(lengths, logprobs.shape[1])
    has_activation_BT[:, 0] = False
    return _weigh(-logprobs, mask_BT, has_activation_BT, config)


def _weigh(
    score: Any, mask: Any, scored: Any, config: RFGOConfig
) -> Float[np.ndarray, "B T"]:
    weights = rfgo_token_weights(
        score,
        mask,
        lambda_w=config.lambda_w,
        low=config.weight_low,
        high=config.weight_high,
        score_mask=scored,
    )
    return np.asarray(weights, np.float64)


def _masks(
    lengths: np.ndarray, width: int
) -> tuple[Bool[np.ndarray, "B T"], Bool[np.ndarray, "B T"]]:
    """Returns which tokens belong to a completion, and which have an activation."""
    index_T = np.arange(width)[None]
    return index_T < lengths[:, None], index_T < lengths[:, None] - 1
