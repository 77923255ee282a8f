"""The report's section on stated confidence, if the run rewarded confidence."""

from collections.abc import Mapping
from typing import Any

from rlvr_jax.report.parts.held_out import evaluations
from rlvr_jax.report.run_files import RunArtifacts
from rlvr_jax.report.sections import Part, Section
from rlvr_jax.report.tables import Table, format_with_interval

_NONE = "\u2013"


def calibration(run: RunArtifacts) -> Section | None:
    """How well the confidence stated in completions fits their verdicts."""
    found = {
        when: scores["calibration"]
        for when, scores in evaluations(run).items()
        if scores.get("calibration")
    }
    if not found:
        return None
    return Section(
        title="How well stated confidence fits the verdicts",
        text="The confidence stated in held-out completions, compared with their "
        "verdicts. Brier: the mean squared difference between confidence and 1 "
        "(correct) or 0 (incorrect), in percent; a constant one half gives 25 %. ECE: "
        "the average gap between confidence and the share of correct completions, over "
        "10 bins of confidence. AUROC: the chance that a correct completion states a "
        "higher confidence than an incorrect one, 0.5 by luck. All three are over the "
        "completions that state a confidence. ECE and AUROC have "
        "no interval.",
        table=Table(
            head=("", "samples", "state one", "Brier", "ECE", "AUROC"),
            rows=[(f"{when} RL", *_cells(values)) for when, values in found.items()],
        ),
    )


def _cells(values: Mapping[str, Any]) -> tuple[str, ...]:
    brier, numbers = values["brier"], (values["ece"], values["auroc"])
    return (
        str(values["samples"]),
        format_with_interval(values["stated"]),
        _NONE if brier is None else format_with_interval(brier),
        *(_NONE if number is None else f"{number:.3f}" for number in numbers),
    )


PARTS = (Part(calibration, order=230),)
