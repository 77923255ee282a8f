"""Explains the numbers of a comparison: their average, brackets and marks."""

from collections.abc import Mapping
from typing import Any

from rlvr_jax.analysis.compare.arms import MIN_SEEDS
from rlvr_jax.analysis.compare.rows import table_metrics

_METHODS = {
    "problem": "p: both runs answered the same problems; the interval is of the "
    "differences, over problems.",
    "unpaired": "u: the runs answered different problems; the interval is over both "
    "sets.",
    "seed": "s: the arms have the same seeds; the interval is of the differences, over "
    "seeds.",
    "welch": "w: the arms have different seeds; the interval is over both sets.",
}


def explain_numbers(comparison: Mapping[str, object]) -> list[str]:
    """Returns the sentences under a table of a comparison."""
    used = {difference["method"] for difference in _differences(comparison)}
    marks = [text for method, text in _METHODS.items() if method in used]
    return [*explain_brackets(comparison), *marks]


def explain_brackets(comparison: Mapping[str, Any]) -> list[str]:
    """Returns a sentence for each kind of arm; alike arms share one."""
    kinds: dict[str, list[str]] = {}
    for arm in comparison["arms"]:
        kinds.setdefault(_explain_arm(comparison, arm), []).append(arm["label"])
    sentences = [
        (f"{', '.join(labels)}: " if len(kinds) > 1 else "") + sentence
        for sentence, labels in kinds.items()
    ]
    if any(each["low"] is not None for each in _differences(comparison)):
        sentences.append("Among many such intervals, some exclude 0 by chance.")
    return sentences


def _differences(comparison: Mapping[str, object]) -> list[Mapping[str, Any]]:
    """Returns the known differences in the rows of the table."""
    return [
        difference
        for metric in table_metrics(comparison)
        for difference in metric["differences"].values()
        if difference is not None
    ]


def _explain_arm(comparison: Mapping[str, Any], arm: Mapping[str, Any]) -> str:
    """Returns what an arm's numbers average, and what their brackets are over."""
    num_seeds = len(arm["seeds"])
    if num_seeds >= MIN_SEEDS:
        return (
            f"Each number is the mean of {num_seeds} seeds, and [brackets] hold its "
            "95 % interval over seeds."
        )
    if num_seeds > 1:
        return (
            "Each number is the mean of two seeds, and (parentheses) hold the seeds' "
            "own numbers, because two are too few for an interval."
        )
    sizes = [
        value.get("problems", 0)
        for metric in comparison["metrics"]
        if (value := metric["values"][arm["label"]]) is not None
    ]
    if not any(sizes):
        return (
            "Each number is from one run, and [brackets] hold its 95 % interval over "
            "the run's held-out problems."
        )
    return (
        f"Each held-out number is the mean over the {max(sizes)} problems of one run, "
        "or over as many as its row says, and [brackets] hold its 95 % interval over "
        "problems."
    )
