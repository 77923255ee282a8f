"""Curricula: what each serves, in mid-epoch as well, and how processes share it."""

import collections
import dataclasses
import json

import grain
import numpy as np
import pytest

from job_jax.schema import ConfigError
from rlvr_jax.config import Config, CurriculumConfig, DifficultyConfig, TrainConfig
from rlvr_jax.data import Pool, Visit, updated
from rlvr_jax.data.difficulty import BANDS, BEFORE_RL, from_json, unknown
from rlvr_jax.types import Problem

SIZE, COUNT, STEPS = 40, 8, 10
SOURCE = [
    Problem(
        id=f"p{i}", prompt="", gold="", kind="exact", source="test", level=1 + i % 4
    )
    for i in range(SIZE)
]
# One of each, with something of its own to read.
CURRICULA = {
    "uniform": {},
    "bucket": {"bucket": "medium"},
    "mixture": {"mixture": ("medium", "hard"), "mixture_shares": (4, 1)},
    "easy_to_hard": {"window": 0.25},
    "target": {"target": 0.25},
    "variance": {},
    "vcrl": {},
    "filter": {},
    "one_sample": {"problem": 17},
    "replay": {},
}
EXPLORING = ("target", "variance", "vcrl", "filter")


def pool(name, source=SOURCE, difficulty=None, seed=0, **fields):
    return Pool(
        source,
        Config(
            seed=seed,
            curriculum=CurriculumConfig(name=name, **fields),
            difficulty=DifficultyConfig(samples=8, **(difficulty or {})),
            train=TrainConfig(steps=STEPS),
        ),
    )


def known(rates, size=SIZE, visits=1, judged=8):
    """Returns a state in which problem i had that share of 8 right before RL."""
    found = [
        Visit(problem=i, judged=judged, right=round(judged * rate), entropy=0.0)
        for i, rate in enumerate(rates)
    ]
    return updated(
        unknown(size),
        found * visits,
        step=BEFORE_RL,
        draws=0,
        config=DifficultyConfig(),
        momentum=0.9,
    )


RAMP = known(np.arange(SIZE) / (SIZE - 1))  # problem 0 the hardest, 39 the easiest


def at(state, draws):
    return dataclasses.replace(state, draws=draws)


def run(pool, state, steps, *, shard=None, rng_seed=1):
    """Returns what each step serves, and the state after, its rollouts simulated."""
    served = []
    for step in steps:
        whole = pool.order(state, step, COUNT)
        mine = pool.serve(state, step, COUNT, shard=shard)
        served.append([problem.id for problem in mine.problems])
        chance = np.random.default_rng((rng_seed, step))
        visits = [
            Visit(problem=int(i), judged=8, right=int(chance.integers(9)), entropy=0.0)
            for i in whole.problems
        ]
        state = updated(
            state, visits, step=step, draws=1, config=DifficultyConfig(), momentum=0.9
        )
    return served, state


def flat(served):
    return [name for step in served for name in step]


@pytest.mark.parametrize("name", CURRICULA)
def test_a_run_cut_in_mid_epoch_goes_on_with_the_same_problems(name):
    whole, _ = run(pool(name, **CURRICULA[name]), RAMP, range(STEPS))
    before, state = run(pool(name, **CURRICULA[name]), RAMP, range(3))
    # Another process, another pool, a state from the checkpoint's JSON.
    state = from_json(json.loads(json.dumps(state.to_json())))
    after, _ = run(pool(name, **CURRICULA[name]), state, range(3, STEPS))
    assert before + after == whole
    assert all(len(step) == COUNT for step in whole)


@pytest.mark.parametrize("name", CURRICULA)
@pytest.mark.parametrize("processes", [2, 4])
def test_processes_share_a_batch_row_by_row(name, processes):
    curriculum = pool(name, **CURRICULA[name])
    whole, _ = run(curriculum, RAMP, range(STEPS))
    parts = [
        run(
            pool(name, **CURRICULA[name]),
            RAMP,
            range(STEPS),
            shard=grain.sharding.ShardOptions(shard, processes),
        )[0]
        for shard in range(processes)
    ]
    for step in range(STEPS):
        mine = [parts[shard][step] for shard in range(processes)]
        assert collections.Counter(flat(mine)) == collections.Counter(whole[step])
        for shard in range(processes):
            assert mine[shard] == whole[step][shard::processes]
        if name != "one_sample":
            assert len(set(flat(mine))) == COUNT  # no problem is in two hands


@pytest.mark.parametrize("name", sorted(CURRICULA.keys() - {"uniform", "one_sample"}))
def test_seeds_and_draws_give_other_problems(name):
    orders = {
        tuple(
            pool(name, seed=seed, **CURRICULA[name])
            .order(at(RAMP, n), 0, COUNT)
            .problems
        )
        for seed in range(3)
        for n in range(3)
    }
    assert len(orders) == 9 if name != "target" else len(orders) > 1


def test_an_order_is_a_sampler_that_grain_reads_by():
    order = pool("variance").order(RAMP, 0, COUNT)

    def read(shard):
        loader = grain.DataLoader(
            data_source=SOURCE, sampler=order, worker_count=0, shard_options=shard
        )
        return [
            problem.id for _, problem in zip(range(len(order)), loader, strict=False)
        ]

    whole = [SOURCE[i].id for i in order.problems]
    assert read(grain.sharding.NoSharding()) == whole


def test_uniform_is_the_source_shuffled_by_grain():
    expected = grain.MapDataset.source(SOURCE).shuffle(seed=3).repeat()
    served, _ = run(pool("uniform", seed=3), unknown(SIZE), range(STEPS))
    assert flat(served) == [expected[i].id for i in range(STEPS * COUNT)]


def test_uniform_reads_past_the_pool_of_a_generated_world():
    class World:
        def __len__(self):
            return 2**31 - 1

        def __getitem__(self, index):
            return dataclasses.replace(SOURCE[0], id=f"w{index}")

    world = pool("uniform", World())
    assert world.size == 1024
    served = world.serve(world.fresh(), 0, COUNT)
    expected = grain.MapDataset.source(World()).shuffle(seed=0).repeat()
    assert [p.id for p in served.problems] == [expected[i].id for i in range(COUNT)]
    assert served.numbers.tolist() == [-1] * COUNT
    # Asked for a pool of its own, it stays in it.
    small = pool("uniform", World(), difficulty={"pool": 10})
    assert sorted(small.serve(small.fresh(), 0, 10).numbers) == list(range(10))


@pytest.mark.parametrize("bucket", ["easy", "medium", "hard"])
def test_a_bucket_serves_its_problems_in_epochs(bucket):
    members = np.flatnonzero(RAMP.buckets(DifficultyConfig()) == BANDS.index(bucket))
    epochs = pool("bucket", bucket=bucket)
    served, state = run(epochs, RAMP, range(STEPS))
    counts = collections.Counter(flat(served))
    assert counts.keys() <= {f"p{i}" for i in members}
    # Least visited first: nobody is a whole visit ahead, but for a batch that had to
    # ask the few again.
    visits = state.visits[members]
    assert visits.max() - visits.min() <= 1


def test_a_bucket_with_nobody_in_it_falls_back_on_the_pool_and_says_so():
    order = pool("bucket", bucket="hard").order(known([0.5] * SIZE), 0, COUNT)
    assert order.fallback == COUNT
    assert len(set(order.problems)) == COUNT


def test_a_mixture_keeps_its_shares():
    """Of 8 rows by 1 : 2, easy has 2 or 3 each time, 8/3 on average."""
    mixed = pool("mixture", mixture=("easy", "hard"), mixture_shares=(1, 2))
    hard = np.arange(SIZE) < 20
    state = known(np.where(hard, 0.0, 1.0))
    easy = [
        int((~hard[mixed.order(at(state, n), 0, COUNT).problems]).sum())
        for n in range(600)
    ]
    assert set(easy) == {2, 3}
    assert np.mean(easy) == pytest.approx(8 / 3, abs=0.06)


def test_todays_bands_drift_where_buckets_do_not():
    state = known([0.0] * 20 + [1.0] * 20, visits=2)
    moved, _ = (
        updated(
            state,
            [Visit(problem=i, judged=8, right=8, entropy=0.0) for i in range(5)] * 6,
            step=0,
            draws=1,
            config=DifficultyConfig(),
            momentum=0.9,
        ),
        None,
    )
    now = pool("bucket", bucket="hard", estimate="current").order(moved, 0, 15)
    assert sorted(now.problems) == list(range(5, 20))
    then = pool("bucket", bucket="hard").order(moved, 0, 20)
    assert sorted(then.problems) == list(range(20))


def test_easy_to_hard_slides_from_the_easiest_to_the_hardest_quarter():
    ramp = known(np.arange(SIZE) / (SIZE - 1), judged=39)
    slide = pool("easy_to_hard", window=0.25)
    first, last = (set(slide.order(ramp, step, 10).problems) for step in (0, STEPS - 1))
    assert first == set(range(30, 40))
    assert last == set(range(10))
    means = [slide.order(ramp, step, 10).problems.mean() for step in range(STEPS)]
    assert means == sorted(means, reverse=True)


def test_without_estimates_the_levels_alone_decide():
    slide = pool("easy_to_hard", window=0.25)
    for step, level in ((0, 1), (3, 2), (6, 3), (9, 4)):
        order = slide.order(unknown(SIZE), step, 10)
        assert {SOURCE[i].level for i in order.problems} == {level}


def test_target_serves_the_closest_pass_rates():
    """Posterior means (k + .5) / 9 of k of 8: 2/8 gives 0.278, the closest to 0.25."""
    order = pool("target", target=0.25, explore=0).order(RAMP, 0, 5)
    right = RAMP.first_solved[order.problems]
    assert right.tolist() == [2] * 5
    assert (RAMP.first_solved == 2).sum() == 5


def test_variance_draws_in_proportion_to_the_signal():
    """One row a draw is p (1 - p) under the posterior; 6000 draws err by 0.006."""
    state = known(np.arange(5) / 4, size=5)
    sampler = pool("variance", SOURCE[:5], explore=0)
    drawn = [int(sampler.order(at(state, n), 0, 1).problems[0]) for n in range(6000)]
    shares = np.bincount(drawn, minlength=5) / 6000
    np.testing.assert_allclose(shares, state.spread / state.spread.sum(), atol=0.025)
    # Beta(.5, 8.5) has 0.0472 of it, Beta(4.5, 4.5) 0.225.
    assert state.spread[0] == pytest.approx(0.5 * 8.5 / 90)


def test_vcrl_replaces_what_varies_too_little_from_its_memory():
    """Scores of k of 8 are k (8 - k) / 16: k = 1 gives 0.44, k = 3 gives 0.94."""
    rates = np.where(np.arange(SIZE) < 30, 1 / 8, 3 / 8)
    state = known(rates)
    vcrl = pool("vcrl", explore=0)
    # Early, 0.44 is enough: candidates stay, one in four of the high ones.
    early = np.concatenate(
        [vcrl.order(at(state, n), 0, 8).problems for n in range(300)]
    )
    assert (early >= 30).mean() == pytest.approx(0.25, abs=0.05)
    # Late it is not: all rows come from the ten that vary most.
    late = [vcrl.order(at(state, n), 20, 8) for n in range(50)]
    assert all((order.problems >= 30).all() for order in late)
    assert all(order.fallback == 0 for order in late)
    assert all(len(set(order.problems)) == 8 for order in late)
    # Twelve rows are two more than the memory holds.
    assert vcrl.order(at(state, 0), 20, 12).fallback == 2


def test_vcrl_asks_whom_it_never_met():
    met = known([0.0] * 20)
    order = pool("vcrl", explore=0).order(met, 0, COUNT)
    candidates = order.problems[: COUNT - order.fallback]
    assert (candidates >= 20).all()


def test_the_filter_serves_what_lies_between_and_what_nobody_tried():
    """Means .056, .167, .278, .722, .833, .944 of k = 0, 1, 2, 6, 7, 8: 2 .. 6 stay."""
    rates = [k / 8 for k in (0, 1, 2, 4, 6, 7, 8)]
    order = pool("filter", SOURCE[:9], explore=0).order(known(rates, size=9), 0, 5)
    assert sorted(order.problems) == [2, 3, 4, 7, 8]
    assert order.fallback == 0


def test_one_sample_is_asked_in_every_row():
    order = pool("one_sample", problem=17).order(RAMP, 0, COUNT)
    assert order.problems.tolist() == [17] * COUNT
    with pytest.raises(ConfigError, match="problem=40 lies beyond the pool of 40"):
        pool("one_sample", problem=40)


def test_replay_asks_again_for_what_was_lost():
    state = known([1.0] * SIZE)
    lost = [Visit(problem=i, judged=8, right=1, entropy=0.0) for i in (3, 5, 7)]
    state = updated(
        state, lost, step=0, draws=1, config=DifficultyConfig(), momentum=0.9
    )
    # A quarter of 8 rows, of the three that were lost ...
    for n in range(20):
        order = pool("replay").order(at(state, n), 1, COUNT)
        assert len({3, 5, 7} & set(order.problems[:2].tolist())) == 2
        assert len(set(order.problems)) == COUNT
    # ... half of 8 would be four: all three, and no more.
    half = pool("replay", replay_share=0.5).order(state, 1, COUNT)
    assert sorted(half.problems[:3]) == [3, 5, 7]
    # Nothing lost, nothing replayed: the least visited of all.
    fresh = pool("replay").order(known([1.0] * 32), 0, COUNT)
    assert sorted(fresh.problems) == list(range(32, 40))


@pytest.mark.parametrize("name", EXPLORING)
def test_exploring_gives_its_share_to_the_whole_pool(name):
    """Problems below 20 are none that any of these asks for by itself."""
    state = known([0.0] * 20 + [0.5] * 20, visits=3)
    fields = {"target": 0.5} if name == "target" else {}
    for share, rows in ((0.0, 0), (0.25, 2), (1.0, 8)):
        explorer = pool(name, explore=share, **fields)
        counts = []
        for n in range(200):
            order = explorer.order(at(state, n), 30, COUNT)
            assert len(set(order.problems)) == COUNT
            counts.append((order.problems[COUNT - rows :] < 20).sum())
        expected = rows * 0.5 if rows else 0
        assert np.mean(counts) == pytest.approx(expected, rel=0.35)
    # A tenth of 8 rows is four rows in five steps.
    tenth = pool(name, explore=0.1, **fields)
    if name != "variance":
        odd = [
            (tenth.order(at(state, n), 30, COUNT).problems < 20).sum() for n in range(5)
        ]
        assert sum(odd) <= 4


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"target": 0.3}, "target=0.3 does nothing with name=uniform"),
        ({"name": "target", "window": 0.3}, "window=0.3 does nothing with name=target"),
        ({"name": "bucket", "explore": 0.3}, "explore=0.3 does nothing"),
        ({"name": "bucket", "bucket": "unknown"}, "needs estimate=current"),
        ({"name": "mixture", "mixture_shares": (1,)}, "has 1 entries"),
        ({"name": "mixture", "mixture_shares": (0, 0)}, "not all 0"),
        ({"name": "filter", "filter_low": 0.9}, "lies above filter_high=0.8"),
    ],
)
def test_fields_that_would_do_nothing_are_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        CurriculumConfig(**fields)


@pytest.mark.parametrize("name", ["bucket", "mixture"])
def test_buckets_need_estimates(name):
    with pytest.raises(ConfigError, match=r"difficulty\.samples=0 makes none"):
        Config(curriculum=CurriculumConfig(name=name))
    Config(curriculum=CurriculumConfig(name=name, estimate="current"))
