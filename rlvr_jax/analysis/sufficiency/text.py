"""Shares of RL's change as a table and as sentences."""

import statistics
from collections.abc import Sequence

from rlvr_jax.analysis.causal.contrasts import SPECIFIC, Contrast
from rlvr_jax.analysis.sufficiency.measure import Share
from rlvr_jax.probe.intervene import CONTROLS
from rlvr_jax.report.tables import Table, align_table

_HEAD = (
    *("outcome", "added", "before RL", "with it", "after RL"),
    *("share of RL's change [95 %]", *CONTROLS),
)


def format_shares(shares: Sequence[Share]) -> str:
    """Returns a row for each outcome and strength: values and shares.

    The last columns are the mean share of each kind of control at this strength. The
    row "few-shot" has worked examples in the prompt instead.
    """
    rows = [
        (
            share.outcome,
            share.kind if share.kind == "few-shot" else f"strength {share.strength:g}",
            *(f"{value:.3f}" for value in (share.before, share.edited, share.after)),
            _format_share(share),
            *(_format_control(shares, share, kind) for kind in CONTROLS),
        )
        for share in shares
        if share.kind in ("target", "few-shot")
    ]
    return align_table(Table(head=_HEAD, rows=rows))


def describe_shares(
    shares: Sequence[Share], contrasts: Sequence[Contrast]
) -> list[str]:
    """Returns a sentence on each outcome: what RL changed, and the largest share."""
    sentences = []
    for outcome in dict.fromkeys(share.outcome for share in shares):
        of_target = [
            share
            for share in shares
            if share.outcome == outcome and share.kind == "target"
        ]
        first = of_target[0]
        known = [share for share in of_target if share.share is not None]
        change = f"{outcome}: RL changes it from {first.before:.3f} to "
        if not known:
            sentences.append(
                f"{change}{first.after:.3f}, which could be chance; no share"
            )
            continue
        best = max(known, key=lambda share: share.share.value if share.share else 0.0)
        is_specific = any(
            contrast.verdict == SPECIFIC
            and (contrast.outcome, contrast.strength) == (outcome, best.strength)
            for contrast in contrasts
        )
        sentences.append(
            f"{change}{first.after:.3f}; strength {best.strength:g} brings the largest "
            f"share, {_format_share(best)}, and its effect is "
            f"{'' if is_specific else 'not shown to be '}specific to these latents"
            + "".join(
                f"; worked examples bring {_format_share(share)}"
                for share in shares
                if (share.outcome, share.kind) == (outcome, "few-shot")
            )
        )
    return sentences


def _format_share(share: Share) -> str:
    if share.share is None:
        return "-"
    value, low, high = share.share
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"


def _format_control(shares: Sequence[Share], target: Share, kind: str) -> str:
    """Returns the mean share of a kind of control at the target's strength."""
    values = [
        share.share.value
        for share in shares
        if share.share is not None
        and target.kind == "target"
        and share.kind == kind
        and (share.outcome, share.strength) == (target.outcome, target.strength)
    ]
    return f"{statistics.fmean(values):.2f}" if values else "-"
