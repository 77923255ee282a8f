"""Feature dynamics in words: the tables that the command and the report both show."""

import math
from collections.abc import Sequence

from rlvr_jax.analysis.feature_dynamics import NULL_DRAWS, Dynamics, Group
from rlvr_jax.analysis.feature_log import OWN, Drop
from rlvr_jax.analysis.feature_rows import ALL, Moved
from rlvr_jax.analysis.section import Table
from sae_jax.dynamics import KINDS, UNIQUE

TOP = 10  # rows of each band

_WORST = 3  # drops of explained variance named in a warning
_NONE = "\u2013"


def text(found: Dynamics) -> str:
    """Returns one run's findings: warnings first, counts, their cuts, the features."""
    head = (
        f"{found.name}: step {found.step} against step 0, the same texts at both, "
        f"T-SAE {found.log.dictionary}"
    )
    parts = [
        head,
        "\n".join(f"warning: {each}" for each in warnings(found)),
        aligned(count_table(found)),
        f"In brackets the mean count when each prompt's two checkpoints are swapped by "
        f"chance ({NULL_DRAWS} draws). Of a band's claims at most "
        f"{100 * found.cuts.level:g} % are false on average, among `tested` features.",
        "Under other cuts: strengthened/suppressed/emerging/unique.",
        aligned(sensitivity_table(found)),
        *_moved_text(found),
    ]
    return "\n\n".join(part for part in parts if part)


def _moved_text(found: Dynamics) -> list[str]:
    if not found.rows:
        return ["No feature changed."]
    return [
        f"The surest claims, up to {TOP} of each band. unique? means that another "
        "band's interval does not rule it out there; own text: the ratio on own "
        "completions.",
        aligned(moved_table(found)),
    ]


def warnings(found: Dynamics) -> list[str]:
    """Returns what to know before reading on: does the dictionary still fit."""
    if not found.drops:
        return [
            "explained variance at both steps is not known: nothing says whether the "
            "dictionary still fits the policy"
        ]
    if not found.broken:
        return []
    worst = [in_words(drop) for drop in found.broken[:_WORST]]
    if (more := len(found.broken) - _WORST) > 0:
        worst.append(f"{more} more in dynamics.json")
    return [
        "the dictionary explains less of the policy than it did: "
        f"{'; '.join(worst)}. What follows speaks of a part of the policy that shrank; "
        "train a T-SAE on the later policy before believing it"
    ]


def in_words(drop: Drop) -> str:
    """Returns a drop as "FVE 0.81 at step 0, 0.62 now (fixed texts, hard)"."""
    where = "own completions" if drop.split == OWN else "fixed texts"
    band = f", {drop.band}" if drop.band else ""
    return f"FVE {drop.before:.3f} at step 0, {drop.after:.3f} now ({where}{band})"


def count_table(found: Dynamics) -> Table:
    """Returns how many features changed how, by band, and by chance alone."""
    null = found.null_summary()
    rows = []
    for band, kinds in found.counts.items():
        cells = [
            f"{kinds[kind]} ({null[band][kind]['mean']:.2g})"
            if kind in shown_kinds(found, band)
            else _NONE
            for kind in (*KINDS, UNIQUE)
        ]
        sizes = (found.prompts[band], found.tokens[band], found.claims[band].tested)
        rows.append((band, *map(str, sizes), *cells))
    return Table(
        head=("band", "prompts", "tokens", "tested", *KINDS, UNIQUE), rows=rows
    )


def sensitivity_table(found: Dynamics) -> Table:
    """Returns the counts under other cuts: strengthened/suppressed/emerging/unique."""
    rows = [
        (
            *(f"{cut:g}" for cut in (cuts.delta, cuts.e0, cuts.e1)),
            *(
                "/".join(str(kinds[kind]) for kind in shown_kinds(found, band))
                for band, kinds in by_band.items()
            ),
        )
        for cuts, by_band in found.sensitivity
    ]
    return Table(head=("delta", "e0", "e1", *found.counts), rows=rows)


def shown_kinds(found: Dynamics, band: str) -> tuple[str, ...]:
    """Returns the kinds that a band can have: unique needs another band beside it."""
    others = [other for other in found.counts if other not in (band, ALL)]
    return KINDS if band == ALL or not others else (*KINDS, UNIQUE)


def moved_table(found: Dynamics, top: int = TOP) -> Table:
    """Returns the surest claims of each band, with what they rest on."""
    shown = [
        row
        for band in found.counts
        for row in [each for each in found.rows if each.band == band][:top]
    ]
    return Table(
        head=(
            "band",
            "feature",
            "change",
            "mean ratio (95 %)",
            "rate, 0 \u2192 now (95 %)",
            "q",
            "prompts",
            "own text",
            "stability",
            "reward weight",
        ),
        rows=[_cells(row) for row in shown],
    )


def _cells(row: Moved) -> tuple[str, ...]:
    kinds = [
        f"{kind}{'' if row.only_here else '?'}" if kind == UNIQUE else kind
        for kind in row.kinds
    ]
    value, low, high = row.ratio
    ratio = f"{value:.2f} ({low:.2f}\u2013{_end(high)})"
    old, new = row.rate
    return (
        row.band,
        str(row.feature),
        ", ".join(kinds),
        "from 0" if math.isinf(value) else ratio,
        f"{old:.4f} \u2192 {new:.4f} "
        f"({row.rate_interval[0]:.4f}\u2013{row.rate_interval[1]:.4f})",
        f"{row.q:.1g}",
        str(row.prompts),
        _or_none(row.own_ratio),
        _or_none(row.stability),
        _or_none(row.reward_weight),
    )


def compared_text(groups: Sequence[Group]) -> str:
    """Returns the runs' table: what each gained, and of that what no other did."""
    bands = list(groups[0].gained)
    table = Table(
        head=("runs", *bands),
        rows=[
            (
                " + ".join(group.runs),
                *(f"{group.gained[b]}, own {group.own[b]}" for b in bands),
            )
            for group in groups
        ],
    )
    parts = [
        "Strengthened or emerging in every run of a row, and of those in no run of "
        "another row. Runs that differ in their seed alone share a row.",
        aligned(table),
    ]
    for group in groups:
        if group.between is not None:
            apart = ", ".join(
                f"{band} {sum(kinds[kind] for kind in KINDS)}"
                for band, kinds in group.between.items()
            )
            parts.append(
                f"{group.runs[0]} against {group.runs[1]}, two seeds at their last "
                f"steps, features that differ: {apart}. So much is chance."
            )
    return "\n\n".join(parts)


def aligned(table: Table) -> str:
    """Returns the table as lines of text, its columns under their heads."""
    lines = [table.head, *table.rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _end(value: float) -> str:
    return "\u221e" if math.isinf(value) else f"{value:.2f}"


def _or_none(value: float | None) -> str:
    return _NONE if value is None else f"{value:.2f}"
