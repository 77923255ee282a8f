"""Writes a policy's residual stream on its own completions, for sae_jax to read."""

import functools
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx

from job_jax.flags import UsageError
from job_jax.metrics import Progress
from job_jax.processes import device_get, is_primary
from rlvr_jax.models import Transformer, keep_first_layers
from rlvr_jax.rollouts.graded import GradedCompletion, grade_completions
from rlvr_jax.rollouts.sample import sample_problems
from rlvr_jax.run.load import LoadedPolicy
from rlvr_jax.run.setup import RunSetup
from rlvr_jax.types import Problem, Prompts, Rollouts
from sae_jax.data.shards import ShardWriter

ROLES = ("prompt", "response")
OUTCOME = "correct"
_OUTCOME_VALUES = {"correct": 1, "incorrect": 0, "unverified": -1}


def write_activations(
    policy: LoadedPolicy,
    directory: Path,
    *,
    layer: int,
    num_problems: int,
    num_samples: int = 1,
    dtype: str,
) -> int:
    """Writes the residual stream on completions of train problems, and their verdicts.

    Returns how many tokens were written. Completions are sampled as in training,
    `num_samples` per problem; `layer` counts from 0. Raises ConfigError or UsageError
    before any work.
    """
    setup, config = policy.setup, policy.setup.config
    if not 0 <= layer < config.model.num_layers:
        raise UsageError(
            f"--layer={layer}; the policy has layers 0..{config.model.num_layers - 1}"
        )
    problems = setup.problems("train", num_problems)
    progress = Progress("activations", len(problems), every=1)
    done = tokens = 0
    name = f"{config.name}, step {policy.step}"
    with open_writer(
        setup, directory, layer=layer, model=name, factors=(OUTCOME,), dtype=dtype
    ) as shards:
        for batch, rollouts in sample_problems(
            setup,
            policy.params,
            problems,
            sampling=config.train.sampling,
            num_samples=num_samples,
            batch_size=config.eval.batch_size,
            stream="train",
            weight_version=policy.step,
        ):
            new = add_sequences(
                setup,
                shards,
                batch,
                rollouts,
                graded=grade_completions(setup, batch, rollouts),
                params=policy.params,
                layer=layer,
            )
            done, tokens = done + len(batch), tokens + new
            progress.update(done, {}, tokens=new)
    progress.close()
    return tokens


def open_writer(
    setup: RunSetup,
    directory: Path,
    *,
    layer: int,
    model: str,
    factors: Sequence[str] = (),
    dtype: str,
) -> AbstractContextManager[ShardWriter | None]:
    """Returns a writer of the residual stream after a layer of the run's policy.

    `factors` are labels in addition to the task's. Only the primary process gets a
    writer; the others get None.
    """
    if not is_primary():
        return nullcontext()
    return ShardWriter(
        directory,
        width=setup.config.model.hidden_size,
        layer=layer,
        hook=f"blocks.{layer}.hook_resid_post",
        model=model,
        roles=ROLES,
        factors=(*setup.config.task.factors, *factors),
        vocabulary=_token_texts(setup),
        dtype=dtype,
    )


def _token_texts(setup: RunSetup) -> list[str]:
    """Returns the text of each token id; special ones without a text are like "<2>"."""
    tokenizer = setup.tokenizer
    texts = (tokenizer.decode([token]) for token in range(tokenizer.vocab_size))
    return [text or f"<{token}>" for token, text in enumerate(texts)]


def add_sequences(
    setup: RunSetup,
    shards: ShardWriter | None,
    problems: Sequence[Problem],
    rollouts: Rollouts,
    *,
    graded: Sequence[GradedCompletion] = (),
    params: nnx.State,
    layer: int,
) -> int:
    """Writes the problems' completions with their residual stream.

    Returns how many tokens were written. `rollouts` are NumPy arrays. A sequence is a
    prompt and one completion with its end-of-sequence token, which is marked special.
    If the task has factors, every completion token has their labels. Every token of a
    `graded` sequence has the factor OUTCOME: 1 correct, 0 incorrect, -1 unverified.
    """
    prompts, completions = setup.shard_batch((rollouts.prompts, rollouts.tokens))
    residuals = device_get(
        read_residuals(setup.graphdef, params, prompts, completions, layer=layer)
    )
    G = len(rollouts.lengths) // len(rollouts.prompts.lengths)
    tokens = 0
    for b in range(len(problems) * G):
        row = _sequence_row(rollouts, residuals, b, prompt=b // G)
        tokens += len(row["roles"])
        if shards is None:
            continue
        problem = problems[b // G]
        labels = _token_factors(setup, problem, **row)
        if graded:
            value = _OUTCOME_VALUES[graded[b].verdict.status]
            labels[OUTCOME] = np.full(len(row["roles"]), value)
        ends = np.isin(row["token_ids"], setup.tokenizer.eos_ids)
        eos = ends & (row["roles"] == 1)
        shards.add(**row, special=eos, factors=labels, problem=problem.id)
    return tokens


@functools.partial(jax.jit, static_argnames=("graphdef", "layer"))
def read_residuals(
    graphdef: nnx.GraphDef,
    params: nnx.State,
    prompts: Prompts,
    tokens_BT: jax.Array,
    *,
    layer: int,
) -> tuple[jax.Array, jax.Array]:
    """Returns the stream after a layer: prompts' [P, S, D], completions' [B, T, D]."""
    policy: Transformer = nnx.merge(graphdef, params)
    states = keep_first_layers(policy, layer + 1).hidden_states(
        prompts.tokens,
        prompts.lengths,
        tokens_BT,
        capture_layers=(layer,),
        capture_prompts=True,
    )
    return states.prompts.captured[0], states.completions.captured[0]


def _sequence_row(
    rollouts: Rollouts,
    residuals: tuple[np.ndarray, np.ndarray],
    row: int,
    *,
    prompt: int,
) -> dict[str, Any]:
    """Returns the arguments of `ShardWriter.add` for one sequence, without padding."""
    S, T = int(rollouts.prompts.lengths[prompt]), int(rollouts.lengths[row])
    return {
        "activations": np.concatenate(
            [residuals[0][prompt, :S], residuals[1][row, :T]]
        ),
        "token_ids": np.concatenate(
            [rollouts.prompts.tokens[prompt, :S], rollouts.tokens[row, :T]]
        ),
        # The policy only reads an environment's tokens, as it reads a prompt's.
        "roles": np.concatenate([np.zeros(S, int), rollouts.mask[row, :T]]),
    }


def _token_factors(
    setup: RunSetup,
    problem: Problem,
    *,
    token_ids: np.ndarray,
    roles: np.ndarray,
    **_: object,
) -> dict[str, np.ndarray]:
    """Returns the task's labels of each token by factor; {} if the task has no factors.

    Prompt tokens have the label -1, because nothing is known about them.
    """
    task = setup.config.task
    if not task.factors:
        return {}
    words = [
        setup.tokenizer.decode([token]) for token in token_ids[roles == 1].tolist()
    ]
    factors = {}
    for name, labels in task.token_factors(problem, words).items():
        factors[name] = np.full(len(roles), -1)
        factors[name][roles == 1] = labels
    return factors
