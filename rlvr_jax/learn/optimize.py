"""One rollout batch -> optimizer steps, and what they say of themselves."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from rlvr_jax.config import Config
from rlvr_jax.learn.batches import (
    micro_batches,
    minibatches,
    rollout_batch,
    weighted,
)
from rlvr_jax.learn.update import (
    TrainState,
    Updater,
    band_metrics,
    check_finite,
    loss_metrics,
)
from rlvr_jax.models.distribution import Sampling
from rlvr_jax.types import Batch, LossParts, Rollouts


class StaleRolloutsError(RuntimeError):
    """Rollouts from other weights than those that are about to learn from them."""


class LogprobGapError(RuntimeError):
    """Sampler and scorer disagree on log-probabilities beyond the configured limit."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Optimized:
    """The state after a rollout batch has been learnt from, and the step's metrics."""

    state: TrainState
    metrics: dict[str, float]


def optimize(
    config: Config,
    updater: Updater,
    state: TrainState,
    *,
    rollouts: Rollouts,
    advantages_PG: np.ndarray,
    reference: Any,
    sampling: Sampling,
    place: Callable[[Batch], Batch],
    bands_P: np.ndarray | None = None,
) -> Optimized:
    """Returns the state after every epoch and minibatch of one rollout batch (NumPy).

    Given each group's band (an index into BANDS, or -1), metrics are cut by it as well.
    Raises StaleRolloutsError where the rollouts are not of this state's weights,
    LogprobGapError where sampler and scorer disagree on the first minibatch by more
    than train.max_logprob_gap, and DivergedError after too many non-finite steps.
    """
    train = config.train
    version = int(jax.device_get(state.step))
    if int(rollouts.weight_version) != version:
        raise StaleRolloutsError(
            f"rollouts carry weight version {int(rollouts.weight_version)}, the update "
            f"has version {version}; sample again before learning"
        )

    def parts(minibatch: Batch) -> list[Batch]:
        cut = micro_batches(
            minibatch, train.micro_batches, bucket=config.completion_bucket
        )
        return [place(part) for part in cut]

    bands_B = None
    if bands_P is not None:
        bands_B = np.repeat(bands_P, advantages_PG.shape[1]).astype(np.int32)
    batch = rollout_batch(rollouts, advantages_PG.reshape(-1), bands_B)
    if train.loss.kl_coef > 0:
        ref_logprobs_BT = updater.logprobs(reference, place(batch), sampling)
        batch = dataclasses.replace(batch, ref_logprobs=ref_logprobs_BT)
    gap = None
    if train.old_logprobs == "scorer":
        old_BT = updater.logprobs(state.params, place(batch), sampling)
        gap = _gap(old_BT, rollouts)
        batch = dataclasses.replace(batch, old_logprobs=old_BT)
    done: list[Any] = []
    for _ in range(train.epochs):
        for minibatch in minibatches(batch, train.minibatches):
            whole = weighted(
                minibatch,
                aggregation=train.loss.aggregation,
                max_length=train.sampling.max_new_tokens,
            )
            state, losses, report = updater.step(state, parts(whole), sampling)
            done.append((losses, report))
    done = jax.device_get(done)
    for _, report in done:
        check_finite(report, train.optimizer.max_skipped)
    gap = gap or _first_gap(done[0][0])
    if gap["logprob_gap/mean"] > train.max_logprob_gap:
        raise LogprobGapError(
            f"sampler and scorer differ by {gap['logprob_gap/mean']:.3g} nats a token "
            f"where train.max_logprob_gap={train.max_logprob_gap} are allowed; compute "
            "in float32, or raise the limit if the loss can bear it"
        )
    return Optimized(state=state, metrics=_metrics(done) | gap)


def _gap(scored_BT: np.ndarray, rollouts: Rollouts) -> dict[str, float]:
    index_T = np.arange(rollouts.tokens.shape[1])
    inside_BT = index_T[None] < rollouts.lengths[:, None]
    gaps = np.abs(scored_BT - rollouts.logprobs)[inside_BT]
    return {
        "logprob_gap/mean": float(gaps.mean()),
        "logprob_gap/max": float(gaps.max()),
    }


def _first_gap(parts: LossParts) -> dict[str, float]:
    """Returns the gap from the first minibatch, whose weights are the sampler's."""
    return {
        "logprob_gap/mean": float(parts.logprob_gap / max(parts.tokens, 1.0)),
        "logprob_gap/max": float(parts.logprob_gap_max),
    }


def _metrics(done: list[Any]) -> dict[str, float]:
    """Returns means over the batch's optimizer steps; skips add up."""
    rows = [loss_metrics(losses) | report.metrics() for losses, report in done]
    metrics = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    metrics["optimizer/skipped"] = sum(row["optimizer/skipped"] for row in rows)
    metrics["rollout/entropy"] = rows[0]["loss/entropy"]
    return metrics | band_metrics(sum(losses.by_band for losses, _ in done))
