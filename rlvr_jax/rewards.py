"""What a completion's text says beside its verdict: the raw material of rewards."""

from collections.abc import Mapping, Sequence

import numpy as np

from rlvr_jax.config import RewardConfig
from rlvr_jax.types import Problem, Verdict
from rlvr_jax.verifiers import Judge
from rlvr_jax.verifiers.confidence import calibration, stated_confidence
from rlvr_jax.verifiers.controls import coin, wrong_label
from rlvr_jax.verifiers.formats import well_formed

_AGREES = {"right": 1.0, "wrong": 0.0, "unjudged": float("nan")}


def read_signals(
    config: RewardConfig,
    problems: Sequence[Problem],
    completions: Sequence[str],
    *,
    judge: Judge,
    seed: int,
    samples_per_prompt: int,
) -> dict[str, np.ndarray]:
    """Returns, for each named part that is no verdict, a number per completion (B).

      format       1 where the answer stands in the form asked for, else 0
      confidence   the stated q, NaN where none is stated
      random       0 or 1, a function of (seed, problem, sample)
      wrong_label  1 where the false gold is met, 0 where it is not, NaN unjudged

    Rows are group-major. `learn.rewards.reward_parts` makes rewards of them.
    """
    signals: dict[str, np.ndarray] = {}
    for name in config.names:
        if name == "format":
            asked = zip(problems, completions, strict=True)
            values = [float(well_formed(problem, text)) for problem, text in asked]
        elif name == "confidence":
            values = [_or_nan(stated_confidence(text)) for text in completions]
        elif name == "random":
            values = [
                float(coin(seed, problem.id, row % samples_per_prompt))
                for row, problem in enumerate(problems)
            ]
        elif name == "wrong_label":
            verdicts = judge(
                [wrong_label(problem) for problem in problems], completions
            )
            values = [_AGREES[verdict.status] for verdict in verdicts]
        else:
            continue  # the verdict itself
        signals[name] = np.array(values, np.float32)
    return signals


def confidence_metrics(
    signals: Mapping[str, np.ndarray], verdicts: Sequence[Verdict]
) -> dict[str, float]:
    """Returns confidence/brier, /ece, /auroc and /stated, {} where none is read.

    Unjudged completions are left out: there is nothing to set their q against.
    """
    if "confidence" not in signals:
        return {}
    judged_B = np.array([verdict.status != "unjudged" for verdict in verdicts])
    right_B = np.array([verdict.status == "right" for verdict in verdicts])
    if not judged_B.any():
        return {}
    found = calibration(signals["confidence"][judged_B], right_B[judged_B])
    return {f"confidence/{name}": value for name, value in found.items()}


def _or_nan(q: float | None) -> float:
    return float("nan") if q is None else q
