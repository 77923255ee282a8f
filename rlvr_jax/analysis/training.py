"""The parts of a report that come from the training steps' metrics.

Each function returns its section, or None where the run has no data for it.
"""

from job_jax.metrics import short_duration, short_number
from rlvr_jax.analysis.figures import AMBER, BLUE, GREEN, GREY, RED, level_colors
from rlvr_jax.analysis.section import (
    Section,
    Table,
    chart,
    curve,
    ends,
    legend,
    mean,
    percent,
)
from rlvr_jax.analysis.workdir import Run
from rlvr_jax.doctor import Alarm, review

CAUSES = {
    "split": ("with signal", GREEN),
    "all_right": ("all right", BLUE),
    "all_wrong": ("all wrong", RED),
    "truncated": ("cut short", AMBER),
    "unjudged": ("not judged", GREY),
}
_BEHAVIOUR = {
    "rollout/length_mean": "Completion length, tokens",
    "rollout/entropy": "Entropy, nats a token",
    "logprob_gap/mean": "Sampler against update, nats a token",
    "optimizer/grad_norm": "Gradient norm",
}
_SUMMARY_NUMBERS = {
    "params": "parameters",
    "compile_count": "programs compiled",
    "params_sha256": "digest of the final parameters",
}


def warm_up(run: Run) -> Section | None:
    """Loss and token accuracy of the supervised start."""
    loss = curve(run, "loss/total", stage="warmup")
    accuracy = curve(run, "accuracy/token", stage="warmup")
    if len(loss.x) < 2:
        return None
    text = f"Supervised on worked solutions; the loss ended at {ends(loss.y)[1]:.3f}"
    if accuracy.y:
        text += f" with {percent(ends(accuracy.y)[1])} of tokens predicted"
    return Section(
        title="Warm start",
        text=f"{text}.",
        figures=[
            *chart("warmup-loss", "Loss, nats a token", [loss]),
            *chart("warmup-accuracy", "Tokens predicted", [accuracy], percent=True),
        ],
    )


def learning(run: Run) -> Section | None:
    """Reward over the steps, and where the groups' signal went."""
    reward = curve(run, "reward/mean")
    if len(reward.x) < 2:
        return None
    first, last = ends(reward.y)
    text = (
        f"Mean reward was {first:.2f} over the first tenth of the steps and {last:.2f} "
        "over the last."
    )
    causes = [
        curve(run, f"groups/{name}", label=label, color=color)
        for name, (label, color) in CAUSES.items()
    ]
    causes = [line for line in causes if sum(line.y) > 0]
    if causes:
        shares = ", ".join(f"{percent(mean(line.y))} {line.label}" for line in causes)
        text += f" Groups of completions over the whole run: {shares}."
    return Section(
        title="Learning",
        text=text,
        figures=[
            *chart("reward", "Mean reward", [reward]),
            *chart("groups", "Groups", causes, percent=True, stacked=True),
        ],
        legend=legend(causes),
    )


def difficulty(run: Run) -> Section | None:
    """Which levels taught: pass rate, share of split groups, advantage mass."""
    levels = [int(n) for n in run.found("train", r"level_(\d+)/pass")]
    if not levels:
        return None
    colors = level_colors(levels)
    passed, split, mass = (
        {
            n: curve(run, f"level_{n}/{kind}", label=f"level {n}", color=colors[n])
            for n in levels
        }
        for kind in ("pass", "split", "advantage_mass")
    )
    taught = {n: sum(line.y) for n, line in mass.items()}
    total = sum(taught.values())
    text = ""
    if total > 0:
        best = max(taught, key=taught.__getitem__)
        text = (
            f"Level {best} taught most: {percent(taught[best] / total)} of the "
            "advantage mass came from its groups."
        )
    rows = []
    for n in levels:
        first, last = ends(passed[n].y)
        rows.append(
            (
                str(n),
                f"{percent(first)} \u2192 {percent(last)}",
                percent(mean(split[n].y)) if split[n].y else "",
                percent(taught[n] / total) if total > 0 else "",
            )
        )
    return Section(
        title="Which difficulties taught it",
        text=text,
        figures=[
            *chart("pass", "Pass rate", [*passed.values()], percent=True),
            *chart("split", "Groups with signal", [*split.values()], percent=True),
            *chart("mass", "Advantage mass", [*mass.values()]),
        ],
        legend=legend([*passed.values()]),
        table=Table(
            head=(
                "level",
                "pass rate, first \u2192 last tenth",
                "groups with signal",
                "share of advantage mass",
            ),
            rows=rows,
        ),
    )


def behaviour(run: Run) -> Section | None:
    """Length and entropy, which move before accuracy does; gap and gradient."""
    charts = [
        svg
        for index, (name, title) in enumerate(_BEHAVIOUR.items())
        for svg in chart(f"behaviour{index}", title, [curve(run, name)])
    ]
    if not charts:
        return None
    return Section(
        title="Length, entropy, numerics",
        text="Length and entropy tend to collapse before accuracy falls. The gap is "
        "between the log-probabilities of sampling and of the update.",
        figures=charts,
    )


def doctor(run: Run) -> Section | None:
    """What the run doctor said, told again from the metrics."""
    if not (rows := run.metrics.get("train", [])):
        return None
    told = alarms(run)
    return Section(
        title="The run doctor",
        text="" if told else f"Nothing to report in {len(rows)} steps.",
        findings=[
            (f"Step {alarm.step}: {alarm.code}", alarm.finding, alarm.advice)
            for alarm in told
        ],
    )


def alarms(run: Run) -> list[Alarm]:
    """Returns the alarms of the training steps that there are."""
    if not (rows := run.metrics.get("train", [])):
        return []
    return review(
        rows,
        window=run.config["log"]["alarm_window"],
        max_logprob_gap=run.config["train"]["max_logprob_gap"],
        max_fve_drop=run.config["probe"]["max_fve_drop"],
    )


def bill(run: Run) -> Section | None:
    """Where the time went, how fast it was, and what identifies the result."""
    summary = run.summary
    rows = [
        (f"stage {stage}", short_duration(seconds))
        for stage, seconds in summary.get("stages", {}).items()
    ]
    rows += [
        (name.replace("_", " "), short_number(value))
        for name, value in summary.get("throughput", {}).items()
        if value is not None
    ]
    rows += [
        (f"log-probability gap, {name}", f"{value:.2g}")
        for name, value in summary.get("logprob_gap", {}).items()
        if value is not None
    ]
    rows += [
        (label, str(summary[key]))
        for key, label in _SUMMARY_NUMBERS.items()
        if key in summary
    ]
    if not rows:
        return None
    return Section(title="Time and cost", table=Table(head=(), rows=rows))
