"""Problems by step: a pure function of (source, seed, step).

The loader keeps no position. Whoever knows the step knows the data, so a resumed run
reads what the interrupted one would have read.
"""

import hashlib
from collections.abc import Sequence
from typing import Protocol, cast

import grain
import numpy as np

from job_jax.schema import ConfigError
from rlvr_jax.tokenizer import Tokenizer, pad_rows
from rlvr_jax.types import Problem, Prompts

# Sources up to this length are read through before the first step; longer ones are
# generated, and their first problems stand for the rest.
READ_THROUGH = 100_000
_LOOKED_AT = 512


class ProblemSource(Protocol):
    """Random access to problems; what `tasks` makes and grain reads."""

    def __len__(self) -> int:
        """Returns the number of problems."""
        ...

    def __getitem__(self, index: int) -> Problem:
        """Returns problem `index`."""
        ...


class Loader:
    """Serves a batch of problems a step in an order shuffled anew every epoch.

    Of several processes each may ask for its own rows of a batch.
    """

    def __init__(self, source: ProblemSource, *, batch_size: int, seed: int):
        self.rows = range(batch_size)
        self._data = grain.MapDataset.source(source).shuffle(seed=seed).repeat()

    def problems(self, step: int, rows: Sequence[int] | None = None) -> list[Problem]:
        """Returns these rows of a step's problems, whatever was asked for before."""
        start = step * len(self.rows)
        rows = self.rows if rows is None else rows
        return [cast(Problem, self._data[start + row]) for row in rows]


class Fitting:
    """The problems of a source whose texts fit the model; the others are counted."""

    def __init__(self, source: ProblemSource, kept: Sequence[int] | None):
        self._source = source
        self._kept = kept

    def __len__(self) -> int:
        """Returns the number of problems that fit."""
        return len(self._source) if self._kept is None else len(self._kept)

    def __getitem__(self, index: int) -> Problem:
        """Returns fitting problem `index`."""
        return self._source[index if self._kept is None else self._kept[index]]


def fitting(
    source: ProblemSource,
    tokenizer: Tokenizer,
    *,
    max_prompt: int,
    max_solution: int | None,
    what: str,
) -> tuple[Fitting, int]:
    """Returns the source without problems that are too long, and how many those are.

    With `max_solution`, worked solutions (end-of-sequence included) must fit it too.
    A generated source is not thinned: a problem too long among its first ones raises
    ConfigError, as does a source of which nothing is left.
    """

    def excess(problem: Problem) -> str | None:
        prompt = len(tokenizer.encode(problem.prompt))
        if prompt > max_prompt:
            return f"a prompt of {prompt} tokens where {max_prompt} fit"
        if max_solution is not None:
            solution = len(tokenizer.encode(problem.solution or "")) + 1
            if solution > max_solution:
                return f"a solution of {solution} tokens where {max_solution} fit"
        return None

    if len(source) > READ_THROUGH:
        for index in range(_LOOKED_AT):
            if found := excess(source[index]):
                raise ConfigError(
                    f"{what}: problem {source[index].id} has {found}; raise "
                    "model.max_length or make the problems shorter"
                )
        return Fitting(source, None), 0
    kept = [i for i in range(len(source)) if excess(source[i]) is None]
    if not kept:
        raise ConfigError(
            f"{what}: none of {len(source)} problems fits: the first has "
            f"{excess(source[0])}; raise model.max_length"
        )
    return Fitting(source, kept), len(source) - len(kept)


def encode_prompts(
    problems: Sequence[Problem], tokenizer: Tokenizer, *, bucket: int
) -> Prompts:
    """Returns the problems' prompts as NumPy arrays, padded to a multiple of `bucket`.

    A prompt's uid is a hash of its problem's id and of how often that id stands before
    it in the batch: a problem asked twice in a step is answered twice afresh.
    """
    tokens_PS, lengths_P = pad_rows(
        [tokenizer.encode(problem.prompt) for problem in problems], bucket=bucket
    )
    seen: dict[str, int] = {}
    uids = []
    for problem in problems:
        seen[problem.id] = seen.get(problem.id, -1) + 1
        name = f"{problem.id}#{seen[problem.id]}".encode()
        uids.append(int.from_bytes(hashlib.blake2b(name, digest_size=4).digest()))
    return Prompts(tokens=tokens_PS, lengths=lengths_P, uid=np.array(uids, np.uint32))
