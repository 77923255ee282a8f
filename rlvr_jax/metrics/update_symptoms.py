"""Symptoms of a step's update, and of the frozen autoencoder that reads the policy.

Each check yields (code, finding, advice) if its condition holds, else nothing.
"""

from collections.abc import Sequence

from rlvr_jax.metrics.step_metrics import (
    Findings,
    StepMetrics,
    percent,
    step_mean,
)

_MISMATCH_NEAR_LIMIT = 0.5  # of the limit that stops the run
_MAX_CLIPPED_BY_MISMATCH = 0.05  # of tokens
_MAX_TRUNCATED_WEIGHTS = 0.05  # of tokens


def find_update_symptoms(
    first: Sequence[StepMetrics],
    recent: Sequence[StepMetrics],
    *,
    max_logprob_mismatch: float,
    max_unexplained_growth: float,
    max_splice_cost: float,
) -> list[tuple[str, str, str]]:
    """Returns (code, finding, advice) for every check that holds after this step."""
    row = recent[-1]
    return [
        *_skipped_updates(recent),
        *_logprob_mismatch(row, max_logprob_mismatch),
        *_clipped_by_mismatch(row),
        *_stale_rollouts(row),
        *_sae_stale(first, row, max_unexplained_growth),
        *_sae_unfaithful(row, max_splice_cost),
    ]


def _skipped_updates(recent: Sequence[StepMetrics]) -> Findings:
    count = sum(row.get("optimizer/skipped", 0.0) for row in recent)
    if count == 0:
        return
    yield (
        "skipped_updates",
        f"Optimizer updates skipped within the last {len(recent)} steps: {count:g}; "
        "their gradient was not finite.",
        "Lower train.optimizer.learning_rate; the run stops at "
        "train.optimizer.max_consecutive_nonfinite in a row.",
    )


def _logprob_mismatch(row: StepMetrics, limit: float) -> Findings:
    gap = row.get("logprob_mismatch/mean", 0.0)
    if gap <= _MISMATCH_NEAR_LIMIT * limit:
        return
    yield (
        "logprob_mismatch",
        f"Sampler and update disagree on log-probabilities by {gap:.3f} nats per "
        f"token; the run stops at {limit:g}.",
        "Compute in float32, or compare the sampler's settings with the update's.",
    )


def _clipped_by_mismatch(row: StepMetrics) -> Findings:
    share = row.get("logprob_mismatch/clipped", 0.0)
    if share <= _MAX_CLIPPED_BY_MISMATCH:
        return
    yield (
        "mismatch_clips",
        f"The ratios of {percent(share)} of tokens are out of bounds before the "
        "policy has moved. Two passes with the same weights disagree by more than the "
        "clip range, so every optimizer step of a batch except the first clips tokens "
        "by chance.",
        "Compute in float32 (model.compute_dtype), take one optimizer step per batch "
        "(train.num_minibatches, train.num_epochs), or set "
        "train.loss.importance_sampling_level=token or wider bounds.",
    )


def _stale_rollouts(row: StepMetrics) -> Findings:
    share = row.get("loss/tis_truncated", 0.0)
    behind = row.get("staleness/versions_behind", 0.0)
    if behind == 0 or share <= _MAX_TRUNCATED_WEIGHTS:
        return
    yield (
        "stale_rollouts",
        f"train.loss.tis_cap truncates the importance weights of {percent(share)} of "
        f"tokens: the policy has moved far in the {behind:.0f} optimizer steps since "
        "they were sampled.",
        "Lower train.staleness or train.optimizer.learning_rate.",
    )


def _sae_stale(
    first: Sequence[StepMetrics], row: StepMetrics, limit: float
) -> Findings:
    """Finds autoencoders that explain the policy less well than at the start.

    It compares the unexplained part: if FVE falls from 0.95 to 0.90, the change is
    small, but the unexplained part has doubled.
    """
    fve, kl = "sae/fve_reference", "sae/splice_kl_reference"
    grown = []
    before, now = step_mean(first, fve), row.get(fve)
    if before is not None and now is not None and 1 - now > (1 + limit) * (1 - before):
        grown.append(
            f"leaves {100 * (1 - now):.1f} % of the stream's variance unexplained, "
            f"{100 * (1 - before):.1f} % at the start"
        )
    before, now = step_mean(first, kl), row.get(kl)
    if before is not None and now is not None and now > (1 + limit) * before:
        grown.append(
            f"changes the policy that reads its output by {now:.3g} nats per token "
            f"(KL), {before:.3g} at the start"
        )
    if grown:
        yield (
            "sae_stale",
            f"The frozen autoencoder {' and '.join(grown)}: the policy has moved away "
            "from it.",
            "Trust its features less from now on; train a new one on the newest "
            "checkpoint (docs/method/features.md).",
        )


def _sae_unfaithful(row: StepMetrics, limit: float) -> Findings:
    cost = row.get("sae/splice_cost_reference", 0.0)
    if cost <= limit:
        return
    yield (
        "sae_unfaithful",
        "If the policy reads the autoencoder's reconstruction instead of the original "
        f"stream, it has {percent(cost)} more cross-entropy: the latents miss part of "
        "the policy's computation.",
        "Train a larger autoencoder, or train it longer (probe.sae.architecture, "
        "probe.sae.train.steps), before you trust its features.",
    )
