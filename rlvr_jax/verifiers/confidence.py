"""The confidence that completions state, and how well it is calibrated.

RLCR (https://arxiv.org/abs/2507.16806) rewards 1[correct] - (q - 1[correct])^2, where q
is the stated confidence. It is best to state the true chance of being correct.
"""

import hashlib
import re
from collections.abc import Sequence

import numpy as np

from rlvr_jax.verifiers.answers.limits import MAX_COMPLETION_CHARACTERS

_CONFIDENCE = re.compile(
    r"<confidence>\s*([0-9.]{1,8}\s*\\?%?)\s*</confidence>"
    r"|\bconfidence(?: is|\s*[:=])\s*([0-9.]{1,8}\s*\\?%?)",
    re.ASCII | re.IGNORECASE,
)
# A statement in tags, even if the length limit cut it off.
_TAGGED = re.compile(r"<confidence>[^<]{0,40}(?:</confidence>|\Z)", re.IGNORECASE)
_DECIMAL = re.compile(r"[0-9]+\.?[0-9]*|\.[0-9]+", re.ASCII)
_NUM_BINS = 10  # of equal width, as in RLCR

# Probabilities in steps of a tenth, as worked solutions state them.
STATEMENTS = tuple(f"<confidence>{tenths / 10}</confidence>" for tenths in range(11))


def state_any_confidence(problem_id: str) -> str:
    """Returns one of STATEMENTS, drawn from the problem's id (ours).

    Worked solutions end with it. It teaches how to state a confidence, and leaves the
    value to RL.
    """
    digest = hashlib.sha256(problem_id.encode()).hexdigest()
    return STATEMENTS[int(digest, 16) % len(STATEMENTS)]


def parse_confidence(completion: str) -> float | None:
    """Returns the q of the last statement, None without a q in [0, 1].

    A statement is <confidence>q</confidence> or "confidence: q" (also "=" and "is"),
    where q is a decimal or a percentage: 0.8 or 80%. A bare 80 is not a q.
    """
    found = _CONFIDENCE.findall(completion[-MAX_COMPLETION_CHARACTERS:])
    if not found:
        return None
    text = "".join(found[-1]).rstrip(".")
    number = text.rstrip("%\\ ")
    if not _DECIMAL.fullmatch(number):
        return None
    q = float(number) / (100 if text.endswith("%") else 1)
    return q if q <= 1 else None


def strip_confidence(completion: str) -> str:
    """Returns the completion without its <confidence> tags and their contents.

    Verifiers read the rest, so they never mistake a confidence for the answer.

    >>> strip_confidence("<answer>7</answer> <confidence>0.8</confidence>")
    '<answer>7</answer> '
    """
    return _TAGGED.sub("", completion)


def calibration_metrics(
    confidence: Sequence[float] | np.ndarray, correct: Sequence[bool] | np.ndarray
) -> dict[str, float]:
    """Returns how well stated confidences fit the verdicts; NaN means none was stated.

      stated  share of completions that state one
      brier   mean (q - 1[right])^2
      ece     sum over 10 bins of q: share of the bin times |mean q - share right|
      auroc   chance that a right completion states more than a wrong one, ties half

    All but `stated` only cover completions that state one; undefined ones are absent.
    """
    q_B, right_B = np.asarray(confidence, np.float64), np.asarray(correct, bool)
    stated_B = ~np.isnan(q_B)
    q_N, right_N = q_B[stated_B], right_B[stated_B]
    metrics = {"stated": float(stated_B.mean())}
    if len(q_N) == 0:
        return metrics
    bin_N = np.minimum((q_N * _NUM_BINS).astype(int), _NUM_BINS - 1)
    gaps = [abs((q_N - right_N)[bin_N == b].sum()) for b in range(_NUM_BINS)]
    metrics |= {
        "brier": float(np.mean((q_N - right_N) ** 2)),
        "ece": float(sum(gaps)) / len(q_N),
    }
    above = q_N[right_N][:, None] - q_N[~right_N][None, :]
    if above.size:
        metrics["auroc"] = float(np.mean((above > 0) + 0.5 * (above == 0)))
    return metrics
