"""The parts of a report that are cut by band: held-out scores, training, behaviour.

Each function returns its section, or None where the run has no data for it.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import markupsafe

from rlvr_jax.analysis.figures import BLUE, GREY, PURPLE, RED, Line
from rlvr_jax.analysis.held_out import evaluations, smallest_k, when_line
from rlvr_jax.analysis.section import (
    Section,
    Table,
    chart,
    curve,
    ends,
    legend,
    mean,
    percent,
    with_interval,
)
from rlvr_jax.analysis.training import CAUSES, alarms
from rlvr_jax.analysis.workdir import Run
from rlvr_jax.behaviour import FLAGS
from rlvr_jax.types import BANDS

_COLORS = {"easy": BLUE, "medium": PURPLE, "hard": RED, "unknown": GREY}
_NONE = "\u2013"
# A band that fewer steps met has no curve: a line through so few would mislead.
_FEWEST_STEPS = 0.25
_FRESH = (
    " The fresh columns are free of that: half of the samples before RL chose the "
    "band, and the other half alone is scored."
)


def pass_by_band(run: Run) -> Section | None:
    """pass@k before and after, by where a problem stood before RL."""
    evals = {w: s for w, s in evaluations(run).items() if "by_band" in s}
    if not evals:
        return None
    cuts = [scores["by_band"] for scores in evals.values()]
    bands = [band for band in BANDS if any(band in cut for cut in cuts)]
    figures: list[markupsafe.Markup] = []
    labels: dict[str, str] = {}
    for band in bands:
        lines = [
            when_line(when, scores["by_band"][band]["pass@k"])
            for when, scores in evals.items()
            if band in scores["by_band"]
        ]
        figures += chart(
            f"band-{band}",
            f"pass@k, {_sized(band, cuts)}",
            lines,
            xlabel="k",
            percent=True,
            marks=True,
        )
        labels |= legend(lines)
    is_fresh = all("by_band_fresh" in scores for scores in evals.values())
    return Section(
        title="Difficulty",
        text="Held-out problems by band: how often the policy before RL was right on "
        "them. The band is made of the very samples called before, so hard problems "
        "start at 0 and easy ones near 100 % by construction; new samples of the same "
        "policy would fall between." + (_FRESH if is_fresh else ""),
        figures=figures,
        legend=labels if figures else {},
        table=_table(evals, bands, fresh=is_fresh),
    )


def _table(evals: Mapping[str, Any], bands: Sequence[str], *, fresh: bool) -> Table:
    """Returns pass@1 by band, before and after; on fresh samples too, where told."""
    k = smallest_k(next(iter(evals.values())))
    cuts = {"by_band": ""} | ({"by_band_fresh": ", fresh"} if fresh else {})
    head, rows = ["band"], [[band] for band in bands]
    for cut, note in cuts.items():
        head += [f"problems{note}", *(f"pass@{k} {when}{note}" for when in evals)]
        for band, row in zip(bands, rows, strict=True):
            found = [scores[cut].get(band) for scores in evals.values()]
            row.append(str(next((each["problems"] for each in found if each), 0)))
            row += [_passed(each, k) for each in found]
    return Table(head=head, rows=rows)


def training_by_band(run: Run) -> Section | None:
    """How the bands of the pool drifted, and what each taught."""
    if not (bands := _trained(run)):
        return None
    drift = [_curve(run, f"difficulty/{band}", band) for band in BANDS]
    drift = [line for line in drift if sum(line.y) > 0]
    passed, lengths, mass = (
        {band: _curve(run, f"band_{band}/{name}", band) for band in bands}
        for name in ("pass", "length", "advantage_mass")
    )
    drawn = _often(run, bands)
    figures = [
        *chart("drift", "The pool, by band", drift, percent=True, stacked=True),
        *chart("band-pass", "Pass rate", [passed[b] for b in drawn], percent=True),
        *chart("band-length", "Completion length, tokens", [lengths[b] for b in drawn]),
        *chart("band-mass", "Advantage mass", [_filled(run, mass[b]) for b in bands]),
    ]
    total = sum(sum(line.y) for line in mass.values())
    return Section(
        title="Difficulty over training",
        text=_drifted(run, drift)
        + "The other charts are of the problems that a step asked, by the band in "
        "which they stood just before.",
        figures=figures,
        legend=legend([*passed.values(), *drift]) if figures else {},
        table=Table(
            head=(
                "band",
                "share of groups",
                "pass rate, first \u2192 last tenth",
                "length, first \u2192 last tenth",
                "groups with signal",
                "share of advantage mass",
            ),
            rows=[
                (
                    band,
                    percent(_over_steps(run, f"band_{band}/share")),
                    _moved(passed[band].y),
                    " \u2192 ".join(f"{n:.0f}" for n in ends(lengths[band].y)),
                    percent(mean(run.series("train", f"band_{band}/split")[1])),
                    percent(sum(mass[band].y) / total) if total > 0 else "",
                )
                for band in bands
            ],
        ),
    )


def signal_by_band(run: Run) -> Section | None:
    """Which groups of each band held a signal, and why the others were silent."""
    figures: list[markupsafe.Markup] = []
    labels: dict[str, str] = {}
    for band in _often(run, _trained(run)):
        causes = [
            curve(run, f"band_{band}/{name}", label=label, color=color)
            for name, (label, color) in CAUSES.items()
        ]
        causes = [line for line in causes if sum(line.y) > 0]
        figures += chart(f"causes-{band}", band, causes, percent=True, stacked=True)
        labels |= legend(causes)
    if not figures:
        return None
    return Section(
        title="Signal by difficulty",
        text="Groups of completions with a signal to learn from, and silent ones by "
        "cause, in bands that a step in four or more has asked.",
        figures=figures,
        legend=labels,
    )


def behaviour_by_band(run: Run) -> Section | None:
    """Flags of completions by band, and the alarms that name a band."""
    if not (bands := _trained(run)):
        return None
    shares = {
        (flag, band): run.series("train", f"band_{band}/{flag}")[1]
        for flag in FLAGS
        for band in bands
    }
    flags = [f for f in FLAGS if any(sum(shares[f, band]) > 0 for band in bands)]
    told = [alarm for alarm in alarms(run) if "band " in alarm.finding]
    if not flags and not told:
        return None
    return Section(
        title="Behaviour by difficulty",
        text="Share of completions that show each sign, over the first and the last "
        "tenth of the steps that asked such problems. A sign is no verdict: its growth "
        "in one band is what to look into.",
        findings=[
            (f"Step {alarm.step}: {alarm.code}", alarm.finding, alarm.advice)
            for alarm in told
        ],
        table=Table(
            head=("sign", *bands),
            rows=[
                (
                    flag.replace("_", " "),
                    *(_moved(shares[flag, band]) for band in bands),
                )
                for flag in flags
            ],
        )
        if flags
        else None,
    )


def _trained(run: Run) -> list[str]:
    """Returns the bands that training met; none where it knew of no difficulty."""
    met = run.found("train", r"band_(\w+)/pass")
    return [] if met == ["unknown"] else [band for band in BANDS if band in met]


def _often(run: Run, bands: Sequence[str]) -> list[str]:
    """Returns the bands that enough steps have met for a curve."""
    steps = {band: len(run.series("train", f"band_{band}/pass")[0]) for band in bands}
    least = _FEWEST_STEPS * len(run.metrics.get("train", []))
    return [band for band in bands if steps[band] >= least]


def _filled(run: Run, line: Line) -> Line:
    """Returns the curve with 0 at the steps that lack it."""
    known = dict(zip(line.x, line.y, strict=True))
    steps = [row["step"] for row in run.metrics["train"]]
    return dataclasses.replace(line, x=steps, y=[known.get(s, 0.0) for s in steps])


def _curve(run: Run, name: str, band: str) -> Line:
    return curve(run, name, label=band, color=_COLORS[band])


def _drifted(run: Run, drift: Sequence[Line]) -> str:
    """Returns in words how the pool's bands moved, and a space; else nothing."""
    if not drift:
        return ""
    first = ", ".join(f"{percent(line.y[0])} {line.label}" for line in drift)
    last = ", ".join(f"{percent(line.y[-1])} {line.label}" for line in drift)
    text = (
        f"Of the pool of problems {first} after the first step; {last} after the last "
        "(unknown: too little evidence for a band)."
    )
    if moved := run.series("train", "difficulty/moved")[1]:
        text += f" By then {percent(moved[-1])} had left their bucket before RL."
    return f"{text} "


def _over_steps(run: Run, name: str) -> float:
    """Returns a share's mean over all steps; 0 in those that lack it."""
    return sum(run.series("train", name)[1]) / len(run.metrics["train"])


def _moved(values: Sequence[float]) -> str:
    return " \u2192 ".join(map(percent, ends(values))) if values else _NONE


def _sized(band: str, cuts: Sequence[Mapping[str, Any]]) -> str:
    return f"{band} ({next(c[band]['problems'] for c in cuts if band in c)})"


def _passed(scores: Mapping[str, Any] | None, k: str) -> str:
    """Returns pass@k in words; a dash where the band has no problems."""
    if scores is None or k not in scores["pass@k"]:
        return _NONE
    return with_interval(scores["pass@k"][k])
