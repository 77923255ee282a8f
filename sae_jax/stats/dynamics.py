"""Feature changes between two checkpoints, read on the same texts.

For one band of texts, mu a feature's mean activation over tokens and nu its firing
rate, at checkpoint 0 and at checkpoint c:

    strengthened   mu(c) / mu(0) >= 1 + delta
    suppressed     mu(c) / mu(0) <= 1 - delta
    emerging       nu(0) < e0  and  nu(c) >= e1
    unique         strengthened or emerging in this band, and in no other, though
                   each of the others could have shown it

A finding passes its threshold and a test. (This rule is ours.) A feature is tested if
it fires on enough tokens and prompts at the two checkpoints together, which does not
change if they are swapped. Its change is tested by sign flips over prompts. A feature
that misses its threshold gets the p-value 1, so that Benjamini-Hochberg controls the
false discoveries among the findings themselves.

A finding would recur on other prompts. This does not show that learning caused it: any
change of the weights makes some. `sae_jax.stats.noise_null` compares with weight noise.
"""

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from jaxtyping import Bool, Float, Int

from job_jax.resampling import Interval
from job_jax.schema import ConfigSection, PositiveInt, check
from sae_jax.stats.feature_statistics import FeatureTable
from sae_jax.stats.resample import bootstrap_interval
from sae_jax.stats.significance import benjamini_hochberg, sign_flip_p_values

CHANGE_KINDS = ("strengthened", "suppressed", "emerging")
UNIQUE = "unique"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Thresholds(ConfigSection):
    """The thresholds that a change must pass to be a finding.

    A feature must fire on `min_fired` tokens: at 0 for ratios, at 0 and c for tests. It
    must fire in `min_prompts` prompts at 0 or c: 8 equal signs have p = 1/128.
    """

    delta: float = 0.2  # smallest relative change of a mean activation
    e0: float = 0.001  # firing rate below which a feature is silent
    e1: float = 0.01  # firing rate from which a feature has emerged
    min_fired: PositiveInt = 30  # tokens that a tested feature must fire on
    min_prompts: PositiveInt = 8  # prompts that a tested feature must fire in
    fdr: float = 0.05  # accepted fraction of false claims

    def __post_init__(self) -> None:
        """Raises ConfigError on thresholds that no feature or every feature passes."""
        super().__post_init__()
        for sound, complaint in (
            (0 < self.delta < 1, f"delta={self.delta} must lie in (0, 1)"),
            (
                0 < self.e0 <= self.e1 <= 1,
                f"e0={self.e0} and e1={self.e1} must satisfy 0 < e0 <= e1 <= 1",
            ),
            (0 < self.fdr < 1, f"fdr={self.fdr} must lie in (0, 1)"),
        ):
            check(sound, complaint)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairedSums:
    """Feature sums of the same texts at two checkpoints, one row per prompt.

    Made by `pair_tables`. It holds the sums at checkpoint 0, and their changes since.
    """

    tokens: Float[np.ndarray, " P"]
    sum: Float[np.ndarray, "P Z"]
    sum_change: Float[np.ndarray, "P Z"]
    fired: Float[np.ndarray, "P Z"]
    fired_change: Float[np.ndarray, "P Z"]

    @classmethod
    def concatenate(cls, parts: list[Self]) -> Self:
        """Returns the prompts of all parts, such as several bands."""
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(**{n: np.concatenate([vars(p)[n] for p in parts]) for n in names})

    def select_features(self, features: npt.ArrayLike) -> Self:
        """Returns the columns of these features, given by index or by mask."""
        arrays = {
            n: a if n == "tokens" else a[:, features] for n, a in vars(self).items()
        }
        return type(self)(**arrays)

    def select_prompts(self, prompts: Int[np.ndarray, " Q"]) -> Self:
        """Returns the rows of these prompts, in this order."""
        return type(self)(**{n: a[prompts] for n, a in vars(self).items()})


def pair_tables(before: FeatureTable, after: FeatureTable) -> PairedSums:
    """Returns the two tables' rows side by side, prompt by prompt.

    Each table has one row per prompt. Raises ValueError if the prompts or their numbers
    of tokens differ, because then the texts differ and cannot be compared.
    """
    row_of = [
        {row.prompt: i for i, row in enumerate(table.rows)} for table in (before, after)
    ]
    for table, index in zip((before, after), row_of, strict=True):
        if len(index) < len(table.rows):
            raise ValueError(
                f"{len(table.rows)} rows for {len(index)} prompts; give one row each"
            )
    if row_of[0].keys() != row_of[1].keys():
        apart = sorted(row_of[0].keys() ^ row_of[1].keys())
        raise ValueError(
            f"prompts read at one checkpoint and not at the other: {apart[:3]}, "
            f"{len(apart)} in all; read the same prompts at both"
        )
    order = [list(row_of[0].values()), [row_of[1][p] for p in row_of[0]]]
    old, new = (
        {n: vars(t.statistics)[n][i] for n in ("tokens", "sum", "nonzero")}
        for t, i in zip((before, after), order, strict=True)
    )
    if (different := np.flatnonzero(old["tokens"] != new["tokens"])).size:
        at = different[0]
        raise ValueError(
            f"prompt {before.rows[order[0][at]].prompt}: {old['tokens'][at]:.0f} "
            f"tokens at one checkpoint, {new['tokens'][at]:.0f} at the other; the "
            "texts differ"
        )
    return PairedSums(
        tokens=old["tokens"],
        sum=old["sum"],
        sum_change=new["sum"] - old["sum"],
        fired=old["nonzero"],
        fired_change=new["nonzero"] - old["nonzero"],
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChangeEstimate:
    """Each feature's change on one band's texts; axis 0 is checkpoint 0, then c.

    `prompts` counts the prompts it fires in at either checkpoint. `p_mean` and `p_rate`
    test the sum and the number of firings; they are 1 if `estimate_changes` skipped
    them. `num_tokens` and `num_prompts` count the whole band, whether it fires there or
    not.
    """

    num_tokens: float
    num_prompts: int
    mean: Float[np.ndarray, "2 Z"]
    rate: Float[np.ndarray, "2 Z"]
    fired: Float[np.ndarray, "2 Z"]
    prompts: Int[np.ndarray, " Z"]
    p_mean: Float[np.ndarray, " Z"]
    p_rate: Float[np.ndarray, " Z"]

    @property
    def ratio(self) -> Float[np.ndarray, " Z"]:
        """Returns mu(c) / mu(0): infinite if only mu(0) is 0, and 1 if both are."""
        return _ratio(self.mean[1], self.mean[0])

    def is_tested(self, thresholds: Thresholds) -> Bool[np.ndarray, " Z"]:
        """Returns which features fire often enough to be tested."""
        enough = self.fired.sum(axis=0) >= thresholds.min_fired
        return enough & (self.prompts >= thresholds.min_prompts)

    def is_findable(self, thresholds: Thresholds) -> Bool[np.ndarray, " Z"]:
        """Returns which features could be found in this band if they were gained.

        A feature that fires must already fire often enough to be tested. For a silent
        feature, a rate of e1 must give enough firings.
        """
        grows = self.is_tested(thresholds) & (self.fired[0] >= thresholds.min_fired)
        emerges = (self.rate[0] < thresholds.e0) & (
            self.num_tokens * thresholds.e1 >= thresholds.min_fired
        )
        return (grows | emerges) & (self.num_prompts >= thresholds.min_prompts)


def estimate_changes(
    texts: PairedSums, thresholds: Thresholds | None = None
) -> ChangeEstimate:
    """Returns every feature's change, with p-values for all features.

    With `thresholds`, it computes p-values only for features that pass one of
    `vary_thresholds(thresholds)`, because no other feature can become a finding.
    """
    total = max(texts.tokens.sum(), 1.0)
    mean, fired = (
        np.stack([before.sum(axis=0), (before.sum(axis=0) + moved.sum(axis=0))])
        for before, moved in (
            (texts.sum, texts.sum_change),
            (texts.fired, texts.fired_change),
        )
    )
    # Because of rounding, a sum and its change need not cancel exactly.
    mean = np.where(fired > 0, np.maximum(mean, 0.0), 0.0) / total
    seen = (texts.fired > 0) | (texts.fired + texts.fired_change > 0)
    p_mean, p_rate = np.ones((2, seen.shape[1]))
    change = ChangeEstimate(
        num_tokens=float(texts.tokens.sum()),
        num_prompts=len(texts.tokens),
        mean=mean,
        rate=fired / total,
        fired=fired,
        prompts=seen.sum(axis=0),
        p_mean=p_mean,
        p_rate=p_rate,
    )
    tested = np.ones(seen.shape[1], bool)
    if thresholds is not None:
        variants = vary_thresholds(thresholds)
        passed = [[*_passes_thresholds(change, one).values()] for one in variants]
        tested = np.any(passed, axis=(0, 1))
    p_mean[tested] = sign_flip_p_values(texts.sum_change[:, tested])
    p_rate[tested] = sign_flip_p_values(texts.fired_change[:, tested], integer=True)
    return change


@dataclasses.dataclass(frozen=True, kw_only=True)
class Findings:
    """The features of a band that changed, by kind, with adjusted p-values.

    `q_mean` belongs to strengthened and suppressed, `q_rate` to emerging; `num_tested`
    is the number of features tested. Made by `find_changes`, where q comes from sign
    flips over prompts, or by `NoiseNull.compare`, where it comes from weight noise.
    """

    strengthened: Bool[np.ndarray, " Z"]
    suppressed: Bool[np.ndarray, " Z"]
    emerging: Bool[np.ndarray, " Z"]
    q_mean: Float[np.ndarray, " Z"]
    q_rate: Float[np.ndarray, " Z"]
    num_tested: int

    @property
    def gained(self) -> Bool[np.ndarray, " Z"]:
        """Returns which features are strengthened or emerging."""
        return self.strengthened | self.emerging

    @property
    def changed(self) -> Bool[np.ndarray, " Z"]:
        """Returns which features changed in any way."""
        return self.gained | self.suppressed

    @property
    def counts(self) -> dict[str, int]:
        """Returns the number of features of each kind."""
        return {kind: int(vars(self)[kind].sum()) for kind in CHANGE_KINDS}


def find_changes(change: ChangeEstimate, thresholds: Thresholds) -> Findings:
    """Returns the features of a band that pass the thresholds and their tests."""
    tested = change.is_tested(thresholds)
    passed = _passes_thresholds(change, thresholds)
    q_mean = adjust_p_values(
        change.p_mean, passed["strengthened"] | passed["suppressed"], tested
    )
    q_rate = adjust_p_values(change.p_rate, passed["emerging"], tested)
    return Findings(
        strengthened=passed["strengthened"] & (q_mean <= thresholds.fdr),
        suppressed=passed["suppressed"] & (q_mean <= thresholds.fdr),
        emerging=passed["emerging"] & (q_rate <= thresholds.fdr),
        q_mean=q_mean,
        q_rate=q_rate,
        num_tested=int(tested.sum()),
    )


def _passes_thresholds(
    change: ChangeEstimate, thresholds: Thresholds
) -> dict[str, Bool[np.ndarray, " Z"]]:
    """Returns which tested features pass each kind's threshold."""
    tested = change.is_tested(thresholds)
    based = tested & (change.fired[0] >= thresholds.min_fired)
    old, new = change.rate
    return {
        "strengthened": based & (change.ratio >= 1 + thresholds.delta),
        "suppressed": based & (change.ratio <= 1 - thresholds.delta),
        "emerging": tested & (old < thresholds.e0) & (new >= thresholds.e1),
    }


def adjust_p_values(
    p_Z: Float[np.ndarray, " Z"],
    passed_Z: Bool[np.ndarray, " Z"],
    tested_Z: Bool[np.ndarray, " Z"],
) -> Float[np.ndarray, " Z"]:
    """Returns q over the tested features; features that did not pass get p = 1."""
    q_Z = np.ones_like(p_Z)
    if not (passed_Z & tested_Z).any():  # as for most draws of noise
        return q_Z
    q_Z[tested_Z] = benjamini_hochberg(np.where(passed_Z, p_Z, 1.0)[tested_Z])
    return q_Z


def unique_to_group(
    gained: Mapping[str, Bool[np.ndarray, " Z"]],
    findable: Mapping[str, Bool[np.ndarray, " Z"]],
) -> dict[str, Bool[np.ndarray, " Z"]]:
    """Returns for each band the features gained there and in no other band.

    Each other band must be able to show the feature, according to `findable`. Without
    another band, nothing is unique.

    >>> gained = {"easy": np.array([1, 1, 0]) > 0, "hard": np.array([0, 1, 1]) > 0}
    >>> unique_to_group(gained, findable={b: np.array([1, 1, 0]) > 0 for b in gained})
    {'easy': array([ True, False, False]), 'hard': array([False, False, False])}
    """
    unique = {}
    for band, mask in gained.items():
        absent = [findable[other] & ~gained[other] for other in gained if other != band]
        unique[band] = mask & np.all(absent, axis=0) & bool(absent)
    return unique


def count_findings(
    findings: Mapping[str, Findings],
    estimates: Mapping[str, ChangeEstimate],
    thresholds: Thresholds,
) -> dict[str, dict[str, int]]:
    """Returns the number of findings of every kind in every band, `unique` included."""
    unique = unique_to_group(
        {band: claim.gained for band, claim in findings.items()},
        {band: estimates[band].is_findable(thresholds) for band in findings},
    )
    return {
        band: claim.counts | {UNIQUE: int(unique[band].sum())}
        for band, claim in findings.items()
    }


def vary_thresholds(thresholds: Thresholds) -> list[Thresholds]:
    """Returns these thresholds, then each of delta, e0 and e1 halved and doubled.

    Impossible combinations (a delta of 1, e0 above e1) are left out.
    """
    varied = [thresholds]
    for name in ("delta", "e0", "e1"):
        for factor in (0.5, 2.0):
            value: dict[str, Any] = {name: factor * vars(thresholds)[name]}
            with contextlib.suppress(ValueError):
                varied.append(dataclasses.replace(thresholds, **value))
    return varied


class ChangeIntervals(NamedTuple):
    """Bootstrap intervals over prompts; an end is infinite if mu(0) may be 0."""

    ratio: Interval
    rate: Interval  # nu(c)


def change_intervals(
    texts: PairedSums, features: Int[np.ndarray, " R"], **options: Any
) -> ChangeIntervals:
    """Returns bootstrap intervals of these features' ratios and rates.

    The bootstrap is paired: a resample draws a prompt at both checkpoints. With a
    single prompt nothing can be excluded, so the intervals contain every possible
    value. `options` go to `resample.bootstrap_interval`.
    """
    part = texts.select_features(features)
    if len(part.tokens) < 2:
        none = np.zeros(part.sum.shape[1])
        before, after = (
            (part.sum + moved).sum(axis=0) for moved in (0.0, part.sum_change)
        )
        fired = (part.fired + part.fired_change).sum(axis=0)
        return ChangeIntervals(
            ratio=Interval(_ratio(after, before), none, none + np.inf),
            rate=Interval(fired / max(part.tokens.sum(), 1.0), none, none + 1.0),
        )

    def ratio(sums: tuple[Any, Any]) -> Float[np.ndarray, " R"]:
        return np.minimum(_ratio(sums[1], sums[0]), _FINITE_INFINITY)

    def rate(sums: tuple[Any, Any]) -> Float[np.ndarray, " R"]:
        return sums[0] / max(sums[1], 1.0)

    both = (part.sum, np.maximum(part.sum + part.sum_change, 0.0))
    ends = bootstrap_interval(ratio, both, **options)
    found = [np.where(end > _FINITE_INFINITY / 1e3, np.inf, end) for end in ends]
    fired = (part.fired + part.fired_change, part.tokens)
    return ChangeIntervals(
        ratio=Interval(*found), rate=bootstrap_interval(rate, fired, **options)
    )


# Replaces infinity, so that quantiles can be interpolated.
_FINITE_INFINITY = 1e12


def _ratio(new: Any, old: Any) -> Float[np.ndarray, " Z"]:
    safe = np.where(old > 0, old, 1.0)
    return np.where(old > 0, new / safe, np.where(new > 0, np.inf, 1.0))
