"""Scores of difficulty from other work, for the problems of a step before its update.

EL2N          ||pi - one-hot||_2 at a token of the problem's worked solution, mean
              over its tokens (https://arxiv.org/abs/2107.07609, which averages over
              several networks early in training; here it is one policy)
own solution  mean log-probability of these tokens: large where it is memorized
forgetting    how often the problem was solved and then lost; infinite if it was
              never solved (https://arxiv.org/abs/1812.05159)
"""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float

from job_jax.working import working
from rlvr_jax.analysis.influence.held_out import HeldOut
from rlvr_jax.analysis.influence.replay import Replay
from rlvr_jax.data.difficulty import SOLVED_PASS_RATE
from rlvr_jax.learn.micro_batches import score_micro_batches
from rlvr_jax.types import Batch

EL2N, OWN_SOLUTION, FORGETTING = "EL2N", "own solution", "forgetting"


def score_difficulty(
    replay: Replay, held_out: HeldOut, chosen: Sequence[int]
) -> dict[str, np.ndarray]:
    """Returns each score of the chosen problems of the step, by name.

    EL2N and `own solution` are missing if one of them has no worked solution,
    forgetting if one is outside the pool.
    """
    groups = replay.rollouts.groups
    problems = [groups.completions_of(p)[0].problem for p in chosen]
    index_P = groups.problem_index[[*chosen]]
    scores = {}
    own = held_out.with_problems(problems)
    if own.num_solutions == len(problems):
        params = replay.state.device.params
        with working("scoring the problems' own solutions"):
            scores[EL2N] = _solution_errors(own, params)
            scores[OWN_SOLUTION] = own.score_solutions(params)
    if (index_P >= 0).all():
        state = replay.state.difficulty.gather(index_P.tolist())
        events_P = np.asarray(state.forgetting_events, np.float64)
        is_solved_P = np.asarray(state.last_pass_rate) >= SOLVED_PASS_RATE
        scores[FORGETTING] = np.where(is_solved_P | (events_P > 0), events_P, np.inf)
    return scores


def _solution_errors(own: HeldOut, params: nnx.State) -> Float[np.ndarray, " P"]:
    """Returns the mean error over the tokens of each worked solution."""
    assert own.solutions is not None
    setup = own.trainer.setup
    whole = own.trainer.trainable.merge_frozen(params)
    error_BT = score_micro_batches(
        lambda part: _token_errors(setup.graphdef, whole, setup.shard_batch(part)),
        own.solutions,
        own.cut,
    )
    return own.mean_over_tokens(error_BT)


@functools.partial(jax.jit, static_argnames="graphdef")
def _token_errors(
    graphdef: nnx.GraphDef, params: nnx.State, batch: Batch
) -> Float[Array, " B T"]:
    """Returns ||pi - one-hot||_2 at each token, 0 beyond the lengths.

    Logits exist for one position at a time. Each row has a prompt of its own.
    """
    policy = nnx.merge(graphdef, params)
    tokens_BT = batch.tokens
    states = policy.hidden_states(
        batch.prompt_tokens, batch.prompt_lengths, tokens_BT[:, :-1]
    )
    hidden_BTD = jnp.concatenate(
        [states.first[:, None], states.completions.hidden], axis=1
    )

    def measure(at: tuple[Array, Array]) -> Float[Array, " B"]:
        hidden_BD, token_B = at
        logits_BV = policy.logits(hidden_BD[:, None])[:, 0, : policy.num_real_tokens]
        one_hot_BV = jax.nn.one_hot(token_B, logits_BV.shape[1])
        error_BV = jax.nn.softmax(logits_BV) - one_hot_BV
        return jnp.sqrt((error_BV**2).sum(axis=1))

    error_TB = jax.lax.map(measure, (hidden_BTD.swapaxes(0, 1), tokens_BT.T))
    return jnp.where(batch.mask, error_TB.T, 0.0)
