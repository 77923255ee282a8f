"""The page report/index.html, made only from a workdir's files."""

import dataclasses
import importlib
import importlib.util
import json
import os
import pathlib
import pkgutil
from collections.abc import Sequence

import jinja2

from job_jax.files import write_atomically
from job_jax.metrics import format_number
from job_jax.workdir import SUMMARY_FILE
from job_jax.working import format_duration
from rlvr_jax.report.parts import held_out
from rlvr_jax.report.run_files import RunArtifacts, read_run
from rlvr_jax.report.samples import (
    SampleGroup,
    samples_by_step,
    wrong_samples,
)
from rlvr_jax.report.sections import Part, Section
from rlvr_jax.report.tables import (
    NO_BREAK_SPACE,
    format_gain,
    format_interval,
    format_percent,
    format_with_interval,
)
from rlvr_jax.report.terms import TermLinker
from rlvr_jax.run.lineage import read_lineage

REPORT_FILE = "report/index.html"

# Modules with a list PARTS. They are found by name: the report imports no analysis.
_PARTS = "rlvr_jax.report.parts"  # all its modules
_ANALYSES = "rlvr_jax.analysis"  # section.py in its packages


def load_parts() -> list[Part]:
    """Returns the parts of the page in their order."""
    modules = [f"{_PARTS}.{module.name}" for module in _list_modules(_PARTS)]
    for analysis in _list_modules(_ANALYSES):
        name = f"{_ANALYSES}.{analysis.name}.section"
        if analysis.ispkg and importlib.util.find_spec(name):
            modules.append(name)
    parts = [part for name in modules for part in importlib.import_module(name).PARTS]
    return sorted(parts, key=lambda part: part.order)


def _list_modules(package: str) -> list[pkgutil.ModuleInfo]:
    return [*pkgutil.iter_modules(importlib.import_module(package).__path__)]


def is_report_stale(workdir: pathlib.Path) -> bool:
    """Returns whether a workdir's report is missing or older than its summary."""
    report, summary = workdir / REPORT_FILE, workdir / SUMMARY_FILE
    return not report.exists() or report.stat().st_mtime_ns < summary.stat().st_mtime_ns


def write_report(workdir: str | os.PathLike[str]) -> pathlib.Path:
    """Writes the report of a run, finished or not, and returns its path.

    The page depends only on the workdir's files. Sections without data are left out.
    Raises NotAWorkdirError.
    """
    run = read_run(workdir)
    page = render_page(run)
    path = run.path / REPORT_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    # Model text may contain lone surrogates, which UTF-8 cannot encode.
    with write_atomically(path) as partial:
        partial.write_text(page, encoding="utf-8", errors="replace")
    return path


def render_page(run: RunArtifacts) -> str:
    """Returns the page. Text from the run is escaped, because models write it."""
    return render_template(
        name=run.config["name"],
        headline=headline(run),
        lead=lead_paragraph(run),
        tiles=tiles(run),
        sections=[section for part in load_parts() for section in part.sections(run)],
        samples=samples_by_step(run),
        wrong=wrong_samples(run),
        record=json.dumps(run.metadata, indent=2),
    )


def render_template(
    *,
    name: str,
    headline: str,
    lead: str,
    sections: Sequence[Section],
    record: str,
    tiles: Sequence["Tile"] = (),
    samples: Sequence[SampleGroup] = (),
    wrong: Sequence[SampleGroup] = (),
) -> str:
    """Returns a page of these parts; the last is `record`, the configuration."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    linker = TermLinker()
    environment.filters["linked"] = linker
    return environment.get_template("page.html").render(
        name=name,
        headline=headline,
        lead=lead,
        tiles=tiles,
        sections=sections,
        samples=samples,
        wrong=wrong,
        record=record,
        terms=linker.met,  # read after the text above it has been linked
    )


def headline(run: RunArtifacts) -> str:
    """Returns the result of the run in one sentence."""
    if (scores := _pass_before_and_after(run)) is None:
        done = len(run.stage("train"))
        return f"{done} of {run.config['train']['steps']} training steps done"
    k, before, after = scores
    if before["mean"] == after["mean"] == 0:
        return "No held-out answer was correct, before RL or after"
    if before["mean"] == after["mean"] == 1:
        return "Every held-out answer was correct, before RL and after"
    change = f"{format_percent(before['mean'])} to {format_percent(after['mean'])}"
    gain = run.summary["eval"]["gain"]["pass@k"][k]
    if gain["low"] is None:
        return (
            f"Pass@{k} went from {change} on one problem, which says nothing about "
            "others"
        )
    if gain["low"] > 0:
        return f"Pass@{k} rose from {change}"
    if gain["high"] < 0:
        return f"Pass@{k} fell from {change}"
    if format_percent(before["mean"]) == format_percent(after["mean"]):
        return f"Pass@{k} stayed at {format_percent(before['mean'])}"
    return f"Pass@{k} went from {change}, within the noise"


def lead_paragraph(run: RunArtifacts) -> str:
    """Returns the model, its task, the length of training, and the certainty."""
    config, train = run.config, run.config["train"]
    world = run.summary.get("task", f"problems of {config['task']['source']}")
    algorithm = f", by {run.summary['algorithm']}" if "algorithm" in run.summary else ""
    if (run.summary.get("probe") or {}).get("refusal"):
        algorithm += " (no reasoning feature was confirmed: RFGO was off)"
    size = (
        f"{format_number(run.summary['params'])}-parameter policy"
        if "params" in run.summary
        else "policy"
    )
    text = (
        f"A {size}, {train['steps']} steps of reinforcement learning with verifiable "
        f"rewards on {world}{algorithm}: {train['batch_size']} prompts per step, "
        f"{train['group_size']} completions each. Seed {config['seed']}, "
        f"{run.metadata['device']}"
    )
    if "stages" in run.summary:
        text += f", {format_duration(sum(run.summary['stages'].values()))} in all"
    text += "."
    if lineage := read_lineage(run.metadata):
        text += f" It continues from {lineage}"
        while lineage := lineage.earlier:
            text += f"; that from {lineage}"
        text += "."
    origin = run.metadata.get("forked_from")
    while origin:
        text += (
            f" Up to step {origin['step']} it is {origin['workdir']}; changed after "
            f"that: {'; '.join(origin['changes']) or 'nothing'}."
        )
        origin = origin["earlier"]
    if former := run.metadata.get("former_train_steps"):
        text += f" It was first planned with {' and '.join(map(str, former))} steps."
    if (scores := _pass_before_and_after(run)) is not None:
        k, before, after = scores
        problems = run.summary["eval"]["after"]["problems"]
        gain = run.summary["eval"]["gain"]["pass@k"][k]
        text += (
            f" Measured on {problems} held-out problem{'s' * (problems > 1)}: pass@{k} "
            f"{format_with_interval(before)} before, {format_with_interval(after)} "
            f"after, {format_gain(gain)} paired by problem (95{NO_BREAK_SPACE}% "
            "intervals)."
        )
    return text


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tile:
    """One number at the top of the page."""

    label: str
    value: str
    note: str = ""


def tiles(run: RunArtifacts) -> list[Tile]:
    """Returns the most important numbers, as far as the run has them."""
    found: list[Tile] = []
    if (scores := _pass_before_and_after(run)) is not None:
        k, *values = scores
        found += [
            Tile(
                label=f"pass@{k} {when}",
                value=format_percent(value["mean"]),
                note=f"{format_interval(value)}, 95{NO_BREAK_SPACE}% over problems"
                if value["low"] is not None
                else "one problem: no interval",
            )
            for when, value in zip(("before", "after"), values, strict=True)
        ]
        found += _largest_k_tile(run, smallest=k)
    if steps := len(run.stage("train")):
        codes = sorted({alarm.code for alarm in run.alarms})
        found.append(Tile(label="alarms", value=str(len(codes)), note=", ".join(codes)))
        if "stages" in run.summary:
            seconds = sum(run.summary["stages"].values())
            note = f"{steps} RL steps"
            found.append(Tile(label="time", value=format_duration(seconds), note=note))
    return found


def _largest_k_tile(run: RunArtifacts, *, smallest: str) -> list[Tile]:
    """Returns what RL changed at the largest k, [] if only one was measured."""
    evals = held_out.evaluations(run)
    k = max(evals["before"]["pass@k"], key=int)
    if k == smallest:
        return []
    before, after = (evals[when]["pass@k"][k]["mean"] for when in ("before", "after"))
    change = f"{format_percent(before)} → {format_percent(after)}"
    gain = run.summary["eval"]["gain"]["pass@k"][k]
    return [Tile(label=f"pass@{k}", value=change, note=format_gain(gain))]


def _pass_before_and_after(
    run: RunArtifacts,
) -> tuple[str, dict[str, float], dict[str, float]] | None:
    """Returns k and pass@k before and after training, k = 1 if measured.

    Returns None until both scores and the gain between them exist.
    """
    evals = held_out.evaluations(run)
    if len(evals) < 2 or "gain" not in run.summary["eval"]:
        return None
    k = held_out.smallest_k(evals["before"])
    return k, evals["before"]["pass@k"][k], evals["after"]["pass@k"][k]
