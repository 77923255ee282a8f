"""Curricula: their problems, also in mid-epoch, and how processes share them."""

import collections
import dataclasses
import hashlib
import json

import grain
import numpy as np
import pytest

from job_jax.config_io import from_json as config_from_json
from job_jax.config_io import override, to_json
from job_jax.schema import ConfigError
from rlvr_jax.config import Config, DifficultyConfig, TrainConfig
from rlvr_jax.config.difficulty import CURRICULA as REGISTRY
from rlvr_jax.data import Pool, ProblemOutcome, record_outcomes
from rlvr_jax.data.curricula.base import DrawState
from rlvr_jax.data.curricula.easy_to_hard import EasyToHard
from rlvr_jax.data.difficulty import BANDS, INITIAL_STEP, from_json, init_difficulty
from rlvr_jax.data.loader import Loader, read_rows
from rlvr_jax.types import Problem

SIZE, COUNT, STEPS = 40, 8, 10
SOURCE = [
    Problem(
        id=f"p{i}", prompt="", gold="", verifier="exact", source="test", level=1 + i % 4
    )
    for i in range(SIZE)
]
# One of each kind, with its own settings.
CURRICULA = {
    "uniform": {},
    "band": {"band": "medium"},
    "mixture": {"bands": ("medium", "hard"), "band_weights": (4, 1)},
    "easy_to_hard": {"window_fraction": 0.25},
    "target": {"target_pass_rate": 0.25},
    "variance": {},
    "vcrl": {},
    "filter": {},
    "one_sample": {"problem_index": 17},
    "replay": {},
}
EXPLORING = ("target", "variance", "vcrl", "filter")


def pool(name, source=SOURCE, difficulty=None, seed=0, **fields):
    return Pool(
        source,
        Config(
            seed=seed,
            curriculum=REGISTRY.load(name)(**fields),
            difficulty=DifficultyConfig(num_samples=8, **(difficulty or {})),
            train=TrainConfig(steps=STEPS),
        ),
    )


def test_a_curriculum_reads_the_pool_s_problems():
    read = []

    class Reading(REGISTRY.load("uniform")):
        def next_batch(self, difficulty, draw, batch_size):
            read.append(draw.read_problems())
            return super().next_batch(difficulty, draw, batch_size)

    found = pool("uniform", difficulty={"pool_size": 12})
    found._curriculum = object.__new__(Reading)
    found.next_indices(found.initial(), 0, COUNT)
    assert read == [SOURCE[:12]]


def known(rates, size=SIZE, visits=1, judged=8):
    """Returns a state in which problem i got that share of 8 right before RL."""
    found = [
        ProblemOutcome(
            problem_index=i,
            num_graded=judged,
            num_correct=round(judged * rate),
            answer_entropy=0.0,
        )
        for i, rate in enumerate(rates)
    ]
    return record_outcomes(
        init_difficulty(size),
        found * visits,
        step=INITIAL_STEP,
        num_batches=0,
        config=DifficultyConfig(),
    )


RAMP = known(np.arange(SIZE) / (SIZE - 1))  # problem 0 is the hardest, 39 the easiest


def outcome(index, num_correct):
    return ProblemOutcome(
        problem_index=int(index),
        num_graded=8,
        num_correct=num_correct,
        answer_entropy=0.0,
    )


def at(state, draws):
    return dataclasses.replace(state, num_batches=draws)


def run(pool, state, steps, *, shard=None, rng_seed=1, rounds=1):
    """Returns the problems of each step, and the state after simulated rollouts."""
    served = []
    for step in steps:
        asked, mine = [], []
        for number in range(rounds):
            now = at(state, state.num_batches + number)
            where = {"asked": tuple(asked)}
            mine += pool.next_batch(now, step, COUNT, shard=shard, **where).problems
            asked += pool.next_indices(now, step, COUNT, **where).problems.tolist()
        served.append([problem.id for problem in mine])
        chance = np.random.default_rng((rng_seed, step))
        visits = [
            ProblemOutcome(
                problem_index=int(i),
                num_graded=8,
                num_correct=int(chance.integers(9)),
                answer_entropy=0.0,
            )
            for i in asked
        ]
        state = record_outcomes(
            state, visits, step=step, num_batches=rounds, config=DifficultyConfig()
        )
    return served, state


def flat(served):
    return [name for step in served for name in step]


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("name", CURRICULA)
def test_a_run_cut_in_mid_epoch_goes_on_with_the_same_problems(name, rounds):
    def steps(state, numbers):
        return run(pool(name, **CURRICULA[name]), state, numbers, rounds=rounds)

    whole, _ = steps(RAMP, range(STEPS))
    before, state = steps(RAMP, range(3))
    # Another process and pool, with the state from the checkpoint's JSON.
    state = from_json(json.loads(json.dumps(state.to_json())))
    after, _ = steps(state, range(3, STEPS))
    assert before + after == whole
    assert all(len(step) == rounds * COUNT for step in whole)


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
            assert len(set(flat(mine))) == COUNT  # processes share no problem


@pytest.mark.parametrize("name", sorted(CURRICULA.keys() - {"uniform", "one_sample"}))
def test_seeds_and_draws_give_other_problems(name):
    orders = {
        tuple(
            pool(name, seed=seed, **CURRICULA[name])
            .next_indices(at(RAMP, n), 0, COUNT)
            .problems
        )
        for seed in range(3)
        for n in range(3)
    }
    assert len(orders) == 9 if name != "target" else len(orders) > 1


@pytest.mark.parametrize("fields", [{"band": "medium"}, {"bands": ("medium",)}])
def test_another_order_is_of_the_same_problems(fields):
    """A repeat of RL: other batches with the same seed, the same problems per epoch."""
    name = "band" if "band" in fields else "mixture"
    epochs = [
        run(pool(name, **fields, **order), known([0.5] * SIZE), range(SIZE // COUNT))[0]
        for order in ({}, {"order": 0}, {"order": 1}, {"order": 2})
    ]
    assert epochs[0] == epochs[1]
    assert len({str(epoch) for epoch in epochs}) == 3
    assert len({str(sorted(flat(epoch))) for epoch in epochs}) == 1
    assert len({*flat(epochs[0])}) == SIZE


def test_rows_are_read_in_order():
    order = pool("variance").next_indices(RAMP, 0, COUNT)
    rows = read_rows(SOURCE, order.problems.tolist())
    assert [p.id for p in rows] == [SOURCE[i].id for i in order.problems]


def test_batches_read_ahead_are_those_asked_for():
    """Dynamic sampling takes several batches a step; a resumed run starts anywhere."""
    ahead, read = pool("uniform"), collections.Counter()
    for n in (0, 1, 2, 5, 6, 3, 3, 0):
        served = ahead.next_batch(at(RAMP, n), 0, COUNT)
        alone = pool("uniform").next_indices(at(RAMP, n), 0, COUNT)
        assert served.problem_index.tolist() == alone.problems.tolist()
        read[n] += 1
    assert sum(read.values()) == 8


def test_uniform_is_the_source_shuffled_by_grain():
    expected = grain.MapDataset.source(SOURCE).shuffle(seed=_order(3)).repeat()
    served, _ = run(pool("uniform", seed=3), init_difficulty(SIZE), range(STEPS))
    assert flat(served) == [expected[i].id for i in range(STEPS * COUNT)]


def _order(seed):
    return int(np.random.SeedSequence((seed, 0xF00D)).generate_state(1)[0])


@pytest.mark.parametrize("seed", range(5))
def test_rl_does_not_begin_with_the_problems_that_sft_has_begun_with(seed):
    """Two sources as long as each other: of 8 of 40 problems, 1.6 come twice."""
    of_sft = Loader(SOURCE, batch_size=COUNT, seed=seed).next_batch(0)
    of_rl = pool("uniform", seed=seed).next_batch(init_difficulty(SIZE), 0, COUNT)
    assert len({p.id for p in of_sft} & {p.id for p in of_rl.problems}) < COUNT / 2


def test_uniform_reads_past_the_pool_of_a_generated_world():
    class World:
        def __len__(self):
            return 2**31 - 1

        def __getitem__(self, index):
            return dataclasses.replace(SOURCE[0], id=f"w{index}")

    world = pool("uniform", World())
    assert world.size == 1024
    served = world.next_batch(world.initial(), 0, COUNT)
    expected = grain.MapDataset.source(World()).shuffle(seed=_order(0)).repeat()
    assert [p.id for p in served.problems] == [expected[i].id for i in range(COUNT)]
    assert served.problem_index.tolist() == [-1] * COUNT
    # With a smaller pool, it stays within it.
    small = pool("uniform", World(), difficulty={"pool_size": 10})
    assert sorted(small.next_batch(small.initial(), 0, 10).problem_index) == list(
        range(10)
    )


@pytest.mark.parametrize("band", ["easy", "medium", "hard"])
def test_a_bucket_serves_its_problems_in_epochs(band):
    members = np.flatnonzero(
        RAMP.initial_bands(DifficultyConfig()) == BANDS.index(band)
    )
    epochs = pool("band", band=band)
    served, state = run(epochs, RAMP, range(STEPS))
    counts = collections.Counter(flat(served))
    assert counts.keys() <= {f"p{i}" for i in members}
    # Least visited first: no problem is a whole visit ahead, except if a batch had to
    # repeat the few that there are.
    visits = state.num_visits[members]
    assert visits.max() - visits.min() <= 1


def test_an_empty_bucket_falls_back_on_the_pool_and_says_so():
    order = pool("band", band="hard").next_indices(known([0.5] * SIZE), 0, COUNT)
    assert order.num_fallback == COUNT
    assert len(set(order.problems)) == COUNT


@pytest.mark.parametrize("bands", [("easy", "medium"), ("hard", "medium", "easy")])
def test_an_empty_band_is_filled_with_problems_not_yet_in_the_batch(bands):
    """All 40 problems are medium: rows of other bands do not repeat the medium rows."""
    mixed = pool("mixture", bands=bands)
    state = known([0.5] * SIZE)
    for n in range(50):
        order = mixed.next_indices(at(state, n), 0, 16)
        assert len(set(order.problems)) == 16
        assert order.num_fallback in {8} if len(bands) == 2 else {10, 11}


def test_a_small_band_is_repeated_before_another_band_is_used():
    """Ten hard problems in rounds of eight: the other two, then six of the eight."""
    state = known([0.0] * 10 + [0.5] * 30)
    hard = pool("band", band="hard")
    first = hard.next_indices(state, 0, COUNT).problems.tolist()
    second = hard.next_indices(at(state, 1), 0, COUNT, asked=first)
    assert set(range(10)) - set(first) == set(second.problems[:2])
    assert set(second.problems[2:]) < set(first)
    assert len(set(second.problems)) == COUNT
    assert second.num_fallback == 0


def test_a_lost_problem_is_replayed_once_a_step():
    state = record_outcomes(
        known([1.0] * SIZE),
        [outcome(i, 1) for i in (3, 5)],
        step=0,
        num_batches=1,
        config=DifficultyConfig(),
    )
    first = pool("replay").next_indices(state, 1, COUNT).problems.tolist()
    assert set(first[:2]) == {3, 5}
    second = pool("replay").next_indices(at(state, 2), 1, COUNT, asked=first)
    assert not set(second.problems) & set(first)


CAPTURED = [
    ("target", {}),
    ("filter", {"min_pass_rate": 0.4, "max_pass_rate": 0.6}),
    ("variance", {}),
    ("vcrl", {"late_threshold": 0.9}),
]


@pytest.mark.parametrize("judged_once", [False, True])
@pytest.mark.parametrize(("name", "options"), CAPTURED, ids=lambda x: str(x)[:8])
def test_problems_that_are_never_judged_do_not_take_the_rows(
    name, options, judged_once
):
    """20 of 256 are 8 % of the pool; pass rates are even over [0, 1].

    Their posterior mean also stays 1/2 if they were judged once, at 4 of 8.
    """
    silent, size = range(20), 256
    source = SOURCE * 7
    rates = np.random.default_rng(1).uniform(size=size)
    served = pool(name, source[:size], difficulty={"pool_size": size}, **options)
    state, rows = init_difficulty(size), []
    if judged_once:
        state = known([0.5] * 20, size=size)
    for step in range(60):
        batch = served.next_indices(state, step, 16).problems.tolist()
        rows += [i in silent for i in batch] if step >= 40 else []
        chance = np.random.default_rng((2, step))
        found = [
            ProblemOutcome(
                problem_index=i,
                num_graded=0 if i in silent else 8,
                num_correct=0 if i in silent else int(chance.binomial(8, rates[i])),
                answer_entropy=0.0,
            )
            for i in batch
        ]
        state = record_outcomes(
            state, found, step=step, num_batches=1, config=DifficultyConfig()
        )
    assert np.mean(rows) < 0.08


def test_a_problem_judged_at_last_is_a_favorite_again():
    """Two visits without a verdict, then two with one: its mean of 1/2 counts."""
    state, config = known([0.0] * 39), DifficultyConfig()
    close = pool("target", uniform_fraction=0.0)
    assert close.next_indices(state, 0, 1).problems.tolist() == [39]  # never tried
    silent = ProblemOutcome(
        problem_index=39, num_graded=0, num_correct=0, answer_entropy=0.0
    )
    for found, chosen in ((silent, False), (outcome(39, 4), True)):
        state = record_outcomes(
            state, [found] * 2, step=0, num_batches=1, config=config
        )
        assert (39 in close.next_indices(state, 0, COUNT).problems) == chosen


def test_a_mixture_keeps_its_shares():
    """With 1 : 2, easy gets 2 or 3 of 8 rows each time, 8/3 on average."""
    mixed = pool("mixture", bands=("easy", "hard"), band_weights=(1, 2))
    hard = np.arange(SIZE) < 20
    state = known(np.where(hard, 0.0, 1.0))
    easy = [
        int((~hard[mixed.next_indices(at(state, n), 0, COUNT).problems]).sum())
        for n in range(600)
    ]
    assert set(easy) == {2, 3}
    assert np.mean(easy) == pytest.approx(8 / 3, abs=0.06)


def test_todays_bands_drift_where_buckets_do_not():
    state = known([0.0] * 20 + [1.0] * 20, visits=2)
    moved, _ = (
        record_outcomes(
            state,
            [
                ProblemOutcome(
                    problem_index=i, num_graded=8, num_correct=8, answer_entropy=0.0
                )
                for i in range(5)
            ]
            * 6,
            step=0,
            num_batches=1,
            config=DifficultyConfig(),
        ),
        None,
    )
    now = pool("band", band="hard", difficulty_source="online").next_indices(
        moved, 0, 15
    )
    assert sorted(now.problems) == list(range(5, 20))
    then = pool("band", band="hard").next_indices(moved, 0, 20)
    assert sorted(then.problems) == list(range(20))


def test_easy_to_hard_slides_from_the_easiest_to_the_hardest_quarter():
    ramp = known(np.arange(SIZE) / (SIZE - 1), judged=39)
    slide = pool("easy_to_hard", window_fraction=0.25)
    first, last = (
        set(slide.next_indices(ramp, step, 10).problems) for step in (0, STEPS - 1)
    )
    assert first == set(range(30, 40))
    assert last == set(range(10))
    means = [
        slide.next_indices(ramp, step, 10).problems.mean() for step in range(STEPS)
    ]
    assert means == sorted(means, reverse=True)


def test_easy_to_hard_draws_from_its_whole_window():
    """Problems that were visited for longer are drawn as often as new ones."""
    steps, size, width = 80, 400, 200
    state = known(np.arange(size) / (size - 1), size=size, judged=399)
    curriculum, places = EasyToHard(window_fraction=width / size), []
    for step in range(steps):
        draw = DrawState(
            seed=0,
            batch_index=step,
            step=step,
            num_steps=steps,
            source_size=size,
            bands_config=DifficultyConfig(),
            read_levels=lambda: np.ones(size, int),
            asked=np.zeros(size, bool),
        )
        drawn = curriculum.next_batch(state, draw, 16).problems
        start = round(step / (steps - 1) * (size - width))
        places += [*(size - 1 - drawn - start)]  # 0: the easiest of the window
        visits_N = state.num_visits + np.bincount(drawn, minlength=size)
        state = dataclasses.replace(state, num_visits=visits_N)
    shares = np.bincount(np.array(places) // (width // 4)) / len(places)
    np.testing.assert_allclose(shares, 0.25, atol=0.05)


def test_without_estimates_the_levels_alone_decide():
    slide = pool("easy_to_hard", window_fraction=0.25)
    for step, level in ((0, 1), (3, 2), (6, 3), (9, 4)):
        order = slide.next_indices(init_difficulty(SIZE), step, 10)
        assert {SOURCE[i].level for i in order.problems} == {level}


def test_target_serves_the_closest_pass_rates():
    """Posterior mean (k + .5) / 9 for k of 8: 2/8 gives 0.278, closest to 0.25."""
    order = pool("target", target_pass_rate=0.25, uniform_fraction=0).next_indices(
        RAMP, 0, 5
    )
    right = RAMP.initial_correct[order.problems]
    assert right.tolist() == [2] * 5
    assert (RAMP.initial_correct == 2).sum() == 5


def test_variance_draws_in_proportion_to_the_signal():
    """A row has probability p (1 - p) under the posterior; 6000 draws err by 0.006."""
    state = known(np.arange(5) / 4, size=5)
    sampler = pool("variance", SOURCE[:5], uniform_fraction=0)
    drawn = [
        int(sampler.next_indices(at(state, n), 0, 1).problems[0]) for n in range(6000)
    ]
    shares = np.bincount(drawn, minlength=5) / 6000
    np.testing.assert_allclose(
        shares, state.learning_signal / state.learning_signal.sum(), atol=0.025
    )
    # Beta(.5, 8.5) gives 0.0472, Beta(4.5, 4.5) 0.225.
    assert state.learning_signal[0] == pytest.approx(0.5 * 8.5 / 90)


def test_vcrl_replaces_low_variance_problems_from_its_memory():
    """Scores are k (8 - k) / 16 for k of 8: k = 1 gives 0.44, k = 3 gives 0.94."""
    rates = np.where(np.arange(SIZE) < 30, 1 / 8, 3 / 8)
    state = known(rates)
    vcrl = pool("vcrl", uniform_fraction=0)
    # Early, 0.44 is enough: candidates stay; one in four is a high one.
    early = np.concatenate(
        [vcrl.next_indices(at(state, n), 0, 8).problems for n in range(300)]
    )
    assert (early >= 30).mean() == pytest.approx(0.25, abs=0.05)
    # Late, it is not: all rows come from the ten that vary most.
    late = [vcrl.next_indices(at(state, n), 20, 8) for n in range(50)]
    assert all((order.problems >= 30).all() for order in late)
    assert all(order.num_fallback == 0 for order in late)
    assert all(len(set(order.problems)) == 8 for order in late)
    # Twelve rows are two more than the memory holds.
    assert vcrl.next_indices(at(state, 0), 20, 12).num_fallback == 2


def test_vcrl_serves_problems_it_has_not_seen():
    met = known([0.0] * 20)
    order = pool("vcrl", uniform_fraction=0).next_indices(met, 0, COUNT)
    candidates = order.problems[: COUNT - order.num_fallback]
    assert (candidates >= 20).all()


def test_the_filter_serves_problems_between_its_bounds_and_untried_ones():
    """Means .056, .167, .278, .722, .833, .944 of k = 0, 1, 2, 6, 7, 8: 2 .. 6 stay."""
    rates = [k / 8 for k in (0, 1, 2, 4, 6, 7, 8)]
    order = pool("filter", SOURCE[:9], uniform_fraction=0).next_indices(
        known(rates, size=9), 0, 5
    )
    assert sorted(order.problems) == [2, 3, 4, 7, 8]
    assert order.num_fallback == 0


def test_one_sample_is_in_every_row():
    order = pool("one_sample", problem_index=17).next_indices(RAMP, 0, COUNT)
    assert order.problems.tolist() == [17] * COUNT
    with pytest.raises(ConfigError, match="problem_index=40 is beyond the pool of 40"):
        pool("one_sample", problem_index=40)


def test_replay_repeats_lost_problems():
    state = known([1.0] * SIZE)
    lost = [
        ProblemOutcome(problem_index=i, num_graded=8, num_correct=1, answer_entropy=0.0)
        for i in (3, 5, 7)
    ]
    state = record_outcomes(
        state, lost, step=0, num_batches=1, config=DifficultyConfig()
    )
    # A quarter of 8 rows come from the three lost problems ...
    for n in range(20):
        order = pool("replay").next_indices(at(state, n), 1, COUNT)
        assert len({3, 5, 7} & set(order.problems[:2].tolist())) == 2
        assert len(set(order.problems)) == COUNT
    # ... half of 8 rows would be four: all three, and no more.
    half = pool("replay", replay_fraction=0.5).next_indices(state, 1, COUNT)
    assert sorted(half.problems[:3]) == [3, 5, 7]
    # Nothing lost, nothing replayed: the least visited of all.
    fresh = pool("replay").next_indices(known([1.0] * 32), 0, COUNT)
    assert sorted(fresh.problems) == list(range(32, 40))


@pytest.mark.parametrize("name", EXPLORING)
def test_exploring_gives_its_share_to_the_whole_pool(name):
    """None of these curricula serves problems below 20 by itself."""
    state = known([0.0] * 20 + [0.5] * 20, visits=3)
    fields = {"target_pass_rate": 0.5} if name == "target" else {}
    for share, rows in ((0.0, 0), (0.25, 2), (1.0, 8)):
        explorer = pool(name, uniform_fraction=share, **fields)
        counts = []
        for n in range(200):
            order = explorer.next_indices(at(state, n), 30, COUNT)
            assert len(set(order.problems)) == COUNT
            counts.append((order.problems[COUNT - rows :] < 20).sum())
        expected = rows * 0.5 if rows else 0
        assert np.mean(counts) == pytest.approx(expected, rel=0.35)
    # A tenth of 8 rows is four rows in five steps.
    tenth = pool(name, uniform_fraction=0.1, **fields)
    if name != "variance":
        odd = [
            (tenth.next_indices(at(state, n), 30, COUNT).problems < 20).sum()
            for n in range(5)
        ]
        assert sum(odd) <= 4


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "uniform", "window_fraction": 0.3}, "Uniform has no field 'window_"),
        ({"name": "band", "band": "unknown"}, "needs difficulty_source=online"),
        ({"name": "mixture", "band_weights": (1,)}, "has 1 entries"),
        ({"name": "mixture", "band_weights": (0, 0)}, "not all 0"),
        ({"name": "filter", "min_pass_rate": 0.9}, "is above max_pass_rate=0.8"),
    ],
)
def test_options_that_do_not_fit_are_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        REGISTRY.load(fields["name"])(**{k: fields[k] for k in fields if k != "name"})


@pytest.mark.parametrize("name", ["band", "mixture"])
def test_bands_need_estimates(name):
    with pytest.raises(ConfigError, match=r"difficulty\.num_samples=0 makes none"):
        Config(curriculum=REGISTRY.load(name)())
    Config(curriculum=REGISTRY.load(name)(difficulty_source="online"))


def test_every_registered_curriculum_is_tested_here():
    assert set(REGISTRY.names) == CURRICULA.keys()


@pytest.fixture
def newest(monkeypatch, tmp_path):
    """A user's module with a custom curriculum."""
    (tmp_path / "mine.py").write_text(
        "import dataclasses\n"
        "from job_jax.schema import PositiveInt\n"
        "from rlvr_jax.data.curricula import Curriculum, pick_least_visited\n"
        "@dataclasses.dataclass(frozen=True, kw_only=True)\n"
        "class Newest(Curriculum):\n"
        "    max_visits: PositiveInt = 2\n"
        "    def next_batch(self, difficulty, draw, batch_size):\n"
        "        eligible = difficulty.num_visits < self.max_visits\n"
        "        return pick_least_visited(difficulty, eligible, batch_size, "
        "draw)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


def test_a_users_curriculum_is_chosen_by_its_place(newest):
    flags = {"curriculum.name": "mine:Newest", "curriculum.max_visits": "1"}
    config = override(Config(), flags)
    assert config_from_json(Config, to_json(config)) == config
    state = known([0.5] * 20)  # the other 20 were never tried
    served = Pool(SOURCE, config).next_batch(state, 0, 20)
    assert sorted(served.problem_index) == list(range(20, 40))


@pytest.mark.parametrize(
    ("name", "options", "digest"),
    [
        ("uniform", {}, "fa0180caa690"),
        ("band", {"band": "medium"}, "b961eaff1a9e"),
        ("band", {"band": "hard", "difficulty_source": "online"}, "ab9cd960c152"),
        ("band", {"band": "unknown", "difficulty_source": "online"}, "db9a41dd6dce"),
        ("mixture", {}, "24511c2dae4d"),
        (
            "mixture",
            {"bands": ("medium", "hard"), "band_weights": (4, 1)},
            "e4b99a2f54d4",
        ),
        (
            "mixture",
            {
                "bands": ("unknown", "hard", "medium"),
                "band_weights": (1, 1, 3),
                "difficulty_source": "online",
            },
            "a36752e695cb",
        ),
        ("easy_to_hard", {}, "3dfb21c0f94a"),
        ("easy_to_hard", {"window_fraction": 0.25}, "e63e7650a921"),
        (
            "easy_to_hard",
            {"window_fraction": 0.25, "difficulty_source": "online"},
            "183bf9a50373",
        ),
        ("target", {}, "9e4803aaa09c"),
        ("target", {"target_pass_rate": 0.25, "uniform_fraction": 0.0}, "8c6d213a9638"),
        ("variance", {}, "483be0ff31f8"),
        ("variance", {"uniform_fraction": 0.5}, "8c90700bbf96"),
        ("vcrl", {}, "1ca5debbb423"),
        (
            "vcrl",
            {"early_threshold": 0.5, "late_threshold": 0.6, "early_steps": 3},
            "1b126472c574",
        ),
        ("filter", {}, "b5d27f7127ce"),
        ("filter", {"min_pass_rate": 0.1, "max_pass_rate": 0.4}, "7268b186ce97"),
        ("one_sample", {"problem_index": 17}, "4ba7c5802390"),
        ("replay", {}, "e78e774a07ad"),
        ("replay", {"replay_fraction": 0.5}, "c168fc597f2b"),
    ],
)
def test_picks_stay_the_same(name, options, digest):
    """Ten steps of 8 of 40 problems, outcomes simulated: any change shows."""
    state = record_outcomes(
        init_difficulty(SIZE),
        [outcome(i, round(8 * i / (SIZE - 1))) for i in range(SIZE) if i % 7 != 3],
        step=INITIAL_STEP,
        num_batches=0,
        config=DifficultyConfig(),
    )
    served = pool(name, seed=3, **options)
    picks = []
    for step in range(STEPS):
        batch = served.next_indices(state, step, COUNT)
        picks.append([*batch.problems.tolist(), batch.num_fallback])
        rng = np.random.default_rng((1, step))
        state = record_outcomes(
            state,
            [outcome(i, int(rng.integers(9))) for i in batch.problems],
            step=step,
            num_batches=1,
            config=DifficultyConfig(),
        )
    assert hashlib.sha256(json.dumps(picks).encode()).hexdigest()[:12] == digest
