"""Contrasts as text and figure: a table, a sentence for each strength, a chart."""

import math
from collections.abc import Sequence

import numpy as np

from rlvr_jax.analysis.causal.contrasts import (
    MIN_DRAWS,
    NO_EFFECT,
    NONSPECIFIC,
    SPECIFIC,
    Contrast,
)
from rlvr_jax.metrics.bootstrap import Difference
from rlvr_jax.probe.intervene import CONTROLS, Kind
from rlvr_jax.report.charts import AMBER, BLUE, GRAY, Line, Panel, draw_sheet
from rlvr_jax.report.tables import Table, align_table

_DEFAULT_OUTCOMES = ("pass@1", "length", "kl")  # outcomes that every figure shows
_MAX_PANELS = 9
_COLORS: dict[Kind, str] = {
    "target": BLUE,
    "random latents": GRAY,
    "random direction": AMBER,
}
_HEAD = (
    "latents",
    "strength",
    "outcome",
    "clean",
    "change [95 %, problems]",
    *(
        "random latents",
        "directions",
        "beyond latents [95 %, draws]",
        "q",
        "rank p",
        "effect",
    ),
)
# The strength that changes nothing, if the mode has one.
_NEUTRAL_STRENGTH = {"ablate": 0.0, "scale": 1.0, "add": 0.0}


def format_table(contrasts: Sequence[Contrast]) -> str:
    """Returns the contrasts as a text table.

    Ranges are over the draws of one kind of control. The interval of the change is over
    problems. The interval of `beyond latents` is over draws: if it includes 0, another
    draw may have the same effect.
    """
    rows = [
        (
            format_latents(contrast.latents),
            f"{contrast.strength:g}",
            contrast.outcome,
            f"{contrast.clean_mean:.3f}",
            _format_difference(contrast.effect),
            *(_format_range(contrast.control_effects[kind]) for kind in CONTROLS),
            _format_difference(contrast.beyond_controls["random latents"]),
            f"{contrast.q:.2g}",
            f"{contrast.rank_p:.2g}",
            contrast.verdict,
        )
        for contrast in contrasts
    ]
    return align_table(Table(head=_HEAD, rows=rows))


def describe_effects(contrasts: Sequence[Contrast]) -> list[str]:
    """Returns a sentence for each set of latents and strength, also without effect."""
    groups: dict[tuple[tuple[int, ...], float], list[Contrast]] = {}
    for contrast in contrasts:
        groups.setdefault((contrast.latents, contrast.strength), []).append(contrast)
    lines = []
    for (latents, strength), group in groups.items():
        specific = "; ".join(
            f"{contrast.outcome} {_format_difference(contrast.effect)}"
            for contrast in group
            if contrast.verdict == SPECIFIC
        )
        nonspecific = ", ".join(
            contrast.outcome for contrast in group if contrast.verdict == NONSPECIFIC
        )
        num_unchanged = sum(contrast.verdict == NO_EFFECT for contrast in group)
        lines.append(
            f"latents {format_latents(latents)}, strength {strength:g}: "
            f"{specific or 'nothing'} beyond the controls; "
            f"{nonspecific or 'nothing'} changed no more than under controls; "
            f"{num_unchanged} outcomes without a detectable change"
        )
    return lines


def warn_of_few_draws(num_controls: int) -> str:
    """Returns a warning about too few draws of controls for a claim."""
    return (
        f"warning: --num_controls={num_controls} can show no specific effect: the "
        f"smallest rank p is 1/{num_controls + 1}; draw {MIN_DRAWS} or more"
    )


def draw_figure(
    contrasts: Sequence[Contrast],
    *,
    title: str,
    mode: str,
    outcomes: Sequence[str] = (),
) -> str:
    """Returns an SVG document: outcomes over strengths, target next to controls.

    It shows the first set of latents, in `outcomes` (by default pass@1, length and KL)
    and in outcomes with a specific effect. The target has 95 % intervals; controls have
    their mean and range.
    """
    first = [c for c in contrasts if c.latents == contrasts[0].latents]
    specific = sorted((c for c in first if c.verdict == SPECIFIC), key=lambda c: c.q)
    shown = [*(outcomes or _DEFAULT_OUTCOMES), *(c.outcome for c in specific)]
    panels = []
    for outcome in [*dict.fromkeys(shown)][:_MAX_PANELS]:
        if rows := [c for c in first if c.outcome == outcome]:
            rows.sort(key=lambda c: c.strength)
            lines = [_effect_line(rows, kind, mode) for kind in (*CONTROLS, "target")]
            panels.append(
                Panel(title=outcome, lines=lines, xlabel="strength", categorical=True)
            )
    return draw_sheet("causal", title, panels)


def _effect_line(rows: Sequence[Contrast], kind: Kind, mode: str) -> Line:
    """Returns an outcome's values over the strengths, including the neutral one."""
    points = []
    for row in rows:
        if kind == "target":
            effect = row.effect
            points.append((row.strength, effect.mean, effect.low, effect.high))
        else:
            effects = row.control_effects[kind]
            mean = float(np.mean(effects))
            points.append((row.strength, mean, min(effects), max(effects)))
    if mode in _NEUTRAL_STRENGTH:
        points = sorted({(_NEUTRAL_STRENGTH[mode], 0.0, 0.0, 0.0), *points})
    strength, *changes = np.array(points, np.float64).T
    mean, low, high = (change + rows[0].clean_mean for change in changes)
    return Line(
        label=kind,
        color=_COLORS[kind],
        x=list(strength),
        y=list(mean),
        interval=(low, high),
    )


def format_latents(latents: Sequence[int], max_shown: int = 6) -> str:
    """Returns the latents' numbers, at most the first `max_shown`."""
    text = ",".join(map(str, latents[:max_shown]))
    more = len(latents) - max_shown
    return f"{text} and {more} more" if more > 0 else text


def _format_difference(difference: Difference) -> str:
    if math.isnan(difference.mean):
        return "unknown"
    return f"{difference.mean:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]"


def _format_range(values: Sequence[float]) -> str:
    return f"{min(values):+.3f} .. {max(values):+.3f}"
