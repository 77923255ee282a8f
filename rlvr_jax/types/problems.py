"""Problems and verdicts: the questions to a policy, and the judgment of its answers."""

import dataclasses
import enum
from typing import Literal, Protocol, get_args

from job_jax.calls import Failure
from rlvr_jax.types.fields import NO_FIELDS, Fields

VerdictStatus = Literal["correct", "incorrect", "unverified"]
AnswerFormat = Literal["any", "boxed", "tagged"]
Band = Literal["easy", "medium", "hard", "unknown"]
BANDS: tuple[Band, ...] = get_args(Band)


class Outcome(enum.IntEnum):
    """A verdict's status as a number, in arrays; the names are `Verdict.status`."""

    incorrect = 0
    correct = 1
    unverified = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem:
    """One verifiable question. Written by `tasks`, read by every later stage.

    `source`, `id` and `parent` are its lineage: the data it came from, its name there,
    and the id of the problem that it was made from, if any. `verifier` names the one
    that judges answers, `answer_format` where it looks for them. `level` is a
    difficulty known beforehand (steps of a chain, MATH level), 0 if there is none, and
    `level_name` its name if it has one. `other_golds` are further correct answers;
    `type` is the group by which telemetry is split (evaluation, inversion, subject).
    `solution` is a worked completion for stage sft. `literal` are the ranges of
    characters in `prompt` that hold the data's own text: if a control token of the
    tokenizer is spelled out there, it stays text. `fields` are the record's other
    fields, for rewards and verifiers of your own; a dict becomes `Fields`.
    """

    id: str
    prompt: str
    gold: str
    verifier: str
    source: str
    answer_format: AnswerFormat = "any"
    level: int = 0
    type: str = ""
    parent: str | None = None
    solution: str | None = None
    literal: tuple[tuple[int, int], ...] = dataclasses.field(default=(), repr=False)
    # Not in the repr: sources are named by it, and older runs lack these three
    level_name: str = dataclasses.field(default="", repr=False)
    other_golds: tuple[str, ...] = dataclasses.field(default=(), repr=False)
    fields: Fields = dataclasses.field(default=NO_FIELDS, repr=False)

    def __post_init__(self) -> None:
        """Makes `Fields` of a dict. Raises ConfigError if a value is not plain JSON."""
        if not isinstance(self.fields, Fields):
            object.__setattr__(self, "fields", Fields(self.fields))

    @property
    def golds(self) -> tuple[str, ...]:
        """Returns all correct answers, `gold` first."""
        return (self.gold, *self.other_golds)

    def by_gold(self) -> tuple["Problem", ...]:
        """Returns the problem once for each of `golds`, as its only gold."""
        if not self.other_golds:
            return (self,)
        return tuple(
            dataclasses.replace(self, gold=gold, other_golds=()) for gold in self.golds
        )


class ProblemSource(Protocol):
    """Random access to problems. Tasks make it, and grain reads it."""

    def __len__(self) -> int:
        """Returns the number of problems."""
        ...

    def __getitem__(self, index: int, /) -> Problem:
        """Returns problem `index`."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """A verifier's judgment of a completion. `unverified` is not `incorrect`.

    `failure` says that the verifier ran over its time limit or raised. `seconds` is
    how long it took, if measured; it is ignored in comparisons.
    """

    status: VerdictStatus
    reason: str = ""
    answer: str | None = None
    failure: Failure | None = None
    seconds: float | None = dataclasses.field(default=None, compare=False)
