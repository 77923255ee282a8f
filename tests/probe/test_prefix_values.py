"""Values of prefixes: the policy continues them, and the whole text is judged."""

import dataclasses

import jax
import numpy as np
import pytest

from rlvr_jax.config import SamplingConfig
from rlvr_jax.probe.prefix_values import sample_prefix_values, squared_changes
from rlvr_jax.rollouts.graded import grade_completions
from rlvr_jax.rollouts.sample import sample_problems
from rlvr_jax.run.load import LoadedPolicy
from rlvr_jax.run.setup import open_setup
from rlvr_jax.types import Verdict
from tests.support.policies import TINY_EVAL


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    run = open_setup(
        TINY_EVAL, tmp_path_factory.mktemp("run") / "none", stages=("eval",)
    )
    with jax.set_mesh(run.mesh), run.verifier:
        yield LoadedPolicy(run, run.initial_params(), 0)


def judged_by(policy, is_right):
    """Returns the policy with another judge of texts."""

    def judge(problems, texts):
        assert len(problems) == len(texts)
        statuses = ["correct" if is_right(text) else "incorrect" for text in texts]
        return [Verdict(status=status) for status in statuses]

    return policy._replace(setup=dataclasses.replace(policy.setup, verifier=judge))


def values_of(policy, *, num_samples=4, **sampling):
    """Returns the completions of 8 problems, and the values of their prefixes."""
    how = SamplingConfig(**{"max_new_tokens": 8, **sampling})
    ((batch, rollouts),) = sample_problems(
        policy.setup,
        policy.params,
        policy.setup.problems("eval", 8),
        sampling=how,
        num_samples=1,
        batch_size=8,
        stream="eval",
    )
    graded = grade_completions(policy.setup, batch, rollouts)
    values = sample_prefix_values(
        policy,
        graded,
        rollouts,
        sampling=how,
        num_samples=num_samples,
        batch_size=16,
    )
    return graded, values


def test_a_greedy_policy_ends_where_it_began(policy):
    own = judged_by(policy, lambda text: len(text) % 2 == 0)
    graded, values = values_of(own, temperature=0.0)
    verdicts = [each.verdict.status == "correct" for each in graded]
    assert {*verdicts} == {True, False}
    for right, each, completion in zip(verdicts, values, graded, strict=True):
        assert each.shape == (completion.length + 1, 4)
        assert (each == right).all()


def test_what_the_first_word_decides_is_decided_from_there_on(policy):
    ours = judged_by(policy, lambda text: text.split(" ")[0] > "g")
    graded, values = values_of(ours, num_samples=64, min_new_tokens=3)
    for completion, each in zip(graded, values, strict=True):
        decided = completion.completion.split(" ")[0] > "g"
        assert (each[1:] == decided).all()
    begun = np.array([each[0].mean() for each in values])
    assert 0.1 < begun.mean() < 0.9
    # 8 prompts x 64 samples, compared with as many newly drawn completions.
    (_, again) = values_of(ours, num_samples=32, min_new_tokens=3)
    other = np.array([each[0].mean() for each in again])
    assert abs(begun.mean() - other.mean()) < 4 * (0.25 / 256 + 0.25 / 512) ** 0.5


def test_prefix_and_sample_are_cut_where_a_completion_would_have_been(policy):
    lengths = []

    def is_short(text):
        lengths.append(len(text.split(" ")))
        return lengths[-1] < 8

    graded, _ = values_of(judged_by(policy, is_short), min_new_tokens=7)
    # The completions first, then four samples from each prefix.
    assert len(lengths) == 8 + 4 * sum(each.length for each in graded)
    assert max(lengths) == 8


def test_squared_changes_are_right_on_average_where_squares_are_not():
    rng = np.random.default_rng(0)
    chances = np.array([0.5, 0.5, 0.8, 0.2, 0.0])
    draws = rng.random((20_000, 5, 6)) < chances[None, :, None]
    unbiased = np.mean([squared_changes(each) for each in draws], axis=0)
    truth = np.diff(chances) ** 2
    np.testing.assert_allclose(unbiased, truth, atol=0.01)
    naive = np.mean(np.diff(draws.mean(axis=2), axis=1) ** 2, axis=0)
    assert naive[0] > truth[0] + 0.05
