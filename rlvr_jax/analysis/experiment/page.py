"""The files of DIR/result/: a page, the outcomes in Markdown, and the comparison."""

import json
from collections.abc import Sequence
from pathlib import Path

from job_jax.files import write_atomically
from rlvr_jax.analysis.compare.export import write_comparison
from rlvr_jax.analysis.compare.figure import (
    difference_forest,
    pass_panels,
    series_panels,
)
from rlvr_jax.analysis.compare.reading import explain_brackets, explain_numbers
from rlvr_jax.analysis.compare.text import comparison_table
from rlvr_jax.analysis.experiment.by_problem import (
    BY_PROBLEM_READING,
    by_problem_table,
)
from rlvr_jax.analysis.experiment.corrected import CORRECTED_READING, corrected_table
from rlvr_jax.analysis.experiment.pairs import (
    PAIRS_READING,
    pair_panels,
    pair_table,
)
from rlvr_jax.analysis.experiment.results import (
    Results,
    describe_results,
    outcome_table,
)
from rlvr_jax.analysis.experiment.slopes import (
    SLOPES_READING,
    dose_panels,
    slope_table,
)
from rlvr_jax.report.charts import (
    Panel,
    arm_colors,
    draw_panel,
    draw_sheet,
    draw_sheet_png,
)
from rlvr_jax.report.page import render_template
from rlvr_jax.report.sections import Section
from rlvr_jax.report.tables import Table, markdown_table

_FILES = ("comparison.json", "table.csv", "table.tex", "figure.svg", "figure.png")


def write_results(place: Path, results: Results) -> Path:
    """Writes an experiment's result files into a folder; returns the page's path."""
    place.mkdir(parents=True, exist_ok=True)
    for name in _FILES:
        write_comparison(place / name, results.comparison, results.arms)
    with write_atomically(place / "by_problem.json") as partial:
        partial.write_text(json.dumps(results.by_problem, separators=(",", ":")) + "\n")
    for name, panels in (
        ("doses", _dose_panels(results)),
        ("pairs", _pair_panels(results)),
    ):
        if not panels:  # an earlier call may have drawn other arms
            for kind in ("svg", "png"):
                (place / f"{name}.{kind}").unlink(missing_ok=True)
            continue
        title = results.record.experiment.question
        with write_atomically(place / f"{name}.svg") as partial:
            partial.write_text(draw_sheet(name, title, panels), encoding="utf-8")
        with write_atomically(place / f"{name}.png") as partial:
            partial.write_bytes(draw_sheet_png(title, panels))
    page = place / "index.html"
    for path, text in (
        (place / "table.md", render_markdown(results)),
        (page, render_page(results)),
    ):
        with write_atomically(path) as partial:
            partial.write_text(text, encoding="utf-8")
    return page


def render_markdown(results: Results) -> str:
    """Returns the question, the runs, the table of outcomes, and how to read it."""
    experiment = results.record.experiment
    lines = [
        f"# {experiment.question}",
        f"{experiment.reference}.",
        "",
        *(f"- {sentence}" for sentence in describe_results(results)),
        "",
        *markdown_table(outcome_table(results)),
        "",
        *explain_brackets(results.comparison),
    ]
    if slopes := results.comparison["slopes"]:
        lines += ["", *markdown_table(slope_table(slopes)), "", SLOPES_READING]
    if pairs := results.comparison["pairs"]:
        lines += ["", *markdown_table(pair_table(pairs)), "", PAIRS_READING]
    if results.comparison["corrected"]:
        table = corrected_table(results.comparison)
        lines += ["", *markdown_table(table), "", CORRECTED_READING]
    if found := results.comparison["over_problems"]:
        lines += ["", *markdown_table(by_problem_table(found)), "", BY_PROBLEM_READING]
    return "\n".join(lines) + "\n"


def render_page(results: Results) -> str:
    """Returns one self-contained page."""
    record = results.record
    sections = [
        _outcomes(results),
        *_tests(results),
        _curves(results, "pass@k", "pass", pass_panels(results.comparison)),
        _curves(results, "While training", "steps", series_panels(results.arms)),
        Section(
            title="All metrics",
            text=" ".join(explain_numbers(results.comparison)),
            table=comparison_table(results.comparison),
        ),
        _arms(results),
    ]
    return render_template(
        name=record.experiment.reference,
        headline=record.experiment.question,
        lead="; ".join(describe_results(results)) + ".",
        sections=sections,
        record=json.dumps(record.experiment.to_json(), indent=2),
    )


def _outcomes(results: Results) -> Section:
    """Returns the table of outcomes, and a forest plot of each."""
    metrics = map(results.metric, results.outcomes)
    figures = [
        draw_panel(f"forest{number}", forest)
        for number, metric in enumerate(metrics)
        if metric
        for forest in difference_forest(results.comparison, metric)
    ]
    experiment = results.record.experiment
    decides = "the slopes of " * bool(experiment.slopes) + experiment.outcomes[0]
    return Section(
        title="Outcomes",
        text=f"Decided by {decides}. In the charts a "
        "diamond is the difference, its line the 95\u00a0% interval, faint dots are "
        f"seeds. {' '.join(explain_brackets(results.comparison))}",
        figures=figures,
        table=outcome_table(results),
    )


def _tests(results: Results) -> list[Section]:
    """Returns the sections of slopes, pairs, corrections and problems, if any."""
    comparison, sections = results.comparison, []
    if slopes := comparison["slopes"]:
        panels = enumerate(_dose_panels(results))
        sections.append(
            Section(
                title="Slopes",
                text=SLOPES_READING,
                figures=[draw_panel(f"dose{n}", panel) for n, panel in panels],
                legend=arm_colors([*results.record.experiment.slopes]),
                table=slope_table(slopes),
            )
        )
    if drawn := _pair_panels(results):
        sections.append(
            Section(
                title="Pairs of outcomes",
                text=PAIRS_READING,
                figures=[draw_panel(f"pair{n}", each) for n, each in enumerate(drawn)],
                legend=arm_colors([arm.label for arm in results.arms]),
                table=pair_table(comparison["pairs"]),
            )
        )
    if comparison["corrected"]:
        table = corrected_table(comparison)
        title = "Corrected differences"
        sections.append(Section(title=title, text=CORRECTED_READING, table=table))
    if found := comparison["over_problems"]:
        title, table = "Over seeds and problems", by_problem_table(found)
        sections.append(Section(title=title, text=BY_PROBLEM_READING, table=table))
    return sections


def _dose_panels(results: Results) -> list[Panel]:
    """Returns the charts of outcomes over the dose; none without slopes."""
    if not results.comparison["slopes"]:
        return []
    return dose_panels(
        results.record.experiment, results.comparison["metrics"], results.outcomes
    )


def _pair_panels(results: Results) -> list[Panel]:
    return pair_panels(results.record.experiment, results.comparison["metrics"])


def _curves(
    results: Results, title: str, name: str, panels: Sequence[Panel]
) -> Section:
    """Returns curves of the arms, with shaded intervals and faint lines for seeds."""
    colors = arm_colors([arm.label for arm in results.arms])
    return Section(
        title=title,
        text="Lines are means over seeds, and faint lines are single seeds. From three "
        "seeds on, the shaded area is Student's 95\u00a0% interval, separately at each "
        "point. With one seed, the interval of pass@k is over problems.",
        figures=[draw_panel(f"{name}{n}", panel) for n, panel in enumerate(panels)],
        legend=colors,
    )


def _arms(results: Results) -> Section:
    """Returns a table of the arms: their start, overrides and seeds."""
    experiment = results.record.experiment
    rows = [
        (
            arm.label,
            experiment.arms[arm.label].start,
            " ".join(
                f"--config.{key}={text}"
                for key, text in experiment.arms[arm.label].overrides.items()
            ),
            " ".join(map(str, arm.seeds)),
        )
        for arm in results.arms
    ]
    head = ("arm", "starts from", "differs from the recipe in", "seeds")
    return Section(title="The arms", table=Table(head=head, rows=rows))
