"""The real library, where the extra gym is installed."""

import inspect
import re

import pytest

pytest.importorskip("reasoning_gym")

from rlvr_jax.tasks import ReasoningGymTask
from rlvr_jax.tasks.reasoning_gym.entries import Entry, parse_id
from rlvr_jax.tasks.reasoning_gym.library import (
    generator_names,
    make_item,
    num_levels,
    open_dataset,
)
from rlvr_jax.tasks.reasoning_gym.plain_answers import EVALUATED, FORMULAS
from rlvr_jax.tasks.reasoning_gym.refused import REFUSED
from rlvr_jax.verifiers.base import get_verifier

# One of each kind: text, a formula, a grid, a list, one without a curriculum, one that
# draws from NumPy's shared stream, one that draws from Python's, and two that state no
# answer.
NAMES = (
    *("chain_sum", "countdown", "rotate_matrix", "number_sorting", "gsm_symbolic"),
    *("pool_matrix", "list_functions", "graph_color", "rush_hour"),
)
_EVALUATES = re.compile(r"\b(?:eval|exec|parse_expr|sympify)\(\s*answer")


@pytest.fixture(scope="module", params=NAMES)
def problems(request):
    task = ReasoningGymTask(generators=(request.param,))
    return {
        stage: [task.problems(stage, seed=0)[i] for i in range(6)]
        for stage in ("train", "eval")
    }


def test_golds_are_correct_and_what_is_near_them_is_not(problems):
    verifier = get_verifier("reasoning_gym")
    for problem in problems["train"]:
        for text in ("", "<answer></answer>", "<answer>qzx</answer>"):
            assert verifier.grade(problem, text).status == "incorrect"
        if not problem.gold:
            assert problem.solution is None
            continue
        assert verifier.grade(problem, problem.solution).status == "correct"
        assert verifier.grade(problem, problem.gold).status == "incorrect"
        for near in (f"{problem.gold} {problem.gold}", f"the answer {problem.gold}"):
            if problem.type != "gsm_symbolic":  # it reads the first number
                verdict = verifier.grade(problem, f"<answer>{near}</answer>")
                assert verdict.status == "incorrect"
        for other in problems["train"]:
            if other.gold != problem.gold:
                verdict = verifier.grade(problem, other.solution)
                assert verdict.status == "incorrect"


def test_problems_are_made_again_from_their_ids(problems):
    for problem in (*problems["train"], *problems["eval"]):
        make_item.cache_clear()
        item = make_item(*parse_id(problem.id))
        assert item.gold == problem.gold
        assert item.question in problem.prompt


def test_train_and_held_out_problems_are_apart(problems):
    train, held_out = (
        {(p.id, p.prompt) for p in problems[stage]} for stage in ("train", "eval")
    )
    assert not {prompt for _, prompt in train} & {prompt for _, prompt in held_out}
    assert not {name for name, _ in train} & {name for name, _ in held_out}


def test_every_scorer_that_evaluates_an_answer_is_known():
    found = {
        name
        for name in generator_names()
        if _EVALUATES.search(inspect.getsource(_dataset_class(name).score_answer))
    }
    assert found == EVALUATED | FORMULAS


def _dataset_class(name):
    from reasoning_gym.factory import DATASETS  # noqa: PLC0415

    return DATASETS[name][0]


def test_refused_generators_exist():
    assert REFUSED.keys() <= set(generator_names())


def test_levels_get_harder_and_are_one_more_than_the_curriculums():
    task = ReasoningGymTask(generators=("chain_sum levels=0;3",))
    source = task.problems("train", seed=0)
    first = [source[i] for i in range(40)]
    assert {p.level for p in first} == {1, 4}
    terms = {
        level: max(
            p.prompt.count("+") + p.prompt.count("-") for p in first if p.level == level
        )
        for level in (1, 4)
    }
    assert terms[1] < terms[4]
    assert num_levels("chain_sum") == max(
        len(attribute.levels)
        for attribute in _curriculum("chain_sum").attributes.values()
    )
    config = open_dataset(Entry(name="chain_sum", levels=(3,))).config
    assert (
        config.max_terms == _curriculum("chain_sum").attributes["num_terms"].levels[3]
    )


def _curriculum(name):
    from reasoning_gym.factory import create_curriculum  # noqa: PLC0415

    return create_curriculum(name)


def test_no_answer_is_run(tmp_path):
    canary = tmp_path / "canary"
    hostile = (
        f"open({str(canary)!r}, 'w')",
        f"__import__('os').system('touch {canary}')",
        f"[open({str(canary)!r}, 'w')]",
        f"Integer(1).__class__.__base__.__subclasses__()[0]('touch {canary}')",
        f"(lambda: open({str(canary)!r}, 'w'))()",
    )
    verifier = get_verifier("reasoning_gym")
    for name in sorted((EVALUATED | FORMULAS) - REFUSED.keys()):
        problem = ReasoningGymTask(generators=(name,)).problems("train", seed=0)[0]
        for text in hostile:
            verdict = verifier.grade(problem, f"<answer>{text}</answer>")
            assert (verdict.status, bool(verdict.reason)) == ("incorrect", True)
            assert not verdict.reason.startswith("score")
    assert not canary.exists()
