"""Values of a completion's prefixes: how often sampling on from them ends right.

The value of the first t tokens is P(correct | prompt, these tokens) under the policy
itself. Token t's contribution is the difference of two values; no critic is involved.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from job_jax.metrics import Progress
from rlvr_jax.config import SamplingConfig
from rlvr_jax.rollouts.graded import GradedCompletion
from rlvr_jax.rollouts.judged import judge_texts, read_judged_text
from rlvr_jax.rollouts.request import SampleRequest, draw_rollouts
from rlvr_jax.rollouts.sample import fetch_rollouts
from rlvr_jax.run.load import LoadedPolicy
from rlvr_jax.tokenizer import pad_rows, stop_length
from rlvr_jax.types import Problem, Prompts, Rollouts


class _Prefix(NamedTuple):
    """The first `length` tokens of a completion."""

    row: int
    length: int


def sample_prefix_values(
    policy: LoadedPolicy,
    graded: Sequence[GradedCompletion],
    rollouts: Rollouts,
    *,
    sampling: SamplingConfig,
    num_samples: int,
    batch_size: int,
) -> list[Bool[np.ndarray, "L n"]]:
    """Returns for each of N completions whether samples from its prefixes end right.

    Row t of a completion of L tokens belongs to its first t tokens, 0 <= t <= L; the
    last row is its own verdict n times. `rollouts` are in NumPy, one completion per
    prompt, and `graded` are the same completions. Prefix and sample together are cut at
    `max_new_tokens`, as the policy's completion would have been.
    """
    prefixes = [
        _Prefix(row, length)
        for row, _ in enumerate(graded)
        for length in range(int(rollouts.lengths[row]))
    ]
    values = [
        np.full(
            (each.length + 1, num_samples), each.verdict.status == "correct", np.bool_
        )
        for each in graded
    ]
    progress, done = Progress("prefixes", len(prefixes), every=1), 0
    for part, ends in _sample_on(
        policy,
        [each.problem for each in graded],
        rollouts,
        prefixes,
        sampling=sampling,
        num_samples=num_samples,
        batch_size=batch_size,
    ):
        for prefix, right in zip(part, ends, strict=True):
            values[prefix.row][prefix.length] = right
        done += len(part)
        progress.update(done, {})
    progress.close()
    return values


def _sample_on(
    policy: LoadedPolicy,
    problems: Sequence[Problem],
    rollouts: Rollouts,
    prefixes: Sequence[_Prefix],
    *,
    sampling: SamplingConfig,
    num_samples: int,
    batch_size: int,
) -> Iterator[tuple[Sequence[_Prefix], Bool[np.ndarray, "P n"]]]:
    """Yields prefixes in batches, with whether the samples from each end right."""
    setup = policy.setup
    weights = setup.sampler_layout.place_params(policy.params)
    width = rollouts.prompts.tokens.shape[1] + rollouts.tokens.shape[1]
    for start in range(0, len(prefixes), batch_size):
        part = prefixes[start : start + batch_size]
        asked = [problems[prefix.row] for prefix in part]
        filled = [*part, *[part[0]] * (batch_size - len(part))]
        tokens_PS, lengths_P = pad_rows(
            [_tokens_of(rollouts, prefix) for prefix in filled], pad_multiple=width
        )
        # Each prefix has its own key for sampling.
        uid = np.arange(start, start + batch_size, dtype=np.uint32)
        request = SampleRequest(
            problems=asked,
            weights=weights,
            sampling=sampling,
            num_samples=num_samples,
            key=setup.stream_key("prefixes"),
            weight_version=np.int32(policy.step),
        )
        sampled = fetch_rollouts(
            setup,
            draw_rollouts(
                setup,
                request,
                Prompts(tokens=tokens_PS, lengths=lengths_P, uid=uid),
                num_samples=num_samples,
                max_new_tokens=sampling.max_new_tokens,
            ),
        )
        yield (
            part,
            _judge(policy, asked, rollouts, part, sampled, sampling.max_new_tokens),
        )


def _judge(
    policy: LoadedPolicy,
    problems: Sequence[Problem],
    rollouts: Rollouts,
    prefixes: Sequence[_Prefix],
    sampled: Rollouts,
    max_new_tokens: int,
) -> Bool[np.ndarray, "P n"]:
    """Returns whether prefix and sample together, cut at the limit, are right."""
    n = len(sampled.lengths) // len(sampled.prompts.lengths)
    judged, setup = [], policy.setup
    for index, prefix in enumerate(prefixes):
        begun = rollouts.tokens[prefix.row, : prefix.length].tolist()
        for b in range(index * n, (index + 1) * n):
            ids = begun + sampled.tokens[b, : int(sampled.lengths[b])].tolist()
            # The sampler looked for stop strings only after the prefix.
            ids = ids[:max_new_tokens]
            stopped = stop_length(ids, setup.tokenizer)
            text = setup.tokenizer.decode(ids[:stopped])
            was_cut = stopped is None and ids[-1] not in setup.tokenizer.eos_ids
            problem = problems[index]
            judged.append(read_judged_text(setup, problem, text, was_cut=was_cut))
    repeated = [problem for problem in problems for _ in range(n)]
    verdicts = judge_texts(setup, repeated, judged)
    return np.array([each.status == "correct" for each in verdicts]).reshape(-1, n)


def _tokens_of(rollouts: Rollouts, prefix: _Prefix) -> list[int]:
    """Returns a row's prompt and the prefix of its completion."""
    prompts = rollouts.prompts
    prompt = prompts.tokens[prefix.row, : int(prompts.lengths[prefix.row])]
    begun = rollouts.tokens[prefix.row, : prefix.length]
    return [*prompt.tolist(), *begun.tolist()]


def squared_changes(values: Bool[np.ndarray, "L n"]) -> Float[np.ndarray, " T"]:
    """Returns an unbiased estimate of each token's squared change of the value.

    `values` belong to one completion. The square of an estimated change also contains
    sampling noise, most of it where the value is uncertain. The product of two
    estimates, each from half of the samples, does not; it may be negative.

    >>> squared_changes(np.array([[1, 0, 1, 0], [1, 1, 1, 1]], bool)).tolist()
    [0.25]
    """
    first, second = np.array_split(values.astype(np.float64), 2, axis=1)
    return np.diff(first.mean(axis=1)) * np.diff(second.mean(axis=1))
