"""The problems of the task `reasoning_gym`: a mixture of generators, read by index.

Every problem is a function of its id, which holds the generator, its level, its options
and a place. The seed and the side of the split decide which place an index reads.
"""

import dataclasses
import hashlib
import itertools
import random
from collections.abc import Sequence

from job_jax.calls import CallLimits, call_each
from job_jax.schema import ConfigError, check
from rlvr_jax.config.task import Stage
from rlvr_jax.tasks.reasoning_gym.entries import Entry, write_id
from rlvr_jax.tasks.reasoning_gym.library import (
    Item,
    check_entry,
    library_version,
    make_item,
)
from rlvr_jax.tasks.reasoning_gym.verifier import ReasoningGymVerifier
from rlvr_jax.tasks.records.prompts import PromptFormatter
from rlvr_jax.types import AnswerFormat, Problem

_NUM_PLACES = 2**30  # per side: train reads the places below, held-out those above
# Step to the next place if the question there is on the other side. A golden section
# keeps the next places of many problems far apart.
_STRIDE = 663_608_941
_HELDOUT_MODULUS = 4  # one question in 4 is held out
# A side with any questions has at least about 1 in 4, so this many misses mean none.
_MAX_DRAWS = 200
_CHECK_LIMITS = CallLimits(timeout_s=60.0)  # for a first problem on a busy machine

# The request after each question, by task.answer_format.
_REQUESTS: dict[AnswerFormat, str] = {
    "any": "",
    "boxed": "\n\nPut the final answer, and nothing else, in \\boxed{}.",
    "tagged": "\n\nPut the final answer, and nothing else, between <answer> and "
    "</answer>.",
}


class GymSource:
    """Problems of several generators on one side of the split.

    A hash of the question's text decides the side. So no question is on both sides,
    even if two generators make the same question.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        formatter: PromptFormatter,
        *,
        answer_format: AnswerFormat,
        num_problems: int,
        stage: Stage,
        seed: int,
    ):
        """Raises ConfigError if an entry makes no problem, or none on this side."""
        self._entries = [each for entry in entries for each in entry.split_levels()]
        # The levels of an entry share its weight.
        self._cum_weights = list(
            itertools.accumulate(
                entry.weight / max(1, len(entry.levels))
                for entry in entries
                for _ in entry.split_levels()
            )
        )
        self._formatter = formatter
        self._answer_format = answer_format
        self._num_problems = num_problems
        self._held_out = stage == "eval"
        self._needs_solutions = stage == "sft"
        self._name = f"{'heldout' if self._held_out else 'train'}-{seed}"
        # Different seeds start at distant places.
        digest = hashlib.blake2b(self._name.encode(), digest_size=8).digest()
        self._start = int.from_bytes(digest) % _NUM_PLACES
        for entry in self._entries:
            check_entry(entry)
            self._check_first(entry)

    def __repr__(self) -> str:
        """Returns the text that grain compares before it resumes from a position."""
        entries = ", ".join(map(str, self._entries))
        return (
            f"GymSource({self._name}, {entries}, weights={self._cum_weights}, "
            f"reasoning-gym {library_version()})"
        )

    def __len__(self) -> int:
        """Returns the number of problems; unlimited means more than any run reads."""
        return self._num_problems or _NUM_PLACES

    def __getitem__(self, index: int) -> Problem:
        """Returns problem `index`; IndexError outside 0 .. len - 1."""
        if not 0 <= index < len(self):
            raise IndexError(f"problem {index} lies outside 0..{len(self) - 1}")
        rng = random.Random(f"{self._name}/{index}")
        entry = rng.choices(self._entries, cum_weights=self._cum_weights)[0]
        return self._make_problem(entry, index)

    def _make_problem(self, entry: Entry, index: int) -> Problem:
        place, item = self._draw(entry, index)
        prompt, literal = self._formatter.write_prompt(
            item.question + _REQUESTS[self._answer_format]
        )
        problem = Problem(
            id=write_id(entry, place),
            prompt=prompt,
            literal=literal,
            gold=item.gold,
            verifier="reasoning_gym",
            source=f"reasoning_gym/{library_version()}",
            answer_format=self._answer_format,
            level=entry.grade,
            type=entry.name,
        )
        if not item.gold:
            return problem
        solution = ReasoningGymVerifier().state_gold(problem)
        return dataclasses.replace(problem, solution=solution)

    def _draw(self, entry: Entry, index: int) -> tuple[int, Item]:
        """Returns the first item on this side at the places that the index tries."""
        offset = _NUM_PLACES if self._held_out else 0
        for draw in range(_MAX_DRAWS):
            place = offset + (self._start + index + draw * _STRIDE) % _NUM_PLACES
            item = make_item(entry, place)
            if is_held_out(item.question) == self._held_out:
                return place, item
        side = "held-out" if self._held_out else "train"
        raise ConfigError(
            f"task.generators: {entry} has no {side} problems: {_MAX_DRAWS} were drawn "
            "and too few differ; give options that make more different problems"
        )

    def _check_first(self, entry: Entry) -> None:
        """Raises ConfigError unless the first problem accepts its own answer."""
        (outcome,) = call_each(self._make_problem, [(entry, 0)], _CHECK_LIMITS)
        if outcome.failure is not None:
            reason = outcome.reason.removeprefix("ConfigError: ")
            if not reason.startswith("task.generators"):
                reason = f"task.generators: {entry} makes no problem: {reason}"
            raise ConfigError(reason)
        problem = outcome.value
        if problem.solution is None:
            check(
                not self._needs_solutions,
                f"task.generators: {entry} states no answers for stage sft to learn "
                "from; set sft.steps=0, or remove the generator",
            )
            return
        verdict = ReasoningGymVerifier().grade(problem, problem.solution)
        check(
            verdict.status == "correct",
            f"task.generators: {entry} rejects its own answer {problem.gold!r:.60} "
            f"({verdict.reason})",
        )


def is_held_out(question: str) -> bool:
    """Returns whether a question is held out, which only its text decides."""
    digest = hashlib.blake2b(question.strip().encode(), digest_size=1).digest()
    return digest[0] % _HELDOUT_MODULUS == 0
