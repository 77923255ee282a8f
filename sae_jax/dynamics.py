"""Which features of the same texts another checkpoint reads otherwise.

For one band of texts, mu a feature's mean activation over tokens and nu its firing
rate, at checkpoint 0 and at checkpoint c:

    strengthened   mu(c) / mu(0) >= 1 + delta
    suppressed     mu(c) / mu(0) <= 1 - delta
    emerging       nu(0) < e0  and  nu(c) >= e1
    unique         strengthened or emerging in this band and in no other

A claim needs the cut and more. Ours, throughout: a feature enters the family of tests
if it fires on enough tokens and prompts at the two checkpoints together, which a swap
of them does not change; its change is tested by sign flips over prompts; a feature
that misses its cut has the p-value 1, so that Benjamini-Hochberg speaks of the claims
themselves and not of a larger set they were picked from afterwards. What a run claims
is set against what it claims when each prompt's two checkpoints are swapped at random.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
from jaxtyping import Bool, Float, Int

from sae_jax.feature_statistics import FeatureTable
from sae_jax.resample import Interval, interval
from sae_jax.significance import benjamini_hochberg, sign_flip_p_values

KINDS = ("strengthened", "suppressed", "emerging")
UNIQUE = "unique"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cuts:
    """What a change must be to be claimed."""

    delta: float = 0.2  # least relative change of the mean activation
    e0: float = 0.001  # firing rate below which a feature is silent
    e1: float = 0.01  # firing rate from which it has emerged
    min_fired: int = 30  # tokens it fires on: at 0 for ratios, at 0 and c for a test
    min_prompts: int = 8  # prompts it fires in, at 0 or c: 8 signs alike have p = 1/128
    level: float = 0.05  # false among the claims of a family, on average

    def __post_init__(self) -> None:
        """Refuses cuts that no feature or every feature could pass."""
        for sound, complaint in (
            (0 < self.delta < 1, f"delta={self.delta} must lie in (0, 1)"),
            (
                0 < self.e0 <= self.e1 <= 1,
                f"e0={self.e0} and e1={self.e1} must satisfy 0 < e0 <= e1 <= 1",
            ),
            (0 < self.level < 1, f"level={self.level} must lie in (0, 1)"),
            (self.min_fired >= 1, f"min_fired={self.min_fired} must be 1 or more"),
            (
                self.min_prompts >= 1,
                f"min_prompts={self.min_prompts} must be 1 or more",
            ),
        ):
            if not sound:
                raise ValueError(complaint)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Paired:
    """Sums of the same texts at two checkpoints, a row per prompt.

    Written by `paired`. Before and what was added since, which a swap turns round.
    """

    tokens: Float[np.ndarray, " P"]
    sum: Float[np.ndarray, "P Z"]
    sum_moved: Float[np.ndarray, "P Z"]
    fired: Float[np.ndarray, "P Z"]
    fired_moved: Float[np.ndarray, "P Z"]

    @classmethod
    def joined(cls, parts: list[Self]) -> Self:
        """Returns the prompts of all parts, those of several bands say."""
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(**{n: np.concatenate([vars(p)[n] for p in parts]) for n in names})

    def of(self, features: Any) -> Self:
        """Returns the columns of these features: their numbers, or a mask."""
        arrays = {
            n: a if n == "tokens" else a[:, features] for n, a in vars(self).items()
        }
        return type(self)(**arrays)

    def swapped(self, swap: Bool[np.ndarray, " P"]) -> Self:
        """Returns the same with the checkpoints of some prompts exchanged."""
        where, sign = swap[:, None], np.where(swap, -1.0, 1.0)[:, None]
        return type(self)(
            tokens=self.tokens,
            sum=self.sum + where * self.sum_moved,
            sum_moved=sign * self.sum_moved,
            fired=self.fired + where * self.fired_moved,
            fired_moved=sign * self.fired_moved,
        )


def paired(before: FeatureTable, after: FeatureTable) -> Paired:
    """Returns the two tables' rows side by side, prompt by prompt.

    Each table has one row per prompt. Raises ValueError where the prompts or their
    tokens are not the same: then the texts are not, and a swap would mean nothing.
    """
    places = [
        {row.prompt: i for i, row in enumerate(table.rows)} for table in (before, after)
    ]
    for table, place in zip((before, after), places, strict=True):
        if len(place) < len(table.rows):
            raise ValueError(
                f"{len(table.rows)} rows for {len(place)} prompts: one row each"
            )
    if places[0].keys() != places[1].keys():
        apart = sorted(places[0].keys() ^ places[1].keys())
        raise ValueError(
            f"prompts read at one checkpoint and not at the other: {apart[:3]}, "
            f"{len(apart)} in all"
        )
    order = [list(places[0].values()), [places[1][p] for p in places[0]]]
    old, new = (
        {n: vars(t.statistics)[n][i] for n in ("tokens", "sum", "nonzero")}
        for t, i in zip((before, after), order, strict=True)
    )
    if (differ := np.flatnonzero(old["tokens"] != new["tokens"])).size:
        at = differ[0]
        raise ValueError(
            f"prompt {before.rows[order[0][at]].prompt}: {old['tokens'][at]:.0f} "
            f"tokens at one checkpoint, {new['tokens'][at]:.0f} at the other; the "
            "texts differ"
        )
    return Paired(
        tokens=old["tokens"],
        sum=old["sum"],
        sum_moved=new["sum"] - old["sum"],
        fired=old["nonzero"],
        fired_moved=new["nonzero"] - old["nonzero"],
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Change:
    """What became of each feature on one band's texts; axis 2 is checkpoint 0, then c.

    `prompts` counts those it fires in at either. The p-values are those of no change
    of sum or of firings; 1 where `changes` was not asked for them.
    """

    mean: Float[np.ndarray, "2 Z"]
    rate: Float[np.ndarray, "2 Z"]
    fired: Float[np.ndarray, "2 Z"]
    prompts: Int[np.ndarray, " Z"]
    p_mean: Float[np.ndarray, " Z"]
    p_rate: Float[np.ndarray, " Z"]

    @property
    def ratio(self) -> Float[np.ndarray, " Z"]:
        """Returns mu(c) / mu(0): infinite from silence, 1 where silent at both."""
        return _ratio(self.mean[1], self.mean[0])

    def tested(self, cuts: Cuts) -> Bool[np.ndarray, " Z"]:
        """Returns which features are in the family, whatever became of them."""
        enough = self.fired.sum(axis=0) >= cuts.min_fired
        return enough & (self.prompts >= cuts.min_prompts)


def changes(texts: Paired, *, among: Bool[np.ndarray, " Z"] | None = None) -> Change:
    """Returns every feature's change, and p-values of those `among` (default: all)."""
    total = max(texts.tokens.sum(), 1.0)
    mean, fired = (
        np.stack([before.sum(axis=0), (before.sum(axis=0) + moved.sum(axis=0))])
        for before, moved in (
            (texts.sum, texts.sum_moved),
            (texts.fired, texts.fired_moved),
        )
    )
    # A sum of differences need not cancel to the last bit.
    mean = np.where(fired > 0, np.maximum(mean, 0.0), 0.0) / total
    seen = (texts.fired > 0) | (texts.fired + texts.fired_moved > 0)
    asked = np.ones(seen.shape[1], bool) if among is None else among
    p_mean, p_rate = np.ones((2, seen.shape[1]))
    p_mean[asked] = sign_flip_p_values(texts.sum_moved[:, asked])
    p_rate[asked] = sign_flip_p_values(texts.fired_moved[:, asked], whole=True)
    return Change(
        mean=mean,
        rate=fired / total,
        fired=fired,
        prompts=seen.sum(axis=0),
        p_mean=p_mean,
        p_rate=p_rate,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claims:
    """Which features of a band changed how. `q` is what Benjamini-Hochberg makes of it.

    `q_mean` belongs to strengthened and suppressed, `q_rate` to emerging; `tested` is
    the size of the family.
    """

    strengthened: Bool[np.ndarray, " Z"]
    suppressed: Bool[np.ndarray, " Z"]
    emerging: Bool[np.ndarray, " Z"]
    q_mean: Float[np.ndarray, " Z"]
    q_rate: Float[np.ndarray, " Z"]
    tested: int

    @property
    def gained(self) -> Bool[np.ndarray, " Z"]:
        """Returns which features are strengthened or emerging."""
        return self.strengthened | self.emerging

    @property
    def counts(self) -> dict[str, int]:
        """Returns how many features each kind has."""
        return {kind: int(vars(self)[kind].sum()) for kind in KINDS}


def claims(change: Change, cuts: Cuts) -> Claims:
    """Returns what may be claimed of a band at the cuts' level."""
    tested = change.tested(cuts)
    passed = _passed(change, cuts)
    q_mean = _adjusted(
        change.p_mean, passed["strengthened"] | passed["suppressed"], tested
    )
    q_rate = _adjusted(change.p_rate, passed["emerging"], tested)
    return Claims(
        strengthened=passed["strengthened"] & (q_mean <= cuts.level),
        suppressed=passed["suppressed"] & (q_mean <= cuts.level),
        emerging=passed["emerging"] & (q_rate <= cuts.level),
        q_mean=q_mean,
        q_rate=q_rate,
        tested=int(tested.sum()),
    )


def _passed(change: Change, cuts: Cuts) -> dict[str, Bool[np.ndarray, " Z"]]:
    """Returns which features of the family pass each kind's cut."""
    tested = change.tested(cuts)
    based = tested & (change.fired[0] >= cuts.min_fired)
    old, new = change.rate
    return {
        "strengthened": based & (change.ratio >= 1 + cuts.delta),
        "suppressed": based & (change.ratio <= 1 - cuts.delta),
        "emerging": tested & (old < cuts.e0) & (new >= cuts.e1),
    }


def _adjusted(
    p_Z: Float[np.ndarray, " Z"],
    passed_Z: Bool[np.ndarray, " Z"],
    tested_Z: Bool[np.ndarray, " Z"],
) -> Float[np.ndarray, " Z"]:
    q_Z = np.ones_like(p_Z)
    q_Z[tested_Z] = benjamini_hochberg(np.where(passed_Z, p_Z, 1.0)[tested_Z])
    return q_Z


def unique(
    gained: Mapping[str, Bool[np.ndarray, " Z"]],
) -> dict[str, Bool[np.ndarray, " Z"]]:
    """Returns for each band, or run, what was gained there and nowhere else."""
    total = np.sum([*gained.values()], axis=0)
    return {band: mask & (total == 1) for band, mask in gained.items()}


def counts(found: Mapping[str, Claims]) -> dict[str, dict[str, int]]:
    """Returns the size of every kind in every band, `unique` among the kinds."""
    own = unique({band: claim.gained for band, claim in found.items()})
    return {
        band: claim.counts | {UNIQUE: int(own[band].sum())}
        for band, claim in found.items()
    }


def null_counts(
    texts: Mapping[str, Paired], cuts: Cuts, *, draws: int, seed: int = 0
) -> list[dict[str, dict[str, int]]]:
    """Returns the counts of `draws` runs in which nothing changed but by chance.

    Each prompt's two checkpoints are swapped with chance 1/2. A function of the seed.
    """
    rng = np.random.default_rng(seed)
    nobody = {band: np.zeros(part.sum.shape[1], bool) for band, part in texts.items()}
    # The family is the same under every swap: what is in none of them is left out.
    families = [
        changes(part, among=nobody[band]).tested(cuts) for band, part in texts.items()
    ]
    family = np.any(families, axis=0)
    texts = {band: part.of(family) for band, part in texts.items()}
    found = []
    for _ in range(draws):
        by_band = {}
        for band, part in texts.items():
            swapped = part.swapped(rng.random(len(part.tokens)) < 0.5)
            nothing = np.zeros(part.sum.shape[1], bool)
            passed = _passed(changes(swapped, among=nothing), cuts)
            # Only what passes a cut has a p-value that matters.
            asked = np.any([*passed.values()], axis=0)
            by_band[band] = claims(changes(swapped, among=asked), cuts)
        found.append(counts(by_band))
    return found


def sensitivity(
    found: Mapping[str, Change], cuts: Cuts
) -> list[tuple[Cuts, dict[str, dict[str, int]]]]:
    """Returns the counts at these cuts, then with delta, e0, e1 halved and doubled.

    Cuts that make no sense (delta of 1, e0 above e1) are left out.
    """
    table = []
    variants: list[dict[str, Any]] = [{}] + [
        {name: factor * vars(cuts)[name]}
        for name in ("delta", "e0", "e1")
        for factor in (0.5, 2.0)
    ]
    for variant in variants:
        try:
            varied = dataclasses.replace(cuts, **variant)
        except ValueError:
            continue
        at_cuts = {band: claims(change, varied) for band, change in found.items()}
        table.append((varied, counts(at_cuts)))
    return table


class ChangeIntervals(NamedTuple):
    """Intervals over prompts; an end is infinite where a draw leaves silence before."""

    ratio: Interval
    rate: Interval  # nu(c)


def change_intervals(
    texts: Paired, features: Int[np.ndarray, " R"], **options: Any
) -> ChangeIntervals:
    """Returns intervals of these features' ratios and rates (see `resample`).

    A draw takes a prompt at both checkpoints: the bootstrap is paired. One prompt alone
    rules nothing out: its intervals are all that a ratio or a rate can be.
    """
    part = texts.of(features)
    if len(part.tokens) < 2:
        none = np.zeros(part.sum.shape[1])
        before, after = (
            (part.sum + moved).sum(axis=0) for moved in (0.0, part.sum_moved)
        )
        fired = (part.fired + part.fired_moved).sum(axis=0)
        return ChangeIntervals(
            ratio=Interval(_ratio(after, before), none, none + np.inf),
            rate=Interval(fired / max(part.tokens.sum(), 1.0), none, none + 1.0),
        )

    def ratio(sums: tuple[Any, Any]) -> Float[np.ndarray, " R"]:
        return np.minimum(_ratio(sums[1], sums[0]), _ENDLESS)

    def rate(sums: tuple[Any, Any]) -> Float[np.ndarray, " R"]:
        return sums[0] / max(sums[1], 1.0)

    both = (part.sum, np.maximum(part.sum + part.sum_moved, 0.0))
    ends = interval(ratio, both, **options)
    found = [np.where(end > _ENDLESS / 1e3, np.inf, end) for end in ends]
    fired = (part.fired + part.fired_moved, part.tokens)
    return ChangeIntervals(
        ratio=Interval(*found), rate=interval(rate, fired, **options)
    )


# Stands for infinity where quantiles are interpolated.
_ENDLESS = 1e12


def _ratio(new: Any, old: Any) -> Float[np.ndarray, " Z"]:
    safe = np.where(old > 0, old, 1.0)
    return np.where(old > 0, new / safe, np.where(new > 0, np.inf, 1.0))
