"""How a step's groups are chosen, and what they tell of their problems."""

import math
import types

import jax
import numpy as np
import pytest

from rlvr_jax import evaluate, experience
from rlvr_jax.config import Config, CurriculumConfig, DifficultyConfig, TrainConfig
from rlvr_jax.data import Visit
from rlvr_jax.data.difficulty import unknown, updated
from rlvr_jax.evaluate import Judged
from rlvr_jax.experience import (
    Groups,
    _with_history,
    gather,
    kept,
    merged,
    visits,
)
from rlvr_jax.sampler import SamplerLayout
from rlvr_jax.throughput import Clock
from rlvr_jax.types import BANDS, Problem, Prompts, Rollouts, Verdict

T = 3
STATUS = {"r": "right", "w": "wrong", "u": "unjudged"}


def groups(first, *verdicts, width=2):
    """Returns a group of two for each of "rw", "ww", ...; problems count from `first`.

    Row b of problem n holds tokens 10 n + b.
    """
    P = len(verdicts)
    numbers = np.arange(first, first + P)
    tokens_B = (10 * numbers[:, None] + np.arange(2)).reshape(-1)
    rows = [
        Judged(
            problem=Problem(id=f"p{n}", prompt="", gold="", kind="", source=""),
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
    return Groups(
        numbers=numbers,
        judged=rows,
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
    assert kept([only], 3) is only


def test_groups_with_a_signal_come_before_silent_ones_in_the_order_drawn():
    rounds = [groups(0, "ww", "rw", "rr"), groups(3, "rr", "wr", "ww", width=4)]
    chosen = kept(rounds, 3)
    # 1 and 4 are split; the first silent one, 0, fills up. Then in the order drawn.
    assert chosen.numbers.tolist() == [0, 1, 4]
    assert [one.problem.id for one in chosen.judged] == [
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


def test_more_signal_than_room_keeps_the_first():
    rounds = [groups(0, "ww", "rw"), groups(2, "rw", "rw")]
    assert kept(rounds, 2).numbers.tolist() == [1, 2]


def test_a_signal_is_two_verdicts_that_disagree_whatever_the_reward():
    """An unjudged completion beside a right one is no preference."""
    rounds = [groups(0, "ru", "wu"), groups(2, "wr", "uu")]
    assert kept(rounds, 2).numbers.tolist() == [0, 2]


def test_visits_count_verdicts_and_the_entropy_of_answers():
    told = groups(0, "rw", "rr", "ru", "uu")
    assert visits(told) == [
        Visit(problem=0, judged=2, right=1, entropy=pytest.approx(math.log(2))),
        Visit(problem=1, judged=2, right=2, entropy=0),
        Visit(problem=2, judged=1, right=1, entropy=0),
        Visit(problem=3, judged=0, right=0, entropy=0),
    ]
    # Of a problem outside the pool there is no account.
    assert visits(groups(-1, "rw")) == []


def test_groups_of_one_problem_in_one_step_are_one_visit():
    """Entropies 0.5 of two verdicts and 0.2 of four: (1 + 0.8) / 6."""
    found = [
        Visit(problem=3, judged=2, right=1, entropy=0.5),
        Visit(problem=1, judged=0, right=0, entropy=0.0),
        Visit(problem=3, judged=4, right=4, entropy=0.2),
    ]
    assert merged(found) == [
        Visit(problem=3, judged=6, right=5, entropy=pytest.approx(0.3)),
        found[1],
    ]


def test_the_past_makes_a_success_lucky_and_a_failure_forgetful():
    config = DifficultyConfig()
    past = [
        *[Visit(problem=0, judged=8, right=0, entropy=0.0)] * 3,  # hard
        *[Visit(problem=1, judged=8, right=8, entropy=0.0)] * 3,  # easy, and solved
    ]
    before = updated(unknown(3), past, step=0, draws=1, config=config, momentum=0.9)
    now = groups(0, "rw", "ww", "rw")
    told = _with_history(now, before, before.bands(config))
    assert [one.flags for one in told] == [
        *[("lucky_guess",), ()],
        *[("forgotten",), ("forgotten",)],
        *[(), ()],
    ]
    assert [one.band for one in told[::2]] == ["hard", "easy", "unknown"]
    # Half of it right is still solved, and a stranger has no band.
    told = _with_history(groups(0, "ww", "rw"), before, np.array([-1, 0]))
    assert [one.flags for one in told] == [()] * 4
    assert [one.band for one in told[::2]] == [None, BANDS[0]]


@pytest.mark.parametrize(
    ("refills", "served"),
    [
        (0, [("ww", "rw")]),
        (2, [("ww", "rw"), ("ww", "ww"), ("rw", "rr")]),
        (2, [("wr", "rw")]),  # signal enough: nothing more is drawn
    ],
)
def test_tokens_of_groups_drawn_and_dropped_are_counted(monkeypatch, refills, served):
    drawn = iter([groups(10 * n, *verdicts) for n, verdicts in enumerate(served)])
    now = []

    def serve(known, step, count):
        now.append(next(drawn))
        problems = [group[0].problem for group in map(now[-1].group, range(count))]
        return types.SimpleNamespace(
            problems=problems, numbers=now[-1].numbers, fallback=0
        )

    monkeypatch.setattr(experience, "ask", lambda *_, **__: now[-1].rollouts)
    monkeypatch.setattr(evaluate, "completions", lambda *_: now[-1].judged)
    config = Config(
        train=TrainConfig(prompts_per_step=2, samples_per_prompt=2),
        curriculum=CurriculumConfig(refill_rounds=refills),
    )
    found = gather(
        types.SimpleNamespace(
            config=config, judge=None, layout=SamplerLayout(mesh=None)
        ),
        types.SimpleNamespace(params=None, step=5),
        types.SimpleNamespace(serve=serve),
        unknown(30),
        step=0,
        draw_key=jax.random.key,
        sampling=None,
        clock=Clock(),
    )
    # Two groups of two completions of T tokens a batch; two groups are learnt from.
    assert found.sampled == found.draws * 4 * T == len(served) * 4 * T
    assert found.groups.rollouts.lengths.sum() == 4 * T
