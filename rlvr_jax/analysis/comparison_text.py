"""A comparison as text: the arms, a table, and how to read it."""

from collections.abc import Mapping, Sequence
from typing import Any

from rlvr_jax.analysis.measures import ALARMS, LENGTH, REWARD, SECONDS, SHARES

_MARKS = {"problem": "p", "unpaired": "u", "seed": "s", "welch": "w", "none": ""}
_MEANINGS = {
    "problem": "p: paired by problem (bootstrap)",
    "unpaired": "u: other problems, unpaired (bootstrap)",
    "seed": "s: paired by seed (Student's t)",
    "welch": "w: not the same seeds (Welch's t)",
}
_DIGITS = {REWARD: 3, LENGTH: 1, ALARMS: 1, SECONDS: 0}  # shares, in percent, have 1
_MOST_FIELDS = 12  # of a config's differences that are shown
_NONE = "-"


def text(comparison: Mapping[str, Any]) -> str:
    """Returns the comparison as lines; of each curve over k, the two ends."""
    runs = {arm["label"]: len(arm["workdirs"]) for arm in comparison["arms"]}
    base, *others = runs
    head = ["", base]
    for label in others:
        head += [label, f"{label} - {base}"]
    rows = [_row(each, runs) for each in _shown(comparison["measures"])]
    used = {
        difference["method"]
        for each in comparison["measures"]
        for difference in each["differences"].values()
        if difference is not None
    }
    reading = [f"  {told}" for how, told in _MEANINGS.items() if how in used]
    return "\n".join(
        [
            *_arms(comparison["arms"]),
            "",
            *_aligned([head, *rows]),
            "",
            "[95 % interval] of each figure alone: of many, some exclude 0 by chance.",
            "Where all values were equal it has no width, which is not certainty.",
            *reading,
            *(f"note: {note}" for note in comparison["notes"]),
        ]
    )


def _arms(arms: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for at, arm in enumerate(arms):
        seeds = (
            f"seed{'s' * (len(arm['seeds']) > 1)} {', '.join(map(str, arm['seeds']))}"
        )
        baseline = ", baseline" if at == 0 else ""
        lines.append(
            f"{arm['label']} ({seeds}{baseline}): {', '.join(arm['workdirs'])}"
        )
        lines += [f"  {line}" for line in arm["differs"][:_MOST_FIELDS]]
        if (more := len(arm["differs"]) - _MOST_FIELDS) > 0:
            lines.append(f"  and {more} more fields (--out=FILE writes them all)")
        if at and not arm["differs"]:
            lines.append("  the same config as the baseline")
    return lines


def _shown(measures: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Returns all measures without k, and of the others the ends of each curve."""
    curves: dict[tuple[str, str, str], list[int]] = {}
    for each in measures:
        curve = curves.setdefault((each["name"], each["cut"], each["of"]), [])
        curve.append(each["k"])
    return [
        each
        for each in measures
        if each["k"] is None
        or each["k"]
        in (min(c := curves[each["name"], each["cut"], each["of"]]), max(c))
    ]


def _row(each: Mapping[str, Any], runs: Mapping[str, int]) -> list[str]:
    base, *others = runs
    is_share = each["name"] in SHARES
    name = each["name"].replace("@k", f"@{each['k']}")
    label = f"{name}, {each['of']}" if each["of"] else name
    cells = [f"{label}, %" if is_share else label]
    cells.append(_value(each, base, runs[base]))
    for arm in others:
        difference = each["differences"][arm]
        cells.append(_value(each, arm, runs[arm]))
        cell = _cell(difference, each["name"], sign="+")
        cells.append(f"{cell} {_MARKS[difference['method']] if difference else ''}")
    return cells


def _value(each: Mapping[str, Any], arm: str, runs: int) -> str:
    """Returns an arm's value, and of how many problems or of fewer runs it is."""
    found = each["values"][arm]
    cell = _cell(found, each["name"])
    if found is None:
        return cell
    if found["runs"] < runs:
        return f"{cell} in {found['runs']} of {runs} runs"
    part = each["cut"] != "all" and "problems" in found
    return f"{cell} of {found['problems']}" if part else cell


def _cell(found: Mapping[str, Any] | None, name: str, sign: str = "") -> str:
    if found is None:
        return _NONE
    scale = 100 if name in SHARES else 1
    digits = 1 if name in SHARES else _DIGITS[name]

    def number(value: float) -> str:
        return f"{scale * value:{sign}.{digits}f}"

    cell = number(found["mean"])
    if found["low"] is not None:
        cell += f" [{number(found['low'])}, {number(found['high'])}]"
    return cell


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]
