"""The part of a report on tokens: where in completions a run learnt, and on what."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from rlvr_jax.analysis.figures import BLUE, GREEN, GREY, PURPLE, RED, Line
from rlvr_jax.analysis.section import Section, Table, chart, legend, percent
from rlvr_jax.analysis.workdir import Run
from rlvr_jax.types import BANDS, TOKEN_CLASSES
from rlvr_jax.workdir import TOKENS_DIR, token_sums_file

_COLORS = {"easy": BLUE, "medium": PURPLE, "hard": RED}
_NONE = "\u2013"
# A band with a smaller share of the tokens has no curve: it would mislead.
_FEWEST = 0.01
_TEXT = (
    "A token's mass is |A w|, its advantage times its weight: where all tokens of a "
    "completion weigh alike, it is spread as they are. Its push is |A w| (1 - p), p "
    "its probability: our proxy for what moves the policy. A sure token has mass "
    "and no push. "
)

# {measure: sums [band, tenth]} and {measure: sums [band, class]}
_Sums = Mapping[str, Float[np.ndarray, " Q K"]]


def where_it_learnt(run: Run) -> Section | None:
    """Entropy, mass and push by place and class of token, first steps against last."""
    files = (run.path / TOKENS_DIR).glob("step_*.npz")
    steps = sorted(int(file.stem.removeprefix("step_")) for file in files)
    if not steps:
        return None
    tenth = max(1, len(steps) // 10)
    cuts = {"first": steps[:tenth], "last": steps[-tenth:]}
    found = {when: _read(run, chosen) for when, chosen in cuts.items()}
    places = {when: by_place for when, (by_place, _) in found.items()}
    classes = {when: by_class for when, (_, by_class) in found.items()}
    over_steps = [
        _line(when, color, {name: sums.sum(axis=0) for name, sums in cut.items()})
        for (when, cut), color in zip(places.items(), (GREY, GREEN), strict=True)
    ]
    bands = _bands(places["last"])
    by_band = [
        _line(
            band,
            _COLORS[band],
            {n: sums[BANDS.index(band)] for n, sums in places["last"].items()},
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
            ("mass", "Share of mass"),
            ("push", "Share of push"),
        ):
            drawn = [line[measure] for line in lines]
            figures += chart(
                f"tokens-{name}-{measure}",
                f"{label}{title}",
                drawn,
                xlabel="tenth of the completion",
                marks=True,
            )
            labels |= legend(drawn)
    return Section(
        title="Tokens",
        text=_TEXT + f"Steps {_named(cuts['first'])} against {_named(cuts['last'])}.",
        figures=figures,
        legend=labels,
        table=_table(classes["first"], classes["last"], bands),
    )


def _read(run: Run, steps: Sequence[int]) -> tuple[_Sums, _Sums]:
    """Returns what the steps' files add up to, by place and by class."""
    by_place, by_class = dict[str, np.ndarray](), dict[str, np.ndarray]()
    for step in steps:
        with np.load(token_sums_file(run.path, step)) as file:
            for k, name in enumerate(file["measures"].tolist()):
                for total, cut in ((by_place, "by_place"), (by_class, "by_class")):
                    sums_QK = file[cut][:, :, k].astype(np.float64)
                    total[name] = sums_QK + total.get(name, 0.0)
    return by_place, by_class


def _bands(sums: _Sums) -> list[str]:
    """Returns the known bands that are worth a curve; none where there are not two."""
    tokens_Q = sums["tokens"].sum(axis=1)
    enough_Q = tokens_Q > _FEWEST * tokens_Q.sum()
    bands = [band for band in _COLORS if enough_Q[BANDS.index(band)]]
    return bands if len(bands) > 1 else []


def _line(
    label: str, color: str, sums: Mapping[str, Float[np.ndarray, " K"]]
) -> dict[str, Line]:
    """Returns the curves by place; places without tokens have no point."""
    at = np.flatnonzero(sums["tokens"] > 0)
    values = {"entropy": sums["entropy"][at] / sums["tokens"][at]}
    values |= {name: _shares(sums[name])[at] for name in ("mass", "push")}
    return {
        name: Line(label=label, color=color, x=(at + 1).tolist(), y=each.tolist())
        for name, each in values.items()
    }


def _table(first: _Sums, last: _Sums, bands: Sequence[str]) -> Table:
    """Returns a row for each class that was met."""
    ends = [{n: sums.sum(axis=0) for n, sums in cut.items()} for cut in (first, last)]
    head = ["class", "share of tokens", "entropy", "share of mass", "share of push"]
    head[1:] = [f"{name}, first \u2192 last" for name in head[1:]]
    head += [f"push, {band}, last" for band in bands]
    rows = []
    for k, name in enumerate(TOKEN_CLASSES):
        tokens = [each["tokens"][k] for each in ends]
        if not any(tokens):
            continue
        entropy = [
            f"{each['entropy'][k] / n:.2f}" if n else _NONE
            for each, n in zip(ends, tokens, strict=True)
        ]
        row = [name, "", " \u2192 ".join(entropy), "", ""]
        for column, measure in ((1, "tokens"), (3, "mass"), (4, "push")):
            shares = [percent(_shares(each[measure])[k]) for each in ends]
            row[column] = " \u2192 ".join(shares)
        for band in bands:
            push_K = last["push"][BANDS.index(band)]
            row.append(percent(_shares(push_K)[k]))
        rows.append(row)
    return Table(head=head, rows=rows)


def _shares(values: Float[np.ndarray, " K"]) -> Float[np.ndarray, " K"]:
    """Returns values over their total; 0 where it is 0."""
    total = values.sum()
    return values / total if total > 0 else np.zeros_like(values)


def _named(steps: Sequence[int]) -> str:
    return ", ".join(map(str, steps))
