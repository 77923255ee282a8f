"""The report's sections on a probe's features, if the run has a probe."""

from collections.abc import Sequence

import markupsafe
import numpy as np
from jaxtyping import Float

from rlvr_jax.analysis.features.autoencoders import autoencoder_section
from rlvr_jax.analysis.features.contexts import quote_contexts
from rlvr_jax.analysis.features.dynamics import (
    FeatureDynamics,
    check_step,
    compute_dynamics,
)
from rlvr_jax.analysis.features.log import (
    REFERENCE,
    ROLLOUT,
    FeatureLog,
    NoFeaturesError,
    explained_variance_drops,
    has_features,
    read_feature_log,
)
from rlvr_jax.analysis.features.text import (
    INTERVALS_OF_CHANGES,
    changes_table,
    count_table,
    describe_drop,
    explain_counts,
    fidelity_warnings,
    null_table,
)
from rlvr_jax.analysis.features.texts import ALL_BANDS
from rlvr_jax.report.charts import BLUE, GRAY, GREEN, PURPLE, RED, Line
from rlvr_jax.report.run_files import RunArtifacts
from rlvr_jax.report.sections import (
    Part,
    Section,
    draw_chart,
    make_legend,
    metric_line,
)
from rlvr_jax.report.tables import Table
from sae_jax.data.vocabulary import WHITESPACE_NOTE
from sae_jax.stats.dynamics import Thresholds
from sae_jax.stats.feature_statistics import FeatureTable

_COLORS = {
    ALL_BANDS: GREEN,
    "easy": BLUE,
    "medium": PURPLE,
    "hard": RED,
    "unknown": GRAY,
}
_SPLITS = {REFERENCE: "reference texts", ROLLOUT: "own completions"}
_RFGO_METRICS = {
    "rfgo/corr_reward": "Correlation of proxy and outcome",
    "rfgo/corr_reward_low": "Lower end of its interval (95 %, over groups)",
    "rfgo/proxy_groups": "Groups given a proxy reward",
    "rfgo/weight_std": "Deviation of token weights from 1",
}
_FIDELITY_METRICS = {
    "fve": "Variance explained",
    "l0": "Latents per token",
    "splice_nats": "Cost of reading the reconstruction, nats per token",
    "splice_kl": "KL(clean || spliced), nats per token",
    "mean_ablation_kl": "KL(clean || mean-ablated), nats per token",
}
_DIRECTION_NOTE = "This run read raw directions instead of latents."
_ACTIVATION_NOTE = (
    "The activation of a text is the quantity that RFGO reads, averaged over tokens: "
    "the sum over reward features of weight times activation divided by scale. Effects "
    "are correlations of mean activation and outcome within problems, \u00b1 1.96 "
    "standard errors over problems (95 %). The proxy uses the lower end of the "
    "interval of its correlation with the outcome (Fisher's z, over groups). On "
    "reference texts only the policy changes; on own completions the texts change too. "
    "If activation rises while correct minus incorrect falls, the policy may be gaming "
    "it."
)
_ROWS_PER_BAND = 5  # claims shown of each band

# {(split, band): {step: value of each reward feature}}
_History = dict[tuple[str, str], dict[int, Float[np.ndarray, " R"]]]


def probe_sections(run: RunArtifacts) -> list[Section]:
    """Returns the sections on reward features, dynamics and the SAE's fidelity."""
    if not has_features(run):
        return []
    log = read_feature_log(run)
    return [
        *_reward_feature_section(log),
        *_dynamics_sections(log),
        *_fidelity_section(log),
    ]


def _reward_feature_section(log: FeatureLog) -> list[Section]:
    """Returns the section on the reward features' activation over the steps."""
    if not log.selection:
        return []
    title = "Which features go with correct answers"
    choice = _describe_choice(log)
    if log.reads_directions:
        text = f"{_DIRECTION_NOTE} {choice}"
        return [Section(title=title, text=text, figures=_rfgo_charts(log))]
    if not log.reward_weights:
        text = f"None, and RFGO is off: {log.selection['refusal']}. {choice}"
        return [Section(title=title, text=text)]
    means, contrast = _histories(log)
    charts, labels = _draw_activation(log, means, contrast)
    return [
        Section(
            title=title,
            text=f"{choice} {_ACTIVATION_NOTE} {WHITESPACE_NOTE}",
            figures=[*charts, *_rfgo_charts(log)],
            legend=labels,
            table=_feature_table(log, means, contrast),
        )
    ]


def _draw_activation(
    log: FeatureLog, means: _History, contrast: _History
) -> tuple[list[markupsafe.Markup], dict[str, str]]:
    """Returns charts of the reward features' activation by band, and their legend."""
    scale_R = np.array([*log.reward_weights.values()]) / np.array(log.selection["rms"])
    charts: list[markupsafe.Markup] = []
    labels: dict[str, str] = {}
    for name, title, history, split in (
        ("reference", "Activation on reference texts", means, REFERENCE),
        ("own", "Activation on own completions", means, ROLLOUT),
        ("contrast", "Activation, correct minus incorrect", contrast, ROLLOUT),
    ):
        lines = [
            Line(
                label=band,
                color=color,
                x=[*values],
                y=[float(value_R @ scale_R) for value_R in values.values()],
            )
            for band, color in _COLORS.items()
            if (values := history.get((split, band)))
        ]
        charts += draw_chart(f"activation-{name}", title, lines)
        labels |= make_legend(lines)
    return charts, labels


def _rfgo_charts(log: FeatureLog) -> list[markupsafe.Markup]:
    """Returns charts of RFGO's metrics over the steps."""
    return [
        chart
        for index, (name, title) in enumerate(_RFGO_METRICS.items())
        for chart in draw_chart(f"rfgo{index}", title, [metric_line(log.run, name)])
    ]


def _feature_table(log: FeatureLog, means: _History, contrast: _History) -> Table:
    def first_and_last(history: _History, split: str, r: int) -> str:
        values = [value[r] for value in history.get((split, ALL_BANDS), {}).values()]
        if not values:
            return "\u2013"
        return f"{values[0]:.3g} \u2192 {values[-1]:.3g}"

    dead = set(log.selection["dead"])
    quotes = quote_contexts(log.run.path, [*log.reward_weights])
    return Table(
        head=(
            "feature",
            "weight",
            "effect within problems",
            "q",
            "seed cosine",
            "mean on reference texts",
            "mean on own completions",
            "correct minus incorrect",
            "fires most on",
        ),
        rows=[
            (
                f"{z}{' (hardly fires)' if z in dead else ''}",
                f"{weight:.3f}",
                f"{log.selection['effects'][r]:.2f} "
                f"\u00b1 {1.96 * log.selection['effect_errors'][r]:.2f}",
                _format_q(log, r),
                "\u2013"
                if np.isnan(log.seed_cosine[z])
                else f"{log.seed_cosine[z]:.2f}",
                first_and_last(means, REFERENCE, r),
                first_and_last(means, ROLLOUT, r),
                first_and_last(contrast, ROLLOUT, r),
                quotes.get(z, "\u2013"),
            )
            for r, (z, weight) in enumerate(log.reward_weights.items())
        ],
    )


def _format_q(log: FeatureLog, r: int) -> str:
    q_values = log.selection["q_values"]
    return "\u2013" if q_values is None else f"{q_values[r]:.2g}"


def _describe_choice(log: FeatureLog) -> str:
    """Returns how the reward features were chosen and tested, in plain text."""
    selection = log.selection
    parts = []
    if (stable := selection["num_stable"]) is not None:
        parts.append(
            f"Of {selection['num_alive']} latents that fire, {stable} are found by "
            "another seed."
        )
    if halves := selection["halves"]:
        chosen_on, confirmed_on = halves["num_problems"]
        parts.append(
            f"{halves['num_candidates']} were chosen by their effect within "
            f"{chosen_on} problems, and {halves['num_confirmed']} were confirmed on "
            f"{confirmed_on} others. {100 * halves['sign_agreement']:.0f} % have the "
            "same sign on both halves (50 % by chance), and over all latents that "
            "could be chosen, the effects on the halves correlate by "
            f"{halves['correlation']:.2f}."
        )
    return " ".join(parts)


def _histories(log: FeatureLog) -> tuple[_History, _History]:
    """Returns the reward features' means, and correct minus incorrect, by step."""
    features = [*log.reward_weights]
    means: _History = {}
    contrast: _History = {}
    for step in log.steps:
        for table in _by_band(log.table(step)):
            statistics = table.statistics
            has_both = (
                np.minimum(statistics.tokens_correct, statistics.tokens_incorrect) > 0
            )
            difference = statistics.correct_minus_incorrect()[:, features]
            mean = statistics.mean()[:, features]
            for i, row in enumerate(table.rows):
                key = (row.split, row.band or ALL_BANDS)
                means.setdefault(key, {})[step] = mean[i]
                if has_both[i]:
                    contrast.setdefault(key, {})[step] = difference[i]
    return means, contrast


def _by_band(table: FeatureTable) -> Sequence[FeatureTable]:
    return [table.sum_by("split", "band"), table.sum_by("split")]


def _dynamics_sections(log: FeatureLog) -> list[Section]:
    """Returns the sections on changes since step 0: counts, then features."""
    try:
        step = check_step(log, None)
    except NoFeaturesError:  # with one logged step there is nothing to compare
        return []
    try:
        dynamics = compute_dynamics(log, Thresholds(), step=step)
    except NoFeaturesError as error:
        finding = ("No claims about features", str(error), "")
        return [Section(title="How many features RL changed", findings=[finding])]
    sections = [_count_section(dynamics), _null_section(dynamics)]
    if dynamics.changes:
        sections.append(
            Section(
                title="Which features RL changed",
                text=f"The {_ROWS_PER_BAND} most certain claims in each band. Own "
                "text: the ratio on the run's own completions, where the texts have "
                "changed too. Seed cosine: with the nearest latents of other seeds. "
                "A unique? means that another band's interval does not exclude the "
                f"same change there. {INTERVALS_OF_CHANGES}",
                table=changes_table(dynamics, _ROWS_PER_BAND),
            )
        )
    return sections


def _count_section(dynamics: FeatureDynamics) -> Section:
    thresholds = dynamics.thresholds
    return Section(
        title="How many features RL changed",
        text=f"Step {dynamics.step} against step 0 on the same texts. Strengthened: "
        f"mean activation times {1 + thresholds.delta:g} or more; suppressed: times "
        f"{1 - thresholds.delta:g} or less; emerging: fires on under "
        f"{100 * thresholds.e0:g} % of tokens before, on {100 * thresholds.e1:g} % or "
        "more now; unique: gained only in this band, although other bands could have "
        f"shown it. {explain_counts(dynamics)}",
        table=count_table(dynamics),
        findings=[
            ("Does the autoencoder still fit?", warning, "")
            for warning in fidelity_warnings(dynamics)
        ],
    )


def _null_section(dynamics: FeatureDynamics) -> Section:
    return Section(
        title="How many features change without learning",
        text="For each change of the weights: how many features it moves / how many "
        "are claimed, averaged over draws. Drift: how far it moves the residual "
        "stream, relative to the stream's size. Most: the largest number of claims in "
        "any draw and band. These draws of noise are new, and are compared as if they "
        "were RL.",
        table=null_table(dynamics),
    )


def _fidelity_section(log: FeatureLog) -> list[Section]:
    """Returns the section on how well the frozen autoencoder explains the policy."""
    if not log.fidelity:
        return []
    charts: list[markupsafe.Markup] = []
    labels: dict[str, str] = {}
    for name, title in _FIDELITY_METRICS.items():
        for split, where in _SPLITS.items():
            lines = []
            for band, color in _COLORS.items():
                points = [
                    (line["step"], line[name])
                    for line in log.fidelity
                    if (line["split"], line["band"] or ALL_BANDS) == (split, band)
                    and name in line
                    and line[name] is not None
                ]
                if points:
                    x, y = zip(*points, strict=True)
                    lines.append(Line(label=band, color=color, x=x, y=y))
            charts += draw_chart(f"fidelity-{name}-{split}", f"{title}, {where}", lines)
            labels |= make_legend(lines)
    last = explained_variance_drops(log, log.steps[-1])
    text = (
        "The autoencoder is frozen while the policy moves away from its training data."
    )
    if last:
        text += f" Largest loss by step {log.steps[-1]}: {describe_drop(last[0])}."
    return [
        Section(
            title="How well the autoencoder still fits the policy",
            text=text,
            figures=charts,
            legend=labels,
        )
    ]


PARTS = (
    Part(probe_sections, order=300),
    Part(autoencoder_section, order=320),
)
