"""A comparison as text: the arms, a table, and how to read it."""

from collections.abc import Mapping, Sequence
from typing import Any

from rlvr_jax.analysis.compare.arms import MIN_SEEDS
from rlvr_jax.analysis.compare.metric import (
    ALARMS,
    BOUNDS,
    ENTROPY,
    FEATURES,
    LENGTH,
    NOISE_FEATURES,
    OWN_FEATURES,
    REWARD,
    REWARD_GAINED,
    SECONDS,
)
from rlvr_jax.analysis.compare.reading import explain_numbers
from rlvr_jax.analysis.compare.rows import PERCENT, label_metric, table_metrics
from rlvr_jax.report.tables import Table, align_table, describe_crossing

_METHOD_MARKS = {"problem": "p", "unpaired": "u", "seed": "s", "welch": "w", "none": ""}
# Decimals; fractions, in percent, have 1.
_DIGITS = dict.fromkeys(
    (LENGTH, ALARMS, *FEATURES.values(), NOISE_FEATURES, OWN_FEATURES), 1
) | {REWARD: 3, REWARD_GAINED: 3, ENTROPY: 3, SECONDS: 0}
_MAX_FIELDS = 12  # of a config's differences that are shown
_NONE = "-"


def format_comparison(comparison: Mapping[str, Any]) -> str:
    """Returns the comparison as text; chosen rows are printed without crossings."""
    crossings = [] if "rows" in comparison else comparison["crossings"]
    return "\n".join(
        [
            *_arm_lines(comparison["arms"]),
            "",
            align_table(comparison_table(comparison)),
            "",
            *map(_crossing_line, crossings),
            *[""][: len(crossings)],
            *explain_numbers(comparison),
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
    rows = [_metric_row(metric, seeds) for metric in table_metrics(comparison)]
    return Table(head=head, rows=rows)


def _seed_columns(seeds: Sequence[object]) -> list[str]:
    """Returns a column for each seed of an arm; one or two seeds need none."""
    return [f"seed {seed}" for seed in seeds] if len(seeds) >= MIN_SEEDS else []


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


def _metric_row(
    metric: Mapping[str, Any], seeds: Mapping[str, Sequence[Any]]
) -> list[str]:
    base, *others = seeds
    cells = [label_metric(metric) + PERCENT * (metric["name"] in BOUNDS)]
    cells += arm_cells(metric, base, seeds[base])
    for arm in others:
        difference = metric["differences"][arm]
        cells += arm_cells(metric, arm, seeds[arm])
        cell = format_difference(difference, metric["name"])
        mark = _METHOD_MARKS[difference["method"]] if difference else ""
        cells.append(f"{cell} {mark}".rstrip())
    return cells


def arm_cells(metric: Mapping[str, Any], arm: str, seeds: Sequence[Any]) -> list[str]:
    """Returns an arm's value, and its seeds': two in parentheses, more in cells."""
    value = value_cell(metric, arm, len(seeds))
    by_seed = seed_cells(metric, arm, seeds)
    if 1 < len(seeds) < MIN_SEEDS and metric["values"][arm] is not None:
        return [f"{value} ({', '.join(by_seed)})"]
    return [value, *(by_seed if len(seeds) >= MIN_SEEDS else ())]


def seed_cells(metric: Mapping[str, Any], arm: str, seeds: Sequence[Any]) -> list[str]:
    """Returns the value of each of an arm's seeds, "-" if it is missing."""
    by_seed = metric["seeds"][arm]
    return [
        format_number(by_seed[str(seed)], metric["name"])
        if str(seed) in by_seed
        else _NONE
        for seed in seeds
    ]


def value_cell(metric: Mapping[str, Any], arm: str, runs: int) -> str:
    """Returns an arm's value, and how many problems or runs it covers if not all."""
    value = metric["values"][arm]
    cell = format_value(value, metric["name"])
    if value is None:
        return cell
    if value["runs"] < runs:
        return f"{cell} in {value['runs']} of {runs} runs"
    is_part = metric["grouping"] != "all" and "problems" in value
    return f"{cell} of {value['problems']}" if is_part else cell


def format_difference(difference: Mapping[str, Any] | None, name: str) -> str:
    """Returns "+3.2 [0.8, 5.6]", or "+3.2 (+1.0, +5.4)" for two seeds."""
    cell = format_value(difference, name, sign="+")
    seeds = (difference or {}).get("seeds", {})
    if not 1 < len(seeds) < MIN_SEEDS:
        return cell
    return f"{cell} ({', '.join(format_number(s, name, '+') for s in seeds.values())})"


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
