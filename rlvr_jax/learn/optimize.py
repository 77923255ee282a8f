"""One rollout batch -> optimizer steps, and what they say of themselves."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from job_jax.processes import on_host
from rlvr_jax.config import Config, TrainConfig
from rlvr_jax.learn.batches import (
    keep_forks,
    micro_batches,
    minibatches,
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
from rlvr_jax.types import Batch, Guide, GuideSums, LossParts


class StaleRolloutsError(RuntimeError):
    """Rollouts from other weights than those that are about to learn from them."""


class LogprobGapError(RuntimeError):
    """Sampler and scorer disagree on log-probabilities beyond the configured limit."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Optimized:
    """The state after a rollout batch has been learnt from, and the step's metrics."""

    state: TrainState
    metrics: dict[str, float]
    by_cell: np.ndarray  # LossParts.by_cell, over all epochs
    seen: GuideSums | None = None  # of a probe, over each completion once
    latents: Any = None  # likewise, in a step that counts every latent


@dataclasses.dataclass(frozen=True, kw_only=True)
class Watch:
    """What a probe brings to a step. `dictionary` only where every latent counts."""

    guide: Guide
    dictionary: Any = None


def optimize(
    config: Config,
    updater: Updater,
    state: TrainState,
    *,
    batch: Batch,
    weight_version: Any,
    reference: Any,
    sampling: Sampling,
    place: Callable[[Batch], Batch],
    watch: Watch | None = None,
) -> Optimized:
    """Returns the state after every epoch and minibatch of one rollout batch.

    `batch` is what `rollout_batch` makes of the rollouts, in NumPy; with a `watch` it
    has guidance. Raises StaleRolloutsError where `weight_version`, the rollouts', is
    not this state's, LogprobGapError where sampler and scorer disagree on the first
    minibatch by more than train.max_logprob_gap, and DivergedError after too many
    non-finite steps.
    """
    train = config.train
    version = int(on_host(state.step))
    if int(weight_version) != version:
        raise StaleRolloutsError(
            f"rollouts carry weight version {int(weight_version)}, the update "
            f"has version {version}; sample again before learning"
        )

    batch, told = _scored(
        updater,
        state.params,
        batch,
        train=train,
        reference=reference,
        sampling=sampling,
        place=place,
        watch=watch,
    )
    done: list[Any] = []
    for epoch in range(train.epochs):
        for minibatch in minibatches(batch, train.minibatches):
            whole = weighted(
                minibatch,
                aggregation=train.loss.aggregation,
                max_length=train.sampling.max_new_tokens,
            )
            parts = micro_batches(
                whole, train.micro_batches, bucket=config.completion_bucket
            )
            state, losses, report = updater.step(
                state,
                map(place, parts),
                sampling,
                guide=None if watch is None else watch.guide,
                dictionary=None if watch is None or epoch else watch.dictionary,
            )
            done.append((losses, report))
    done = on_host(done)
    for _, report in done:
        check_finite(report, train.optimizer.max_skipped)
    told = _first_gap(done[0][0]) | told
    _check_gap(told["logprob_gap/mean"], train.max_logprob_gap)
    once = [losses for losses, _ in done[: train.minibatches]]
    return Optimized(
        state=state,
        metrics=_metrics(done) | told,
        by_cell=_sum([losses.by_cell for losses, _ in done]),
        seen=_sum([losses.guide for losses in once]),
        latents=_sum([losses.latents for losses in once]),
    )


def _scored(
    updater: Updater,
    params: Any,
    batch: Batch,
    *,
    train: TrainConfig,
    reference: Any,
    sampling: Sampling,
    place: Callable[[Batch], Batch],
    watch: Watch | None,
) -> tuple[Batch, dict[str, float]]:
    """Returns the batch with what scoring passes add to it, and their metrics."""
    told: dict[str, float] = {}
    if train.loss.kl_coef > 0:
        ref_logprobs_BT, _ = updater.scores(reference, place(batch), sampling)
        batch = dataclasses.replace(batch, ref_logprobs=ref_logprobs_BT)
    if watch is not None and batch.guidance and train.rfgo.reads_reference:
        level_BT = updater.levels(reference, place(batch), sampling, watch.guide)
        guidance = dataclasses.replace(batch.guidance, ref_levels=level_BT)
        batch = dataclasses.replace(batch, guidance=guidance)
    if train.old_logprobs == "scorer":
        old_BT, entropies_BT = updater.scores(params, place(batch), sampling)
        told |= _gap(old_BT, batch)
        batch = dataclasses.replace(batch, old_logprobs=old_BT)
        if train.loss.entropy_top < 1.0:
            batch = keep_forks(batch, entropies_BT, share=train.loss.entropy_top)
            told |= _kept(entropies_BT, batch)
    return batch, told


def _check_gap(gap: float, limit: float) -> None:
    if gap > limit:
        raise LogprobGapError(
            f"sampler and scorer differ by {gap:.3g} nats a token where "
            f"train.max_logprob_gap={limit} are allowed; compute in float32, or raise "
            "the limit if the loss can bear it"
        )


def _sum(parts: list[Any]) -> Any:
    """Returns what the parts add up to; None where there are none."""
    first, *rest = parts
    return None if first is None else sum(rest, start=first)


def _gap(scored_BT: np.ndarray, batch: Batch) -> dict[str, float]:
    index_T = np.arange(batch.tokens.shape[1])
    inside_BT = index_T[None] < batch.lengths[:, None]
    gaps = np.abs(scored_BT - batch.old_logprobs)[inside_BT]
    return {
        "logprob_gap/mean": float(gaps.mean()),
        "logprob_gap/max": float(gaps.max()),
    }


def _kept(entropies_BT: np.ndarray, batch: Batch) -> dict[str, float]:
    """Returns the share of tokens that learn, and the least entropy among them."""
    assert batch.kept is not None
    return {
        "entropy_top/share": float(batch.kept.sum() / batch.lengths.sum()),
        "entropy_top/threshold": float(entropies_BT[batch.kept].min()),
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
