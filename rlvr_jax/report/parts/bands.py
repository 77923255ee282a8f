"""Sections of the report by difficulty band: held-out scores, training, behavior.

Each function returns its section, or None if the run has no data for it.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import markupsafe

from rlvr_jax.report.charts import BLUE, GRAY, PURPLE, RED, Line
from rlvr_jax.report.parts.held_out import eval_line, evaluations, smallest_k
from rlvr_jax.report.parts.learning import GROUP_CAUSES
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
    format_with_interval,
    mean,
)
from rlvr_jax.rollouts.behavior import FLAGS
from rlvr_jax.types import BANDS

_COLORS = {"easy": BLUE, "medium": PURPLE, "hard": RED, "unknown": GRAY}
_NONE = "\u2013"
# A band that fewer steps met has no curve, because so few points would mislead.
_MIN_STEP_FRACTION = 0.25
_FRESH_NOTE = (
    " The fresh columns avoid this: half of the samples before RL choose the band, "
    "and only the other half is scored."
)


def pass_by_band(run: RunArtifacts) -> Section | None:
    """pass@k before and after RL, by a problem's band before RL."""
    evals = {w: s for w, s in evaluations(run).items() if "by_band" in s}
    if not evals:
        return None
    by_band = [scores["by_band"] for scores in evals.values()]
    bands = [band for band in BANDS if any(band in scores for scores in by_band)]
    figures: list[markupsafe.Markup] = []
    labels: dict[str, str] = {}
    for band in bands:
        lines = [
            eval_line(when, scores["by_band"][band]["pass@k"])
            for when, scores in evals.items()
            if band in scores["by_band"]
        ]
        figures += draw_chart(
            f"band-{band}",
            f"pass@k, {_band_with_size(band, by_band)}",
            lines,
            xlabel="k",
            percent=True,
            categorical=True,
        )
        labels |= make_legend(lines)
    is_fresh = all("by_band_fresh" in scores for scores in evals.values())
    return Section(
        title="Scores before and after RL, by difficulty",
        text="Held-out problems by band, which is how often the policy before RL was "
        "correct on them. Bands come from the same samples as the scores before RL, so "
        "hard problems start at 0 and easy ones near 100 % by construction; new "
        "samples of the same policy would be in between."
        + (_FRESH_NOTE if is_fresh else ""),
        figures=figures,
        legend=labels if figures else {},
        table=_pass_table(evals, bands, fresh=is_fresh),
    )


def _pass_table(
    evals: Mapping[str, Any], bands: Sequence[str], *, fresh: bool
) -> Table:
    """Returns pass@1 by band, before and after; if `fresh`, also on fresh samples."""
    k = smallest_k(next(iter(evals.values())))
    columns = {"by_band": ""} | ({"by_band_fresh": ", fresh"} if fresh else {})
    head, rows = ["band"], [[band] for band in bands]
    for key, note in columns.items():
        head += [f"problems{note}", *(f"pass@{k} {when}{note}" for when in evals)]
        for band, row in zip(bands, rows, strict=True):
            results = [scores[key].get(band) for scores in evals.values()]
            sizes = (scores["problems"] for scores in results if scores)
            row.append(str(next(sizes, 0)))
            row += [_format_pass(scores, k) for scores in results]
    return Table(head=head, rows=rows)


def training_by_band(run: RunArtifacts) -> Section | None:
    """How many problems each band holds over the steps, and what bands taught."""
    if not (bands := _bands_in_training(run)):
        return None
    drift = [_band_line(run, f"difficulty/{band}", band) for band in BANDS]
    drift = [line for line in drift if sum(line.y) > 0]
    passed, lengths, mass = (
        {band: _band_line(run, f"band_{band}/{name}", band) for band in bands}
        for name in ("pass", "length", "advantage_mass")
    )
    charted = _frequent_bands(run, bands)
    figures = [
        *draw_chart(
            "drift", "The pool, by posterior band", drift, percent=True, stacked=True
        ),
        *draw_chart(
            "band-pass", "Pass rate", [passed[b] for b in charted], percent=True
        ),
        *draw_chart(
            "band-length", "Completion length, tokens", [lengths[b] for b in charted]
        ),
        *draw_chart(
            "band-mass", "Advantage mass", [_fill_gaps(run, mass[b]) for b in bands]
        ),
    ]
    total = sum(sum(line.y) for line in mass.values())
    return Section(
        title="How hard the problems were, step by step",
        text=_describe_drift(run, drift)
        + "The other charts and the table show each step's problems by their band "
        "before RL, or, without samples before RL, by the posterior just before the "
        "step.",
        figures=figures,
        legend=make_legend([*passed.values(), *drift]) if figures else {},
        table=Table(
            head=(
                "band",
                "fraction of groups",
                "pass rate, first \u2192 last tenth",
                "length, first \u2192 last tenth",
                "groups with signal",
                "advantage mass",
            ),
            rows=[
                (
                    band,
                    format_percent(_mean_over_steps(run, f"band_{band}/share")),
                    _format_change(passed[band].y),
                    " \u2192 ".join(
                        f"{n:.0f}" for n in first_and_last_tenth(lengths[band].y)
                    ),
                    format_percent(
                        mean(run.series("train", f"band_{band}/nonzero_std")[1])
                    ),
                    format_percent(sum(mass[band].y) / total) if total > 0 else "",
                )
                for band in bands
            ],
        ),
    )


def band_moves(run: RunArtifacts) -> Section | None:
    """Which posterior band the problems of each initial band ended in."""
    moves = run.summary.get("difficulty", {}).get("posterior_by_initial")
    if not moves:
        return None
    return Section(
        title="How many problems became easier or harder",
        text="Each problem of the pool has two bands. The band before RL is set by the "
        "pass rate of its samples at that time, and never changes. The posterior band "
        "follows every rollout, and is unknown while there is too little evidence. A "
        "row counts the problems of a band before RL by their posterior band after the "
        "last step.",
        table=Table(
            head=("band before RL", "problems", *(f"now {band}" for band in BANDS)),
            rows=[
                (band, str(sum(counts.values())), *(str(counts[b]) for b in BANDS))
                for band, counts in moves.items()
            ],
        ),
    )


def signal_by_band(run: RunArtifacts) -> Section | None:
    """How many groups of each band had a signal, and why the others had none."""
    figures: list[markupsafe.Markup] = []
    labels: dict[str, str] = {}
    for band in _frequent_bands(run, _bands_in_training(run)):
        causes = [
            metric_line(run, f"band_{band}/{name}", label=label, color=color)
            for name, (label, color) in GROUP_CAUSES.items()
        ]
        causes = [line for line in causes if sum(line.y) > 0]
        figures += draw_chart(
            f"causes-{band}", band, causes, percent=True, stacked=True
        )
        labels |= make_legend(causes)
    if not figures:
        return None
    return Section(
        title="Why groups teach nothing, by difficulty",
        text="Groups of completions with a signal to learn from, and groups without "
        "one by cause, in bands that at least a quarter of the steps met.",
        figures=figures,
        legend=labels,
    )


def behavior_by_band(run: RunArtifacts) -> Section | None:
    """How often each flag of degenerate behavior is raised by band, with the alarms."""
    if not (bands := _bands_in_training(run)):
        return None
    rates = {
        (flag, band): run.series("train", f"band_{band}/{flag}")[1]
        for flag in FLAGS
        for band in bands
    }
    flags = [f for f in FLAGS if any(sum(rates[f, band]) > 0 for band in bands)]
    alarms = [alarm for alarm in run.alarms if "band " in alarm.finding]
    if not flags and not alarms:
        return None
    return Section(
        title="Signs of degenerate behavior, by difficulty",
        text="Fraction of completions with each flag, over the first and the last "
        "tenth of the steps that met problems of the band. A flag is only a hint: "
        "look into a flag that grows in one band.",
        findings=[
            (f"Step {alarm.step}: {alarm.code}", alarm.finding, alarm.advice)
            for alarm in alarms
        ],
        table=Table(
            head=("flag", *bands),
            rows=[
                (
                    flag.replace("_", " "),
                    *(_format_change(rates[flag, band]) for band in bands),
                )
                for flag in flags
            ],
        )
        if flags
        else None,
    )


def _bands_in_training(run: RunArtifacts) -> list[str]:
    """Returns the bands that training met, or [] if it tracked no difficulty."""
    met = run.match_metrics("train", r"band_(\w+)/pass")
    return [] if met == ["unknown"] else [band for band in BANDS if band in met]


def _frequent_bands(run: RunArtifacts, bands: Sequence[str]) -> list[str]:
    """Returns the bands that at least a quarter of the steps met."""
    steps = {band: len(run.series("train", f"band_{band}/pass")[0]) for band in bands}
    min_steps = _MIN_STEP_FRACTION * len(run.stage("train"))
    return [band for band in bands if steps[band] >= min_steps]


def _fill_gaps(run: RunArtifacts, line: Line) -> Line:
    """Returns the line with 0 at steps without a value."""
    values = dict(zip(line.x, line.y, strict=True))
    steps = run.stage("train").steps
    return dataclasses.replace(line, x=steps, y=[values.get(s, 0.0) for s in steps])


def _band_line(run: RunArtifacts, name: str, band: str) -> Line:
    return metric_line(run, name, label=band, color=_COLORS[band])


def _describe_drift(run: RunArtifacts, drift: Sequence[Line]) -> str:
    """Returns a sentence on how the pool's bands changed, or "" without data."""
    if not drift:
        return ""
    first = ", ".join(f"{format_percent(line.y[0])} {line.label}" for line in drift)
    last = ", ".join(f"{format_percent(line.y[-1])} {line.label}" for line in drift)
    text = (
        f"The pool of problems was {first} after the first step, and {last} after the "
        "last (unknown: too little evidence for a band)."
    )
    if changed := run.series("train", "difficulty/changed_band")[1]:
        text += (
            f" By then the estimated pass rate of {format_percent(changed[-1])} had "
            "crossed the limit of a band."
        )
    return f"{text} "


def _mean_over_steps(run: RunArtifacts, name: str) -> float:
    """Returns a metric's mean over all steps, counting steps without it as 0."""
    return sum(run.series("train", name)[1]) / len(run.stage("train"))


def _format_change(values: Sequence[float]) -> str:
    return (
        " \u2192 ".join(map(format_percent, first_and_last_tenth(values)))
        if values
        else _NONE
    )


def _band_with_size(band: str, by_band: Sequence[Mapping[str, Any]]) -> str:
    return f"{band} ({next(c[band]['problems'] for c in by_band if band in c)})"


def _format_pass(scores: Mapping[str, Any] | None, k: str) -> str:
    """Returns pass@k with its interval, or a dash if the band has no problems."""
    if scores is None or k not in scores["pass@k"]:
        return _NONE
    return format_with_interval(scores["pass@k"][k])


PARTS = (
    Part(pass_by_band, order=130),
    Part(training_by_band, order=150),
    Part(band_moves, order=160),
    Part(signal_by_band, order=170),
    Part(behavior_by_band, order=180),
)
