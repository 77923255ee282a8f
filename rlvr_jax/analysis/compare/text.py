"""A comparison as text: the arms, a table, and how to read it."""

from collections.abc import Mapping, Sequence
from typing import Any

from rlvr_jax.analysis.compare.run_metrics import (
    ALARMS,
    BOUNDS,
    FEATURES,
    LENGTH,
    NOISE_FEATURES,
    OWN_FEATURES,
    REWARD,
    REWARD_GAINED,
    SECONDS,
)
from rlvr_jax.analysis.tables import Table, align_table, describe_crossing

_METHOD_MARKS = {"problem": "p", "unpaired": "u", "seed": "s", "welch": "w", "none": ""}
_METHOD_LEGEND = {
    "problem": "p: over problems, paired (bootstrap for fractions, else Student's t)",
    "unpaired": "u: over different problems (bootstrap for fractions, else Welch's t)",
    "seed": "s: over seeds, paired (Student's t)",
    "welch": "w: over seeds, unpaired (Welch's t)",
}
READING = """\
Each [95 % interval] is for one number, so among many, some exclude 0 by chance. For one
run it is over its held-out problems: a bootstrap with an extra problem at the bound for
fractions, else Student's t. For several runs it is over their seeds (Student's t). A
single problem, or unbounded numbers that are all equal, have no interval."""
# Decimals; fractions, in percent, have 1.
_DIGITS = dict.fromkeys(
    (LENGTH, ALARMS, *FEATURES.values(), NOISE_FEATURES, OWN_FEATURES), 1
) | {REWARD: 3, REWARD_GAINED: 3, SECONDS: 0}
_MAX_FIELDS = 12  # of a config's differences that are shown
_NONE = "-"


def format_comparison(comparison: Mapping[str, Any]) -> str:
    """Returns the comparison as text; each curve over k is shown by its two ends."""
    metrics = comparison["metrics"]
    used = {
        difference["method"]
        for metric in metrics
        for difference in metric["differences"].values()
        if difference is not None
    }
    legend = [f"  {text}" for method, text in _METHOD_LEGEND.items() if method in used]
    return "\n".join(
        [
            *_arm_lines(comparison["arms"]),
            "",
            align_table(comparison_table(comparison)),
            "",
            *map(_crossing_line, comparison["crossings"]),
            "",
            READING,
            *legend,
            *(f"note: {note}" for note in comparison["notes"]),
        ]
    )


def comparison_table(comparison: Mapping[str, Any]) -> Table:
    """Returns a row for each metric: each arm, its seeds, and its difference."""
    seeds = {arm["label"]: arm["seeds"] for arm in comparison["arms"]}
    base, *others = seeds
    head = ["", base, *_seed_columns(seeds[base])]
    for label in others:
        head += [label, *_seed_columns(seeds[label]), f"{label} - {base}"]
    shown = _displayed_metrics(comparison["metrics"])
    return Table(head=head, rows=[_metric_row(metric, seeds) for metric in shown])


def _seed_columns(seeds: Sequence[Any]) -> list[str]:
    """Returns a column for each seed of an arm; none if it has a single seed."""
    return [f"seed {seed}" for seed in seeds] if len(seeds) > 1 else []


def _crossing_line(found: Mapping[str, Any]) -> str:
    """Returns a sentence on where two pass@k curves cross."""
    name, other = found["curves"]
    return f"pass@k: {describe_crossing(name, other, found['crossing'])}"


def _arm_lines(arms: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for at, arm in enumerate(arms):
        seeds = (
            f"seed{'s' * (len(arm['seeds']) > 1)} {', '.join(map(str, arm['seeds']))}"
        )
        baseline = ", baseline" if at == 0 else ""
        lines.append(
            f"{arm['label']} ({seeds}{baseline}): {', '.join(arm['workdirs'])}"
        )
        lines += [f"  {line}" for line in arm["differs"][:_MAX_FIELDS]]
        if (more := len(arm["differs"]) - _MAX_FIELDS) > 0:
            lines.append(f"  and {more} more fields (--out=FILE.json writes them all)")
        if at and not arm["differs"]:
            lines.append("  the same config as the baseline")
    return lines


def _displayed_metrics(
    metrics: Sequence[Mapping[str, Any]],
) -> list[Mapping[str, Any]]:
    """Returns all metrics without a k, and the two ends of each curve over k."""
    ks_of: dict[tuple[str, str, str], list[int]] = {}
    for m in metrics:
        ks_of.setdefault((m["name"], m["grouping"], m["group"]), []).append(m["k"])
    return [
        m
        for m in metrics
        if m["k"] is None
        or m["k"] in (min(ks := ks_of[m["name"], m["grouping"], m["group"]]), max(ks))
    ]


def _metric_row(
    metric: Mapping[str, Any], seeds: Mapping[str, Sequence[Any]]
) -> list[str]:
    base, *others = seeds
    cells = [label_metric(metric) + ", %" * (metric["name"] in BOUNDS)]
    cells += arm_cells(metric, base, seeds[base])
    for arm in others:
        difference = metric["differences"][arm]
        cells += arm_cells(metric, arm, seeds[arm])
        cell = format_value(difference, metric["name"], sign="+")
        mark = _METHOD_MARKS[difference["method"]] if difference else ""
        cells.append(f"{cell} {mark}".rstrip())
    return cells


def label_metric(metric: Mapping[str, Any]) -> str:
    """Returns a metric's label, such as "pass@8, hard"."""
    name = metric["name"].replace("@k", f"@{metric['k']}")
    return f"{name}, {metric['group']}" if metric["group"] else str(name)


def arm_cells(metric: Mapping[str, Any], arm: str, seeds: Sequence[Any]) -> list[str]:
    """Returns an arm's value and the value of each of several seeds, "-" if missing."""
    cells = [_value_cell(metric, arm, len(seeds))]
    if len(seeds) == 1:
        return cells
    by_seed = metric["seeds"][arm]
    return cells + [
        format_number(by_seed[str(seed)], metric["name"])
        if str(seed) in by_seed
        else _NONE
        for seed in seeds
    ]


def _value_cell(metric: Mapping[str, Any], arm: str, runs: int) -> str:
    """Returns an arm's value, and how many problems or runs it covers if not all."""
    value = metric["values"][arm]
    cell = format_value(value, metric["name"])
    if value is None:
        return cell
    if value["runs"] < runs:
        return f"{cell} in {value['runs']} of {runs} runs"
    is_part = metric["grouping"] != "all" and "problems" in value
    return f"{cell} of {value['problems']}" if is_part else cell


def format_value(value: Mapping[str, Any] | None, name: str, sign: str = "") -> str:
    """Returns "56.2 [52.0, 60.1]", or "-" without a value."""
    if value is None:
        return _NONE
    cell, low, high = (
        value[end] if value[end] is None else format_number(value[end], name, sign)
        for end in ("mean", "low", "high")
    )
    return str(cell) if low is None else f"{cell} [{low}, {high}]"


def format_number(value: float, name: str, sign: str = "") -> str:
    """Returns a metric's value rounded for display; fractions in percent."""
    scale, digits = (100, 1) if name in BOUNDS else (1, _DIGITS[name])
    return f"{scale * value:{sign}.{digits}f}"
