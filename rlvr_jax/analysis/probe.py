"""The parts of a report that come from a probe; a run without one has none of them."""

from collections.abc import Sequence

import markupsafe
import numpy as np
from jaxtyping import Float

from rlvr_jax.analysis.feature_dynamics import NULL_DRAWS, Dynamics, dynamics
from rlvr_jax.analysis.feature_log import (
    FIXED,
    OWN,
    FeatureLog,
    NoFeaturesError,
    drops,
    logged,
    read_log,
)
from rlvr_jax.analysis.feature_rows import ALL
from rlvr_jax.analysis.feature_text import (
    count_table,
    in_words,
    moved_table,
    warnings,
)
from rlvr_jax.analysis.figures import BLUE, GREEN, GREY, PURPLE, RED, Line
from rlvr_jax.analysis.section import Section, Table, chart, curve, legend
from rlvr_jax.analysis.workdir import Run
from sae_jax.dynamics import Cuts
from sae_jax.feature_statistics import FeatureTable

_COLORS = {ALL: GREEN, "easy": BLUE, "medium": PURPLE, "hard": RED, "unknown": GREY}
_SPLITS = {FIXED: "fixed texts", OWN: "own completions"}
_STEERING = {
    "rfgo/corr_reward": "Correlation of proxy and outcome",
    "rfgo/proxy_groups": "Groups given a proxy reward",
    "rfgo/weight_std": "Deviation of token weights from 1",
}
_VALIDITY = {
    "fve": "Variance explained",
    "l0": "Latents a token",
    "ce_recovered": "Loss recovered",
}
_DIRECTION = (
    "This run read one raw direction. What follows is of the latents that it stands "
    "for. "
)
_TOP = 5  # claims shown of each band

# {(split, band): {step: value of each reward feature}}
_History = dict[tuple[str, str], dict[int, Float[np.ndarray, " R"]]]


def sections(run: Run) -> list[Section]:
    """Returns what the probe saw: reward features, dynamics, the dictionary's fit."""
    if not logged(run):
        return []
    log = read_log(run)
    return [*_features(log), *_dynamics(log), *_validity(log)]


def _features(log: FeatureLog) -> list[Section]:
    """Returns how the reward features' level went, and whether it marks the right."""
    if not log.weights:
        return []
    means, contrast = _histories(log)
    scale_R = np.array([*log.weights.values()]) / np.array(log.selection["sigma"])
    charts: list[markupsafe.Markup] = []
    labels: dict[str, str] = {}
    for name, title, history, split in (
        ("level-fixed", "Level on fixed texts", means, FIXED),
        ("level-own", "Level on own completions", means, OWN),
        ("level-contrast", "Level, right minus wrong", contrast, OWN),
    ):
        lines = [
            Line(
                label=band,
                color=color,
                x=[*of],
                y=[float(v @ scale_R) for v in of.values()],
            )
            for band, color in _COLORS.items()
            if (of := history.get((split, band)))
        ]
        charts += chart(name, title, lines)
        labels |= legend(lines)
    for index, (name, title) in enumerate(_STEERING.items()):
        charts += chart(f"steering{index}", title, [curve(log.run, name)])
    text = _DIRECTION if log.selection["arm"] == "direction" else ""
    return [
        Section(
            title="Reward features",
            text=f"{text}The level of a text is what RFGO reads: the sum over the "
            "reward features of weight times activation over scale, here in the mean "
            "over tokens. On fixed texts only the policy changes; on own completions "
            "the texts do too. Where the level rises and right minus wrong falls, it "
            "may be gamed.",
            figures=charts,
            legend=labels,
            table=_feature_table(log, means, contrast),
        )
    ]


def _feature_table(log: FeatureLog, means: _History, contrast: _History) -> Table:
    def ends(history: _History, split: str, r: int) -> str:
        values = [value[r] for value in history.get((split, ALL), {}).values()]
        if not values:
            return "\u2013"
        return f"{values[0]:.3g} \u2192 {values[-1]:.3g}"

    dead = set(log.selection["dead"])
    return Table(
        head=(
            "feature",
            "weight",
            "stability",
            "mean on fixed texts",
            "mean on own completions",
            "right minus wrong",
        ),
        rows=[
            (
                f"{z}{' (hardly fires)' if z in dead else ''}",
                f"{weight:.3f}",
                "\u2013" if np.isnan(log.stability[z]) else f"{log.stability[z]:.2f}",
                ends(means, FIXED, r),
                ends(means, OWN, r),
                ends(contrast, OWN, r),
            )
            for r, (z, weight) in enumerate(log.weights.items())
        ],
    )


def _histories(log: FeatureLog) -> tuple[_History, _History]:
    """Returns the reward features' means, and right less wrong, over the steps."""
    features = [*log.weights]
    means: _History = {}
    contrast: _History = {}
    for step in log.steps:
        for table in _by_band(log.table(step)):
            found = table.statistics
            judged = np.minimum(found.tokens_right, found.tokens_wrong) > 0
            differ = found.right_minus_wrong()[:, features]
            for i, row in enumerate(table.rows):
                key = (row.split, row.band or ALL)
                means.setdefault(key, {})[step] = found.mean()[i, features]
                if judged[i]:
                    contrast.setdefault(key, {})[step] = differ[i]
    return means, contrast


def _by_band(table: FeatureTable) -> Sequence[FeatureTable]:
    return [table.merged("split", "band"), table.merged("split")]


def _dynamics(log: FeatureLog) -> list[Section]:
    """Returns what changed since step 0, counted and the surest by name."""
    try:
        found = dynamics(log, Cuts())
    except NoFeaturesError:  # one step so far, say: nothing to compare
        return []
    parts = [_counted(found)]
    if found.rows:
        parts.append(
            Section(
                title="Features that changed",
                text=f"The {_TOP} surest claims of each band. Own text: the ratio on "
                "the run's own completions, where the texts have changed too. "
                "Stability: cosine with other seeds' latents. unique? means that "
                "another band's interval does not rule it out there.",
                table=moved_table(found, _TOP),
            )
        )
    return parts


def _counted(found: Dynamics) -> Section:
    cuts = found.cuts
    return Section(
        title="Feature dynamics",
        text=f"Step {found.step} against step 0 on the same texts. Strengthened: mean "
        f"activation times {1 + cuts.delta:g} or more; suppressed: times "
        f"{1 - cuts.delta:g} or less; emerging: fires on under {100 * cuts.e0:g} % of "
        f"tokens before, on {100 * cuts.e1:g} % or more now; unique: gained in this "
        f"band alone. At most {100 * cuts.level:g} % of claims are false on average. "
        "In brackets: the mean count when each prompt's two readings are swapped by "
        f"chance ({NULL_DRAWS} draws).",
        table=count_table(found),
        findings=[
            ("Does the dictionary still fit?", warning, "")
            for warning in warnings(found)
        ],
    )


def _validity(log: FeatureLog) -> list[Section]:
    """Returns how well the frozen dictionary explains the moving policy."""
    if not log.validity:
        return []
    charts: list[markupsafe.Markup] = []
    labels: dict[str, str] = {}
    for name, title in _VALIDITY.items():
        for split, where in _SPLITS.items():
            lines = []
            for band, color in _COLORS.items():
                points = [
                    (line["step"], line[name])
                    for line in log.validity
                    if (line["split"], line["band"] or ALL) == (split, band)
                    and name in line
                    and line[name] is not None
                ]
                if points:
                    x, y = zip(*points, strict=True)
                    lines.append(Line(label=band, color=color, x=x, y=y))
            charts += chart(f"validity-{name}-{split}", f"{title}, {where}", lines)
            labels |= legend(lines)
    last = drops(log, log.steps[-1])
    text = "The autoencoder is frozen while the policy moves away from what it learnt."
    if last:
        text += f" Largest loss by step {log.steps[-1]}: {in_words(last[0])}."
    return [
        Section(
            title="Validity of the dictionary", text=text, figures=charts, legend=labels
        )
    ]
