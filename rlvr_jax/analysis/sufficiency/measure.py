"""The latents that RL amplified, doses of them before RL, and shares of RL's change."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from jaxtyping import Bool

from job_jax.resampling import Interval, resample_counts
from job_jax.schema import ConfigError
from rlvr_jax.metrics.bootstrap import CONFIDENCE, RatioStatistic, ratio_difference
from rlvr_jax.metrics.lenient import has_lenient_accuracy, is_lenient_success
from rlvr_jax.probe.edited_policy import clean_residuals, sample_edited
from rlvr_jax.probe.intervene import (
    CALIBRATION_TOKENS,
    ArmResult,
    Calibration,
    predicting_tokens,
)
from rlvr_jax.rollouts.graded import GradedCompletion
from rlvr_jax.run.load import LoadedPolicy
from rlvr_jax.types import Problem
from sae_jax.edits import measure_firing
from sae_jax.sae import TSAE


@dataclasses.dataclass(frozen=True, kw_only=True)
class Amplification:
    """How RL changed each latent's mean activation on the same tokens.

    `change` is after RL minus before. `before` has the residual stream before RL, and
    how latents fire on it.
    """

    change: npt.NDArray[np.float64]
    before: Calibration

    def choose(self, count: int) -> tuple[int, ...]:
        """Returns the `count` latents that RL amplified most, the largest first.

        Latents that never fire before RL are left out, because no random latent matches
        their firing rate. Raises ConfigError if RL amplified fewer.
        """
        usable = (self.change > 0) & (self.before.firing.rate > 0)
        order = np.argsort(-np.where(usable, self.change, -np.inf), kind="stable")
        if usable.sum() < count:
            raise ConfigError(
                f"top={count}, but RL amplified only {usable.sum()} latents that fire "
                "before RL; give a smaller --top"
            )
        return tuple(map(int, order[:count]))

    def in_units_of_change(self, latents: Sequence[int]) -> Calibration:
        """Returns a calibration in which the unit of these latents is their change.

        With mode `add`, strength 1 then adds to every token what RL added on average.
        """
        unit = self.before.firing.mean_when_active.copy()
        unit[list(latents)] = self.change[list(latents)]
        firing = dataclasses.replace(self.before.firing, mean_when_active=unit)
        return self.before._replace(firing=firing)


def measure_amplification(
    before: LoadedPolicy,
    after: LoadedPolicy,
    tsae: TSAE,
    problems: Sequence[Problem],
    *,
    layer: int,
) -> Amplification:
    """Returns what RL amplified on completions of both policies, read by both.

    At most 32,768 tokens are read, half of them written by each policy, evenly over the
    problems.
    """
    sides: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for writer in (before, after):
        parts = [*sample_edited(writer, problems, None)]
        masks = [predicting_tokens(rollouts, len(part)) for part, rollouts in parts]
        chosen = thin_out(masks, CALIBRATION_TOKENS // 2)
        for (_, rollouts), mask_BT in zip(parts, chosen, strict=True):
            for side, reader in zip(sides, (before, after), strict=True):
                residual_BTD = clean_residuals(reader, rollouts, layer=layer)
                side.append(residual_BTD[mask_BT].astype(np.float32))
    old, new = (
        Calibration(x, measure_firing(tsae, x)) for x in map(np.concatenate, sides)
    )
    mean_old, mean_new = (
        one.firing.rate * one.firing.mean_when_active for one in (old, new)
    )
    change = np.asarray(mean_new - mean_old, np.float64)
    return Amplification(change=change, before=old)


def thin_out(
    masks: Sequence[Bool[np.ndarray, " B T"]], most: int
) -> list[Bool[np.ndarray, " B T"]]:
    """Returns the masks with at most `most` tokens in all, at equal distances.

    >>> [kept] = thin_out([np.ones((2, 3), bool)], 3)
    >>> kept.astype(int).tolist()
    [[1, 0, 1], [0, 0, 1]]
    """
    flat = np.concatenate([mask.ravel() for mask in masks])
    places = np.flatnonzero(flat)
    at = np.linspace(0, len(places) - 1, min(most, len(places))).astype(int)
    kept = np.zeros_like(flat)
    kept[places[at]] = True
    ends = np.cumsum([mask.size for mask in masks])[:-1]
    return [
        part.reshape(mask.shape)
        for part, mask in zip(np.split(kept, ends), masks, strict=True)
    ]


def with_lenient_metrics(result: ArmResult, *, num_samples: int) -> ArmResult:
    """Returns the arm with `answered` and, if all golds are numbers, `lenient` too.

    `answered` is the share of completions in which the verifier finds an answer,
    `lenient` the share that is correct or states the gold anywhere.
    """
    shares: dict[str, Callable[[GradedCompletion], bool]] = {
        "answered": lambda one: one.verdict.answer is not None
    }
    if has_lenient_accuracy(one.problem.gold for one in result.graded):
        shares["lenient"] = lambda one: is_lenient_success(
            one.verdict.status, one.completion, one.problem.golds
        )
    found = {
        name: RatioStatistic(
            numerator=np.reshape(
                [float(of(one)) for one in result.graded], (-1, num_samples)
            ).sum(axis=1),
            denominator=np.full(len(result.graded) // num_samples, float(num_samples)),
        )
        for name, of in shares.items()
    }
    return dataclasses.replace(result, metrics=result.metrics | found)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Share:
    """What part of RL's change an edit before RL, or worked examples, bring about.

    `share` is 1 if it brings all of it and 0 if none; its interval is over problems.
    None if RL changed the outcome by an interval that contains 0.
    """

    outcome: str
    strength: float
    kind: str
    draw: int
    before: float
    edited: float
    after: float
    share: Interval | None

    def to_json(self) -> dict[str, Any]:
        """Returns the fields, an unknown share as null."""
        share = None if self.share is None else self.share.to_json()
        return {**vars(self), "share": share}


def measure_shares(
    clean: ArmResult,
    after_rl: ArmResult,
    edited: Sequence[ArmResult],
    outcomes: Sequence[str],
    *,
    resamples: int,
    seed: int,
) -> list[Share]:
    """Returns each edited arm's share of RL's change in each outcome.

    Problems are resampled together in all three: before RL, edited and after RL.
    Resamples that RL does not change are left out.
    """
    counts_RN = resample_counts(len(clean.correct), resamples=resamples, seed=seed)
    shares = []
    for outcome in outcomes:
        before, after = clean.metrics[outcome], after_rl.metrics[outcome]
        by_rl = ratio_difference(after, before, counts_RN)
        is_known = by_rl.low > 0 or by_rl.high < 0
        change_R = after.resampled(counts_RN) - before.resampled(counts_RN)
        for arm in edited:
            now = arm.metrics[outcome]
            share = None
            if is_known:
                changed_R = change_R != 0  # a share of no change is undefined
                share_R = (now.resampled(counts_RN) - before.resampled(counts_RN))[
                    changed_R
                ] / change_R[changed_R]
                tail = (1 - CONFIDENCE) / 2
                share = Interval(
                    (now.mean() - before.mean()) / by_rl.mean,
                    *np.quantile(share_R, [tail, 1 - tail]),
                )
            shares.append(
                Share(
                    outcome=outcome,
                    strength=arm.arm.strength,
                    kind=arm.arm.kind,
                    draw=arm.arm.control_index,
                    before=before.mean(),
                    edited=now.mean(),
                    after=after.mean(),
                    share=share,
                )
            )
    return shares
