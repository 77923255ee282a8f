"""Sections of the report on the metrics of training steps.

Each function returns its section, or None if the run has no data for it.
"""

from job_jax.metrics import format_number
from job_jax.working import format_duration
from rlvr_jax.metrics.doctor import describe_short_run
from rlvr_jax.report.charts import (
    AMBER,
    BLUE,
    GRAY,
    GREEN,
    PURPLE,
    RED,
    level_colors,
)
from rlvr_jax.report.run_files import RunArtifacts
from rlvr_jax.report.sections import (
    Part,
    Section,
    draw_chart,
    make_legend,
    metric_line,
)
from rlvr_jax.report.tables import (
    Table,
    first_and_last_tenth,
    format_percent,
    mean,
)

GROUP_CAUSES = {
    "nonzero_std": ("with signal", GREEN),
    "all_correct": ("all correct", BLUE),
    "all_incorrect": ("all incorrect", RED),
    "truncated": ("cut short", AMBER),
    "unverified": ("unverified", GRAY),
}
_STABILITY_CHARTS = {
    "rollout/length_mean": "Completion length, tokens",
    "rollout/entropy": "Entropy, nats per token",
    "logprob_mismatch/mean": "Mismatch of sampler and trainer, nats per token",
    "optimizer/grad_norm": "Gradient norm",
}
_FORMATS = {
    "tagged": ("in a tag", BLUE),
    "boxed": ("in a box", GREEN),
    "hashes": ("after ####", AMBER),
    "statement": ("stated as the answer", PURPLE),
    "unmarked": ("unmarked", GRAY),
    "none": ("no answer", RED),
}
_SUMMARY_NUMBERS = {
    "params": "parameters",
    "compile_count": "programs compiled",
    "params_sha256": "digest of the final parameters",
}


def sft(run: RunArtifacts) -> Section | None:
    """Loss over the steps of supervised fine-tuning."""
    loss = metric_line(run, "loss/total", stage="sft")
    if len(loss.x) < 2:
        return None
    _, last = first_and_last_tenth(loss.y)
    return Section(
        title="The loss of supervised fine-tuning",
        text=f"On worked solutions, before RL; the loss ended at {last:.3f}.",
        figures=draw_chart("sft-loss", "Loss, nats per token", [loss]),
    )


def learning(run: RunArtifacts) -> Section | None:
    """Reward over the steps, and how many groups had a signal to learn from."""
    reward = metric_line(run, "reward/mean")
    if len(reward.x) < 2:
        return None
    first, last = first_and_last_tenth(reward.y)
    text = (
        f"Mean reward was {first:.2f} over the first tenth of the steps and {last:.2f} "
        "over the last."
    )
    causes = [
        metric_line(run, f"groups/{name}", label=label, color=color)
        for name, (label, color) in GROUP_CAUSES.items()
    ]
    causes = [line for line in causes if sum(line.y) > 0]
    if causes:
        shares = ", ".join(
            f"{format_percent(mean(line.y))} {line.label}" for line in causes
        )
        text += f" Groups of completions over the whole run: {shares}."
    return Section(
        title="Reward, and groups with a signal, step by step",
        text=text,
        figures=[
            *draw_chart("reward", "Mean reward", [reward]),
            *draw_chart("groups", "Groups", causes, percent=True, stacked=True),
        ],
        legend=make_legend(causes),
    )


def by_level(run: RunArtifacts) -> Section | None:
    """Pass rate, groups with signal and advantage mass of each level of difficulty."""
    levels = [int(n) for n in run.match_metrics("train", r"level_(\d+)/pass")]
    if not levels:
        return None
    colors = level_colors(levels)
    passed, signal, mass = (
        {
            n: metric_line(
                run, f"level_{n}/{kind}", label=run.level_label(n), color=colors[n]
            )
            for n in levels
        }
        for kind in ("pass", "nonzero_std", "advantage_mass")
    )
    taught = {n: sum(line.y) for n, line in mass.items()}
    total = sum(taught.values())
    text = ""
    if total > 0:
        best = max(taught, key=taught.__getitem__)
        name = run.level_label(best)
        text = (
            f"{name[:1].upper()}{name[1:]} taught most: "
            f"{format_percent(taught[best] / total)} of the advantage mass came from "
            "its groups."
        )
    rows = []
    for n in levels:
        first, last = first_and_last_tenth(passed[n].y)
        rows.append(
            (
                run.level_names.get(n, str(n)),
                f"{format_percent(first)} \u2192 {format_percent(last)}",
                format_percent(mean(signal[n].y)) if signal[n].y else "",
                format_percent(taught[n] / total) if total > 0 else "",
            )
        )
    return Section(
        title="Which difficulties taught the policy",
        text=text,
        figures=[
            *draw_chart("pass", "Pass rate", [*passed.values()], percent=True),
            *draw_chart(
                "signal", "Groups with signal", [*signal.values()], percent=True
            ),
            *draw_chart("mass", "Advantage mass", [*mass.values()]),
        ],
        legend=make_legend([*passed.values()]),
        table=Table(
            head=(
                "level",
                "pass rate, first \u2192 last tenth",
                "groups with signal",
                "advantage mass",
            ),
            rows=rows,
        ),
    )


def stability(run: RunArtifacts) -> Section | None:
    """Length, entropy, sampler-trainer mismatch and gradient norm over the steps."""
    charts = [
        svg
        for index, (name, title) in enumerate(_STABILITY_CHARTS.items())
        for svg in draw_chart(f"stability{index}", title, [metric_line(run, name)])
    ]
    if not charts:
        return None
    return Section(
        title="Early signs of collapse: length, entropy, numerics",
        text="Length and entropy tend to collapse before accuracy falls. The mismatch "
        "is between the log-probabilities of the sampler and of the trainer.",
        figures=charts,
    )


def answer_formats(run: RunArtifacts) -> Section | None:
    """How completions give their answers, if they ever used two formats."""
    lines = [
        metric_line(run, f"format/{name}", label=label, color=color)
        for name, (label, color) in _FORMATS.items()
    ]
    lines = [line for line in lines if sum(line.y) > 0]
    entropy = metric_line(run, "format/entropy")
    if len(lines) < 2 or len(entropy.x) < 2:
        return None
    first, last = first_and_last_tenth(entropy.y)
    return Section(
        title="How answers are written",
        text="How the verified completions of each step give their answer. The entropy "
        f"of these fractions was {first:.2f} nats over the first tenth of the steps "
        f"and {last:.2f} over the last; 0 means that only one format is left.",
        figures=[
            *draw_chart("formats", "Formats", lines, percent=True, stacked=True),
            *draw_chart("format-entropy", "Entropy of formats, nats", [entropy]),
        ],
        legend=make_legend(lines),
    )


def doctor_findings(run: RunArtifacts) -> Section | None:
    """The alarms that the run doctor raised."""
    if not (num_steps := len(run.stage("train"))):
        return None
    alarms = run.alarms
    told = "" if alarms else f"Nothing to report in {num_steps} steps."
    if short := describe_short_run(num_steps, run.config["log"]["alarm_window"]):
        told = f"{short}{_describe_outcome(run)}"
    return Section(
        title="What the run doctor found",
        text=told,
        findings=[
            (f"Step {alarm.step}: {alarm.code}", alarm.finding, alarm.advice)
            for alarm in alarms
        ],
    )


def _describe_outcome(run: RunArtifacts) -> str:
    """Returns the shares of correct completions and of groups with signal, if known."""
    told = [
        f"{format_percent(mean(values))} of {what}"
        for name, what in (
            ("verdict/correct", "completions were correct"),
            ("groups/nonzero_std", "groups had both correct and incorrect completions"),
        )
        if (values := run.series("train", name)[1])
    ]
    return f" In these, {', '.join(told)}." if told else ""


def cost(run: RunArtifacts) -> Section | None:
    """Time of each stage, throughput, and the digest of the final parameters."""
    summary = run.summary
    rows = [
        (f"stage {stage}", format_duration(seconds))
        for stage, seconds in summary.get("stages", {}).items()
    ]
    rows += [
        (name.replace("_", " "), format_number(value))
        for name, value in summary.get("throughput", {}).items()
        if value is not None
    ]
    rows += [
        (f"sampler-trainer mismatch, {name}", f"{value:.2g}")
        for name, value in summary.get("logprob_mismatch", {}).items()
        if value is not None
    ]
    rows += [
        (label, str(summary[key]))
        for key, label in _SUMMARY_NUMBERS.items()
        if key in summary
    ]
    if not rows:
        return None
    return Section(title="Time and cost of the run", table=Table(head=(), rows=rows))


PARTS = (
    Part(doctor_findings, order=20, is_first=True),
    Part(learning, order=100),
    Part(by_level, order=110),
    Part(answer_formats, order=210),
    Part(stability, order=240),
    Part(sft, order=400),
    Part(cost, order=410),
)
