"""Warnings about a run's problems: overlap of train and evaluation, and repetitions.

Two problems are the same question if their prompts differ in white space only. A
generated source is not read whole: only its first problems are compared, and it may
repeat problems, because it draws them at random.
"""

import collections
import itertools
from collections.abc import Iterator, Sequence

from job_jax.working import working
from rlvr_jax.data.curricula.uniform import OneSample
from rlvr_jax.data.loader import MAX_SCANNED_PROBLEMS, NUM_CHECKED_PROBLEMS
from rlvr_jax.run.setup import RunSetup
from rlvr_jax.types import Problem

_MAX_SHOWN = 60  # characters of a prompt or a gold
_MAX_GROUP_SIZE = 1024  # published runs use 4 to 128


def data_warnings(setup: RunSetup) -> list[str]:
    """Returns a line for each fault of the problems and for batches beyond them.

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
            *_describe_sizes(setup),
        ]


def _is_generated(setup: RunSetup) -> bool:
    return len(setup.sources["train"]) > MAX_SCANNED_PROBLEMS


def _num_read(setup: RunSetup) -> int:
    count = NUM_CHECKED_PROBLEMS if _is_generated(setup) else MAX_SCANNED_PROBLEMS
    pool_size = setup.config.difficulty.pool_size
    return min(pool_size, count) if pool_size else count


def _describe_overlap(setup: RunSetup, train: Sequence[Problem]) -> Iterator[str]:
    """Yields a line if evaluation problems are among the train problems."""
    if "eval" not in setup.sources:
        return
    held_out = setup.problems("eval", setup.config.eval.num_problems)
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
    pairs = [pair for same in repeated if (pair := _contradiction(same))]
    if pairs:
        one, other = pairs[0]
        yield (
            f"questions with different golds among {len(train):,} train problems: "
            f"{len(pairs):,}, such as {_show(one.prompt)} with {_show(one.gold)} "
            f"({one.id}) and {_show(other.gold)} ({other.id}); the same answer is "
            "rewarded in one and not in the other; correct or remove one of them"
        )
    agreeing = [same for same in repeated if not _contradiction(same)]
    if agreeing:
        one, other = agreeing[0][:2]
        count = sum(len(same) - 1 for same in agreeing)
        yield (
            f"train problems that repeat another's question: {count:,} of "
            f"{len(train):,}, such as {_show(one.prompt)} ({one.id} and {other.id}); "
            "this question counts several times; remove the copies"
        )


def _contradiction(same: Sequence[Problem]) -> tuple[Problem, Problem] | None:
    """Returns the first two problems of one question that share no gold."""
    for one, other in itertools.combinations(same, 2):
        golds = {" ".join(gold.split()) for gold in one.golds}
        if golds.isdisjoint(" ".join(gold.split()) for gold in other.golds):
            return one, other
    return None


def _describe_sizes(setup: RunSetup) -> Iterator[str]:
    """Yields lines for a batch beyond the problems, and for an absurd group size."""
    config = setup.config
    size, source = config.train.batch_size, setup.sources["train"]
    available = min(config.difficulty.pool_size or len(source), len(source))
    if size > available and not isinstance(config.curriculum, OneSample):
        yield (
            f"train.batch_size={size} is more than the {available:,} train problems, "
            f"so every step repeats some; lower it to {available} or less"
        )
    group = config.train.group_size
    if group > _MAX_GROUP_SIZE:
        yield (
            f"train.group_size={group} samples {group} completions of each problem in "
            "every step; published runs use 4 to 128; try --config.train.group_size=16"
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
