"""How a step's groups are chosen, and how they update their problems' records."""

import collections
import dataclasses
import math
import pathlib
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import betainc

from job_jax.command import load_config
from rlvr_jax.config import (
    AdvantageConfig,
    AdvantageRule,
    Config,
    DifficultyConfig,
    DynamicSamplingConfig,
    RewardConfig,
    SamplingConfig,
    TrainConfig,
)
from rlvr_jax.config.difficulty import CURRICULA
from rlvr_jax.data import Pool, ProblemOutcome
from rlvr_jax.data.difficulty import INITIAL_STEP, init_difficulty, record_outcomes
from rlvr_jax.learn.batches import batch_from_rollouts
from rlvr_jax.rollouts import collect, step_rewards
from rlvr_jax.rollouts.collect import collect_rollouts
from rlvr_jax.rollouts.external import GradedTraces
from rlvr_jax.rollouts.graded import GradedCompletion
from rlvr_jax.rollouts.groups import (
    ProblemGroups,
    add_history_flags,
    merge_outcomes,
    problem_outcomes,
    select_groups,
)
from rlvr_jax.rollouts.sample import slot_metrics
from rlvr_jax.run.throughput import StepTimer
from rlvr_jax.sampler import SamplerLayout
from rlvr_jax.types import (
    BANDS,
    Problem,
    Prompts,
    RewardGroups,
    Rollouts,
    Verdict,
)

T = 3
STATUS = {"r": "correct", "w": "incorrect", "u": "unverified"}


def groups(first, *verdicts, width=2):
    """Returns a group of two for each of "rw", "ww", ...; problems count from `first`.

    Row b of problem n holds the tokens 10 n + b.
    """
    P = len(verdicts)
    numbers = np.arange(first, first + P)
    tokens_B = (10 * numbers[:, None] + np.arange(2)).reshape(-1)
    rows = [
        GradedCompletion(
            problem=Problem(id=f"p{n}", prompt="", gold="", verifier="", source=""),
            completion="",
            verdict=Verdict(status=STATUS[letter], answer=letter),
            length=T,
            finished=True,
            strategy=None,
            weight_version=5,
        )
        for n, letters in zip(numbers, verdicts, strict=True)
        for letter in letters
    ]
    return ProblemGroups(
        problem_index=numbers,
        graded=rows,
        rollouts=Rollouts(
            prompts=Prompts(
                tokens=np.repeat(numbers[:, None], width, axis=1) + 1,
                lengths=np.full(P, width),
                uid=numbers.astype(np.uint32),
            ),
            tokens=np.repeat(tokens_B[:, None], T, axis=1),
            lengths=np.full(2 * P, T),
            logprobs=-tokens_B[:, None] * np.ones((1, T), np.float32),
            finished=np.ones(2 * P, bool),
            weight_version=np.int32(5),
        ),
    )


def test_one_round_is_kept_as_it_is():
    only = groups(0, "ww", "rw", "rr")
    assert select_groups([only], 3, np.random.default_rng(0)) is only


def test_groups_with_a_signal_come_before_silent_ones_in_the_order_drawn():
    rounds = [groups(0, "ww", "rw", "rr"), groups(3, "rr", "wr", "ww", width=4)]
    chosen = select_groups(rounds, 3, np.random.default_rng(1))
    # 1 and 4 have mixed verdicts, and one of the others at random, 0, fills up. All are
    # then in the order drawn.
    assert chosen.problem_index.tolist() == [0, 1, 4]
    assert [one.problem.id for one in chosen.graded] == [
        "p0",
        "p0",
        "p1",
        "p1",
        "p4",
        "p4",
    ]
    r = chosen.rollouts
    assert r.tokens[:, 0].tolist() == [0, 1, 10, 11, 40, 41]
    assert r.logprobs[:, 2].tolist() == [0, -1, -10, -11, -40, -41]
    assert r.prompts.uid.tolist() == [0, 1, 4]
    # Prompts of the narrower round are padded on the right.
    assert r.prompts.tokens.tolist() == [[1, 1, 0, 0], [2, 2, 0, 0], [5] * 4]
    assert r.prompts.lengths.tolist() == [2, 2, 4]
    assert int(r.weight_version) == 5


def test_slots_count_what_they_computed_in_vain():
    """Two rounds of 2 x 3 tokens take 8 and 16 slot-steps; another was not counted."""
    rounds = [groups(0, "rw").rollouts, groups(1, "ww").rollouts]
    counted = [
        dataclasses.replace(rollouts, slot_steps=np.int32(steps))
        for rollouts, steps in zip(rounds, (8, 16), strict=True)
    ]
    expected = {"rollout/occupancy": 0.5, "rollout/wasted_tokens": 12.0}
    assert slot_metrics(counted) == expected
    assert slot_metrics([*counted, rounds[0]]) == expected
    assert slot_metrics(rounds) == {}


def test_more_signal_than_room_leaves_out_any_as_often():
    """A batch may be in order of difficulty, so its end is no place to cut."""
    rounds = [groups(0, "ww", "rw"), groups(2, "rw", "rw")]
    left_out = collections.Counter()
    for seed in range(300):
        kept = select_groups(rounds, 2, np.random.default_rng(seed)).problem_index
        (one,) = {1, 2, 3} - set(kept.tolist())
        left_out[one] += 1
    assert all(70 < left_out[p] < 130 for p in (1, 2, 3))  # 100, four deviations


def test_a_signal_is_two_verdicts_that_disagree_for_any_reward():
    """An unverified completion and a correct one do not disagree."""
    rounds = [groups(0, "ru", "wu"), groups(2, "wr", "uu")]
    chosen = select_groups(rounds, 2, np.random.default_rng(0))
    assert chosen.problem_index.tolist() == [0, 2]


def test_visits_count_verdicts_and_the_entropy_of_answers():
    told = groups(0, "rw", "rr", "ru", "uu")
    assert problem_outcomes(told) == [
        ProblemOutcome(
            problem_index=0,
            num_graded=2,
            num_correct=1,
            answer_entropy=pytest.approx(math.log(2)),
        ),
        ProblemOutcome(problem_index=1, num_graded=2, num_correct=2, answer_entropy=0),
        ProblemOutcome(problem_index=2, num_graded=1, num_correct=1, answer_entropy=0),
        ProblemOutcome(problem_index=3, num_graded=0, num_correct=0, answer_entropy=0),
    ]
    # A problem outside the pool has no account.
    assert problem_outcomes(groups(-1, "rw")) == []


def test_groups_of_one_problem_in_one_step_are_one_visit():
    """The entropies are 0.5 of two verdicts and 0.2 of four: (1 + 0.8) / 6."""
    found = [
        ProblemOutcome(
            problem_index=3, num_graded=2, num_correct=1, answer_entropy=0.5
        ),
        ProblemOutcome(
            problem_index=1, num_graded=0, num_correct=0, answer_entropy=0.0
        ),
        ProblemOutcome(
            problem_index=3, num_graded=4, num_correct=4, answer_entropy=0.2
        ),
    ]
    assert merge_outcomes(found) == [
        ProblemOutcome(
            problem_index=3,
            num_graded=6,
            num_correct=5,
            answer_entropy=pytest.approx(0.3),
        ),
        found[1],
    ]


def test_the_past_makes_a_success_lucky_and_a_failure_forgetful():
    config = DifficultyConfig()
    past = [
        *[
            ProblemOutcome(
                problem_index=0, num_graded=8, num_correct=0, answer_entropy=0.0
            )
        ]
        * 3,  # hard
        *[
            ProblemOutcome(
                problem_index=1, num_graded=8, num_correct=8, answer_entropy=0.0
            )
        ]
        * 3,  # easy, and solved
    ]
    before = record_outcomes(
        init_difficulty(3), past, step=0, num_batches=1, config=config
    )
    now = groups(0, "rw", "ww", "rw")
    bands = before.telemetry_bands(config)
    told = add_history_flags(now, before, bands, before.posterior_bands(config))
    assert [one.flags for one in told] == [
        *[("lucky_guess", "first_success"), ()],
        *[("forgotten",), ("forgotten",)],
        *[(), ()],
    ]
    assert [one.band for one in told[::2]] == ["hard", "easy", "unknown"]
    # A problem with half of its samples right is still solved. An unknown problem has
    # no band.
    strangers = np.array([-1, 0])
    told = add_history_flags(groups(0, "ww", "rw"), before, strangers, strangers)
    assert [one.flags for one in told] == [()] * 4
    assert [one.band for one in told[::2]] == [None, BANDS[0]]


@pytest.mark.parametrize("recipe", ["medium", "large"])
def test_a_success_where_none_of_eight_samples_had_one_is_flagged(recipe):
    """0 of 8 before RL means Hard@8, even if the posterior is unknown."""
    path = pathlib.Path(__file__).parents[2] / "configs" / f"{recipe}.py"
    config = load_config(path, Config).difficulty
    assert config.num_samples == 8

    def tried(state, correct, *, step):
        outcome = ProblemOutcome(
            problem_index=0, num_graded=8, num_correct=correct, answer_entropy=0.0
        )
        return record_outcomes(
            state, [outcome], step=step, num_batches=1, config=config
        )

    def flagged(state):
        bands = state.telemetry_bands(config), state.posterior_bands(config)
        told = add_history_flags(groups(0, "rw"), state, *bands)
        return [(one.flags, one.band, one.posterior_band) for one in told]

    hard = tried(init_difficulty(1), 0, step=INITIAL_STEP)
    first = ("lucky_guess", "first_success")
    assert flagged(hard) == [(first, "hard", "unknown"), ((), "hard", "unknown")]
    # A success before RL does not count, however many samples made the problem hard.
    rare = dataclasses.replace(
        hard, correct=hard.correct + 1, initial_correct=hard.initial_correct + 1
    )
    hard_band = np.array([BANDS.index("hard")]), np.array([BANDS.index("unknown")])
    assert add_history_flags(groups(0, "rw"), rare, *hard_band)[0].flags == first
    # The next success is not the first, but does not yet prove ability.
    once = tried(hard, 1, step=0)
    assert flagged(once)[0] == (("lucky_guess",), "hard", "unknown")
    # After repeated successes, another success is not luck.
    learned = tried(tried(hard, 6, step=0), 6, step=1)
    assert flagged(learned)[0] == ((), "hard", "medium")
    bands = np.array([BANDS.index("hard")]), np.array([BANDS.index("unknown")])
    row = add_history_flags(groups(0, "rw"), hard, *bands)[0].to_json("train", 3)
    assert (row["band"], row["posterior_band"]) == ("hard", "unknown")
    assert row["flags"] == list(first)


@pytest.mark.parametrize(
    ("refills", "served"),
    [
        (0, [("ww", "rw")]),
        (2, [("ww", "rw"), ("ww", "ww"), ("rw", "rr")]),
        (2, [("wr", "rw")]),  # enough signal: nothing more is drawn
    ],
)
def test_tokens_of_groups_drawn_and_dropped_are_counted(monkeypatch, refills, served):
    drawn = iter([groups(10 * n, *verdicts) for n, verdicts in enumerate(served)])
    now = []

    def serve(known, step, count, *, asked):
        assert asked == [i for before in now for i in before.problem_index.tolist()]
        now.append(next(drawn))
        problems = [
            group[0].problem for group in map(now[-1].completions_of, range(count))
        ]
        return types.SimpleNamespace(
            problems=problems, problem_index=now[-1].problem_index, num_fallback=0
        )

    monkeypatch.setattr(
        collect, "sample_completions", lambda *_, **__: now[-1].rollouts
    )
    monkeypatch.setattr(collect, "grade_completions", lambda *_: now[-1].graded)
    config = Config(
        train=TrainConfig(batch_size=2, group_size=2),
        dynamic_sampling=DynamicSamplingConfig(max_rounds=refills),
    )
    found = collect_rollouts(
        types.SimpleNamespace(
            config=config, verifier=None, sampler_layout=SamplerLayout(mesh=None)
        ),
        types.SimpleNamespace(params=None, step=5),
        types.SimpleNamespace(next_batch=serve),
        init_difficulty(30),
        step=0,
        batch_key=jax.random.key,
        timer=StepTimer(),
    )
    # A batch has two groups of two completions of T tokens; two groups are trained on.
    assert found.sampled_tokens == found.num_batches * 4 * T == len(served) * 4 * T
    assert found.groups.rollouts.lengths.sum() == 4 * T


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("target", {"target_pass_rate": 0.5}),
        ("target", {"target_pass_rate": 0.25, "uniform_fraction": 0.0}),
        ("band", {"band": "medium"}),
        ("filter", {"uniform_fraction": 0.0}),
        ("mixture", {"bands": ("medium", "hard")}),
        ("easy_to_hard", {"window_fraction": 0.8}),
        ("variance", {}),
        ("vcrl", {}),
        ("replay", {}),
    ],
)
def test_a_step_repeats_no_problem_while_others_are_left(monkeypatch, name, options):
    """Three batches of 8 are drawn from 40 medium problems, at the end of an epoch.

    All but 8 have one more visit. By least visits alone, the first batch would be these
    8, and the next could be any 8 of all.
    """
    once = [
        ProblemOutcome(problem_index=i, num_graded=8, num_correct=3, answer_entropy=0)
        for i in range(40)
    ]
    state = init_difficulty(40)
    for step, found in ((INITIAL_STEP, once), (0, once[8:])):
        state = record_outcomes(
            state, found, step=step, num_batches=1, config=DifficultyConfig()
        )
    config = Config(
        train=TrainConfig(batch_size=8, group_size=2),
        difficulty=DifficultyConfig(num_samples=8),
        dynamic_sampling=DynamicSamplingConfig(max_rounds=2),
        curriculum=CURRICULA.load(name)(**options),
    )
    silent = groups(0, *["ww"] * 8)
    monkeypatch.setattr(collect, "sample_completions", lambda *_, **__: silent.rollouts)
    monkeypatch.setattr(collect, "grade_completions", lambda *_: silent.graded)
    found = collect_rollouts(
        types.SimpleNamespace(
            config=config, verifier=None, sampler_layout=SamplerLayout(mesh=None)
        ),
        types.SimpleNamespace(params=None, step=5),
        Pool([one.problem for one in groups(0, *["w"] * 40).graded], config),
        state,
        step=1,
        batch_key=jax.random.key,
        timer=StepTimer(),
    )
    assert found.num_batches == 3
    assert [outcome.num_graded for outcome in found.outcomes] == [2] * 24


def test_what_an_update_is_cut_by_are_the_bands_before_rl(monkeypatch):
    """Token sums and RFGO use Hard@8 and Easy@8, which the posterior does not know."""
    counts = (0, 3, 8)
    before_rl = [
        ProblemOutcome(problem_index=i, num_graded=8, num_correct=k, answer_entropy=0)
        for i, k in enumerate(counts)
    ]
    config = Config(
        train=TrainConfig(batch_size=3, group_size=2),
        difficulty=DifficultyConfig(num_samples=8),
    )
    state = record_outcomes(
        init_difficulty(3),
        before_rl,
        step=INITIAL_STEP,
        num_batches=0,
        config=config.difficulty,
    )
    now = groups(0, "rw", "rw", "rw")
    monkeypatch.setattr(collect, "sample_completions", lambda *_, **__: now.rollouts)
    monkeypatch.setattr(collect, "grade_completions", lambda *_: now.graded)
    served = types.SimpleNamespace(
        problems=[one.problem for one in now.graded[::2]],
        problem_index=now.problem_index,
        num_fallback=0,
    )
    found = collect_rollouts(
        types.SimpleNamespace(
            config=config, verifier=None, sampler_layout=SamplerLayout(mesh=None)
        ),
        types.SimpleNamespace(params=None, step=5),
        types.SimpleNamespace(next_batch=lambda *_, **__: served),
        state,
        step=0,
        batch_key=jax.random.key,
        timer=StepTimer(),
    )
    assert [BANDS[band] for band in found.bands] == ["hard", "medium", "easy"]
    told = found.groups.graded[::2]
    assert [one.posterior_band for one in told] == ["unknown", "medium", "unknown"]
    batch = batch_from_rollouts(
        found.groups.rollouts, found.advantages, bands_P=found.bands
    )
    assert [BANDS[band] for band in batch.bands[::2]] == ["hard", "medium", "easy"]


@pytest.mark.parametrize("guard", ["off", "clip", "shrink"])
def test_rewards_signal_and_the_guard_by_hand(guard):
    """Lengths 2 of 4 with a buffer of 4 cost 1/2; only problem 0 is hard.

    Advantages are +1 and -1 in a group of one correct and one incorrect completion.
    """
    past = [
        ProblemOutcome(problem_index=0, num_graded=8, num_correct=0, answer_entropy=0),
        ProblemOutcome(problem_index=1, num_graded=8, num_correct=8, answer_entropy=0),
    ]
    settings = {"overhard_clip": 0.5} if guard == "clip" else {}
    config = Config(
        difficulty=DifficultyConfig(hard_below=0.25),
        train=TrainConfig(
            batch_size=3,
            group_size=2,
            overlong_buffer=4,
            sampling=SamplingConfig(max_new_tokens=4),
            advantage=AdvantageConfig(overhard_advantage=guard, **settings),
        ),
    )
    prior = record_outcomes(
        init_difficulty(3),
        past,
        step=0,
        num_batches=1,
        config=config.difficulty,
    )
    now = groups(0, "rw", "rw", "ww")
    lengths = np.array([2, 2, 2, 2, 0, 4])
    now = dataclasses.replace(
        now, rollouts=dataclasses.replace(now.rollouts, lengths=lengths)
    )
    parts, rewards, _, advantages, signal = step_rewards.compute_rewards(
        config, now, {}, step_rewards.read_beliefs(prior, hard_below=0.25)
    )
    np.testing.assert_allclose(parts["correctness"], [[1, 0], [1, 0], [0, 0]])
    np.testing.assert_allclose(rewards, [[0.5, -0.5], [0.5, -0.5], [0, -1]])
    # Shaped rewards differ in all-incorrect groups, but that is not a signal.
    assert signal.tolist() == [True, True, False]
    mass_N = 1 - betainc(np.array([0.5, 8.5]), np.array([8.5, 0.5]), 0.25)
    assert mass_N[0] < 0.1
    assert mass_N[1] > 0.9
    factor = {"off": [1, 1], "clip": [0.5, 1], "shrink": mass_N}[guard]
    expected = np.array([[1, -1], [1, -1]]) * np.array(factor)[:, None]
    np.testing.assert_allclose(advantages[:2], expected, atol=1e-6)


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [("rrrrwwww", 1.0), ("rrrwwwuu", 1.0), ("rrwwuuuu", 1.0), ("rwuuuuuu", 1.0)],
)
@pytest.mark.parametrize("buffer", [0, 4])
def test_completions_that_nobody_could_judge_change_no_advantage(
    verdicts, expected, buffer
):
    """Half of the judged ones are correct, so advantages are +1 and -1.

    A length penalty does not change that, because here all pay the same.
    """
    config = Config(
        train=TrainConfig(
            batch_size=1,
            group_size=8,
            overlong_buffer=buffer,
            sampling=SamplingConfig(max_new_tokens=4),
        )
    )
    one = groups(0, verdicts)
    lengths = np.where([letter == "u" for letter in verdicts], 4, 2)
    rollouts = dataclasses.replace(one.rollouts, lengths=lengths)
    found = step_rewards.compute_rewards(
        config,
        dataclasses.replace(one, rollouts=rollouts),
        {},
        step_rewards.read_beliefs(
            init_difficulty(1), hard_below=config.difficulty.hard_below
        ),
    )
    np.testing.assert_array_equal(found.judged[0], [x != "u" for x in verdicts])
    sign = np.array([{"r": 1, "w": -1, "u": 0}[x] for x in verdicts])
    np.testing.assert_allclose(found.advantages[0], expected * sign, atol=1e-6)
    assert found.has_signal.tolist() == [True]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LongAndLikely(AdvantageRule):
    """A rule that returns what it is told: 100 p + length."""

    def advantages(self, groups):
        return 100.0 * groups.pass_rate[:, None] + groups.lengths.astype(jnp.float32)


def test_a_rule_is_told_lengths_and_the_pass_rates_before_the_step():
    """Problem 0 was solved in 7 of 8: (7 + 1/2) / (8 + 1); problem 1 is new: 1/2."""
    past = [
        ProblemOutcome(problem_index=0, num_graded=8, num_correct=7, answer_entropy=0)
    ]
    config = Config(
        train=TrainConfig(batch_size=2, group_size=2, advantage=LongAndLikely())
    )
    prior = record_outcomes(
        init_difficulty(2), past, step=0, num_batches=1, config=config.difficulty
    )
    now = groups(0, "ww", "ru")
    lengths = np.array([1, 2, 3, 4])
    now = dataclasses.replace(
        now, rollouts=dataclasses.replace(now.rollouts, lengths=lengths)
    )
    found = step_rewards.compute_rewards(
        config, now, {}, step_rewards.read_beliefs(prior, hard_below=0.1)
    )
    first = 100 * 7.5 / 9
    np.testing.assert_allclose(
        found.advantages, [[first + 1, first + 2], [50 + 3, 0]], rtol=1e-6
    )


def test_a_trace_earns_the_reward_of_a_completion_with_its_text():
    """Groups earn 1 and 0; trace 2 is missing, 4 has no verdict on a false gold.

    The last two of 4 tokens are penalized: three tokens cost 0.5.
    """
    config = TrainConfig(
        reward=RewardConfig(names=("correctness", "wrong_label"), weights=(1.0, 0.75)),
        overlong_buffer=2,
        sampling=SamplingConfig(max_new_tokens=4),
        advantage=AdvantageConfig(normalize="none"),
    )
    told = np.array([0.0, math.nan, 1.0, math.nan], np.float32)
    traces = GradedTraces(
        tokens=np.zeros((4, 4), np.int32),
        lengths=np.array([2, 0, 3, 4], np.int32),
        raw_scores={"wrong_label": told},
    )
    own = np.tile(np.float32([1, 0]), (4, 1))
    groups = RewardGroups(
        rewards=own,
        judged=own >= 0,
        lengths=np.ones_like(own, np.int32),
        pass_rate=np.full(4, 0.5, np.float32),
        overhard=np.zeros(4, bool),
        confidence=np.ones(4, np.float32),
    )
    found = step_rewards._trace_advantages(traces, groups, config=config)
    assert found.tolist() == [1 - 0.5, 0.0, 1 + 0.75 - 0.5 - 0.5, 0.0]
