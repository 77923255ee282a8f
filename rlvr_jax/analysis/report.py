"""A workdir as one self-contained page: report/index.html."""

import dataclasses
import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import jinja2

from job_jax.command import DONE, UsageError, exit_code
from job_jax.metrics import short_duration, short_number
from rlvr_jax.analysis import difficulty, held_out, probe, tokens, training
from rlvr_jax.analysis.section import interval, percent
from rlvr_jax.analysis.workdir import NotAWorkdirError, Run, read_run

REPORT_FILE = "report/index.html"

_SECTIONS = (
    training.learning,
    training.difficulty,
    held_out.pass_curves,
    difficulty.pass_by_band,
    difficulty.training_by_band,
    difficulty.signal_by_band,
    difficulty.behaviour_by_band,
    held_out.accuracy,
    held_out.strategies,
    training.behaviour,
    tokens.where_it_learnt,
)
_LAST_SECTIONS = (
    training.doctor,
    training.warm_up,
    training.bill,
)
# Of each saved batch shown: completions per verdict, and characters of each.
_SAMPLES_PER_VERDICT = 2
_MAX_CHARACTERS = 2000
_TEXTS = ("prompt", "completion")

_USAGE = """\
usage: python -m rlvr_jax.analysis report WORKDIR

Writes WORKDIR/report/index.html and prints its path. An unfinished run gets a report
of what there is.
"""


def main(argv: Sequence[str]) -> int:
    """Returns 0; 1 where a file is broken; 2 where there is no run."""
    if any(each in ("-h", "--help") for each in argv):
        print(_USAGE)
        return DONE
    return exit_code(lambda: _write(argv), (OSError, ValueError))


def _write(argv: Sequence[str]) -> None:
    if len(argv) != 1 or argv[0].startswith("-"):
        raise UsageError("report takes one WORKDIR; see --help")
    try:
        print(write_report(argv[0]))
    except NotAWorkdirError as error:
        raise UsageError(str(error)) from error


def write_report(workdir: str | os.PathLike[str]) -> pathlib.Path:
    """Writes the report of a run, finished or not, and returns where it is.

    The page is a function of the workdir's files alone. What a run has no data for is
    left out. Raises NotAWorkdirError.
    """
    run = read_run(workdir)
    page = render(run)
    path = run.path / REPORT_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    # Model text may hold lone surrogates, which UTF-8 cannot.
    partial = path.with_suffix(".partial")
    partial.write_text(page, encoding="utf-8", errors="replace")
    os.replace(partial, path)
    return path


def render(run: Run) -> str:
    """Returns the page. Text from the run is escaped: completions are model text."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    sections = [make(run) for make in _SECTIONS]
    sections += probe.sections(run)
    sections += [make(run) for make in _LAST_SECTIONS]
    return environment.get_template("report.html").render(
        name=run.config["name"],
        headline=headline(run),
        lead=lead(run),
        tiles=tiles(run),
        sections=[section for section in sections if section is not None],
        samples=samples(run),
        record=json.dumps(run.record, indent=2),
    )


def headline(run: Run) -> str:
    """Returns what came of the run, in one sentence."""
    if (scores := _before_and_after(run)) is None:
        done = len(run.metrics.get("train", []))
        return f"{done} of {run.config['train']['steps']} training steps done"
    k, before, after = scores
    change = f"{percent(before['mean'])} to {percent(after['mean'])}"
    if after["low"] > before["high"]:
        return f"Pass@{k} rose from {change}"
    if after["high"] < before["low"]:
        return f"Pass@{k} fell from {change}"
    return f"Pass@{k} went from {change}, within the noise"


def lead(run: Run) -> str:
    """Returns what was trained, on what, how long, and how surely it was measured."""
    config, train = run.config, run.config["train"]
    task = config["task"]
    world = (
        f"arithmetic in GF({task['modulus']})"
        if task["kind"] == "finite_field"
        else f"problems of {task['train_path']}"
    )
    size = (
        f"{short_number(run.summary['params'])}-parameter policy"
        if "params" in run.summary
        else "policy"
    )
    text = (
        f"A {size}, {train['steps']} steps of reinforcement learning with verifiable "
        f"rewards on {world}: {train['prompts_per_step']} prompts a step, "
        f"{train['samples_per_prompt']} completions each. Seed {config['seed']}, "
        f"{run.record['device']}"
    )
    if "stages" in run.summary:
        text += f", {short_duration(sum(run.summary['stages'].values()))} in all"
    text += "."
    if (scores := _before_and_after(run)) is not None:
        _, before, after = scores
        problems = run.summary["eval"]["after"]["problems"]
        text += (
            f" Measured on {problems} held-out problems; 95 % intervals "
            f"{interval(before)} before and {interval(after)} after."
        )
    return text


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tile:
    """One number at the top of the page."""

    label: str
    value: str
    note: str = ""


def tiles(run: Run) -> list[Tile]:
    """Returns the numbers that one looks for first, as far as the run has them."""
    found = []
    if (scores := _before_and_after(run)) is not None:
        k, *values = scores
        found += [
            Tile(
                label=f"pass@{k} {when}",
                value=percent(value["mean"]),
                note=interval(value),
            )
            for when, value in zip(("before", "after"), values, strict=True)
        ]
    for label, stage in (("warm-up steps", "warmup"), ("RL steps", "train")):
        if stage in run.metrics:
            value = str(len(run.metrics[stage]))
            found.append(Tile(label=label, value=value))
    if "stages" in run.summary:
        seconds = sum(run.summary["stages"].values())
        found.append(Tile(label="time", value=short_duration(seconds)))
    if rate := run.summary.get("throughput", {}).get("rollout_tokens_per_s"):
        found.append(Tile(label="sampled tokens/s", value=short_number(rate)))
    return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class SampleGroup:
    """Completions of one step, as the page shows them."""

    title: str
    rows: list[dict[str, Any]]


def samples(run: Run) -> list[SampleGroup]:
    """Returns completions of the first and the last saved training step, by verdict."""
    steps = run.rollout_steps("train")
    groups = []
    for step in dict.fromkeys(steps[:1] + steps[-1:]):
        rollouts = run.rollouts("train", step)
        rows = []
        for verdict in ("right", "wrong", "unjudged"):
            picked = [r for r in rollouts if r["verdict"] == verdict]
            for row in picked[:_SAMPLES_PER_VERDICT]:
                rows.append(row | {name: _cut(row[name]) for name in _TEXTS})
        groups.append(SampleGroup(title=f"Step {step}", rows=rows))
    return groups


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else text[:_MAX_CHARACTERS] + " …"


def _before_and_after(
    run: Run,
) -> tuple[str, dict[str, float], dict[str, float]] | None:
    """Returns k and pass@k before and after training, k = 1 if measured."""
    evals = held_out.evaluations(run)
    if len(evals) < 2:
        return None
    k = held_out.smallest_k(evals["before"])
    return k, evals["before"]["pass@k"][k], evals["after"]["pass@k"][k]
