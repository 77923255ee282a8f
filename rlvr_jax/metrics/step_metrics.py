"""Metrics of single steps, as the doctor's checks read them."""

from collections.abc import Iterator, Mapping, Sequence

StepMetrics = Mapping[str, float]
Findings = Iterator[tuple[str, str, str]]  # code, finding, advice


def step_mean(rows: Sequence[StepMetrics], name: str) -> float | None:
    """Returns a metric's mean over the steps that have it, None if no step has it."""
    values = [row[name] for row in rows if name in row]
    return sum(values) / len(values) if values else None


def percent(share: float) -> str:
    """Returns a share as text, such as "12 %"."""
    return f"{100 * share:.0f} %"
