"""Sections of the report on luck and memorization as causes of success.

Each function returns its section, or None if the run has no data for it.
"""

from collections.abc import Mapping

from rlvr_jax.report.charts import BLUE, PURPLE, RED, Line
from rlvr_jax.report.run_files import RunArtifacts
from rlvr_jax.report.sections import (
    Part,
    Section,
    draw_chart,
    make_legend,
    metric_line,
)
from rlvr_jax.report.tables import (
    Table,
    first_and_last_tenth,
    format_percent,
    mean,
)

_COLORS = {"easy": BLUE, "medium": PURPLE, "hard": RED}
_SOURCES = {
    "wrong_steps_mass": "Advantage on right answers with wrong steps",
    "guessed_start_mass": "Advantage on right answers from a guessed start",
}
_NONE = "\u2013"


def lucky_successes(run: RunArtifacts) -> Section | None:
    """How much of the update rewards right answers that the steps do not justify."""
    bands = run.match_metrics("train", r"band_(\w+)/wrong_steps_mass")
    bands = [band for band in _COLORS if band in bands]
    if not bands:
        return None
    lines = {
        (name, band): metric_line(
            run, f"band_{band}/{name}", label=band, color=_COLORS[band]
        )
        for name in _SOURCES
        for band in bands
    }
    figures = [
        figure
        for name, title in _SOURCES.items()
        for figure in draw_chart(
            name, title, [lines[name, band] for band in bands], percent=True
        )
    ]
    return Section(
        title="How much credit went to lucky answers",
        text="A right answer earns its reward however it was found. Here every step "
        "can be checked. A band's advantage mass is the total by which its completions "
        "were pushed up or down. The charts and the table show two parts of it: right "
        "answers with a wrong or missing step, and right answers whose steps are right "
        "but begin by guessing the answer. Both teach something that did not lead to "
        "the answer. If a group's advantages add up to 0, as they do by default, right "
        "answers have half of the mass: then 50\u00a0% means that every success was "
        "luck. First success: a right answer on a problem that was hard before RL and "
        "never solved until then.",
        figures=figures,
        legend=make_legend([lines["wrong_steps_mass", band] for band in bands])
        if figures
        else {},
        table=Table(
            head=(
                "band before RL",
                "mass on wrong steps, first \u2192 last tenth",
                "mass on a guessed start",
                "lucky guesses, of completions",
                "first successes",
            ),
            rows=[
                (
                    band,
                    *(_format_change(lines[name, band]) for name in _SOURCES),
                    *(
                        _format_mean(run, f"band_{band}/{flag}")
                        for flag in ("lucky_guess", "first_success")
                    ),
                )
                for band in bands
            ],
        ),
    )


def memorization(run: RunArtifacts) -> Section | None:
    """Whether worked golds are likelier for seen problems than for fresh ones."""
    evals = run.summary.get("eval", {})
    found = {
        when: evals[when]["memorization"]
        for when in ("before", "after")
        if "memorization" in evals.get(when, {})
    }
    if not found:
        return None
    rows = [
        (
            f"{when} RL",
            str(values["problems"]),
            f"{values['perplexity_seen']:.3f}",
            f"{values['perplexity_fresh']:.3f}",
            _format_ratio(values["ratio"]),
        )
        for when, values in found.items()
    ]
    return Section(
        title="Does the policy know its train problems by heart?",
        text="How surprised the policy is by worked golds (perplexity: 1 is not at "
        "all) of problems that RL trained on, and of held-out problems of the same "
        "type and length. Fresh / seen is 1 if the policy learned the task, and above "
        "1 if it knows these particular problems. Unless SFT showed them, both are "
        "fresh before RL, and the ratio there is due to chance. The brackets are a "
        "95\u00a0% interval over the pairs of problems (Student's t of the logarithm; "
        "a single pair has none): if it includes 1, it shows no memorization.",
        table=Table(
            head=(
                "",
                "pairs",
                "perplexity, seen",
                "perplexity, fresh",
                "fresh / seen [95\u00a0%]",
            ),
            rows=rows,
        ),
    )


def _format_ratio(ratio: Mapping[str, object]) -> str:
    """Returns "1.100 [1.050, 1.150]"; only the ratio for one pair."""
    low, high = ratio["low"], ratio["high"]
    return f"{ratio['mean']:.3f}" + ("" if low is None else f" [{low:.3f}, {high:.3f}]")


def _format_change(line: Line) -> str:
    if not line.y:
        return _NONE
    return " \u2192 ".join(map(format_percent, first_and_last_tenth(line.y)))


def _format_mean(run: RunArtifacts, name: str) -> str:
    values = run.series("train", name)[1]
    return f"{100 * mean(values):.1f}\u00a0%" if values else _NONE


PARTS = (
    Part(lucky_successes, order=190),
    Part(memorization, order=200),
)
