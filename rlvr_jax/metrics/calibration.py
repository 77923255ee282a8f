"""How well the confidence stated in held-out completions fits their verdicts.

Like RLCR (https://arxiv.org/abs/2507.16806), it reports the Brier score, ECE and AUROC.
`verifiers.confidence.calibration_metrics` computes them over all samples of all
problems.
"""

import collections
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlvr_jax.metrics.bootstrap import mean_interval
from rlvr_jax.rollouts.graded import GradedCompletion
from rlvr_jax.verifiers.confidence import calibration_metrics, parse_confidence


def summarize_calibration(
    graded: Sequence[GradedCompletion], *, resamples: int, seed: int
) -> dict[str, Any] | None:
    """Returns the JSON dict that summary.json holds under calibration.

    `stated` (share of completions that state a confidence) and `brier` have 95 %
    intervals over problems. `ece` and `auroc` are numbers, null where undefined.
    `brier` is null if no completion states a confidence. Unverified completions are
    left out, because they have no verdict to compare confidence with. Returns None if
    all are unverified.
    """
    by_problem: dict[str, list[tuple[float, bool]]] = collections.defaultdict(list)
    for one in graded:
        if one.verdict.status != "unverified":
            q = parse_confidence(one.judged_text.text)
            is_correct = one.verdict.status == "correct"
            by_problem[one.problem.id].append((np.nan if q is None else q, is_correct))
    if not by_problem:
        return None
    per_problem = [np.transpose(pairs) for pairs in by_problem.values()]  # q, correct
    samples_N = [len(q_G) for q_G, _ in per_problem]
    stated_N = [np.isfinite(q_G).sum() for q_G, _ in per_problem]
    squares_N = [np.nansum((q_G - correct_G) ** 2) for q_G, correct_G in per_problem]
    pooled = calibration_metrics(*np.concatenate(per_problem, axis=1))
    interval = functools.partial(mean_interval, resamples=resamples, seed=seed)
    return {
        "samples": sum(samples_N),
        "stated": interval(stated_N, denominators=samples_N).to_json(),
        "brier": interval(squares_N, denominators=stated_N).to_json()
        if any(stated_N)
        else None,
        "ece": pooled.get("ece"),
        "auroc": pooled.get("auroc"),
    }
