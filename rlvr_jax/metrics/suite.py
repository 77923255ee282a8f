"""Scores of several benchmarks and their average, as JSON and as tables to paste."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from job_jax.resampling import Interval
from rlvr_jax.metrics.bootstrap import average_interval
from rlvr_jax.metrics.statistics import (
    ProblemResult,
    majority_at_k,
    pass_at_k,
    summarize_results,
)
from rlvr_jax.rollouts.graded import read_answer_value

TableFormat = Literal["md", "tex"]

# Breakdowns that a benchmark's summary has in addition to overall means.
_CUTS = ("by_level", "by_type")


def results_from_rows(rows: Iterable[Mapping[str, Any]]) -> list[ProblemResult]:
    """Returns a result for each problem, from rows of `GradedCompletion.to_json`."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["id"], []).append(row)
    return [
        ProblemResult(
            id=name,
            level=group[0]["level"],
            type=group[0]["type"],
            statuses=tuple(row["verdict"] for row in group),
            answers=tuple(map(read_answer_value, group)),
            lengths=tuple(row["length"] for row in group),
            finished=tuple(row["finished"] for row in group),
        )
        for name, group in groups.items()
    ]


def summarize_benchmark(
    results: Sequence[ProblemResult], *, k: Sequence[int], resamples: int, seed: int
) -> dict[str, Any]:
    """Returns a benchmark's scores for JSON: mean@n and parts of `summarize_results`.

    `mean@n` is the accuracy over all n samples of each problem. Others call it avg@n,
    and it equals pass@1. `by_level` and `by_type` exist if the problems have several
    levels or types.
    """
    scores = summarize_results(results, k=k, resamples=resamples, seed=seed)
    alone = summarize_results(results, k=(1,), resamples=resamples, seed=seed)
    summary = {
        "problems": scores["problems"],
        f"mean@{results[0].n}": alone["pass@k"]["1"],
        **{name: scores[name] for name in ("pass@k", "maj@k")},
        **{name: scores[name] for name in ("length_mean", "truncated", "unverified")},
    }
    return summary | {name: scores[name] for name in _CUTS if len(scores[name]) > 1}


def summarize_average(
    groups: Sequence[Sequence[ProblemResult]],
    *,
    k: Sequence[int],
    resamples: int,
    seed: int,
) -> dict[str, Any]:
    """Returns mean@n, pass@k and maj@k, averaged over equally weighted benchmarks.

    Intervals are over problems within each benchmark (`bootstrap.average_interval`).
    """
    interval = functools.partial(average_interval, resamples=resamples, seed=seed)
    n = groups[0][0].n

    def curve(score: Callable[[ProblemResult, int], float]) -> dict[str, Any]:
        means = interval(
            [[[score(r, i) for i in k] for r in group] for group in groups]
        )
        return {
            str(i): Interval(*point).to_json()
            for i, *point in zip(k, *means, strict=True)
        }

    return {
        "benchmarks": len(groups),
        f"mean@{n}": interval(
            [[sum(r.correct) / n for r in group] for group in groups]
        ).to_json(),
        "pass@k": curve(lambda r, i: pass_at_k(n, sum(r.correct), i)),
        "maj@k": curve(lambda r, i: majority_at_k(r.answers, r.correct, i)),
    }


def format_table(summary: Mapping[str, Any], form: TableFormat) -> str:
    """Returns a suite's summary as a Markdown or LaTeX (booktabs) table, in percent.

    Each benchmark has a row, and the average comes last. Columns are mean@n with its
    95 % interval, and pass@k and maj@k at the largest k.
    """
    n, k = summary["num_samples"], str(max(map(int, summary["k"])))
    head = ["Benchmark", "Problems", f"mean@{n}", "95 % interval"]
    head += [f"pass@{k}", f"maj@{k}"] if n > 1 else []
    rows = []
    for each in [*summary["benchmarks"].values(), *_average_rows(summary)]:
        mean = each[f"mean@{n}"]
        row = [each["title"], each["count"], _percent(mean["mean"]), _ends(mean)]
        row += [_percent(each[name][k]["mean"]) for name in ("pass@k", "maj@k")]
        rows.append(row[: len(head)])
    return _to_latex(head, rows) if form == "tex" else _to_markdown(head, rows)


def _average_rows(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    average = summary.get("average")
    return [{"title": "Average", "count": "", **average}] if average else []


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f}"


def _ends(interval: Mapping[str, float | None]) -> str:
    low, high = interval["low"], interval["high"]
    return (
        "" if low is None or high is None else f"{_percent(low)}\u2013{_percent(high)}"
    )


def _to_markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *rows))


def _to_latex(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    *benchmarks, last = (_latex_row(row) for row in rows)
    is_average = rows[-1][0] == "Average"
    lines = [
        r"% \usepackage{booktabs}; intervals are over problems",
        rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}",
        r"\toprule",
        _latex_row(head),
        r"\midrule",
        *benchmarks,
        *([r"\midrule"] if is_average else []),
        last,
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines)


def _latex_row(cells: Sequence[str]) -> str:
    escaped = (
        "".join(f"\\{char}" if char in "&%$#_{}" else char for char in cell)
        for cell in cells
    )
    return f"{' & '.join(escaped)} \\\\".replace("\u2013", "--")
