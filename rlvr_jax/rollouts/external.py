"""External traces: worked solutions that enter an update beside the completions."""

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
    """Traces of P problems and what their rewards are made of."""

    tokens: Int[np.ndarray, " P T"]
    lengths: Int[np.ndarray, " P"]  # 0: no trace
    raw_scores: dict[str, Float[np.ndarray, " P"]]  # NaN where there is no trace


def read_traces(setup: RunSetup, problems: Sequence[Problem]) -> GradedTraces:
    """Returns the worked solutions of the problems, graded as completions are.

    A solution ends with end-of-sequence, as in stage sft. Left out are those that no
    completion could be, by train.sampling.max_new_tokens and min_new_tokens, and those
    that the verifier does not call correct: no trace teaches what earns nothing (ours;
    the source has none that is wrong).
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
    """Returns the fraction of groups with a trace, and of the advantage mass on them.

    `advantages_PG` are the completions'. Without any mass the fraction of it is 0.
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
