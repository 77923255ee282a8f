"""Warnings about a run's problems: overlap with evaluation, repetitions, odd fields.

Two problems are the same question if their prompts differ in white space only. A
generated source is not read whole: only its first problems are compared, and it may
repeat problems, because it draws them at random.
"""

import collections
import itertools
from collections.abc import Iterator, Sequence

from job_jax.working import working
from rlvr_jax.config.rewards import REWARDS
from rlvr_jax.data.loader import (
    MAX_SCANNED_PROBLEMS,
    is_generated,
    num_checked,
)
from rlvr_jax.run.setup import RunSetup
from rlvr_jax.tasks.records.task import RecordTask
from rlvr_jax.types import Problem
from rlvr_jax.verifiers.base import get_verifier
from rlvr_jax.verifiers.grader import Grader

_MAX_SHOWN = 60  # characters of a prompt or a gold
_MAX_GROUP_SIZE = 1024  # published runs use 4 to 128
_NUM_GRADED = 128  # worked solutions
_MAX_ODD = 0.1  # of the records: if more lack a field, that is how the data are
_KINDS: dict[type, str] = {
    **{bool: "truth value", int: "number", float: "number"},
    **{str: "text", list: "list", dict: "object"},
}


def data_warnings(setup: RunSetup) -> list[str]:
    """Returns a line for each fault of the problems, and for absurd numbers of them.

    Only problems in use count: of the train problems `difficulty.pool_size`, of the
    evaluation problems `eval.num_problems`.
    """
    config = setup.config
    if not config.train.steps or "train" not in setup.sources:
        return []
    with working("comparing the problems with each other"):
        train = setup.problems("train", _num_read(setup))
        return [
            *_describe_overlap(setup, train),
            *_describe_conflicts(setup, train),
            *_describe_fields(setup, train),
            *_describe_levels(setup, train),
            *_describe_solutions(setup, train),
            *_describe_places(setup, train),
            *_describe_sizes(setup),
        ]


def _is_generated(setup: RunSetup) -> bool:
    return is_generated(setup.sources["train"])


def _num_read(setup: RunSetup) -> int:
    count = num_checked(setup.sources["train"])
    pool_size = setup.config.difficulty.pool_size
    return min(pool_size, count) if pool_size else count


def _describe_overlap(setup: RunSetup, train: Sequence[Problem]) -> Iterator[str]:
    """Yields a line if evaluation problems are among the train problems."""
    if "eval" not in setup.sources:
        return
    num_held_out = min(setup.config.eval.num_problems, MAX_SCANNED_PROBLEMS)
    held_out = setup.problems("eval", num_held_out)
    by_question = {_question(problem): problem for problem in reversed(train)}
    shared = [problem for problem in held_out if _question(problem) in by_question]
    if not shared:
        return
    twin = by_question[_question(shared[0])]
    among = f"the first {len(train):,}" if _is_generated(setup) else f"{len(train):,}"
    yield (
        f"evaluation problems that are also among {among} train problems: "
        f"{len(shared):,} of {len(held_out):,}, such as {_show(shared[0].prompt)} "
        f"(evaluation {shared[0].id}, train {twin.id}); held-out results then count "
        "memory as skill; remove them from one side"
    )


def _describe_conflicts(setup: RunSetup, train: Sequence[Problem]) -> Iterator[str]:
    """Yields lines for questions that occur more than once, by whether golds agree."""
    if _is_generated(setup):
        return
    by_question = collections.defaultdict(list)
    for problem in train:
        by_question[_question(problem)].append(problem)
    repeated = [same for same in by_question.values() if len(same) > 1]
    pairs = [_contradiction(same) for same in repeated]
    if found := [pair for pair in pairs if pair]:
        one, other = found[0]
        yield (
            f"questions with different golds among {len(train):,} train problems: "
            f"{len(found):,}, such as {_show(one.prompt)} with {_show(one.gold)} "
            f"({one.id}) and {_show(other.gold)} ({other.id}); the same answer is "
            "rewarded in one and not in the other; correct or remove one of them"
        )
    agreeing = [same for same, pair in zip(repeated, pairs, strict=True) if not pair]
    if agreeing:
        one, other = agreeing[0][:2]
        count = sum(len(same) - 1 for same in agreeing)
        yield (
            f"train problems that repeat another's question: {count:,} of "
            f"{len(train):,}, such as {_show(one.prompt)} ({one.id} and {other.id}); "
            "this question counts several times; remove the copies"
        )


def _describe_fields(setup: RunSetup, train: Sequence[Problem]) -> Iterator[str]:
    """Yields a line for each field that a few records lack or give another type.

    Only rewards of the user's own read fields, and they are tried on one problem.
    """
    if {*setup.config.train.reward.names} <= {*REWARDS.names}:
        return
    for name in dict.fromkeys(name for problem in train for name in problem.fields):
        kinds = [_kind(problem, name) for problem in train]
        (usual, count), *others = collections.Counter(kinds).most_common()
        odd = len(train) - count
        if not others or odd > _MAX_ODD * len(train) or usual == "null":
            continue
        at = next(i for i, kind in enumerate(kinds) if kind != usual)
        yield (
            f"field {name!r} is a {usual} in {count:,} of {len(train):,} train "
            f"problems, but {kinds[at]} in {train[at].id}; a reward that reads it may "
            "fail there; complete these records, or name the field in "
            "task.record.extra_fields to refuse records without it"
        )


def _kind(problem: Problem, field: str) -> str:
    """Returns the JSON type of a field's value (text, number ...), or "missing"."""
    if field not in problem.fields:
        return "missing"
    return _KINDS.get(type(problem.fields[field]), "null")


def _describe_levels(setup: RunSetup, train: Sequence[Problem]) -> Iterator[str]:
    """Yields a line if a few records seem to have no level."""
    task = setup.config.task
    if not (isinstance(task, RecordTask) and task.record.level_field):
        return
    without = [problem for problem in train if problem.level == 0]
    if 0 < len(without) <= _MAX_ODD * len(train):
        yield (
            f"train problems of level 0, the level of a record without "
            f"{task.record.level_field!r}: {len(without):,} of {len(train):,}, such as "
            f"{without[0].id}; they count as easier than all others; complete the "
            "records"
        )


def _describe_solutions(setup: RunSetup, train: Sequence[Problem]) -> Iterator[str]:
    """Yields a line if worked solutions are missing, or do not state the gold."""
    config = setup.config
    teaches = config.sft.steps > 0 or config.train.loss.has_external_traces
    if not (teaches and isinstance(config.task, RecordTask)):
        return
    if config.environment.enabled:  # a worked episode is more than its solution
        return
    missing = [problem for problem in train if not problem.solution]
    if missing and config.sft.steps > 0:
        yield (
            f"{len(missing)} of {len(train)} train problems have no worked solution, "
            f"such as {missing[0].id}: stage sft would teach an empty completion "
            "there. Name task.record.solution_field, leave these records out, or set "
            "sft.steps=0"
        )
    worked = [p for p in train if p.solution and get_verifier(p.verifier).checks_golds][
        :_NUM_GRADED
    ]
    if not worked:
        return
    with Grader(config.verifier) as grader:
        verdicts = grader(worked, [problem.solution or "" for problem in worked])
    wrong = [
        problem
        for problem, verdict in zip(worked, verdicts, strict=True)
        if verdict.status == "incorrect"
    ]
    if wrong:
        one = wrong[0]
        yield (
            f"worked solutions that do not end in their gold: {len(wrong)} of the "
            f"{len(worked)} that were graded, such as {_show(one.solution or '')} with "
            f"gold {_show(one.gold)} ({one.id}); they teach wrong answers; correct "
            "them, or set task.record.solution_field to another field"
        )


def _describe_places(setup: RunSetup, train: Sequence[Problem]) -> Iterator[str]:
    """Yields a line if the prompt template names fields, which are not filled in."""
    task = setup.config.task
    if not isinstance(task, RecordTask) or not train:
        return
    template = task.record.prompt_template
    names = [name for name in train[0].fields if f"{{{name}}}" in template]
    if names:
        yield (
            f"task.record.prompt_template has {{{names[0]}}}, which stays as it is: "
            "only {prompt} is filled in; write the question with its values into one "
            "field of the data"
        )


def _contradiction(same: Sequence[Problem]) -> tuple[Problem, Problem] | None:
    """Returns the first two problems of one question that share no gold."""
    first: dict[frozenset[str], Problem] = {}
    for problem in same:
        first.setdefault(frozenset(" ".join(g.split()) for g in problem.golds), problem)
    pairs = itertools.combinations(first.items(), 2)
    disjoint = (
        (one, other)
        for (golds, one), (others, other) in pairs
        if golds.isdisjoint(others)
    )
    return next(disjoint, None)


def _describe_sizes(setup: RunSetup) -> Iterator[str]:
    """Yields lines for absurd numbers of completions and of evaluation problems."""
    group = setup.config.train.group_size
    if group > _MAX_GROUP_SIZE:
        yield (
            f"train.group_size={group} samples {group} completions of each problem in "
            "every step; published runs use 4 to 128; try --config.train.group_size=16"
        )
    wanted = setup.config.eval.num_problems
    count = min(wanted, len(setup.sources.get("eval", ())))
    if count > MAX_SCANNED_PROBLEMS:
        yield (
            f"eval.num_problems={wanted} samples {count:,} problems before RL and "
            "again after it; published evaluations have 30 to 5,000; try "
            "--config.eval.num_problems=1000"
        )


def _question(problem: Problem) -> str:
    return " ".join(problem.prompt.split())


def _show(text: str) -> str:
    """Returns the text in quotes, on one line, without its middle if it is long."""
    text = " ".join(text.split())
    if len(text) > _MAX_SHOWN:
        half = _MAX_SHOWN // 2
        text = f"{text[:half]} ... {text[-half:]}"
    return repr(text)
