"""What replaces groups without a signal: new problems, failed ones, or your rule."""

import collections
import dataclasses
import types

import jax
import numpy as np
import pytest

from job_jax.config_io import from_json, override, to_json
from job_jax.schema import ConfigError
from rlvr_jax.config import Config, DynamicSamplingConfig, TrainConfig
from rlvr_jax.config.difficulty import REFILLS
from rlvr_jax.data.difficulty import init_difficulty
from rlvr_jax.data.pool import ProblemBatch
from rlvr_jax.rollouts import collect
from rlvr_jax.rollouts.collect import collect_rollouts
from rlvr_jax.rollouts.graded import GradedCompletion
from rlvr_jax.rollouts.refill.incorrect_again import IncorrectAgain
from rlvr_jax.run.throughput import StepTimer
from rlvr_jax.sampler import SamplerLayout
from rlvr_jax.types import Problem, Prompts, Rollouts, Verdict

STATUS = {"r": "correct", "w": "incorrect", "u": "unverified"}
NAMES = "abcdefghijkl"


def problem(name):
    return Problem(id=name, prompt="", gold="", verifier="exact", source="test")


def fake_rollouts(count):
    return Rollouts(
        prompts=Prompts(
            tokens=np.zeros((count, 1), np.int32),
            lengths=np.ones(count, np.int32),
            uid=np.arange(count, dtype=np.uint32),
        ),
        tokens=np.zeros((2 * count, 1), np.int32),
        lengths=np.ones(2 * count, np.int32),
        logprobs=np.zeros((2 * count, 1), np.float32),
        finished=np.ones(2 * count, bool),
        weight_version=np.int32(0),
    )


def test_rows_that_filled_up_make_room_before_others():
    """Of three rows, the last two filled up; one of them makes room, then all."""
    batch = ProblemBatch(
        problems=[problem(name) for name in "abc"],
        source_index=np.arange(3),
        problem_index=np.arange(3),
        num_fallback=2,
    )
    rng = np.random.default_rng(0)
    one = batch.with_first([(7, problem("z"))], rng)
    assert ([p.id for p in one.problems], one.num_fallback) == (["z", "a", "b"], 1)
    assert batch.with_first([(7, problem("z"))] * 3, rng).num_fallback == 0


def test_problems_make_room_at_random_whatever_their_place():
    """A mixture has its bands one after the other."""
    batch = ProblemBatch(
        problems=[problem(name) for name in "abcd"],
        source_index=np.arange(4),
        problem_index=np.arange(10, 14),
        num_fallback=0,
    )
    left_out = collections.Counter()
    for seed in range(400):
        made = batch.with_first(
            [(7, problem("z")), (8, problem("y"))], np.random.default_rng(seed)
        )
        names = [one.id for one in made.problems]
        assert names[:2] == ["z", "y"]
        assert names[2:] == sorted(names[2:])
        place = {"z": 7, "y": 8} | {name: 10 + i for i, name in enumerate("abcd")}
        assert made.problem_index.tolist() == [place[name] for name in names]
        left_out.update(set("abcd") - set(names))
    assert all(160 < left_out[name] < 240 for name in "abcd")  # 200, four deviations


@pytest.fixture
def collected(monkeypatch):
    """Collects a step of two problems from a, b, c ..., graded by a script.

    The script has the verdicts of each problem's first group, second group and so on.
    Returns the ids of the problems of each batch, and the result.
    """
    batches, tries, scripts = [], collections.Counter(), {}

    def serve(known, step, count, *, asked):
        first = 2 * len(batches)
        index = np.arange(first, first + count)
        return ProblemBatch(
            problems=[problem(NAMES[i]) for i in index],
            source_index=index,
            problem_index=index,
            num_fallback=0,
        )

    def sample(setup, request):
        batches.append([one.id for one in request.problems])
        return fake_rollouts(len(request.problems))

    def grade(setup, problems, rollouts):
        rows = []
        for one in problems:
            letters = scripts[one.id][tries[one.id]]
            tries[one.id] += 1
            rows += [
                GradedCompletion(
                    problem=one,
                    completion="",
                    verdict=Verdict(status=STATUS[letter]),
                    length=1,
                    finished=True,
                    strategy=None,
                    weight_version=0,
                )
                for letter in letters
            ]
        return rows

    monkeypatch.setattr(collect, "sample_completions", sample)
    monkeypatch.setattr(collect, "grade_completions", grade)

    def run(section, *, seed=0, **script):
        scripts.update({name: verdicts.split() for name, verdicts in script.items()})
        config = Config(
            seed=seed,
            train=TrainConfig(batch_size=2, group_size=2),
            dynamic_sampling=section,
        )
        found = collect_rollouts(
            types.SimpleNamespace(
                config=config, verifier=None, sampler_layout=SamplerLayout(mesh=None)
            ),
            types.SimpleNamespace(params=None, step=0),
            types.SimpleNamespace(next_batch=serve),
            init_difficulty(len(NAMES)),
            step=0,
            batch_key=jax.random.key,
            timer=StepTimer(),
        )
        trained = [found.groups.completions_of(p)[0].problem.id for p in range(2)]
        return batches, trained, found

    return run


def test_new_problems_come_until_two_groups_have_a_signal(collected):
    batches, trained, _ = collected(
        DynamicSamplingConfig(max_rounds=4), a="ww", b="rw", c="rr", d="wr"
    )
    assert batches == [["a", "b"], ["c", "d"]]
    assert trained == ["b", "d"]


def test_a_failed_problem_is_sampled_again_until_it_is_solved(collected):
    """A fails twice and is solved in its third group, which is trained on."""
    batches, trained, found = collected(
        IncorrectAgain(max_rounds=4), seed=1, a="ww ww rw", b="rw", c="rr", e="rr"
    )
    assert batches == [["a", "b"], ["a", "c"], ["a", "e"]]
    assert trained == ["b", "a"]
    assert found.groups.problem_index.tolist() == [1, 0]


def test_who_makes_room_depends_on_the_seed_and_on_the_batch(collected):
    """B or its neighbor, d or its neighbor, ...: a coin for each batch."""
    rows = []
    for seed in range(12):
        never = dict.fromkeys(NAMES, "rr " * 60) | {"a": "ww " * 60}
        batches, *_ = collected(IncorrectAgain(max_rounds=4), seed=seed, **never)
        rows.append(tuple(batch[1] for batch in batches[-4:]))
        batches.clear()
    assert len(set(rows)) > 6
    for column, names in enumerate(("cd", "ef", "gh", "ij")):
        assert {row[column] for row in rows} == set(names)


def test_new_problems_fill_the_batch_and_may_fail_too(collected):
    batches, _, _ = collected(
        IncorrectAgain(max_rounds=2), seed=1, a="ww rr", b="rr", c="ww wr", e="rr"
    )
    assert batches == [["a", "b"], ["a", "c"], ["c", "e"]]


def test_as_many_rounds_as_allowed_and_no_more(collected):
    batches, trained, _ = collected(
        IncorrectAgain(max_rounds=2), a="ww ww ww", b="ww uu ww"
    )
    assert batches == [["a", "b"]] * 3
    assert trained == ["a", "b"]


def test_without_a_round_it_is_off_and_another_rule_is_refused(collected):
    batches, trained, _ = collected(DynamicSamplingConfig(), a="ww", b="ww")
    assert (batches, trained) == ([["a", "b"]], ["a", "b"])
    with pytest.raises(ConfigError, match=r"name=incorrect_again does nothing with"):
        override(Config(), {"dynamic_sampling.name": "incorrect_again"})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Solved(DynamicSamplingConfig):
    """A user's rule: prefer what every completion solved; two are enough."""

    def is_enough(self, rounds, batch_size):
        count = sum(
            self.is_preferred(groups, p)
            for groups in rounds
            for p in range(len(groups))
        )
        return count >= batch_size

    def is_preferred(self, groups, p):
        return all(one.verdict.status == "correct" for one in groups.completions_of(p))


def test_a_users_rule_says_what_is_enough_and_what_is_preferred(collected):
    batches, trained, _ = collected(
        Solved(max_rounds=5), a="rw", b="rr", c="ww", d="wr", e="rr", f="rw"
    )
    assert batches == [["a", "b"], ["c", "d"], ["e", "f"]]
    assert trained == ["b", "e"]


@pytest.mark.parametrize("name", REFILLS.names)
def test_a_rule_is_named_in_config_json_and_earlier_files_mean_new_problems(name):
    changes = {"dynamic_sampling.name": name, "dynamic_sampling.max_rounds": "3"}
    config = override(Config(), changes)
    saved = to_json(config)
    assert saved["dynamic_sampling"]["name"] == name
    assert from_json(Config, saved) == config
    del saved["dynamic_sampling"]["name"]
    earlier = from_json(Config, saved).dynamic_sampling
    assert earlier == DynamicSamplingConfig(max_rounds=3)
