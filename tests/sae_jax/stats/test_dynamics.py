"""Dynamics: planted changes are found, noise is not, and each cut is exact."""

import dataclasses

import numpy as np
import pytest

from sae_jax.stats.dynamics import (
    CHANGE_KINDS,
    ChangeEstimate,
    PairedSums,
    Thresholds,
    change_intervals,
    count_findings,
    estimate_changes,
    find_changes,
    pair_tables,
    unique_to_group,
    vary_thresholds,
)
from tests.support.feature_worlds import World

CUTS = Thresholds()
PLANTED = World(
    gain={"easy": {0: 1.8, 1: 0.4, 2: 1.8}, "hard": {2: 1.8}},
    emerging={"easy": {3: 0.1}, "hard": {3: 0.1, 4: 0.1}},
)


def pair(world, band, *, seed=0):
    tables = [world.table(step, seed=seed).select(band=band) for step in (0, 100)]
    return pair_tables(*tables)


def found(world, *, seed=0):
    return {
        band: find_changes(estimate_changes(pair(world, band, seed=seed)), CUTS)
        for band in world.bands
    }


def estimates(world, *, seed=0):
    return {b: estimate_changes(pair(world, b, seed=seed)) for b in world.bands}


def findable(world):
    return {b: change.is_findable(CUTS) for b, change in estimates(world).items()}


def members(mask):
    return set(np.flatnonzero(mask).tolist())


def test_planted_features_are_found_in_their_bands():
    of = found(PLANTED)
    assert members(of["easy"].strengthened) == {0, 2}
    assert members(of["easy"].suppressed) == {1}
    assert members(of["easy"].emerging) == {3}
    assert members(of["hard"].strengthened) == {2}
    assert members(of["hard"].suppressed) == set()
    assert members(of["hard"].emerging) == {3, 4}


def test_unique_is_what_no_other_band_gained():
    """0: only easy. 2 and 3: both. 4: only hard. 1 is suppressed: not a gain."""
    own = unique_to_group(
        {band: claim.gained for band, claim in found(PLANTED).items()},
        findable(PLANTED),
    )
    assert {band: members(mask) for band, mask in own.items()} == {
        "easy": {0},
        "hard": {4},
    }


def test_unique_by_hand():
    """Strengthened in one band and emerging in another means unique to neither."""
    gained = {
        "easy": np.array([1, 1, 0, 1], bool),
        "medium": np.array([0, 1, 0, 1], bool),
        "hard": np.array([0, 0, 1, 1], bool),
    }
    own = unique_to_group(gained, {band: np.ones(4, bool) for band in gained})
    assert {band: members(mask) for band, mask in own.items()} == {
        "easy": {0},
        "medium": set(),
        "hard": {2},
    }
    # If hard could not have shown 0, it is unknown whether 0 is unique to easy.
    blind = {band: np.ones(4, bool) for band in gained}
    blind["hard"] = np.array([0, 1, 1, 1], bool)
    assert members(unique_to_group(gained, blind)["easy"]) == set()
    assert members(unique_to_group({"hard": gained["hard"]}, blind)["hard"]) == set()


def test_a_band_of_one_prompt_makes_nothing_unique_to_the_others():
    """Three features grow in hard; with one prompt, easy cannot show any change."""
    world = World(gain={"hard": {0: 1.8, 1: 1.8, 2: 1.8}})
    texts = {band: pair(world, band) for band in world.bands}
    texts["easy"] = texts["easy"].select_prompts(np.array([4]))
    changes = {band: estimate_changes(part) for band, part in texts.items()}
    claims = {band: find_changes(change, CUTS) for band, change in changes.items()}
    assert members(claims["hard"].gained) == {0, 1, 2}
    assert count_findings(claims, changes, CUTS)["hard"]["unique"] == 0


@pytest.mark.parametrize(
    ("fired", "tokens", "prompts", "could"),
    [
        (30.0, 4800.0, 24, True),  # fires often enough to grow
        (29.0, 4800.0, 24, False),  # not often enough, but not silent
        (1.0, 3000.0, 24, True),  # silent, and 1 % of 3000 tokens are 30
        (1.0, 2900.0, 24, False),
        (30.0, 4800.0, 7, False),
    ],
)
def test_what_a_band_could_have_shown(fired, tokens, prompts, could):
    both = np.array([[fired], [fired + 1]])
    seen = ChangeEstimate(
        num_tokens=tokens,
        num_prompts=prompts,
        mean=both,
        rate=both / tokens,
        fired=both,
        prompts=np.array([prompts]),
        p_mean=np.ones(1),
        p_rate=np.ones(1),
    )
    assert seen.is_findable(CUTS).tolist() == [could]


def test_counts_of_all_kinds():
    assert count_findings(found(PLANTED), estimates(PLANTED), CUTS) == {
        "easy": {"strengthened": 2, "suppressed": 1, "emerging": 1, "unique": 1},
        "hard": {"strengthened": 1, "suppressed": 0, "emerging": 2, "unique": 1},
    }


def test_chance_alone_is_rarely_claimed():
    """Every claim is false: FDR is the chance of any, at most 0.05 a family.

    Half of all features pass the cuts by chance, so the test must do the work. 400
    families with a chance of 0.05 give 20 +- 4.4.
    """
    cuts = dataclasses.replace(CUTS, delta=0.01, e0=0.22, e1=0.22)
    with_mean, with_rate = 0, 0
    for seed in range(400):
        world = World(bands=("all",), latents=30, tokens=20)
        claim = find_changes(estimate_changes(pair(world, "all", seed=seed)), cuts)
        with_mean += (claim.strengthened | claim.suppressed).any()
        with_rate += claim.emerging.any()
    assert with_mean <= 33
    assert with_rate <= 33


def test_false_claims_stay_a_small_share_among_true_ones():
    """10 of 60 features grow by half, and the others do not.

    Benjamini-Hochberg promises that the others make up 0.05 x 50/60 = 0.042 of the
    claims; the mean of 200 worlds has an error of 0.006.
    """
    world = World(
        bands=("all",), tokens=50, gain={"all": dict.fromkeys(range(10), 1.5)}
    )
    cuts = dataclasses.replace(CUTS, delta=0.02)
    shares, power = [], []
    for seed in range(200):
        claim = find_changes(estimate_changes(pair(world, "all", seed=seed)), cuts)
        claimed = claim.strengthened | claim.suppressed
        shares.append(claimed[10:].sum() / max(claimed.sum(), 1))
        power.append(claimed[:10].mean())
    assert np.mean(shares) <= 0.054
    assert np.mean(power) > 0.85


def test_intervals_cover_the_planted_ratio():
    """95 % of intervals hold a gain of 1.5; slightly fewer do with only 24 prompts.

    The true ratio of sums is 1.5 with these prompts or any others.
    """
    world = World(bands=("all",), gain={"all": dict.fromkeys(range(60), 1.5)})
    hits = []
    for seed in range(6):
        texts = pair(world, "all", seed=seed)
        ratio, rate = change_intervals(
            texts, np.arange(60), num_resamples=300, seed=seed
        )
        hits.append((ratio.low <= 1.5) & (ratio.high >= 1.5))
        np.testing.assert_allclose(ratio.value, estimate_changes(texts).ratio)
        np.testing.assert_allclose(rate.value, estimate_changes(texts).rate[1])
    assert 0.89 <= np.mean(hits) <= 0.99


def test_an_interval_from_silence_has_no_upper_end():
    texts = PairedSums(
        tokens=np.full(4, 10.0),
        sum=np.array([[0.0], [0.0], [0.0], [1.0]]),
        sum_change=np.full((4, 1), 2.0),
        fired=np.array([[0.0], [0.0], [0.0], [1.0]]),
        fired_change=np.ones((4, 1)),
    )
    ratio = change_intervals(texts, np.array([0])).ratio
    assert ratio.value[0] == 9.0
    assert 3.0 <= ratio.low[0] < 9.0
    assert ratio.high[0] == np.inf


def test_bands_merge_exactly():
    """Change over all prompts uses the joined table, not a mean of two changes."""
    tables = [PLANTED.table(step) for step in (0, 100)]
    joined = PairedSums.concatenate([pair(PLANTED, band) for band in PLANTED.bands])
    whole = estimate_changes(pair_tables(*tables))
    for name, value in vars(estimate_changes(joined)).items():
        np.testing.assert_array_equal(value, vars(whole)[name])
    merged = [table.sum_by("step") for table in tables]
    np.testing.assert_allclose(
        whole.mean, np.concatenate([t.statistics.mean() for t in merged]), rtol=1e-12
    )
    np.testing.assert_array_equal(
        whole.rate, np.concatenate([t.statistics.rate() for t in merged])
    )


def change(*, old, new, fired=100.0, tokens=1000.0, p=1e-9):
    """Returns the change of one feature between two means, with equal firing."""
    both = np.array([[fired], [fired]]) if np.isscalar(fired) else np.array(fired)
    return ChangeEstimate(
        num_tokens=tokens,
        num_prompts=24,
        mean=np.array([[old], [new]]),
        rate=both / tokens,
        fired=both,
        prompts=np.array([20]),
        p_mean=np.array([p]),
        p_rate=np.array([p]),
    )


@pytest.mark.parametrize(
    ("new", "kind"),
    [(1.25, "strengthened"), (1.2499, None), (0.75, "suppressed"), (0.7501, None)],
)
def test_a_ratio_at_the_cut_counts(new, kind):
    cuts = Thresholds(delta=0.25)
    claim = find_changes(change(old=1.0, new=new), cuts)
    assert claim.counts == {k: int(k == kind) for k in CHANGE_KINDS}


@pytest.mark.parametrize(
    ("fired", "emerges"),
    [
        ([[0.0], [40.0]], True),
        ([[3.0], [40.0]], True),  # 0.003 < e0
        ([[4.0], [40.0]], False),  # 0.004 is not below e0
        ([[0.0], [39.0]], False),
    ],
)
def test_emerging_is_below_one_rate_and_at_the_other(fired, emerges):
    cuts = Thresholds(e0=0.004, e1=0.04)
    claim = find_changes(change(old=0.0, new=1.0, fired=fired), cuts)
    assert claim.counts["emerging"] == emerges


def test_too_few_firings_claim_nothing():
    """A ratio needs 30 firings at step 0; a test needs 30 at both steps together."""
    grown = change(old=1.0, new=3.0, fired=[[29.0], [60.0]])
    assert find_changes(grown, CUTS).counts["strengthened"] == 0
    assert find_changes(grown, CUTS).num_tested == 1
    assert find_changes(change(old=1.0, new=3.0, fired=14.0), CUTS).num_tested == 0
    few = dataclasses.replace(change(old=1.0, new=3.0), prompts=np.array([7]))
    assert find_changes(few, CUTS).num_tested == 0


def test_a_change_that_chance_explains_is_not_claimed():
    assert (
        find_changes(change(old=1.0, new=3.0, p=0.06), CUTS).counts["strengthened"] == 0
    )
    assert (
        find_changes(change(old=1.0, new=3.0, p=0.04), CUTS).counts["strengthened"] == 1
    )


def test_p_values_are_of_what_could_become_a_finding():
    """Half of delta may be enough; a feature that passes neither is not tested."""
    texts = pair(PLANTED, "easy")
    every, few = estimate_changes(texts), estimate_changes(texts, CUTS)
    assert members(few.p_mean < 1) <= members(abs(every.ratio - 1) >= 0.1)
    for cuts in vary_thresholds(CUTS):
        one, other = find_changes(every, cuts), find_changes(few, cuts)
        for name, value in vars(one).items():
            np.testing.assert_array_equal(value, vars(other)[name])


def test_sensitivity_begins_at_the_cuts_and_leaves_out_nonsense():
    assert [(c.delta, c.e0, c.e1) for c in vary_thresholds(CUTS)] == [
        (0.2, 0.001, 0.01),
        (0.1, 0.001, 0.01),
        (0.4, 0.001, 0.01),
        (0.2, 0.0005, 0.01),
        (0.2, 0.002, 0.01),
        (0.2, 0.001, 0.005),
        (0.2, 0.001, 0.02),
    ]
    wide = vary_thresholds(Thresholds(delta=0.5, e0=0.01, e1=0.01))
    assert len(wide) == 4  # not delta = 1, e0 = 0.02 or e1 = 0.005


def test_other_texts_are_refused():
    before, after = (PLANTED.table(step).select(band="easy") for step in (0, 100))
    fewer = after.select(prompt="easy3")
    with pytest.raises(ValueError, match=r"'easy0', 'easy1', 'easy10'\], 23 in all"):
        pair_tables(before, fewer)
    longer = dataclasses.replace(
        after.statistics, tokens=after.statistics.tokens + (np.arange(24) == 5)
    )
    with pytest.raises(ValueError, match=r"easy5: 200 tokens .* 201 at the other"):
        pair_tables(before, dataclasses.replace(after, statistics=longer))
    with pytest.raises(ValueError, match="24 rows for 1 prompts"):
        pair_tables(before, twice(after))


def twice(table):
    rows = tuple(row._replace(prompt="easy0") for row in table.rows)
    return dataclasses.replace(table, rows=rows)


def test_rows_are_paired_by_prompt_not_by_place():
    before, after = (PLANTED.table(step).select(band="easy") for step in (0, 100))
    turned = dataclasses.replace(
        after,
        rows=after.rows[::-1],
        statistics=type(after.statistics)(
            **{n: a[::-1] for n, a in vars(after.statistics).items()}
        ),
    )
    for name, value in vars(pair_tables(before, turned)).items():
        np.testing.assert_array_equal(value, vars(pair_tables(before, after))[name])


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"delta": 0.0}, "delta=0.0"),
        ({"delta": 1.0}, "delta=1.0"),
        ({"e0": 0.1}, "e0=0.1 and e1=0.01"),
        ({"fdr": 1.0}, "fdr=1.0"),
        ({"min_fired": 0}, "min_fired=0"),
        ({"min_prompts": 0}, "min_prompts=0"),
    ],
)
def test_cuts_that_make_no_sense_are_refused(wrong, named):
    with pytest.raises(ValueError, match=named):
        Thresholds(**wrong)


def test_one_prompt_rules_nothing_out():
    texts = PairedSums(
        tokens=np.array([4.0]),
        sum=np.array([[2.0]]),
        sum_change=np.array([[1.0]]),
        fired=np.array([[2.0]]),
        fired_change=np.array([[1.0]]),
    )
    ratio, rate = change_intervals(texts, np.array([0]))
    assert [end.item() for end in ratio] == [1.5, 0.0, np.inf]
    assert [end.item() for end in rate] == [0.75, 0.0, 1.0]
