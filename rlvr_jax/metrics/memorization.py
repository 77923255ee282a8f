"""Memorization: how much likelier worked golds are for seen than for fresh problems.

    perplexity(problems) = exp(mean over problems of the gold's mean -log pi(token))
    ratio                = perplexity(fresh) / perplexity(seen)

Each seen problem is paired with a held-out problem of the same type whose gold is about
as long, so length and type cannot explain a difference. If the policy has learned the
task, the ratio is 1. If it knows these particular problems, the ratio is above 1. The
pairing and the ratio are ours.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx
from jaxtyping import Float

from job_jax.processes import device_get
from job_jax.resampling import Interval
from rlvr_jax.data import encode_episode, encode_prompts
from rlvr_jax.learn.batches import batch_from_solutions
from rlvr_jax.learn.logprobs import token_scores
from rlvr_jax.metrics.bootstrap import t_interval
from rlvr_jax.models.distribution import SamplingParams
from rlvr_jax.run.setup import RunSetup
from rlvr_jax.tokenizer import pad_mask, pad_rows
from rlvr_jax.types import Batch, Problem

_MAX_LENGTH_DIFFERENCE = 0.1  # of the longer gold, within a pair


def summarize_memorization(
    setup: RunSetup,
    params: nnx.State,
    seen: Sequence[Problem],
    fresh: Sequence[Problem],
) -> dict[str, Any] | None:
    """Returns both perplexities and their ratio with a 95 % interval over the pairs.

    It is Student's t interval of the log ratio; its ends are null if there is only one
    pair. Returns None if no seen problem with a worked gold finds a partner.
    """
    environment = setup.config.environment
    pairs = pair_by_length(
        *(
            [
                (p, len(encode_episode(p, setup.tokenizer, environment)[0]))
                for p in side
                if p.solution
            ]
            for side in (seen, fresh)
        )
    )
    if not pairs:
        return None
    seen_N, fresh_N = (
        gold_nll(setup, params, side) for side in zip(*pairs, strict=True)
    )
    ratio = Interval(*np.exp(t_interval(fresh_N - seen_N)))
    return {
        "problems": len(pairs),
        "perplexity_seen": float(np.exp(seen_N.mean())),
        "perplexity_fresh": float(np.exp(fresh_N.mean())),
        "ratio": ratio.to_json(),
    }


def pair_by_length(
    seen: Sequence[tuple[Problem, int]], fresh: Sequence[tuple[Problem, int]]
) -> list[tuple[Problem, Problem]]:
    """Returns (seen, fresh) pairs of the same type and nearly the same length.

    Each input is a problem with the length of its gold. In the order of `seen`, each
    problem takes the unused fresh problem closest in length. If their lengths differ by
    over a tenth, it stays unpaired. No problem is used twice.
    """
    free = list(fresh)
    pairs = []
    for problem, length in seen:
        partners = [other for other in free if other[0].type == problem.type]
        if not partners:
            continue
        best = min(partners, key=lambda other: abs(other[1] - length))
        if abs(best[1] - length) <= _MAX_LENGTH_DIFFERENCE * max(best[1], length):
            free.remove(best)
            pairs.append((problem, best[0]))
    return pairs


def gold_nll(
    setup: RunSetup, params: nnx.State, problems: Sequence[Problem]
) -> Float[np.ndarray, " N"]:
    """Returns -log pi(token), in nats, averaged over each worked gold's tokens.

    The last token is end-of-sequence; pi is the policy at temperature 1.
    """
    config, size = setup.config, setup.config.eval.batch_size
    num_missing = -len(problems) % size
    filled = [*problems, *[problems[0]] * num_missing]
    prompts = encode_prompts(
        filled, setup.tokenizer, pad_multiple=config.prompt_pad_multiple
    )
    episodes = [
        encode_episode(problem, setup.tokenizer, config.environment)
        for problem in filled
    ]
    tokens_BT, lengths_B = pad_rows(
        [ids for ids, _ in episodes], pad_multiple=config.completion_pad_multiple
    )
    policy_mask_BT = pad_mask([mask for _, mask in episodes], tokens_BT.shape[1])
    whole = batch_from_solutions(prompts, tokens_BT, lengths_B)
    sampling = setup.replicate(SamplingParams.unmodified())
    parts = []
    for start in range(0, len(filled), size):
        rows = slice(start, start + size)
        batch = setup.shard_batch(jax.tree.map(lambda array: array[rows], whole))  # noqa: B023
        logprobs_BT = device_get(
            _gold_logprobs(
                setup.graphdef,
                params,
                batch,
                sampling,
                logits_chunk_size=config.train.logits_chunk_size,
            )
        )
        parts.append(
            -logprobs_BT.mean(axis=1, where=policy_mask_BT[rows], dtype=np.float64)
        )
    return np.concatenate(parts)[: len(problems)]


@functools.partial(jax.jit, static_argnames=("graphdef", "logits_chunk_size"))
def _gold_logprobs(
    graphdef: nnx.GraphDef,
    params: nnx.State,
    batch: Batch,
    sampling: SamplingParams,
    *,
    logits_chunk_size: int,
) -> jax.Array:
    policy = nnx.merge(graphdef, params)
    scores = token_scores(policy, batch, sampling, logits_chunk_size=logits_chunk_size)
    return scores.logprobs
