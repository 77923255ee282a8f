"""Differences from the baseline, with p-values corrected for the number of arms."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlvr_jax.analysis.compare.arms import MIN_SEEDS
from rlvr_jax.analysis.compare.metric import BOUNDS
from rlvr_jax.analysis.compare.rows import PERCENT, label_metric
from rlvr_jax.analysis.compare.text import format_difference
from rlvr_jax.metrics.multiple import holm, paired_p_value
from rlvr_jax.report.tables import Table

CORRECTED_READING = (
    "p is of the paired t-test over seeds; Holm is p corrected for the number of arms "
    "that are compared in this outcome."
)


def correct_differences(
    comparison: Mapping[str, Any], outcomes: Sequence[str]
) -> list[dict[str, Any]]:
    """Returns the p-values of every arm's paired difference in each outcome, as JSON.

    An arm that shares fewer than three seeds with the baseline is left out, and so is
    one whose differences are all equal.
    """
    found: list[dict[str, Any]] = []
    labels = {label_metric(metric): metric for metric in comparison["metrics"]}
    for outcome in (name for name in outcomes if name in labels):
        p_values = {
            arm: paired_p_value([*by_seed.values()])
            for arm, difference in labels[outcome]["differences"].items()
            if len(by_seed := (difference or {}).get("seeds", {})) >= MIN_SEEDS
        }
        known = {arm: p for arm, p in p_values.items() if not np.isnan(p)}
        corrected = holm([*known.values()]).tolist()
        found += [
            {"outcome": outcome, "arm": arm, "p": p, "holm": p_holm}
            for (arm, p), p_holm in zip(known.items(), corrected, strict=True)
        ]
    return found


def corrected_table(comparison: Mapping[str, Any]) -> Table:
    """Returns a row for each difference in the comparison's `corrected`."""
    labels = {label_metric(metric): metric for metric in comparison["metrics"]}
    rows = []
    for found in comparison["corrected"]:
        metric = labels[found["outcome"]]
        name = metric["name"]
        rows.append(
            [
                found["outcome"] + PERCENT * (name in BOUNDS),
                found["arm"],
                format_difference(metric["differences"][found["arm"]], name),
                f"{found['p']:.3f}",
                f"{found['holm']:.3f}",
            ]
        )
    head = ("", "arm", f"minus {comparison['baseline']}", "p", "Holm")
    return Table(head=head, rows=rows)
