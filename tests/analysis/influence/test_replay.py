"""A step taken again with a problem removed, on a tiny policy rewarded by a coin.

The step is the first one, so Adam has no moments yet.
"""

import dataclasses
import json
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from job_jax.metrics import CompileCounter, MetricsWriter
from job_jax.steps import StopSignal
from rlvr_jax.analysis.influence import command
from rlvr_jax.analysis.influence.command import DOT, TRACIN
from rlvr_jax.analysis.influence.difficulty_scores import (
    EL2N,
    FORGETTING,
    OWN_SOLUTION,
    score_difficulty,
)
from rlvr_jax.analysis.influence.estimates import (
    DotProducts,
    learning_rate,
    make_step_batch,
    pass_rates,
    verdict_variance,
)
from rlvr_jax.analysis.influence.held_out import open_held_out
from rlvr_jax.analysis.influence.measure import ADVANTAGES, BATCH, LOGPROB, PASS_AT_1
from rlvr_jax.analysis.influence.removals import (
    OVERLONG,
    find_signals,
    without_problems,
    without_reward,
)
from rlvr_jax.analysis.influence.replay import _sample_step, largest_metric_gap
from rlvr_jax.config import RewardConfig, SamplingConfig, SFTConfig
from rlvr_jax.data import encode_prompt, encode_solution
from rlvr_jax.run.setup import open_setup
from rlvr_jax.run.workdir import Workdir
from rlvr_jax.stages.context import RunContext
from rlvr_jax.types import ExternalTraces
from tests.support.policies import TINY_EVAL

P, G, PLANTED = 8, 4, 5  # the place of the planted problem in the batch
WIDTH = 72  # of a prompt with its worked solution
_TRAIN = dataclasses.replace(
    TINY_EVAL.train,
    steps=3,
    batch_size=P,
    group_size=G,
    overlong_buffer=16,
    max_logprob_mismatch=100.0,  # planted completions were not sampled
    reward=RewardConfig(names=("correctness", "random"), weights=(1.0, 0.5)),
    sampling=SamplingConfig(max_new_tokens=24),
)
CONFIG = dataclasses.replace(TINY_EVAL, sft=SFTConfig(steps=0), train=_TRAIN)


@pytest.fixture(scope="module")
def replay(tmp_path_factory):
    """The first step of a run that has no checkpoint yet."""
    workdir = Workdir(tmp_path_factory.mktemp("run"), CONFIG)
    setup = open_setup(CONFIG, workdir.tokenizer_path, stages=("train", "eval"))
    with (
        jax.set_mesh(setup.mesh),
        setup.verifier,
        MetricsWriter(workdir.path) as writer,
    ):
        ctx = RunContext(
            setup=setup,
            workdir=workdir,
            writer=writer,
            stop_signal=StopSignal(),
            compile_counter=CompileCounter(),
        )
        yield _sample_step(workdir.path, 0, ctx)


@pytest.fixture(scope="module")
def held_out(replay):
    """The held-out problems without sampled answers, which take most of the time."""
    return open_held_out(replay.trainer, 11, samples=False)


def plant(replay, held_out, advantage):
    """Returns the replay with worked held-out solutions as the completions of a group.

    The first of them has this advantage, and no other completion has any.
    """
    rollouts, tokenizer = replay.rollouts, replay.trainer.setup.tokenizer
    drawn = rollouts.groups.rollouts
    tokens, lengths = np.array(drawn.tokens), np.array(drawn.lengths)
    problem = held_out.problems[0]
    prompt_ids = encode_prompt(problem, tokenizer)
    solution = encode_solution(problem, tokenizer)
    prompt_tokens, prompt_lengths = (
        np.array(drawn.prompts.tokens),
        np.array(drawn.prompts.lengths),
    )
    prompt_tokens[PLANTED] = 0
    prompt_tokens[PLANTED, : len(prompt_ids)] = prompt_ids
    prompt_lengths[PLANTED] = len(prompt_ids)
    row = PLANTED * G
    tokens[row] = 0
    tokens[row, : len(solution)] = solution
    lengths[row] = len(solution)
    advantages = np.zeros((P, G), np.float32)
    advantages[PLANTED, 0] = advantage
    planted = dataclasses.replace(
        drawn,
        prompts=dataclasses.replace(
            drawn.prompts, tokens=prompt_tokens, lengths=prompt_lengths
        ),
        tokens=tokens,
        lengths=lengths,
    )
    groups = dataclasses.replace(rollouts.groups, rollouts=planted)
    return dataclasses.replace(
        replay,
        rollouts=dataclasses.replace(rollouts, groups=groups, advantages=advantages),
    )


def request(**changes):
    asked = {"batch": True, "problems": tuple(range(P)), "rewards": ()} | changes
    return types.SimpleNamespace(**asked)


def test_a_removal_of_nothing_has_no_influence_at_all(replay, held_out):
    """Bit for bit, in both outcomes: the same completions and the same keys."""
    first, second = (replay.update(replay.rollouts)[0] for _ in range(2))
    for one, other in zip(*map(jax.tree.leaves, (first, second)), strict=True):
        np.testing.assert_array_equal(one, other)
    answered = dataclasses.replace(held_out, samples=True)
    once, again = answered.measure(first), answered.measure(second)
    assert len(once.pass_at_1) == len(once.logprobs) == 11
    np.testing.assert_array_equal(once.logprobs, again.logprobs)
    np.testing.assert_array_equal(once.pass_at_1, again.pass_at_1)
    nothing = without_reward(replay, "no part")
    np.testing.assert_array_equal(nothing.advantages, replay.rollouts.advantages)
    np.testing.assert_array_equal(nothing.rewards, replay.rollouts.rewards)


def test_only_the_named_problem_loses_its_advantages(replay):
    before = replay.rollouts.advantages
    found = without_problems(replay.rollouts, [PLANTED]).advantages
    assert before[PLANTED].any()
    assert not found[PLANTED].any()
    others = np.arange(P) != PLANTED
    np.testing.assert_array_equal(found[others], before[others])
    assert replay.rollouts.advantages[PLANTED].any()  # the replay itself is unchanged


def test_the_trace_of_a_removed_problem_is_removed_too(replay):
    no_tokens = np.zeros((P, 1), np.int32)
    external = ExternalTraces(
        tokens=no_tokens, lengths=np.ones(P, np.int32), advantages=np.ones(P)
    )
    rollouts = dataclasses.replace(replay.rollouts, external=external)
    found = without_problems(rollouts, [2])
    assert found.external.advantages.tolist() == [1, 1, 0, 1, 1, 1, 1, 1]
    silent = dataclasses.replace(found, advantages=np.zeros_like(found.advantages))
    assert find_signals(silent).tolist() == [True, True, False, *[True] * 5]


def test_a_problem_without_advantages_has_no_signal(replay):
    assert find_signals(replay.rollouts)[PLANTED]
    found = find_signals(without_problems(replay.rollouts, [PLANTED]))
    assert np.flatnonzero(~found).tolist() == [PLANTED]


def test_a_removed_part_of_the_reward_counts_nothing(replay):
    parts, before = replay.rollouts.reward_parts, replay.rollouts
    assert parts["random"].any()
    assert not parts["correctness"].all()
    without = without_reward(replay, "random")
    np.testing.assert_allclose(without.rewards, parts["correctness"] + parts[OVERLONG])
    kept = without_reward(replay, OVERLONG)
    np.testing.assert_allclose(
        kept.rewards, parts["correctness"] + 0.5 * parts["random"], rtol=1e-6
    )
    assert (without.advantages != before.advantages).any()


@pytest.mark.parametrize("sign", [1, -1])
def test_a_planted_solution_raises_the_score_and_a_punished_one_lowers_it(
    replay, held_out, sign
):
    """Only its problem has an influence; the estimates have the sign of the exact one.

    A cheap version of SFT: the only completion with an advantage is a held-out
    problem's worked solution.
    """
    planted = plant(replay, held_out, float(sign))
    result = command.measure_influence(request(), planted, held_out)
    batch, advantages = result.parts
    assert (batch.removed, advantages.removed) == (BATCH, ADVANTAGES)
    assert advantages.outcomes == batch.outcomes  # Adam has no moments yet
    assert sign * batch.outcomes[LOGPROB].value > 1e-6
    assert PASS_AT_1 not in batch.outcomes  # no answers were sampled
    for problem in result.problems:
        exact, estimates = problem.outcomes[LOGPROB].value, problem.estimates
        if problem.index != PLANTED:
            assert not problem.has_signal
            assert exact == estimates[DOT] == estimates[TRACIN] == 0
            continue
        # Without it no completion has an advantage.
        assert exact == batch.outcomes[LOGPROB].value
        assert sign * estimates[DOT] > 0
        rate = learning_rate(planted, 0)
        assert estimates[TRACIN] == pytest.approx(rate * estimates[DOT])
    ids = [
        p[0].problem.id for p in map(replay.rollouts.groups.completions_of, range(P))
    ]
    assert [problem.problem for problem in result.problems] == ids
    first = held_out.measure(replay.update(planted.rollouts)[0])
    before = held_out.measure(replay.state.device.params)
    assert sign * (first.logprobs - before.logprobs)[0] > 0  # of the solution itself


def test_chosen_problems_have_their_own_influences_and_estimates(replay, held_out):
    everything = command.measure_influence(request(batch=False), replay, held_out)
    chosen = command.measure_influence(
        request(batch=False, problems=(1, 6)), replay, held_out
    )
    assert everything.parts == chosen.parts == []
    assert [*chosen.problems] == [everything.problems[1], everything.problems[6]]
    exact = [one.outcomes[LOGPROB].value for one in everything.problems]
    assert len({*exact}) > P / 2


def test_the_outcome_without_a_problem_is_that_of_the_other_update(replay, held_out):
    """Against an update that is made by hand."""
    (found,) = command.measure_influence(
        request(batch=False, problems=(3,)), replay, held_out
    ).problems
    advantages = np.array(replay.rollouts.advantages)
    advantages[3] = 0
    other = dataclasses.replace(replay.rollouts, advantages=advantages)
    with_, without = (
        held_out.measure(replay.update(rollouts)[0])
        for rollouts in (replay.rollouts, other)
    )
    difference = with_.logprobs.mean() - without.logprobs.mean()
    assert abs(difference) > 1e-7
    assert found.outcomes[LOGPROB].value == pytest.approx(difference, rel=1e-6)


def only_problem(batch, p):
    """Returns the batch with advantage 0 outside group p; its loss weights stay."""
    P = len(batch.prompt_lengths)
    advantages_PG = np.array(batch.advantages).reshape(P, -1)
    is_other_P = np.arange(P) != p
    advantages_PG[is_other_P] = 0.0
    return dataclasses.replace(batch, advantages=advantages_PG.reshape(-1))


def test_a_dot_product_is_the_slope_of_the_held_out_loss(replay, held_out):
    """Against the difference quotient along the problem's own gradient."""
    p = int(np.abs(replay.rollouts.advantages).sum(axis=1).argmax())
    products = DotProducts(replay, held_out)
    (found,) = products.measure(0, [p])
    params = replay.state.device.params
    batch = replay.trainer.setup.shard_batch(only_problem(make_step_batch(replay), p))
    gradient, _ = products._updater.gradient(
        params, batch, replay.trainer.sampling, None
    )
    norm = float(jnp.sqrt(sum((leaf**2).sum() for leaf in jax.tree.leaves(gradient))))

    def score(size):
        moved = jax.tree.map(lambda w, g: w - size / norm * g, params, gradient)
        return float(held_out.measure(moved).logprobs.mean())

    slope = norm * (score(0.02) - score(-0.02)) / 0.04
    assert found == pytest.approx(slope, rel=0.05)


def test_each_worked_solution_weighs_the_same_whatever_its_length(held_out):
    """Five rows fill up the second batch of eight, and weigh nothing."""
    lengths = held_out.solutions.lengths
    assert len({*lengths[:11].tolist()}) > 1
    weights = held_out.solutions.loss_weights.sum(axis=1)
    np.testing.assert_allclose(weights, [1 / 11] * 11 + [0] * 5, rtol=1e-6)


def test_difficulty_scores_are_of_each_problem_and_its_own_solution(replay, held_out):
    """Against logits of the whole text at once, and a pool with a past."""
    index = np.arange(P)[::-1] + 3
    groups = dataclasses.replace(replay.rollouts.groups, problem_index=index)
    rollouts = dataclasses.replace(replay.rollouts, groups=groups)
    difficulty = replay.state.difficulty
    events, last = np.zeros(difficulty.size, int), np.zeros(difficulty.size)
    events[index[2]], last[index[3]], events[index[4]] = 2, 0.5, 1
    last[index[5]] = 0.25  # tried, and never solved
    past = dataclasses.replace(
        difficulty, forgetting_events=events, last_pass_rate=last
    )
    state = dataclasses.replace(replay.state, difficulty=past)
    found = score_difficulty(
        dataclasses.replace(replay, state=state, rollouts=rollouts), held_out, range(P)
    )
    trainer = replay.trainer
    policy = nnx.merge(trainer.setup.graphdef, replay.merge(replay.state.device.params))
    tokenizer = trainer.setup.tokenizer
    for p in range(P):
        problem = groups.completions_of(p)[0].problem
        prompt = encode_prompt(problem, tokenizer)
        solution = encode_solution(problem, tokenizer)
        text = [*prompt, *solution]
        ids = np.zeros((1, WIDTH), np.int32)  # one width, so that it compiles once
        ids[0, : len(text)] = text
        mask = np.arange(WIDTH)[None] < len(text)
        logits = policy(ids, mask)[0, : len(text), : policy.num_real_tokens]
        chances = np.asarray(jax.nn.softmax(logits), np.float64)[len(prompt) - 1 : -1]
        own = chances[np.arange(len(solution)), solution]
        assert found[OWN_SOLUTION][p] == pytest.approx(np.log(own).mean(), rel=1e-4)
        target = np.eye(chances.shape[1])[solution]
        errors = np.linalg.norm(chances - target, axis=1)
        assert found[EL2N][p] == pytest.approx(errors.mean(), rel=1e-4)
    expected = np.full(P, np.inf)
    expected[2:5] = 2, 0, 1
    np.testing.assert_array_equal(found[FORGETTING], expected)
    assert len({*found[EL2N].tolist()}) == P


def test_without_a_solution_or_a_place_in_the_pool_there_is_no_score(replay, held_out):
    groups = dataclasses.replace(
        replay.rollouts.groups, problem_index=np.array([0] * 6 + [-1] * 2)
    )
    outside = dataclasses.replace(
        replay, rollouts=dataclasses.replace(replay.rollouts, groups=groups)
    )
    assert [*score_difficulty(outside, held_out, [0, 6])] == [EL2N, OWN_SOLUTION]
    whole = score_difficulty(outside, held_out, range(P - 2))
    some = score_difficulty(outside, held_out, [3, 5])
    assert [*some] == [*whole] == [EL2N, OWN_SOLUTION, FORGETTING]
    for name, values in some.items():
        np.testing.assert_allclose(values, whole[name][[3, 5]], rtol=1e-5)
    bare = dataclasses.replace(held_out.problems[0], solution=None)
    assert held_out.with_problems([bare, held_out.problems[1]]).num_solutions == 1
    assert held_out.with_problems([bare]).solutions is None


def test_a_pass_rate_is_over_verified_completions():
    statuses = ["correct", "unverified", "incorrect", "correct"], ["unverified"] * 4
    groups = [
        [types.SimpleNamespace(verdict=types.SimpleNamespace(status=s)) for s in group]
        for group in statuses
    ]
    rollouts = types.SimpleNamespace(groups=Groups(groups))
    np.testing.assert_array_equal(pass_rates(rollouts), [2 / 3, np.nan])
    assert verdict_variance(1 / 3) == verdict_variance(2 / 3)


class Groups(list):
    """Groups of completions, as `ProblemGroups` gives them."""

    def completions_of(self, p):
        return self[p]


def test_the_learning_rate_is_that_of_the_step(replay):
    """A warm-up of 20 steps to 3e-4, from the first step on."""
    for step in range(3):
        expected = 3e-4 * (step + 1) / 21
        assert learning_rate(replay, step) == pytest.approx(expected, rel=1e-4)


def test_a_metric_that_differs_from_the_runs_is_found(tmp_path):
    rows = [
        {"stage": "sft", "step": 2, "loss/total": 9.0},
        {"stage": "train", "step": 2, "loss/total": 1.0, "reward/mean": 0.5, "x": None},
        {"stage": "train", "step": 3, "loss/total": 9.0},
    ]
    lines = "".join(f"{json.dumps(row)}\n" for row in rows)
    (tmp_path / "metrics.jsonl").write_text(lines)
    same = {"loss/total": 1.0, "reward/mean": 0.5, "x": 1.0, "new": 2.0}
    assert largest_metric_gap(tmp_path, 2, same) == ("", 0.0)
    assert largest_metric_gap(tmp_path, 7, same) is None
    changed = same | {"reward/mean": 0.25, "loss/total": 1.125}
    assert largest_metric_gap(tmp_path, 2, changed) == ("reward/mean", 0.5)
