"""What edits did beyond their controls: contrasts, verdicts, a table, a figure.

A target is held to have an effect of its own on an outcome where (1) the interval of
its change from clean leaves 0 out; (2) it differs from the mean of the random latents
and from that of the random directions, the larger of the two p below 0.05 after
Benjamini-Hochberg over everything asked at once; and (3) no single control draw went as
far the same way. Rule and thresholds are ours.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlvr_jax.analysis.figures import AMBER, BLUE, GREY, Line, Panel, sheet
from rlvr_jax.causal import CONTROLS, Answered, Kind
from rlvr_jax.paired import (
    Difference,
    Ratio,
    bootstrap_draws,
    difference,
    mcnemar,
)
from sae_jax.significance import benjamini_hochberg

OWN, SHARED, NULL = "its own", "no more than controls", "none"
_LEVEL = 0.05
_ALWAYS = ("pass@1", "length", "kl")  # outcomes that every figure shows
_MOST_PANELS = 9
_COLORS: dict[Kind, str] = {
    "target": BLUE,
    "random latents": GREY,
    "random direction": AMBER,
}
_HEAD = (
    *("latents", "dose", "outcome", "clean", "change [95 %]"),
    *("random latents", "directions", "beyond latents [95 %]", "q", "effect"),
)
# The dose that changes nothing, where the mode has one.
_IDENTITY = {"ablate": 0.0, "scale": 1.0, "add": 0.0}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contrast:
    """One outcome under one dose of one set of latents. Made by `contrasts`.

    `effect` is against clean, `beyond` against the mean of each kind of control, whose
    single draws' effects are in `drawn`. `q` is 1 until `judged` has seen all.
    """

    latents: tuple[int, ...]
    dose: float
    outcome: str
    clean: float
    effect: Difference
    beyond: dict[Kind, Difference]
    drawn: dict[Kind, list[float]]
    q: float = 1.0

    @property
    def p(self) -> float:
        """Returns the larger p of the two comparisons with controls."""
        return max(each.p for each in self.beyond.values())

    @property
    def farthest(self) -> bool:
        """Returns whether no control draw went as far the same way."""
        sign = np.sign(self.effect.mean)
        draws = np.concatenate([self.drawn[kind] for kind in CONTROLS])
        return bool((sign * draws < abs(self.effect.mean)).all())

    @property
    def verdict(self) -> str:
        """Returns OWN, NULL where 0 lies in the interval, else SHARED: see above."""
        if self.effect.low <= 0 <= self.effect.high:
            return NULL
        return OWN if self.q < _LEVEL and self.farthest else SHARED


def contrasts(
    clean: Answered, edited: Sequence[Answered], *, resamples: int, seed: int
) -> list[Contrast]:
    """Returns a contrast for each set of latents, dose and outcome.

    Arms follow each other as `causal.arms` makes them. Outcomes that are the same in
    all arms of a dose are left out: there is nothing to ask of them.
    """
    draws_RN = bootstrap_draws(len(clean.rights), resamples=resamples, seed=seed)
    nothing = Ratio(value=np.zeros(len(clean.rights)), per=np.zeros(len(clean.rights)))
    found = []
    for at, target in enumerate(edited):
        if target.arm.kind != "target":
            continue
        controls = {
            kind: [one for one in _dose_of(edited, at) if one.arm.kind == kind]
            for kind in CONTROLS
        }
        for name, before in clean.outcomes.items():
            after = target.outcomes.get(name, nothing)
            others = {
                kind: [one.outcomes.get(name, nothing) for one in group]
                for kind, group in controls.items()
            }
            arms = [after, *(each for group in others.values() for each in group)]
            if all(_same(before, each) for each in arms):
                continue
            found.append(
                Contrast(
                    latents=target.arm.latents,
                    dose=target.arm.dose,
                    outcome=name,
                    clean=before.mean(),
                    effect=difference(after, [before], draws_RN),
                    beyond={
                        kind: difference(after, group, draws_RN)
                        for kind, group in others.items()
                    },
                    drawn={
                        kind: [each.mean() - before.mean() for each in group]
                        for kind, group in others.items()
                    },
                )
            )
    q = benjamini_hochberg(np.array([each.p for each in found]))
    return [
        dataclasses.replace(each, q=float(value))
        for each, value in zip(found, q, strict=True)
    ]


def _dose_of(edited: Sequence[Answered], at: int) -> list[Answered]:
    """Returns the arms of the dose whose target stands at `at`."""
    ends = [i for i in range(at + 1, len(edited)) if edited[i].arm.kind == "target"]
    return list(edited[at : ends[0] if ends else len(edited)])


def _same(one: Ratio, other: Ratio) -> bool:
    return np.array_equal(one.value, other.value) and np.array_equal(one.per, other.per)


def arm_row(one: Answered, clean: Answered) -> dict[str, Any]:
    """Returns an arm for the JSON: what was done, every figure, McNemar of pass@1."""
    arm = one.arm
    return {
        "kind": arm.kind,
        "dose": arm.dose,
        "draw": arm.draw,
        "latents": list(arm.latents),
        "gain": float(arm.edit.gain) if arm.edit is not None else 0.0,
        "moved": arm.moved,
        "same_completions": one.same(clean),
        "outcomes": {name: each.mean() for name, each in one.outcomes.items()},
        "mcnemar": mcnemar(one.rights, clean.rights),
    }


def contrast_row(one: Contrast) -> dict[str, Any]:
    """Returns a contrast for the JSON."""
    return dataclasses.asdict(one) | {
        "p": one.p,
        "farthest": one.farthest,
        "verdict": one.verdict,
    }


def table(found: Sequence[Contrast]) -> str:
    """Returns the contrasts as text, in the order asked; ranges are over draws."""
    rows: list[tuple[str, ...]] = [_HEAD]
    for one in found:
        rows.append(
            (
                named(one.latents),
                f"{one.dose:g}",
                one.outcome,
                f"{one.clean:.3f}",
                _interval(one.effect),
                *(_range(one.drawn[kind]) for kind in CONTROLS),
                _interval(one.beyond["random latents"]),
                f"{one.q:.2g}",
                one.verdict,
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)


def words(found: Sequence[Contrast]) -> list[str]:
    """Returns a sentence for each set of latents and dose, nulls included."""
    lines = []
    for latents, dose in dict.fromkeys((one.latents, one.dose) for one in found):
        among = [one for one in found if (one.latents, one.dose) == (latents, dose)]
        own = [one for one in among if one.verdict == OWN]
        shared = [one.outcome for one in among if one.verdict == SHARED]
        silent = sum(one.verdict == NULL for one in among)
        told = "; ".join(f"{one.outcome} {_interval(one.effect)}" for one in own)
        lines.append(
            f"latents {named(latents)}, dose {dose:g}: "
            f"{told or 'nothing'} beyond the controls; "
            f"{', '.join(shared) or 'nothing'} moved no more than under controls; "
            f"{silent} outcomes not told from no change"
        )
    return lines


def figure(found: Sequence[Contrast], *, title: str, mode: str) -> str:
    """Returns an SVG document: outcomes over doses, target beside controls.

    Of the first set of latents. Target: 95 % intervals; controls: mean and range of
    their draws.
    """
    first = [one for one in found if one.latents == found[0].latents]
    own = sorted((one for one in first if one.verdict == OWN), key=lambda one: one.q)
    shown = dict.fromkeys([*_ALWAYS, *(one.outcome for one in own)])
    panels = []
    for name in list(shown)[:_MOST_PANELS]:
        if among := [one for one in first if one.outcome == name]:
            among.sort(key=lambda one: one.dose)
            lines = [_line(among, kind, mode) for kind in (*CONTROLS, "target")]
            panels.append(Panel(title=name, lines=lines, xlabel="dose", marks=True))
    return sheet("causal", title, panels)


def _line(among: Sequence[Contrast], kind: Any, mode: str) -> Line:
    """Returns an outcome's level over doses, from the dose that changes nothing on."""
    rows = [
        (one.dose, one.effect.mean, one.effect.low, one.effect.high)
        if kind == "target"
        else (one.dose, np.mean(one.drawn[kind]), *_ends(one.drawn[kind]))
        for one in among
    ]
    if mode in _IDENTITY:
        rows = sorted({(_IDENTITY[mode], 0.0, 0.0, 0.0), *rows})
    dose, *effects = np.array(rows, np.float64).T
    mean, low, high = (effect + among[0].clean for effect in effects)
    return Line(
        label=kind, color=_COLORS[kind], x=list(dose), y=list(mean), band=(low, high)
    )


def _ends(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)


def named(latents: Sequence[int], most: int = 6) -> str:
    """Returns the latents' numbers, of many the first."""
    text = ",".join(map(str, latents[:most]))
    return text if len(latents) <= most else f"{text} and {len(latents) - most} more"


def _interval(of: Difference) -> str:
    return f"{of.mean:+.3f} [{of.low:+.3f}, {of.high:+.3f}]"


def _range(values: Sequence[float]) -> str:
    return "{:+.3f} .. {:+.3f}".format(*_ends(values))
