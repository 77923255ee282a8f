"""Episodes: the policy and an environment take turns, sampled round by round.

In each round, the policy samples the next turn of every unfinished episode, given all
its tokens so far. Then the environment answers all episodes at once. An episode that
waits for its answer is in no batch. With `environment.overlap`, the batch is split into
two halves from the second turn on: one is sampled while the environment answers the
other. As without an environment, a sample depends only on the key, the prompt, the
sample's number and the episode's own tokens. A completion of one turn is therefore the
same either way.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from job_jax.calls import start_aside
from job_jax.processes import device_get, start_across_processes
from rlvr_jax.config.environment import Environment
from rlvr_jax.data import encode_reply
from rlvr_jax.environments.calls import Call, answer_turns, failed_reply
from rlvr_jax.rollouts.request import SampleRequest, draw_rollouts
from rlvr_jax.run.setup import RunSetup
from rlvr_jax.sampler import pad_prompts
from rlvr_jax.tokenizer import LiteralTextError, Tokenizer, UnknownWordError
from rlvr_jax.types import (
    BegunRows,
    Episode,
    Message,
    Problem,
    Prompts,
    Reply,
    Rollouts,
    Verdict,
)


@dataclasses.dataclass(kw_only=True)
class _Row:
    """An episode under construction: its tokens so far, and whether it continues."""

    problem: Problem
    number: int  # among the rows of the batch
    goes_on: bool
    tokens: list[int] = dataclasses.field(default_factory=list)
    logprobs: list[float] = dataclasses.field(default_factory=list)
    by_policy: list[bool] = dataclasses.field(default_factory=list)
    messages: list[Message] = dataclasses.field(default_factory=list)
    finished: bool = False
    verdict: Verdict | None = None
    tool_calls: int = 0

    def add_turn(
        self, tokens: list[int], logprobs: list[float], text: str, *, ended: bool
    ) -> None:
        """Appends a turn of the policy; a turn that was cut ends the episode."""
        self.tokens += tokens
        self.logprobs += logprobs
        self.by_policy += [True] * len(tokens)
        self.messages.append(Message(role="policy", text=text))
        self.goes_on = ended

    def add_reply(self, text: str, tokens: list[int], *, room: int) -> None:
        """Appends the environment's reply, or ends the episode if it does not fit."""
        self.goes_on = len(tokens) < room
        if not self.goes_on:
            return
        self.tokens += tokens
        self.logprobs += [0.0] * len(tokens)
        self.by_policy += [False] * len(tokens)
        self.messages.append(Message(role="environment", text=text))

    def end(self, reply: Reply) -> None:
        """Ends the episode with the environment's verdict; unfinished on failure."""
        self.verdict, self.goes_on = reply.verdict, False
        self.finished = reply.verdict is None or reply.verdict.failure is None

    def to_episode(self, environment: Environment) -> Episode:
        """Returns the messages, the completion and the verdict as an `Episode`."""
        messages = tuple(self.messages)
        return Episode(
            messages=messages,
            completion=environment.completion(self.problem, messages),
            tool_calls=self.tool_calls,
            verdict=self.verdict,
        )


def sample_episodes(setup: RunSetup, request: SampleRequest) -> Rollouts:
    """Returns the requested completions as episodes, in NumPy.

    `max_new_tokens` limits all tokens of an episode. Problems that only fill up the
    batch get a single turn.
    """
    environment = setup.config.environment
    assert isinstance(environment, Environment)
    prompts, limit = request.encode_prompts(setup), request.sampling.max_new_tokens
    repeated = [
        problem
        for problem in request.filled_problems
        for _ in range(request.num_samples)
    ]
    num_rows = len(request.problems) * request.num_samples
    rows = [
        _Row(problem=problem, number=number, goes_on=number < num_rows)
        for number, problem in enumerate(repeated)
    ]
    sampler = _TurnSampler(
        setup=setup,
        request=request,
        prompts=prompts,
        max_turn_tokens=min(environment.max_turn_tokens or limit, limit),
        overlap=environment.overlap,
    )
    drawn = sampler.draw_first()
    slot_steps = int(drawn.slot_steps or 0)
    _add_turns(rows, drawn, setup.tokenizer, limit=limit)
    parts = [
        _ask_environment(environment, part) for part in sampler.split(rows[:num_rows])
    ]
    for turn in range(1, environment.max_turns + 1):
        room = limit if turn < environment.max_turns else 0
        for at, part in enumerate(parts):
            live = _add_replies(part, environment, setup.tokenizer, limit=room)
            if live:
                drawn = sampler.draw(live)
                slot_steps += int(drawn.slot_steps or 0)
                _add_turns(live, drawn, setup.tokenizer, limit=limit)
            parts[at] = _ask_environment(environment, live)
        if not any(part.rows for part in parts):
            break
    return dataclasses.replace(
        _gather_rows(rows, prompts, environment, width=limit),
        weight_version=np.asarray(device_get(request.weight_version)),
        slot_steps=np.int32(slot_steps),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _TurnSampler:
    """Draws the next turns of a request's episodes, which begin at `prompts`."""

    setup: RunSetup
    request: SampleRequest
    prompts: Prompts
    max_turn_tokens: int
    overlap: bool

    @property
    def num_samples(self) -> int:
        """Returns the number of episodes per prompt."""
        return self.request.num_samples

    def split(self, rows: Sequence[_Row]) -> list[Sequence[_Row]]:
        """Splits the rows into parts that are sampled together after the first turn."""
        starts = range(0, len(rows), self._part_size)
        return [rows[start : start + self._part_size] for start in starts]

    def draw_first(self) -> Rollouts:
        """Returns the first turn of all rows, in NumPy."""
        return self._sample(self.prompts, self.num_samples)

    def draw(self, rows: Sequence[_Row]) -> Rollouts:
        """Returns a turn of each row, in NumPy, padded with copies of the first row."""
        filled = [*rows, *[rows[0]] * (self._part_size - len(rows))]
        contexts = [[*self._prompt_ids(row), *row.tokens] for row in filled]
        numbers = np.array([row.number for row in filled])
        begun = BegunRows(
            sample=(numbers % self.num_samples).astype(np.uint32),
            length=np.array([len(row.tokens) for row in filled], np.int32),
        )
        prompts = pad_prompts(
            contexts,
            uids=self.prompts.uid[numbers // self.num_samples].tolist(),
            pad_multiple=self._pad_multiple(max(map(len, contexts))),
        )
        return self._sample(dataclasses.replace(prompts, begun=begun), 1)

    @property
    def _part_size(self) -> int:
        """Returns the rows per part: all, or about half, a multiple of the devices."""
        num_rows = len(self.prompts.lengths) * self.num_samples
        if not self.overlap:
            return num_rows
        multiple = self.setup.sampler_layout.mesh.size
        return min(num_rows, -(-num_rows // (2 * multiple)) * multiple)

    def _prompt_ids(self, row: _Row) -> list[int]:
        p = row.number // self.num_samples
        return self.prompts.tokens[p, : self.prompts.lengths[p]].tolist()

    def _pad_multiple(self, longest: int) -> int:
        """Returns a width that grows by doubling, so few programs are compiled."""
        multiple = width = self.setup.config.prompt_pad_multiple
        while width < longest:
            width *= 2
        most = -(-self.setup.config.model.max_seq_len // multiple) * multiple
        return min(width, max(most, multiple))

    def _sample(self, prompts: Prompts, num_samples: int) -> Rollouts:
        return device_get(
            draw_rollouts(
                self.setup,
                self.request,
                prompts,
                num_samples=num_samples,
                max_new_tokens=self.max_turn_tokens,
            )
        )


def _add_turns(
    rows: Sequence[_Row], drawn: Rollouts, tokenizer: Tokenizer, *, limit: int
) -> None:
    """Appends each drawn turn to its row, cut to the room that the row has left."""
    for at, row in enumerate(rows):
        length = int(drawn.lengths[at])
        kept = min(length, limit - len(row.tokens))
        tokens = drawn.tokens[at, :kept].tolist()
        row.add_turn(
            tokens,
            drawn.logprobs[at, :kept].tolist(),
            tokenizer.decode(tokens),
            ended=bool(drawn.finished[at]) and kept == length,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _AskedRows:
    """Rows that the environment is answering, and a function that waits for it."""

    rows: list[_Row]
    wait: Callable[[], list[dict[str, Any]]]


def _ask_environment(environment: Environment, rows: Sequence[_Row]) -> _AskedRows:
    """Requests an answer for each unfinished row; each process requests its share.

    With `environment.overlap`, the environment is already working when this returns.
    Otherwise it starts when `wait` is called.
    """
    live = [row for row in rows if row.goes_on]

    def start(calls: Sequence[Call]) -> Callable[[], list[dict[str, Any]]]:
        def answer() -> list[dict[str, Any]]:
            return [
                dataclasses.asdict(reply) for reply in answer_turns(environment, calls)
            ]

        return start_aside(answer) if environment.overlap and calls else answer

    calls = [(row.problem, tuple(row.messages)) for row in live]
    return _AskedRows(rows=live, wait=start_across_processes(calls, start))


def _add_replies(
    asked: _AskedRows, environment: Environment, tokenizer: Tokenizer, *, limit: int
) -> list[_Row]:
    """Waits for the answers and appends them; returns the rows that continue.

    A row ends unfinished if the answer leaves no room within `limit` tokens.
    """
    if not asked.rows:
        return []
    replies = map(_read_reply, asked.wait())
    for row, reply in zip(asked.rows, replies, strict=True):
        row.tool_calls += reply.tool_calls
        if reply.done:
            row.end(reply)
            continue
        try:
            tokens = encode_reply(reply.text, tokenizer, environment)
        except (UnknownWordError, LiteralTextError) as error:
            row.end(failed_reply(f"the reply {error}"))
            continue
        row.add_reply(reply.text, tokens, room=limit - len(row.tokens))
    return [row for row in asked.rows if row.goes_on]


def _read_reply(fields: dict[str, Any]) -> Reply:
    verdict = fields["verdict"]
    return Reply(**{**fields, "verdict": Verdict(**verdict) if verdict else None})


def _gather_rows(
    rows: Sequence[_Row], prompts: Prompts, environment: Environment, *, width: int
) -> Rollouts:
    """Returns the rows as rollouts with weight version 0."""
    B = len(rows)
    tokens_BT = np.zeros((B, width), np.int32)
    logprobs_BT = np.zeros((B, width), np.float32)
    mask_BT = np.zeros((B, width), bool)
    for b, row in enumerate(rows):
        tokens_BT[b, : len(row.tokens)] = row.tokens
        logprobs_BT[b, : len(row.tokens)] = row.logprobs
        mask_BT[b, : len(row.tokens)] = row.by_policy
    return Rollouts(
        prompts=prompts,
        tokens=tokens_BT,
        lengths=np.array([len(row.tokens) for row in rows], np.int32),
        logprobs=logprobs_BT,
        finished=np.array([row.finished for row in rows]),
        weight_version=np.int32(0),
        policy_mask=mask_BT,
        episodes=tuple(row.to_episode(environment) for row in rows),
    )


def episode_metrics(rounds: Sequence[Rollouts]) -> dict[str, float]:
    """Returns means over the episodes of all rounds; {} without an environment.

    `environment/turns`, `environment/tool_calls` and `environment/tokens` (from the
    environment) are counts per episode. `environment/failures` is the share of episodes
    in which the environment gave no answer.
    """
    episodes = [e for rollouts in rounds for e in rollouts.episodes or ()]
    if not episodes:
        return {}
    tokens = sum(int(r.lengths.sum()) - int(r.mask.sum()) for r in rounds)
    return {
        "environment/turns": float(np.mean([e.num_turns for e in episodes])),
        "environment/tool_calls": float(np.mean([e.tool_calls for e in episodes])),
        "environment/tokens": tokens / len(episodes),
        "environment/failures": float(np.mean([e.failed for e in episodes])),
    }
