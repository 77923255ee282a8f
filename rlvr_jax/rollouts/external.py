"""External traces: worked solutions that an update uses along with completions."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from rlvr_jax.data import encode_solution
from rlvr_jax.rollouts.judged import judge_texts, read_judged_text
from rlvr_jax.rollouts.scores import score_completions
from rlvr_jax.run.setup import RunSetup
from rlvr_jax.tokenizer import PAD_ID
from rlvr_jax.types import ExternalTraces, Problem


class GradedTraces(NamedTuple):
    """Traces of P problems, with the scores that make up their rewards."""

    tokens: Int[np.ndarray, " P T"]
    lengths: Int[np.ndarray, " P"]  # 0: no trace
    raw_scores: dict[str, Float[np.ndarray, " P"]]  # NaN without a trace


def read_traces(setup: RunSetup, problems: Sequence[Problem]) -> GradedTraces:
    """Returns the problems' worked solutions, graded like completions.

    A solution ends with end-of-sequence, as in stage sft. Solutions are left out if no
    completion could have their length (train.sampling.max_new_tokens, min_new_tokens).
    They are also left out if the verifier does not call them correct, so no trace
    teaches an answer that earns nothing. (This rule is ours; the source has no wrong
    traces.)
    """
    train = setup.config.train
    sampling = train.sampling
    ids = [
        encode_solution(problem, setup.tokenizer) if problem.solution else []
        for problem in problems
    ]
    short_enough = [
        p
        for p, row in enumerate(ids)
        if sampling.min_new_tokens < len(row) <= sampling.max_new_tokens
    ]
    judged = {
        p: read_judged_text(setup, problems[p], problems[p].solution or "")
        for p in short_enough
    }
    verdicts = judge_texts(
        setup, [problems[p] for p in short_enough], list(judged.values())
    )
    kept = [
        p
        for p, verdict in zip(short_enough, verdicts, strict=True)
        if verdict.status == "correct"
    ]
    tokens_PT = np.full((len(problems), sampling.max_new_tokens), PAD_ID, np.int32)
    lengths_P = np.zeros(len(problems), np.int32)
    for p in kept:
        tokens_PT[p, : len(ids[p])] = ids[p]
        lengths_P[p] = len(ids[p])
    raw_scores, _ = score_completions(
        train.reward,
        [problems[p] for p in kept],
        [judged[p].text for p in kept],
        judge=setup.verifier,
        seed=setup.config.seed,
        group_size=1,
    )
    return GradedTraces(
        tokens_PT,
        lengths_P,
        {
            name: _spread(scores, kept, len(problems))
            for name, scores in raw_scores.items()
        },
    )


def external_metrics(
    traces: ExternalTraces, advantages_PG: Float[np.ndarray, " P G"]
) -> dict[str, float]:
    """Returns the fraction of groups with a trace, and the traces' advantage mass.

    The mass is a fraction of the total, and 0 if the total is 0. `advantages_PG` are
    the completions' advantages.
    """
    external, own = (
        np.abs(advantages).sum(dtype=np.float64)
        for advantages in (traces.advantages, advantages_PG)
    )
    mass = external + own
    return {
        "external/rows": float((traces.lengths > 0).mean()),
        "external/advantage_mass": float(external / mass) if mass > 0 else 0.0,
    }


def _spread(
    values: np.ndarray, index: Sequence[int], size: int
) -> Float[np.ndarray, " P"]:
    """Returns `size` numbers: the values at their indices, NaN elsewhere."""
    spread_P = np.full(size, np.nan, np.float32)
    spread_P[list(index)] = values
    return spread_P
