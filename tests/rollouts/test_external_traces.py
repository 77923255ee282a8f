"""External traces when some are dropped: each row keeps its own tokens and scores.

Between the kept solutions there are a wrong, an unverified and a missing one, and
solutions exactly at both length limits and just beyond them.
"""

import types

import numpy as np
import pytest

from rlvr_jax.config import RewardConfig, SamplingConfig, TrainConfig
from rlvr_jax.rollouts.external import external_metrics, read_traces
from rlvr_jax.tokenizer import PAD_ID
from rlvr_jax.types import ExternalTraces, Problem, Verdict
from rlvr_jax.verifiers.controls import coin_flip

LONGEST, SHORTEST, EOS = 6, 2, 1
STATUS = {"r": "correct", "w": "incorrect", "u": "unverified"}


def problem(at, letter, words, *, solution=True):
    """Returns a problem whose solution has so many words, including its confidence."""
    confidence = f"<confidence>0.{at + 1}</confidence>"
    text = " ".join([confidence, *[f"w{at}"] * (words - 1)])
    return Problem(
        id=f"{letter}{at}",
        prompt="",
        gold="",
        verifier="exact",
        source="test",
        solution=text if solution else None,
    )


class Tokens:
    """A tokenizer: the token of a word is the number in it, and 1 ends a sequence."""

    eos_id = EOS

    def encode(self, text, *, literal=()):
        assert literal == ((0, len(text)),)  # a solution is literal text
        words = text.split()
        return [90 if word[0] == "<" else 10 + int(word[1:]) for word in words]


def judge(problems, texts):
    """Returns the verdict that starts each problem's id. No text may be empty."""
    assert all(texts)
    return [Verdict(status=STATUS[p.id[0]], answer="a") for p in problems]


def setup(*, names=("correctness",), seed=0, verifier=judge):
    train = TrainConfig(
        reward=RewardConfig(names=names, weights=(1.0,) * len(names)),
        sampling=SamplingConfig(max_new_tokens=LONGEST, min_new_tokens=SHORTEST),
    )
    config = types.SimpleNamespace(
        train=train, seed=seed, tokenizer=types.SimpleNamespace(thinks=False)
    )
    return types.SimpleNamespace(config=config, tokenizer=Tokens(), verifier=verifier)


# A solution of n words has n + 1 tokens, including end-of-sequence. A completion that
# ends by itself has 3 to 6: at least two and the end, at most six with the end.
PROBLEMS = [
    problem(0, "r", 3),
    problem(1, "w", 3),
    problem(2, "r", 4),
    problem(3, "u", 3),
    problem(4, "r", LONGEST - 1),  # exactly as long as a completion may be
    problem(5, "r", LONGEST),  # one token longer
    problem(6, "r", SHORTEST),  # exactly as short as one may be
    problem(7, "r", SHORTEST - 1),  # one token shorter
    problem(8, "r", 3, solution=False),
    problem(9, "r", 2),
]
KEPT = {0: 4, 2: 5, 4: LONGEST, 6: SHORTEST + 1, 9: 3}  # number of tokens of each


def test_right_traces_that_fit_are_kept_each_in_its_own_row():
    traces = read_traces(setup(), PROBLEMS)
    assert traces.tokens.shape == (len(PROBLEMS), LONGEST)
    lengths = [KEPT.get(p, 0) for p in range(len(PROBLEMS))]
    assert traces.lengths.tolist() == lengths
    for p, (row, length) in enumerate(zip(traces.tokens, lengths, strict=True)):
        own = [90, *[10 + p] * (length - 2), EOS] if length else []
        assert row.tolist() == [*own, *[PAD_ID] * (LONGEST - len(own))]
    assert traces.raw_scores == {}


@pytest.mark.parametrize("seed", range(4))
def test_each_score_belongs_to_its_problem(seed):
    """The coin depends on the problem, and the confidence on the text."""
    names = ("correctness", "random", "confidence")
    scores = read_traces(setup(names=names, seed=seed), PROBLEMS).raw_scores
    assert scores.keys() == {"random", "confidence"}
    for p, one in enumerate(PROBLEMS):
        coin, confidence = scores["random"][p], scores["confidence"][p]
        if p in KEPT:
            assert coin == coin_flip(seed, one.id, 0)
            # The last problem, number 9, has the confidence "0.10".
            assert confidence == pytest.approx(float(f"0.{p + 1}"))
        else:
            assert np.isnan(coin)
            assert np.isnan(confidence)


def test_coins_of_the_kept_problems_differ():
    """If coins were equal, the test above could not see a score in the wrong row."""
    rows = {tuple(coin_flip(s, PROBLEMS[p].id, 0) for p in KEPT) for s in range(4)}
    assert len(rows) > 1
    assert any(row != row[::-1] for row in rows)


def test_only_traces_that_fit_are_judged():
    asked = []

    def listen(problems, texts):
        asked.extend((p.id, text) for p, text in zip(problems, texts, strict=True))
        return judge(problems, texts)

    read_traces(setup(verifier=listen), PROBLEMS)
    short_enough = [PROBLEMS[p] for p in (0, 1, 2, 3, 4, 6, 9)]
    assert asked == [(one.id, one.solution) for one in short_enough]


@pytest.mark.parametrize("status", ["w", "u"])
def test_without_a_right_trace_there_is_none(status):
    traces = read_traces(setup(names=("random",)), [problem(0, status, 3)] * 2)
    assert not traces.lengths.any()
    assert (traces.tokens == PAD_ID).all()
    assert np.isnan(traces.raw_scores["random"]).all()
    told = ExternalTraces(
        tokens=traces.tokens,
        lengths=traces.lengths,
        advantages=np.zeros(2, np.float32),
    )
    shares = external_metrics(told, np.ones((2, 4), np.float32))
    assert shares == {"external/rows": 0.0, "external/advantage_mass": 0.0}
