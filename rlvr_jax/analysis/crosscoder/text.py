"""The crosscoder's record as tables, for the terminal and for the report."""

from collections.abc import Mapping, Sequence
from typing import Any

from rlvr_jax.report.tables import Table, align_table
from sae_jax.stats.crosscoder import KINDS

READING = (
    "A latent's scaling share is its strength in the activations after RL, divided by "
    "the sum of its strengths before and after. Below 0.1 the latent is lost, below "
    "0.4 shrunk, up to 0.6 kept, below 0.9 grown, else added. Numbers in brackets "
    "count confirmed changes, whose whole 95 % interval over problems is outside 0.4 "
    "to 0.6. The norm share is the same ratio for the norms of decoder vectors. "
    "Changes that noise or a random reward also shows cannot be attributed to "
    "learning."
)


def counts_table(record: Mapping[str, Any]) -> Table:
    """Returns a row for each crosscoder: RL's and its controls'."""
    return Table(
        head=[
            "crosscoder",
            "alive",
            *KINDS,
            "scaling share, 95 % of latents",
            "norm share",
            "FVE",
        ],
        rows=[_counts_row(name, row) for name, row in record["crosscoders"].items()],
    )


def latents_table(record: Mapping[str, Any], *, latents: int = 10) -> Table:
    """Returns a row for each of the latents that changed most, confirmed ones first."""
    rows = sorted(record["latents"], key=_importance)[:latents]
    bands = list(
        dict.fromkeys(band for row in rows for band in row["scaling_share_by_band"])
    )
    return Table(
        head=[
            "latent",
            "kind",
            "scaling share",
            *(f"{band} problems" for band in bands),
            "norm share",
            "cosine",
            "found again by",
            "where it fires",
        ],
        rows=[_latent_row(row, bands) for row in rows],
    )


def describe_replication(record: Mapping[str, Any]) -> str:
    """Returns how many confirmed changes recur with another seed or other problems."""
    return ", ".join(
        f"{counts['replicated']} of {counts['confirmed']} ({name})"
        for name, counts in record["replicated"].items()
    )


def format_crosscoder(record: Mapping[str, Any]) -> str:
    """Returns the record as text."""
    measured, layer = record["crosscoders"]["RL"], record["settings"]["layer"]
    title = (
        f"{record['run']}, {' to '.join(record['checkpoints'])}, layer {layer}: "
        f"{measured['tokens']} tokens of {measured['problems']} problems that were not "
        "trained on"
    )
    return "\n\n".join(
        [
            f"{title}\n{align_table(counts_table(record))}",
            f"confirmed changes found again: {describe_replication(record)}",
            align_table(latents_table(record)),
            READING,
        ]
    )


def _importance(row: Mapping[str, Any]) -> tuple[bool, float]:
    """Returns a sort key: confirmed latents first, then by distance from one half."""
    return not row["confirmed"], -abs(row["scaling_share"][0] - 0.5)


def _counts_row(name: str, row: Mapping[str, Any]) -> list[str]:
    shares = [row[name] or [None] * 3 for name in ("scaling_share", "norm_share")]
    return [
        name,
        str(row["alive"]),
        *(
            str(row["counts"][kind])
            + (f" ({row['confirmed'][kind]})" if kind != "kept" else "")
            for kind in KINDS
        ),
        *(f"{_format(low)} to {_format(high)}" for low, _, high in shares),
        ", ".join(f"{value:.3f}" for value in row["fve"]),
    ]


def _latent_row(row: Mapping[str, Any], bands: Sequence[str]) -> list[str]:
    value, low, high = (_format(end) for end in row["scaling_share"])
    found = [name for name, again in row["replicated"].items() if again]
    return [
        str(row["latent"]),
        row["kind"] + (", confirmed" if row["confirmed"] else ""),
        f"{value} [{low}, {high}]",
        *(_format(row["scaling_share_by_band"].get(band)) for band in bands),
        _format(row["norm_share"]),
        _format(row["cosine"]),
        ", ".join(found) or "none",
        row["contexts"],
    ]


def _format(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
