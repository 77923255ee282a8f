"""The changes at several layers as a table."""

from collections.abc import Sequence

from rlvr_jax.analysis.features.by_layer import LayerChanges
from rlvr_jax.analysis.features.dynamics import CLAIMED
from rlvr_jax.analysis.features.log import REFERENCE
from rlvr_jax.analysis.features.text import equal_drift, fidelity_warnings
from rlvr_jax.analysis.features.texts import ALL_BANDS
from rlvr_jax.report.tables import Table, align_table

_NONE = "\u2013"


def format_layers(layer_changes: Sequence[LayerChanges]) -> str:
    """Returns a table with a row for each layer, below its warnings."""
    warnings = [
        f"warning: layer {layer}: {text}"
        for layer, changes, _ in layer_changes
        for text in fidelity_warnings(changes)
    ]
    return "\n".join([*warnings, align_table(layers_table(layer_changes))])


def layers_table(layer_changes: Sequence[LayerChanges]) -> Table:
    """Returns a row for each layer: fidelity, drift and claims, next to the nulls."""
    bands = [band for band in layer_changes[0].changes.prompts if band != ALL_BANDS]
    head = ["layer", "FVE before", "FVE after", "stream moved", "tested", "claimed"]
    head += [*(f"in {band}" for band in bands), "noise claims"]
    for name in layer_changes[0].null_runs:
        head += [f"{name} moved", f"{name} claims"]
    return Table(head=head, rows=[_layer_row(row, bands) for row in layer_changes])


def _layer_row(row: LayerChanges, bands: Sequence[str]) -> list[str]:
    changes = row.changes
    fve = [
        (f"{drop.before:.3f}", f"{drop.after:.3f}")
        for drop in changes.drops
        if (drop.split, drop.band) == (REFERENCE, "")
    ]
    cells = [str(row.layer), *(fve[0] if fve else (_NONE, _NONE))]
    cells += [
        _percent(changes.tally.drift),
        str(changes.findings[ALL_BANDS].num_tested),
    ]
    cells += [str(changes.counts[band][CLAIMED]) for band in (ALL_BANDS, *bands)]
    cells.append(f"{equal_drift(changes).mean(ALL_BANDS, CLAIMED):.2g}")
    for null in row.null_runs.values():
        cells += [_percent(null.tally.drift), str(null.counts[ALL_BANDS][CLAIMED])]
    return cells


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.2g} %"
