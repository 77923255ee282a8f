"""One rollout batch -> optimizer steps and their diagnostics."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from flax import nnx

from job_jax.processes import device_get
from rlvr_jax.algorithms.objective import TokenChoice
from rlvr_jax.config import Config, TrainConfig
from rlvr_jax.learn.batches import (
    choose_loss_tokens,
    score_loss_tokens,
    shuffle_groups,
    split_minibatches,
    with_loss_weights,
)
from rlvr_jax.learn.micro_batches import (
    MicroBatchCut,
    count_tokens,
    score_micro_batches,
    split_micro_batches,
)
from rlvr_jax.learn.optimizer import check_not_diverged
from rlvr_jax.learn.probe_inputs import ProbeInputs
from rlvr_jax.learn.update import TrainState, Updater
from rlvr_jax.models.distribution import SamplingParams
from rlvr_jax.types import BANDS, Batch, FeatureSums, LossAux

_TOKEN_DRAW = 0x70  # keeps this draw apart from the minibatches'


class StaleRolloutsError(RuntimeError):
    """The rollouts' weights have another age than train.staleness prescribes."""


class LogprobMismatchError(RuntimeError):
    """Sampler and trainer disagree on log-probabilities beyond the configured limit."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class UpdateResult:
    """The state after learning from a rollout batch, and the step's metrics."""

    state: TrainState
    metrics: dict[str, float]
    token_stats: np.ndarray  # LossAux.token_stats, over all epochs
    feature_sums: FeatureSums | None = None  # a probe's, over each completion once
    latent_sums: Any = None  # likewise, only in a step that counts every latent


def run_updates(
    config: Config,
    updater: Updater,
    state: TrainState,
    *,
    batch: Batch,
    weight_version: Any,
    ref_params: nnx.State | None,
    sampling: SamplingParams,
    to_device: Callable[[Batch], Batch],
    probe: ProbeInputs | None = None,
) -> UpdateResult:
    """Returns the state after every epoch and minibatch of one rollout batch.

    `batch` comes from `batch_from_rollouts`, in NumPy; with a `probe` it has targets.

    Raises:
      StaleRolloutsError: `weight_version`, the version that sampled the rollouts, does
        not match train.staleness.
      LogprobMismatchError: sampler and scorer disagree, with the same weights, by more
        than train.max_logprob_mismatch on the first minibatch.
      DivergedError: too many steps in a row were not finite.
    """
    train = config.train
    version = int(device_get(state.step))
    versions_behind = _check_not_stale(int(weight_version), version, train=train)
    batch, score_metrics = _add_scores(
        updater,
        state.params,
        batch,
        config=config,
        version=version,
        ref_params=ref_params,
        sampling=sampling,
        to_device=to_device,
        probe=probe,
    )
    state, done, counts = _take_steps(
        updater,
        state,
        _optimizer_steps(config, batch, version=version),
        sampling=sampling,
        to_device=to_device,
        probe=probe,
    )
    for _, report in done:
        check_not_diverged(report, train.optimizer.max_consecutive_nonfinite)
    once = [losses for losses, _ in done[: train.num_minibatches]]
    metrics = score_metrics | _padding(counts) | _left_out(batch)
    metrics |= _update_metrics(train, done, once, versions_behind=versions_behind)
    _check_mismatch(metrics, train.max_logprob_mismatch)
    return UpdateResult(
        state=state,
        metrics=metrics,
        token_stats=_sum_all([losses.token_stats for losses, _ in done]),
        feature_sums=_sum_all([losses.feature_sums for losses in once]),
        latent_sums=_sum_all([losses.latent_sums for losses in once]),
    )


def _take_steps(
    updater: Updater,
    state: TrainState,
    steps: Iterator[tuple[int, Iterator[Batch]]],
    *,
    sampling: SamplingParams,
    to_device: Callable[[Batch], Batch],
    probe: ProbeInputs | None,
) -> tuple[TrainState, list[Any], list[np.ndarray]]:
    """Returns the state after `steps`, each step's losses and report, and tokens.

    The tokens are the counts of true and of computed ones in every micro-batch. A
    probe's observer sees only the first epoch, so it sees each completion once.
    """
    done: list[Any] = []
    counts: list[np.ndarray] = []

    def place(part: Batch) -> Batch:
        counts.append(count_tokens(part))
        return to_device(part)

    for epoch, micro_batches in steps:
        state, losses, report = updater.step(
            state,
            map(place, micro_batches),
            sampling,
            probe=probe.without_observer() if probe and epoch else probe,
        )
        done.append((losses, report))
    return state, device_get(done), counts


def _update_metrics(
    train: TrainConfig,
    done: list[Any],
    once: list[LossAux],
    *,
    versions_behind: int,
) -> dict[str, float]:
    """Returns the metrics of the steps; `once` has only the first epoch's losses."""
    metrics = _mean_metrics(done)
    metrics |= _first_mismatch(done, versions_behind=versions_behind)
    metrics |= _external_metrics(_sum_all([losses.external_sums for losses in once]))
    if train.staleness:
        metrics["staleness/versions_behind"] = float(versions_behind)
    return metrics


def _optimizer_steps(
    config: Config, batch: Batch, *, version: int
) -> Iterator[tuple[int, Iterator[Batch]]]:
    """Yields the epoch and the micro-batches of every optimizer step.

    The first step is on-policy by construction: its old policy is the current one, even
    if another program computed `old_logprobs`. This matters because in bfloat16 two
    programs disagree on a completion's log-probability by more than GSPO's bounds
    allow. If older weights sampled (`train.staleness`), `loss.tis_cap` corrects for it,
    not the ratio.
    """
    train, cut = config.train, MicroBatchCut.from_config(config)
    for epoch in range(train.num_epochs):
        minibatches = _cut_minibatches(
            batch, train.num_minibatches, seed=(config.seed, version, epoch)
        )
        for index, minibatch in enumerate(minibatches):
            whole = with_loss_weights(
                minibatch,
                aggregation=train.loss.aggregation,
                max_length=train.sampling.max_new_tokens,
                exclude_zero_variance=train.loss.exclude_zero_variance,
            )
            is_first = epoch == index == 0
            yield (
                epoch,
                split_micro_batches(
                    dataclasses.replace(
                        whole, on_policy=np.full(len(whole.lengths), is_first)
                    ),
                    cut,
                ),
            )


def _cut_minibatches(
    batch: Batch, num_minibatches: int, *, seed: tuple[int, ...]
) -> Iterator[Batch]:
    """Yields an epoch's minibatches; if there are several, groups are shuffled first.

    Curricula return one band after another. In this order one optimizer step would see
    only easy problems, and the next only hard ones.
    """
    if num_minibatches > 1:
        batch = shuffle_groups(batch, np.random.default_rng(seed))
    return split_minibatches(batch, num_minibatches)


def _add_scores(
    updater: Updater,
    params: nnx.State,
    batch: Batch,
    *,
    config: Config,
    version: int,
    ref_params: nnx.State | None,
    sampling: SamplingParams,
    to_device: Callable[[Batch], Batch],
    probe: ProbeInputs | None,
) -> tuple[Batch, dict[str, float]]:
    """Returns the batch with the results of scoring passes added, and their metrics."""
    train, cut = config.train, MicroBatchCut.from_config(config)
    metrics: dict[str, float] = {}

    def score(params: nnx.State, *, entropies: bool = False) -> Any:
        return score_micro_batches(
            lambda part: updater.score(
                params, to_device(part), sampling, with_entropies=entropies
            ),
            batch,
            cut,
        )

    if train.loss.kl_coef > 0:
        assert ref_params is not None
        ref_logprobs_BT, _ = score(ref_params)
        batch = dataclasses.replace(batch, ref_logprobs=ref_logprobs_BT)
    targets = batch.probe_targets
    has_features = probe is not None and probe.reasoning_features.weights.size > 0
    if targets and has_features and train.rfgo.needs_reference_policy:
        assert probe is not None
        assert ref_params is not None
        features = probe.without_observer()
        f_BTR = score_micro_batches(
            lambda part: updater.read_features(
                ref_params, to_device(part), sampling, features
            ),
            batch,
            cut,
        )
        targets = dataclasses.replace(targets, ref_features=f_BTR)
        batch = dataclasses.replace(batch, probe_targets=targets)
    if train.scores_own_policy:
        chooses_tokens = train.loss.top_entropy_quantile < 1.0
        old_BT, entropies_BT = score(params, entropies=chooses_tokens)
        batch = dataclasses.replace(
            batch, old_logprobs=old_BT, sampler_logprobs=batch.old_logprobs
        )
        if chooses_tokens:
            batch, chosen = _choose_tokens(config, batch, entropies_BT, version=version)
            metrics |= chosen
    return batch, metrics


def _choose_tokens(
    config: Config, batch: Batch, entropies_BT: np.ndarray, *, version: int
) -> tuple[Batch, dict[str, float]]:
    """Returns the batch with the tokens that learn, and metrics of the choice."""
    loss = config.train.loss
    scores_BT = score_loss_tokens(
        loss.token_choice,
        entropies_BT,
        batch.mask,
        rng=np.random.default_rng((config.seed, version, _TOKEN_DRAW)),
    )
    batch = choose_loss_tokens(batch, scores_BT, fraction=loss.top_entropy_quantile)
    return batch, _top_entropy_metrics(entropies_BT, batch, loss.token_choice)


def _padding(counts: list[np.ndarray]) -> dict[str, float]:
    """Returns the fraction of computed tokens, prompts included, that are padding."""
    true, computed = np.sum(counts, axis=0)
    return {"update/padding": float(1.0 - true / computed)}


def _left_out(batch: Batch) -> dict[str, float]:
    """Returns the fraction of completions that `mask_truncated` leaves out."""
    if batch.left_out is None:
        return {}
    left_out_B = np.asarray(batch.left_out)
    if batch.external is not None:
        left_out_B = left_out_B[~np.asarray(batch.external)]
    return {"loss/left_out": float(left_out_B.mean())}


def _check_not_stale(rollouts_version: int, version: int, *, train: TrainConfig) -> int:
    """Returns how many optimizer steps the rollouts' weights are behind."""
    behind = min(version, train.staleness * train.optimizer_steps_per_batch)
    if rollouts_version != version - behind:
        raise StaleRolloutsError(
            f"rollouts have weight version {rollouts_version}, but the update at "
            f"version {version} with train.staleness={train.staleness} needs version "
            f"{version - behind}; sample again before learning"
        )
    return behind


def _check_mismatch(metrics: Mapping[str, float], limit: float) -> None:
    """Raises LogprobMismatchError; rollouts of older weights have no mismatch.

    NaN is allowed in a skipped step: the skipped update explains it.
    """
    gap = metrics.get("logprob_mismatch/mean", 0.0)
    if gap > limit or (math.isnan(gap) and not metrics["optimizer/skipped"]):
        raise LogprobMismatchError(
            f"sampler and scorer differ by {gap:.3g} nats a token, but "
            f"train.max_logprob_mismatch={limit} is allowed; compute in float32, or "
            "raise the limit if the loss tolerates it"
        )


def _sum_all(parts: list[Any]) -> Any:
    """Returns the sum of the parts; None if they are None."""
    first, *rest = parts
    return None if first is None else sum(rest, start=first)


def _top_entropy_metrics(
    entropies_BT: np.ndarray, batch: Batch, choice: TokenChoice
) -> dict[str, float]:
    """Returns the share of tokens in the loss, and the entropy that chose them."""
    assert batch.loss_mask is not None
    fraction = {"top_entropy/fraction": float(batch.loss_mask.sum() / batch.mask.sum())}
    # Without any token, all completions are left out.
    if choice != "highest_entropy" or not batch.loss_mask.any():
        return fraction
    return fraction | {
        "top_entropy/threshold": float(entropies_BT[batch.loss_mask].min()),
    }


def _external_metrics(sums: np.ndarray | None) -> dict[str, float]:
    """Returns the mean log pi of external traces' tokens; nothing without a token.

    It is measured in the first epoch, so each trace counts once.
    """
    if sums is None or sums[1] == 0:
        return {}
    return {"external/logprob": float(sums[0] / sums[1])}


def _first_mismatch(done: list[Any], *, versions_behind: int) -> dict[str, float]:
    """Returns how far the first minibatch's log-probabilities are from the sampler's.

    If the sampler had the same weights, this distance is the mismatch. Otherwise it is
    the policy's change since sampling, and has another name. If more optimizer steps
    follow, the result also has the fraction of tokens whose ratio leaves its bounds
    only because of the mismatch with the old log-probabilities.
    """
    first, tokens = done[0][0], max(done[0][0].tokens, 1.0)
    mean, largest = first.logprob_mismatch / tokens, first.logprob_mismatch_max
    name = "staleness/logprob_change" if versions_behind else "logprob_mismatch"
    metrics = {f"{name}/mean": float(mean), f"{name}/max": float(largest)}
    if len(done) > 1 and "mismatch_clipped" in first.scalars:
        clipped = float(first.scalars["mismatch_clipped"] / tokens)
        metrics["logprob_mismatch/clipped"] = clipped
    return metrics


def _mean_metrics(done: list[Any]) -> dict[str, float]:
    """Returns means over the batch's optimizer steps, and the sum of skipped steps."""
    rows = [loss_metrics(losses) | report.to_metrics() for losses, report in done]
    metrics = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    metrics["optimizer/skipped"] = sum(row["optimizer/skipped"] for row in rows)
    metrics["rollout/entropy"] = rows[0]["loss/entropy"]
    return metrics | band_metrics(sum(losses.by_band for losses, _ in done))


def loss_metrics(aux: LossAux) -> dict[str, float]:
    """Returns the loss, and the mean of every scalar over tokens, by metric name."""
    tokens = max(float(aux.tokens), 1.0)
    return {"loss/total": float(aux.loss)} | {
        f"loss/{name}": float(value) / tokens for name, value in aux.scalars.items()
    }


def band_metrics(by_band_QM: np.ndarray) -> dict[str, float]:
    """Returns each band's mean entropy, KL and clipped fraction over its tokens.

    Bands without tokens are left out.
    """
    return {
        f"band_{band}/{name}": float(value / row[0])
        for band, row in zip(BANDS, by_band_QM, strict=True)
        for name, value in zip(("entropy", "kl", "clipped"), row[1:], strict=True)
        if row[0] > 0
    }
