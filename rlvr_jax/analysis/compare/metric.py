"""The metrics that runs are compared in, by name, and a run's score in one."""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

from job_jax.resampling import Interval
from rlvr_jax.analysis.features.texts import ALL_BANDS

PASS, PASS_BEFORE, GAIN = "pass@k", "pass@k before RL", "pass@k gained"
CHOSEN, RIGHT_IF_CHOSEN = "chosen", "correct if chosen"  # a strategy
CHOSEN_GAINED, RIGHT_GAINED = "chosen gained", "correct if chosen gained"
BAND, FRESH_BAND = "band", "band_fresh"  # groupings; by_band, by_band_fresh
LENGTH = "completion length"
LENIENT, LENIENT_GAINED = "lenient accuracy", "lenient accuracy gained"
REWARD, REWARD_GAINED = "reward", "reward gained"  # training: last tenth; minus first
NO_SIGNAL, ALL_INCORRECT = "groups without signal", "groups all incorrect"  # verdicts
ZERO_ADVANTAGE = "groups of zero advantage"  # groups whose rewards teach nothing
PROXIED, LUCK = "groups with a proxy", "mass on wrong steps"
PAID_LUCK = "positive mass on wrong steps"  # of the advantages above 0
PAID_WRONG = "positive mass on wrong answers"
ENTROPY = "entropy"  # of the policy's tokens in training: last tenth, in nats
ALARMS, SECONDS = "alarms", "seconds"
# Calibration of the stated confidence, by the keys of summary.json.
CALIBRATION = {"Brier score": "brier", "ECE": "ece", "AUROC": "auroc"}
BEFORE_RL = " before RL"
# Kinds of change, as `analysis features` counts them.
FEATURES = {
    kind: f"features {kind}"
    for kind in ("strengthened", "suppressed", "emerging", "unique", "claimed")
}
NOISE_FEATURES = "features that noise claims"  # weight noise with equal drift
OWN_FEATURES = "features of its own"  # measured only for an experiment's arms
METRIC_NAMES = (
    *(PASS, PASS_BEFORE, GAIN),
    *(CHOSEN, CHOSEN_GAINED, RIGHT_IF_CHOSEN, RIGHT_GAINED),
    *(LENIENT, LENIENT_GAINED, LENGTH),
    *(
        REWARD,
        REWARD_GAINED,
        NO_SIGNAL,
        ALL_INCORRECT,
        ZERO_ADVANTAGE,
        PROXIED,
        LUCK,
        PAID_LUCK,
        PAID_WRONG,
        ENTROPY,
        *FEATURES.values(),
        NOISE_FEATURES,
        OWN_FEATURES,
        *CALIBRATION,
        *(name + BEFORE_RL for name in CALIBRATION),
        ALARMS,
        SECONDS,
    ),
)
# Fractions that are averaged over the training steps.
MEANS_OVER_STEPS = {
    ALL_INCORRECT: "groups/all_incorrect",
    ZERO_ADVANTAGE: "advantage/zero_groups",
    PROXIED: "rfgo/proxy_groups",
    LUCK: "lucky/wrong_steps_mass",
    PAID_LUCK: "lucky/positive_wrong_steps_mass",
    PAID_WRONG: "lucky/positive_incorrect_mass",
}
# Bounds of fractions and of their differences; other numbers have no bounds.
FRACTION = (0.0, 1.0)
BOUNDS = dict.fromkeys(
    (
        *(PASS, PASS_BEFORE, CHOSEN, RIGHT_IF_CHOSEN, LENIENT, NO_SIGNAL),
        *MEANS_OVER_STEPS,
        *CALIBRATION,
        *(name + BEFORE_RL for name in CALIBRATION),
    ),
    FRACTION,
) | dict.fromkeys((GAIN, CHOSEN_GAINED, RIGHT_GAINED, LENIENT_GAINED), (-1.0, 1.0))


class Metric(NamedTuple):
    """Identifies a number of a run: its name, its group of problems, and its k if any.

    `grouping` is "all", "band", "band_fresh", "type" or "strategy". `group` is the
    band, the type, or the type and the strategy. Problems of a fresh band were assigned
    by half of their samples before RL and are scored by the other half, so gains are
    unbiased there.
    """

    name: str
    grouping: str = "all"
    group: str = ""
    k: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Score:
    """A metric's value in one run.

    If the run's rollouts exist, `by_problem` has the value of each problem, and `mean`
    is their mean. If not, `interval` is the one in summary.json.
    """

    mean: float
    by_problem: Mapping[str, float] | None = None
    interval: Interval | None = None


def feature_metric(name: str, band: str) -> Metric:
    """Returns the metric for a band of reference texts, or for all texts."""
    return Metric(name) if band == ALL_BANDS else Metric(name, BAND, band)
