"""The report's section on tokens: where in completions a run learned."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from rlvr_jax.report.charts import BLUE, GRAY, GREEN, PURPLE, RED, Line
from rlvr_jax.report.run_files import RunArtifacts
from rlvr_jax.report.sections import Part, Section, draw_chart, make_legend
from rlvr_jax.report.tables import Table, format_percent
from rlvr_jax.run.workdir import TOKENS_DIR, token_stats_file
from rlvr_jax.types import BANDS, TOKEN_CLASSES

_COLORS = {"easy": BLUE, "medium": PURPLE, "hard": RED}
_NONE = "\u2013"
# A band with a smaller share of tokens has no curve, because it would mislead.
_MIN_TOKEN_FRACTION = 0.01
_TEXT = (
    "A token's advantage mass is its advantage times its weight, of the loss and of "
    "RFGO. If all tokens of a completion have the same weight, mass is distributed "
    "like the tokens. The gradient proxy is the mass times 1 - p, where p is the "
    "token's probability: our proxy for what moves the policy. A token with p = 1 has "
    "mass but no gradient. "
)

# {measure: sums [band, tenth]} and {measure: sums [band, class]}
_Sums = Mapping[str, Float[np.ndarray, " Q K"]]


def token_section(run: RunArtifacts) -> Section | None:
    """Entropy, mass and gradient by decile and token class, first and last steps."""
    files = (run.path / TOKENS_DIR).glob("step_*.npz")
    steps = sorted(int(file.stem.removeprefix("step_")) for file in files)
    if not steps:
        return None
    tenth = max(1, len(steps) // 10)
    cuts = {"first": steps[:tenth], "last": steps[-tenth:]}
    sums = {when: _sum_files(run, chosen) for when, chosen in cuts.items()}
    deciles = {when: by_decile for when, (by_decile, _) in sums.items()}
    classes = {when: by_class for when, (_, by_class) in sums.items()}
    over_steps = [
        _decile_lines(
            when, color, {name: sums.sum(axis=0) for name, sums in cut.items()}
        )
        for (when, cut), color in zip(deciles.items(), (GRAY, GREEN), strict=True)
    ]
    bands = _charted_bands(deciles["last"])
    by_band = [
        _decile_lines(
            band,
            _COLORS[band],
            {n: sums[BANDS.index(band)] for n, sums in deciles["last"].items()},
        )
        for band in bands
    ]
    figures, labels = [], dict[str, str]()
    for name, title, lines in (
        ("all", "", over_steps),
        ("band", ", last steps", by_band),
    ):
        for measure, label in (
            ("entropy", "Entropy of a token"),
            ("advantage_mass", "Advantage mass"),
            ("logit_grad_proxy", "Gradient proxy"),
        ):
            drawn = [line[measure] for line in lines]
            figures += draw_chart(
                f"tokens-{name}-{measure}",
                f"{label}{title}",
                drawn,
                xlabel="decile of the completion",
                categorical=True,
            )
            labels |= make_legend(drawn)
    return Section(
        title="Which tokens get the credit",
        text=_TEXT
        + f"Steps {_join_steps(cuts['first'])} against {_join_steps(cuts['last'])}.",
        figures=figures,
        legend=labels,
        table=_class_table(classes["first"], classes["last"], bands),
    )


def _sum_files(run: RunArtifacts, steps: Sequence[int]) -> tuple[_Sums, _Sums]:
    """Returns the sums of the steps' files, by decile and by class."""
    by_decile, by_class = dict[str, np.ndarray](), dict[str, np.ndarray]()
    for step in steps:
        with np.load(token_stats_file(run.path, step)) as file:
            for k, name in enumerate(file["measures"].tolist()):
                for total, key in ((by_decile, "by_decile"), (by_class, "by_class")):
                    sums_QK = file[key][:, :, k].astype(np.float64)
                    total[name] = sums_QK + total.get(name, 0.0)
    return by_decile, by_class


def _charted_bands(sums: _Sums) -> list[str]:
    """Returns the bands with enough tokens for a curve, or [] if fewer than two."""
    tokens_Q = sums["tokens"].sum(axis=1)
    enough_Q = tokens_Q > _MIN_TOKEN_FRACTION * tokens_Q.sum()
    bands = [band for band in _COLORS if enough_Q[BANDS.index(band)]]
    return bands if len(bands) > 1 else []


def _decile_lines(
    label: str, color: str, sums: Mapping[str, Float[np.ndarray, " K"]]
) -> dict[str, Line]:
    """Returns a line for each statistic; deciles without tokens have no point."""
    at = np.flatnonzero(sums["tokens"] > 0)
    values = {"entropy": sums["entropy"][at] / sums["tokens"][at]}
    values |= {
        name: _normalize(sums[name])[at]
        for name in ("advantage_mass", "logit_grad_proxy")
    }
    return {
        name: Line(label=label, color=color, x=(at + 1).tolist(), y=value.tolist())
        for name, value in values.items()
    }


def _class_table(first: _Sums, last: _Sums, bands: Sequence[str]) -> Table:
    """Returns a row for each token class that occurs: shares and entropies."""
    totals = [
        {n: sums.sum(axis=0) for n, sums in part.items()} for part in (first, last)
    ]
    head = ["class", "tokens", "entropy", "advantage mass", "gradient proxy"]
    head[1:] = [f"{name}, first \u2192 last" for name in head[1:]]
    head += [f"gradient proxy, {band}, last" for band in bands]
    rows = []
    for k, name in enumerate(TOKEN_CLASSES):
        if not any(total["tokens"][k] for total in totals):
            continue
        entropy = [
            f"{total['entropy'][k] / n:.2f}" if (n := total["tokens"][k]) else _NONE
            for total in totals
        ]
        row = [name, "", " \u2192 ".join(entropy), "", ""]
        for column, key in (
            (1, "tokens"),
            (3, "advantage_mass"),
            (4, "logit_grad_proxy"),
        ):
            fractions = [_normalize(total[key])[k] for total in totals]
            row[column] = " \u2192 ".join(map(format_percent, fractions))
        for band in bands:
            proxy_K = last["logit_grad_proxy"][BANDS.index(band)]
            row.append(format_percent(_normalize(proxy_K)[k]))
        rows.append(row)
    return Table(head=head, rows=rows)


def _normalize(values: Float[np.ndarray, " K"]) -> Float[np.ndarray, " K"]:
    """Returns values over their sum, zeros where the sum is 0."""
    total = values.sum()
    return values / total if total > 0 else np.zeros_like(values)


def _join_steps(steps: Sequence[int]) -> str:
    return ", ".join(map(str, steps))


PARTS = (Part(token_section, order=250),)
