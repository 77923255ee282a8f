"""Problems by step, read through grain.

The problems of a step are a pure function of (source, seed, step), so a resumed run
reads what the interrupted one would have read. The reader has no state to save; it only
reads ahead. Grain is imported at the first read, because it takes half a second, and a
mistyped command line should not wait for it.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from job_jax.schema import ConfigError
from rlvr_jax.config.environment import EnvironmentConfig
from rlvr_jax.tokenizer import Tokenizer, pad_rows, whole_text, write_literal
from rlvr_jax.types import Message, Problem, ProblemSource, Prompts

# See `is_generated`.
MAX_SCANNED_PROBLEMS = 100_000
NUM_CHECKED_PROBLEMS = 512
_READ_AHEAD = {"num_threads": 2, "prefetch_buffer_size": 2}  # batches
_READ_ROWS = {"num_threads": 8, "prefetch_buffer_size": 64}
_MAX_BATCHES = 2**40  # more than any run reads
BatchT = TypeVar("BatchT")
_NO_ENVIRONMENT = EnvironmentConfig()


class BatchReader(Generic[BatchT]):
    """Reads batches by index, while grain's threads read the next ones ahead.

    `read` is a pure function of the index. Batches may be taken in any order: a batch
    that does not follow the last one is read at once, and reading ahead restarts there.
    """

    def __init__(self, read: Callable[[int], BatchT]):
        self._read = read
        self._next_index = -1
        self._iterator: Any = None

    def __getitem__(self, index: int) -> BatchT:
        """Returns batch `index`."""
        import grain  # noqa: PLC0415

        if index != self._next_index:
            self.close()
            batches = grain.MapDataset.range(index, _MAX_BATCHES).map(self._read)
            options = grain.ReadOptions(**_READ_AHEAD)
            self._iterator = iter(batches.to_iter_dataset(options))
        self._next_index = index + 1
        return next(self._iterator)

    def close(self) -> None:
        """Stops reading ahead."""
        if self._iterator is not None:
            self._iterator.close()
        self._iterator, self._next_index = None, -1


def read_rows(source: ProblemSource, indices: Sequence[int]) -> Iterator[Problem]:
    """Yields the problems at these indices, in order; grain's threads read ahead."""
    import grain  # noqa: PLC0415

    rows = grain.MapDataset.range(len(indices))
    rows = rows.map(lambda row: source[int(indices[row])])
    return iter(rows.to_iter_dataset(grain.ReadOptions(**_READ_ROWS)))


class Loader:
    """Serves a batch of problems a step, in an order that is shuffled every epoch."""

    def __init__(self, source: ProblemSource, *, batch_size: int, seed: int):
        import grain  # noqa: PLC0415

        self.rows = range(batch_size)
        self._order = grain.MapDataset.source(source).shuffle(seed=seed).repeat()
        self._batches: dict[tuple[int, ...], BatchReader[list[Problem]]] = {}

    def next_batch(self, step: int, rows: Sequence[int] | None = None) -> list[Problem]:
        """Returns a step's problems, independent of earlier calls.

        With `rows`, only these rows: each of several processes reads its own.
        """
        own = tuple(self.rows if rows is None else rows)

        def read(step: int) -> list[Problem]:
            return [self._order[step * len(self.rows) + row] for row in own]

        return self._batches.setdefault(own, BatchReader(read))[step]


def is_generated(source: ProblemSource) -> bool:
    """Returns whether a source makes its problems when they are read.

    It does if it has more than 100,000 and is not a Sequence, such as a list.
    """
    return len(source) > MAX_SCANNED_PROBLEMS and not isinstance(source, Sequence)


def num_checked(source: ProblemSource) -> int:
    """Returns how many problems are checked before a run: all, or the first 512.

    A generated source is never read whole.
    """
    return NUM_CHECKED_PROBLEMS if is_generated(source) else len(source)


class FilteredSource(Sequence[Problem]):
    """Some problems of a source, by their indices."""

    def __init__(self, source: ProblemSource, indices: Sequence[int]):
        self._source = source
        self._indices = indices

    def __len__(self) -> int:
        """Returns the number of problems left."""
        return len(self._indices)

    def __getitem__(self, index: Any) -> Any:
        """Returns the problem at `index` among those left."""
        return self._source[self._indices[index]]


def filter_by_length(
    source: ProblemSource,
    tokenizer: Tokenizer,
    *,
    max_prompt_tokens: int,
    max_solution_tokens: int | None,
    environment: EnvironmentConfig = _NO_ENVIRONMENT,
    name: str,
) -> tuple[ProblemSource, int]:
    """Returns the source without problems that are too long, and their number.

    With `max_solution_tokens`, worked solutions must fit it too, as the episodes that
    `environment` makes of them, with end-of-sequence. Raises ConfigError if no problem
    is left. A generated source is not read whole; if one of its first problems is too
    long, this raises ConfigError, too.
    """

    def excess(problem: Problem) -> str | None:
        prompt = len(encode_prompt(problem, tokenizer))
        if prompt > max_prompt_tokens:
            return (
                f"a prompt of {prompt} tokens where {max_prompt_tokens} fit; raise "
                "model.max_seq_len"
            )
        if max_solution_tokens is not None:
            solution = len(encode_episode(problem, tokenizer, environment)[0])
            if solution > max_solution_tokens:
                return (
                    f"a worked solution of {solution} tokens, more than "
                    f"train.sampling.max_new_tokens={max_solution_tokens}; raise that"
                )
        return None

    if is_generated(source):
        for index in range(num_checked(source)):
            if excess_text := excess(source[index]):
                raise ConfigError(
                    f"{name}: problem {source[index].id} has {excess_text}, or make "
                    "the problems shorter"
                )
        return source, 0
    indices = [i for i in range(len(source)) if excess(source[i]) is None]
    if not indices:
        raise ConfigError(
            f"{name}: none of {len(source)} problems fits: the first has "
            f"{excess(source[0])}"
        )
    return FilteredSource(source, indices), len(source) - len(indices)


def encode_prompt(problem: Problem, tokenizer: Tokenizer) -> list[int]:
    """Returns the ids of a problem's prompt, as the policy reads it."""
    return tokenizer.encode_prompt(problem.prompt, literal=problem.literal)


def encode_solution(problem: Problem, tokenizer: Tokenizer) -> list[int]:
    """Returns the ids of a problem's worked solution, then end-of-sequence."""
    return _encode_turn(problem.solution or "", tokenizer)


def _encode_turn(text: str, tokenizer: Tokenizer) -> list[int]:
    """Returns the ids of a turn of the policy, then end-of-sequence."""
    ids = tokenizer.encode(text, literal=whole_text(text))
    return [*ids, tokenizer.eos_id]


def encode_reply(
    text: str, tokenizer: Tokenizer, environment: EnvironmentConfig
) -> list[int]:
    """Returns the ids of an environment's reply, as the policy reads it.

    A control token that the reply spells out stays text; in the environment's template
    it is a control token. Raises UnknownWordError and LiteralTextError.
    """
    written, literal = write_literal(
        lambda texts: environment.format_reply(texts[0]), [text]
    )
    return tokenizer.encode(written, literal=literal)


def encode_episode(
    problem: Problem, tokenizer: Tokenizer, environment: EnvironmentConfig
) -> tuple[list[int], list[bool]]:
    """Returns the ids of a problem's worked episode, and which are the policy's.

    Each of the policy's turns ends with end-of-sequence. Without an environment, these
    are the ids of the worked solution.
    """
    ids: list[int] = []
    by_policy: list[bool] = []
    for message in environment.demonstrate(problem) or (
        Message(role="policy", text=""),
    ):
        is_policy = message.role == "policy"
        if is_policy:
            turn = _encode_turn(message.text, tokenizer)
        else:
            turn = encode_reply(message.text, tokenizer, environment)
        ids += turn
        by_policy += [is_policy] * len(turn)
    return ids, by_policy


def encode_prompts(
    problems: Sequence[Problem], tokenizer: Tokenizer, *, pad_multiple: int
) -> Prompts:
    """Returns the problems' prompts in NumPy, padded to a multiple of `pad_multiple`.

    A prompt's uid is a hash of its problem's id and of the number of times that this id
    occurred earlier in the batch. A repeated problem thus gets different completions.
    """
    tokens_PS, lengths_P = pad_rows(
        [encode_prompt(problem, tokenizer) for problem in problems],
        pad_multiple=pad_multiple,
    )
    repeats: dict[str, int] = {}
    uids = []
    for problem in problems:
        repeats[problem.id] = repeats.get(problem.id, -1) + 1
        name = f"{problem.id}#{repeats[problem.id]}".encode()
        uids.append(int.from_bytes(hashlib.blake2b(name, digest_size=4).digest()))
    return Prompts(tokens=tokens_PS, lengths=lengths_P, uid=np.array(uids, np.uint32))
