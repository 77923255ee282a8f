"""Grading reads a row's completion and nothing after it."""

import types

import jax.numpy as jnp
import numpy as np

from rlvr_jax.config import TokenizerConfig
from rlvr_jax.rollouts.graded import grade_completions
from rlvr_jax.tasks import FilesTask
from rlvr_jax.types import Problem, Prompts, Rollouts, Verdict


def _grade(problems, texts):
    """Grades as correct a text that equals the gold."""
    return [
        Verdict(status="correct" if text == problem.gold else "incorrect")
        for problem, text in zip(problems, texts, strict=True)
    ]


def test_padding_is_not_part_of_a_completion():
    """Id 0 fills up rows and may also be a word; many in a row count as repetition."""
    tokens_BT = np.zeros((4, 24), np.int32)
    tokens_BT[:, :3] = [[3, 0, 4], [3, 4, 0], [5, 6, 0], [5, 6, 7]]
    rollouts = Rollouts(
        prompts=Prompts(
            tokens=np.ones((2, 1), np.int32),
            lengths=np.ones(2, np.int32),
            uid=np.arange(2, dtype=np.uint32),
        ),
        tokens=tokens_BT,
        lengths=np.array([3, 2, 3, 24], np.int32),
        logprobs=np.zeros((4, 24), np.float32),
        finished=np.array([True, True, True, False]),
        weight_version=jnp.int32(7),
    )
    setup = types.SimpleNamespace(
        tokenizer=types.SimpleNamespace(decode=lambda ids: " ".join(map(str, ids))),
        verifier=_grade,
        config=types.SimpleNamespace(task=FilesTask(), tokenizer=TokenizerConfig()),
    )
    problems = [
        Problem(id=gold, prompt="?", gold=gold, verifier="math", source="t")
        for gold in ("3 4", "5 6 0")
    ]
    graded = grade_completions(setup, problems, rollouts)
    assert [one.completion for one in graded[:3]] == ["3 0 4", "3 4", "5 6 0"]
    assert [one.verdict.status for one in graded] == [
        "incorrect",
        "correct",
        "correct",
        "incorrect",
    ]
    assert [one.length for one in graded] == [3, 2, 3, 24]
    assert ["repetition" in one.flags for one in graded] == [False, False, False, True]
    assert [one.problem for one in graded] == [problems[0]] * 2 + [problems[1]] * 2
    assert {one.weight_version for one in graded} == {7}
    assert [one.format for one in graded] == ["none", "unmarked", "unmarked", "none"]
