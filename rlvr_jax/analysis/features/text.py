"""Feature dynamics as text: tables for both the command and the report."""

import dataclasses
import math
from collections.abc import Sequence

from rlvr_jax.analysis.features.changes import FeatureChange
from rlvr_jax.analysis.features.dynamics import (
    CLAIMED,
    EQUAL_DRIFT,
    MOVED,
    FeatureDynamics,
    SeedGroup,
    Tally,
)
from rlvr_jax.analysis.features.log import ROLLOUT, ExplainedVarianceDrop
from rlvr_jax.analysis.features.texts import ALL_BANDS
from rlvr_jax.report.tables import Table, align_table
from sae_jax.stats.dynamics import CHANGE_KINDS, UNIQUE

ROWS_PER_BAND = 10  # rows of each band

_MAX_NAMED_DROPS = 3  # drops of explained variance named in a warning
_NONE = "\u2013"


# Explains the intervals in a changes table.
INTERVALS_OF_CHANGES = (
    "Intervals are 95 % percentile bootstraps over prompts, with both checkpoints of a "
    "prompt drawn together."
)


def format_dynamics(
    dynamics: FeatureDynamics, others: Sequence[FeatureDynamics] = ()
) -> str:
    """Returns one run's findings as text: warnings, counts, nulls, features.

    `others` are runs that should have learned nothing, as further nulls.
    """
    head = (
        f"{dynamics.name}: step {dynamics.step} against step 0, the same texts at "
        f"both, T-SAE {dynamics.log.sae_digest}"
    )
    parts = [
        head,
        "\n".join(f"warning: {text}" for text in fidelity_warnings(dynamics)),
        align_table(count_table(dynamics)),
        explain_counts(dynamics),
        "The same counts for changes that learned nothing: features that moved / that "
        "are claimed, averaged over draws. Most: the largest number of claims in any "
        "draw and band.",
        align_table(null_table(dynamics, others)),
        "Under other thresholds: strengthened/suppressed/emerging/unique.",
        align_table(sensitivity_table(dynamics)),
        *_changes_text(dynamics),
    ]
    return "\n\n".join(part for part in parts if part)


def _changes_text(dynamics: FeatureDynamics) -> list[str]:
    if not dynamics.changes:
        return ["No feature changed."]
    return [
        f"The most certain claims, up to {ROWS_PER_BAND} in each band. Under noise: "
        "the mean ratio and the range over draws of noise that move the residual "
        "stream equally far. A unique? means that another band's interval does not "
        "rule out the same change there. Own text: the ratio on own completions. "
        f"{INTERVALS_OF_CHANGES}",
        align_table(changes_table(dynamics)),
    ]


def fidelity_warnings(dynamics: FeatureDynamics) -> list[str]:
    """Returns warnings if the autoencoder no longer fits the policy, or may not."""
    if not dynamics.drops:
        return [
            "explained variance is not known at both steps, so it is unclear whether "
            "the autoencoder still fits the policy"
        ]
    if not dynamics.excessive_drops:
        return []
    worst = [
        describe_drop(drop) for drop in dynamics.excessive_drops[:_MAX_NAMED_DROPS]
    ]
    if (more := len(dynamics.excessive_drops) - _MAX_NAMED_DROPS) > 0:
        worst.append(f"{more} more in dynamics.json")
    return [
        f"the autoencoder explains less of the policy than before: {'; '.join(worst)}. "
        "The results below cover a smaller part of the policy; before you rely on "
        "them, train a T-SAE on the later policy"
    ]


def describe_drop(drop: ExplainedVarianceDrop) -> str:
    """Returns a drop as "FVE 0.81 at step 0, 0.62 now (reference texts, hard)"."""
    where = "own completions" if drop.split == ROLLOUT else "reference texts"
    band = f", {drop.band}" if drop.band else ""
    return f"FVE {drop.before:.3f} at step 0, {drop.after:.3f} now ({where}{band})"


def explain_counts(dynamics: FeatureDynamics) -> str:
    """Returns an explanation of the comparison in the table of counts."""
    drift, check = dynamics.tally.drift, equal_drift(dynamics)
    num_moved = check.mean(ALL_BANDS, MOVED)
    omitted = "".join(
        f" Band {band} is left out: it has {count} texts, too few to find a change."
        for band, count in dynamics.omitted.items()
    )
    return (
        f"RL moved the residual stream of these texts by {100 * drift:.2g} % of its "
        "size. Any change this large moves features: random noise in the weights "
        f"moves {num_moved:.3g} of them beyond the thresholds, and RL moves "
        f"{dynamics.counts[ALL_BANDS][MOVED]} (band {ALL_BANDS}). So a feature is "
        "claimed only if RL moved it farther than equally large noise moves the same "
        f"feature. The numbers in brackets are the average claims if "
        f"{len(check.draws)} further draws of the noise are treated as RL: about this "
        f"many claims are false. On average at most {100 * dynamics.thresholds.fdr:g} "
        "% of a band's claims are false, among `tested` features. All bands have the "
        f"same number of texts.{omitted}"
    )


def equal_drift(dynamics: FeatureDynamics) -> Tally:
    """Returns the counts under noise that moves the stream as far as RL did."""
    return next(null for null in dynamics.nulls if null.label == EQUAL_DRIFT)


def count_table(dynamics: FeatureDynamics) -> Table:
    """Returns the number of claims of each kind, by band, with noise in brackets."""
    check = equal_drift(dynamics)
    rows = []
    for band, kinds in dynamics.counts.items():
        cells = [
            f"{kinds[kind]} ({check.mean(band, kind):.2g})"
            if kind == MOVED or kind in possible_kinds(dynamics, band)
            else _NONE
            for kind in (MOVED, *CHANGE_KINDS, UNIQUE)
        ]
        sizes = (
            dynamics.prompts[band],
            dynamics.tokens[band],
            dynamics.findings[band].num_tested,
        )
        rows.append((band, *map(str, sizes), *cells))
    head = ("band", "prompts", "tokens", "tested", MOVED, *CHANGE_KINDS, UNIQUE)
    return Table(head=head, rows=rows)


def null_table(
    dynamics: FeatureDynamics, others: Sequence[FeatureDynamics] = ()
) -> Table:
    """Returns moved and claimed features by band, for the run, noise and `others`.

    Each of `others` is compared with noise that matches its drift.
    """
    bands = list(dynamics.counts)
    tallies = [dynamics.tally, *dynamics.nulls]
    tallies += [dataclasses.replace(run.tally, label=run.name) for run in others]
    rows = [
        (
            tally.label,
            str(len(tally.draws)),
            f"{100 * tally.drift:.2g} %",
            *(
                f"{tally.mean(band, MOVED):.3g} / {tally.mean(band, CLAIMED):.2g}"
                for band in bands
            ),
            str(max(tally.largest(band, CLAIMED) for band in bands)),
        )
        for tally in tallies
    ]
    return Table(head=("change", "draws", "drift", *bands, "most"), rows=rows)


def sensitivity_table(dynamics: FeatureDynamics) -> Table:
    """Returns the counts of each kind, by band, under other thresholds."""
    rows = [
        (
            *(f"{value:g}" for value in (t.delta, t.e0, t.e1)),
            *(
                "/".join(str(kinds[kind]) for kind in possible_kinds(dynamics, band))
                for band, kinds in by_band.items()
            ),
        )
        for t, by_band in dynamics.sensitivity
    ]
    return Table(head=("delta", "e0", "e1", *dynamics.counts), rows=rows)


def possible_kinds(dynamics: FeatureDynamics, band: str) -> tuple[str, ...]:
    """Returns the kinds that a band can have: unique needs another band."""
    others = [other for other in dynamics.counts if other not in (band, ALL_BANDS)]
    return CHANGE_KINDS if band == ALL_BANDS or not others else (*CHANGE_KINDS, UNIQUE)


def changes_table(
    dynamics: FeatureDynamics, rows_per_band: int = ROWS_PER_BAND
) -> Table:
    """Returns each band's claims with the smallest q, and their evidence."""
    rows: list[FeatureChange] = []
    for band in dynamics.counts:
        of_band = [change for change in dynamics.changes if change.band == band]
        rows += of_band[:rows_per_band]
    return Table(
        head=(
            "band",
            "feature",
            "change",
            "mean ratio (95 %)",
            "under noise (range)",
            "rate, 0 \u2192 now (95 %)",
            "q",
            "prompts",
            "own text",
            "seed cosine",
            "reward weight",
        ),
        rows=[_change_cells(row) for row in rows],
    )


def _change_cells(row: FeatureChange) -> tuple[str, ...]:
    kinds = [
        f"{kind}{'' if row.absent_elsewhere else '?'}" if kind == UNIQUE else kind
        for kind in row.kinds
    ]
    value, low, high = row.ratio
    ratio = f"{value:.2f} ({low:.2f}\u2013{_format_bound(high)})"
    old, new = row.rate
    return (
        row.band,
        str(row.feature),
        ", ".join(kinds),
        "from 0" if math.isinf(value) else ratio,
        _format_noise(row.noise_ratio),
        f"{old:.4f} \u2192 {new:.4f} "
        f"({row.rate_interval[0]:.4f}\u2013{row.rate_interval[1]:.4f})",
        f"{row.q:.1g}",
        str(row.prompts),
        _format_optional(row.rollout_ratio),
        _format_optional(row.seed_cosine),
        _format_optional(row.reward_weight),
    )


def format_seed_groups(groups: Sequence[SeedGroup]) -> str:
    """Returns a table of the features that each group gained, and that only it did."""
    bands = list(groups[0].gained)
    table = Table(
        head=("runs", *bands),
        rows=[
            (
                " + ".join(group.runs),
                *(f"{group.gained[b]}, own {group.unique[b]}" for b in bands),
            )
            for group in groups
        ],
    )
    parts = [
        "Features that are strengthened or emerging in every run of a row; own: in no "
        "run of another row. Runs that differ only in their seed share a row.",
        align_table(table),
    ]
    for group in groups:
        if group.between_seeds is not None:
            differing = ", ".join(
                f"{band} {sum(kinds[kind] for kind in CHANGE_KINDS)}"
                for band, kinds in group.between_seeds.items()
            )
            parts.append(
                f"{group.runs[0]} against {group.runs[1]}, two seeds at their last "
                f"steps, features that moved apart: {differing}. The seed alone "
                "changes `moved` by about this much."
            )
    return "\n\n".join(parts)


def _format_noise(ratio: tuple[float, float, float]) -> str:
    mean, low, high = ratio
    return _NONE if math.isnan(mean) else f"{mean:.2f} ({low:.2f}\u2013{high:.2f})"


def _format_bound(value: float) -> str:
    return "\u221e" if math.isinf(value) else f"{value:.2f}"


def _format_optional(value: float | None) -> str:
    return _NONE if value is None else f"{value:.2f}"
