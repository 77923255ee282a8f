"""Measures generators one by one, each in bounded time; a worker process of the audit.

`audit` runs it as a script. Its argument is a JSON object, and it prints one JSON
object per line. If a generator prints something, that goes to stderr.
"""

import collections
import contextlib
import dataclasses
import hashlib
import json
import re
import sys
import time
from collections.abc import Sequence
from typing import Any

from job_jax.calls import CallLimits, call_each
from rlvr_jax.tasks.reasoning_gym.entries import Entry, write_id
from rlvr_jax.tasks.reasoning_gym.library import Item, make_item, num_levels
from rlvr_jax.tasks.reasoning_gym.verifier import ReasoningGymVerifier
from rlvr_jax.types import Problem

# If a scorer accepts one of these, it accepts text that it cannot parse.
NONSENSE = ("qzx", "I do not know.", "-", "?!", "[]", "{}", "null", "the answer")
# Answers that a policy may learn to give to every question.
CONSTANTS = ("0", "1", "yes", "no", "True", "False", "A", "[[]]", "24", "1 + 1")
_HELD_OUT = 2**30  # first place of the held-out side
_NUM_SCORED = 20  # items that get wrong answers: those of the others, and nonsense
_NUM_REPEATED = 8  # items that a second process makes again
_NUM_PER_LEVEL = 2
_NUM_LINES = 8  # last lines of a question, tried as answers
_LIST_NUMBER = re.compile(r"^[.\s]*\d+\.\s")
_PATIENCE = 20  # seconds of wall time allowed per second of processor time


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """The measurements of one generator. A share of no items is 0.

    `error` is the reason why the rest is missing. `best_constant` is the answer that is
    correct for the most items, and `constant` is the share of these items.
    """

    name: str
    error: str = ""
    num_items: int = 0
    first_s: float = 0.0  # to open it and make the first item
    item_s: float = 0.0
    score_s: float = 0.0
    no_gold: float = 0.0  # share of items without a stated answer
    own_gold: float = 0.0  # share of stated answers that are scored as correct
    nonsense: tuple[str, ...] = ()  # texts that are accepted for some item
    best_constant: str = ""
    constant: float = 0.0
    hedged: float = 0.0  # share of items that accept "GOLD or OTHER"
    copied: float = 0.0  # share of items that accept a line of their own question
    repeated: float = 0.0  # share of held-out questions that train places also hold
    num_levels: int = 0
    bad_levels: tuple[int, ...] = ()
    digests: tuple[str, ...] = ()


class _Clock:
    """A time limit in processor seconds, because busy machines stretch wall time."""

    def __init__(self, seconds: float):
        self._end = time.process_time() + seconds

    def is_over(self) -> bool:
        return time.process_time() > self._end


def measure(name: str, num_items: int, limit_s: float) -> Measured:
    """Returns the measurements of a generator with its default options.

    Each part (held-out items, train items, constant answers) stops after `limit_s` and
    keeps its results so far. Each level has its own `limit_s`.
    """
    entry, start = Entry(name=name), time.process_time()
    make_item(entry, _HELD_OUT)
    first_s = time.process_time() - start
    start = time.process_time()
    items = _make(entry, _HELD_OUT, num_items, limit_s)
    item_s = (time.process_time() - start) / len(items)
    asked = {item.question for item in _make(entry, 0, num_items, limit_s)}
    scores = _Scores(entry, items, limit_s)
    return Measured(
        name=name,
        num_items=len(items),
        first_s=first_s,
        item_s=item_s,
        no_gold=_share([not item.gold for item in items]),
        repeated=_share([item.question in asked for item in items]),
        num_levels=num_levels(name),
        bad_levels=_find_bad_levels(name, limit_s),
        digests=digests(name),
        **scores.measure(),
    )


def digests(name: str) -> tuple[str, ...]:
    """Returns digests of the first items, which are made in reverse order."""
    entry = Entry(name=name)
    made = {}
    for number in reversed(range(_NUM_REPEATED)):
        item = make_item(entry, _HELD_OUT + number)
        content = f"{item.question}\0{item.gold}".encode()
        made[number] = hashlib.blake2b(content, digest_size=8).hexdigest()
    return tuple(made[number] for number in range(_NUM_REPEATED))


def _make(entry: Entry, first: int, count: int, limit_s: float) -> list[Item]:
    clock, items = _Clock(limit_s), [make_item(entry, first)]
    while len(items) < count and not clock.is_over():
        items.append(make_item(entry, first + len(items)))
    return items


class _Scores:
    """Scores nonsense, constants and other items' golds, and counts accepted ones."""

    def __init__(self, entry: Entry, items: Sequence[Item], limit_s: float):
        self._limit_s = limit_s
        self._verifier = ReasoningGymVerifier()
        every = [
            Problem(
                id=write_id(entry, _HELD_OUT + number),
                prompt=item.question,
                gold=item.gold,
                verifier="reasoning_gym",
                source="audit",
                answer_format="tagged",
            )
            for number, item in enumerate(items)
        ]
        self._every, self._problems = every, every[:_NUM_SCORED]
        self._seconds: list[float] = []

    def measure(self) -> dict[str, Any]:
        """Returns the fields of `Measured` about scoring."""
        golds = [(p, p.gold) for p in self._problems if p.gold]
        own = self._accept_own_golds()
        nonsense = [
            text
            for text in NONSENSE
            if any(self._accepts(p, text) for p in self._problems)
        ]
        others = collections.Counter(gold for _, gold in golds)
        hedged = [
            self._accepts(problem, f"{gold} or {other}")
            for problem, gold in golds
            if (other := next((text for text in others if text != gold), None))
        ]
        copied = [
            any(self._accepts(problem, line) for line in _last_lines(problem.prompt))
            for problem in self._problems
        ]
        best, share = self._find_best_constant([*others, *CONSTANTS])
        return {
            "own_gold": _share(own),
            "nonsense": tuple(nonsense),
            "hedged": _share(hedged),
            "copied": _share(copied),
            "best_constant": best,
            "constant": share,
            "score_s": sum(self._seconds) / max(1, len(self._seconds)),
        }

    def _accept_own_golds(self) -> list[bool]:
        """Returns whether each item accepts its gold; all items, within the limit."""
        clock, own = _Clock(self._limit_s), list[bool]()
        for problem in self._every:
            if problem.gold and not (own and clock.is_over()):
                own.append(self._accepts(problem, problem.gold))
        return own

    def _find_best_constant(self, answers: Sequence[str]) -> tuple[str, float]:
        clock, best, most = _Clock(self._limit_s), "", 0.0
        for answer in answers:
            if clock.is_over():
                break
            share = _share([self._accepts(p, answer) for p in self._problems])
            if share > most:
                best, most = answer, share
        return best, most

    def _accepts(self, problem: Problem, answer: str) -> bool:
        start = time.process_time()
        verdict = self._verifier.grade(problem, f"<answer>{answer}</answer>")
        self._seconds.append(time.process_time() - start)
        return verdict.status == "correct"


def _find_bad_levels(name: str, limit_s: float) -> tuple[int, ...]:
    """Returns the levels that make no item in time, or reject their own golds."""
    limits = CallLimits(timeout_s=_PATIENCE * limit_s)
    bad = []
    for level in range(num_levels(name)):
        clock = _Clock(limit_s)
        (outcome,) = call_each(
            _is_sound, [(Entry(name=name, levels=(level,)),)], limits
        )
        if outcome.failure or not outcome.value or clock.is_over():
            bad.append(level)
    return tuple(bad)


def _is_sound(entry: Entry) -> bool:
    items = [make_item(entry, _HELD_OUT + n) for n in range(_NUM_PER_LEVEL)]
    scores = _Scores(entry, items, 0.0).measure()
    return scores["own_gold"] == 1 or not any(item.gold for item in items)


def _last_lines(question: str) -> list[str]:
    """Returns the last lines of a question, without list numbers."""
    lines = [_LIST_NUMBER.sub("", line).strip() for line in question.splitlines()]
    return [line for line in lines if line][-_NUM_LINES:]


def _share(marks: Sequence[bool]) -> float:
    return sum(marks) / max(1, len(marks))


def main(request: dict[str, Any]) -> None:
    """Prints a line of JSON for each requested name as soon as it is measured."""
    out = sys.stdout
    for name in request["names"]:
        with contextlib.redirect_stdout(sys.stderr):
            found = _try_to_measure(name, request)
        print(json.dumps(dataclasses.asdict(found)), file=out, flush=True)


def _try_to_measure(name: str, request: dict[str, Any]) -> Measured:
    try:
        if request["again"]:
            return Measured(name=name, digests=digests(name))
        return measure(name, request["items"], request["limit_s"])
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        return Measured(name=name, error=f"it raises {text:.160}")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
