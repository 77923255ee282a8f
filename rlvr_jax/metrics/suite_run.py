"""Evaluates a policy on several benchmarks; saves completions after each of them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from job_jax.config_io import to_json
from job_jax.files import write_json
from job_jax.flags import UsageError
from job_jax.metrics import Progress
from job_jax.processes import broadcast, is_primary
from rlvr_jax.metrics.scores import evaluate_policy
from rlvr_jax.metrics.suite import (
    format_table,
    results_from_rows,
    summarize_average,
    summarize_benchmark,
)
from rlvr_jax.run.load import LoadedPolicy
from rlvr_jax.run.setup import RunSetup
from rlvr_jax.run.workdir import read_rollouts, rollouts_file, write_rollouts
from rlvr_jax.tasks.public.files import hash_file
from rlvr_jax.tasks.public.suite import Benchmark
from rlvr_jax.types import Problem

_REQUEST, _SCORES = "suite.json", "scores.json"
# Fields of section eval that do not affect completions.
# Fields of section model that do, besides the checkpoint's own.
_SAMPLED_FROM = ("max_seq_len", "compute_dtype")
_NOT_SAMPLED = ("k", "bootstrap_resamples", "num_problems", "every", "batch_size")


def describe_request(
    setup: RunSetup, checkpoint: str, step: int, first: int
) -> dict[str, Any]:
    """Returns, as JSON, all that a benchmark's completions depend on except its files.

    A directory of completions is reused only for an equal request.
    """
    config: dict[str, Any] = to_json(setup.config)
    sampled = {k: v for k, v in config["eval"].items() if k not in _NOT_SAMPLED}
    return {
        "checkpoint": checkpoint,
        "step": step,
        "seed": setup.config.seed,
        "eval": sampled,
        "record": config["task"]["record"],
        "first": first,
        "model": {name: config["model"][name] for name in _SAMPLED_FROM},
        "environment": config["environment"],
    }


def run_suite(
    policy: LoadedPolicy,
    benchmarks: Sequence[Benchmark],
    *,
    request: Mapping[str, Any],
    out: Path | None,
) -> dict[str, Any]:
    """Returns the summary of the benchmarks from which the setup's eval problems come.

    With `out`, each benchmark's completions are written there once it is done, and
    reused when the same evaluation is run again. Scores and tables follow at the end.
    Raises UsageError if `out` holds completions of another policy or setting.
    """
    setup = policy.setup
    files = {
        one.name: {str(path): hash_file(path) for path in one.files}
        for one in benchmarks
    }
    if out is not None:
        broadcast(lambda: open_directory(out, request, files))
    problems = setup.problems("eval", len(setup.sources["eval"]))
    eval_config, seed = setup.config.eval, setup.config.seed
    options: dict[str, Any] = {
        "k": eval_config.ks,
        "resamples": eval_config.bootstrap_resamples,
        "seed": seed,
    }
    groups, summaries = [], {}
    for one in benchmarks:
        own = [problem for problem in problems if problem.source == one.name]
        rows = _complete(policy, one.name, own, out)
        results = results_from_rows(rows)
        groups.append(results)
        told = _describe_benchmark(setup, one, request["first"], num_asked=len(own))
        summaries[one.name] = told | summarize_benchmark(results, **options)
        summaries[one.name]["files"] = files[one.name]
    summary = {
        **{name: request[name] for name in ("checkpoint", "step", "seed")},
        "num_samples": eval_config.num_samples,
        "sampling": request["eval"]["sampling"],
        "k": [*eval_config.ks],
        "benchmarks": summaries,
    }
    if len(groups) > 1:
        summary["average"] = summarize_average(groups, **options)
    if out is not None and is_primary():
        write_json(out / _SCORES, summary)
        (out / "table.md").write_text(format_table(summary, "md") + "\n")
        (out / "table.tex").write_text(format_table(summary, "tex") + "\n")
    return summary


def _describe_benchmark(
    setup: RunSetup, benchmark: Benchmark, first: int, *, num_asked: int
) -> dict[str, Any]:
    """Returns a benchmark's title, count, verifier and the problems left out.

    The count is "498 of 500" if some are left out.
    """
    total = len(benchmark.records()[: first or None])
    prefix = f"{benchmark.name}/"
    golds = {
        name.removeprefix(prefix): reason
        for name, reason in setup.invalid_golds.get("eval", {}).items()
        if name.startswith(prefix)
    }
    is_whole = num_asked == total and not first
    of = "" if is_whole else f" of {len(benchmark.records())}"
    left_out = {
        "invalid_golds": golds,
        "too_long": total - num_asked - len(golds),
    }
    return {
        "title": benchmark.data_set.title,
        "count": f"{num_asked}{of}",
        "verifier": benchmark.data_set.verifier,
        **({"left_out": left_out} if num_asked < total else {}),
    }


def _complete(
    policy: LoadedPolicy, name: str, problems: Sequence[Problem], out: Path | None
) -> list[dict[str, Any]]:
    """Returns a benchmark's graded completions, as lines of rollouts/."""
    if not problems:
        raise UsageError(
            f"{name}: no problem is usable, all are too long or have no answer that "
            "the verifier can read; raise model.max_seq_len"
        )
    file = rollouts_file(out, name, policy.step) if out else None
    if file is not None:
        found = broadcast(lambda: read_rollouts(file) if file.exists() else [])
        if found:
            _check_same_problems(found, problems, file)
            progress = Progress(name, len(problems), every=1)
            progress.log(f"{name}: read from {file}")
            return found
    num_samples = policy.setup.config.eval.num_samples
    progress = Progress(f"{name} x {num_samples}", len(problems), every=1)
    graded = evaluate_policy(
        policy.setup,
        policy.params,
        problems,
        weight_version=policy.step,
        on_batch=lambda done, tokens: progress.update(done, {}, tokens=tokens),
    )
    progress.close()
    rows = [one.to_json(name, policy.step) for one in graded]
    if file is not None and is_primary():
        write_rollouts(file, rows)
    return rows


def _check_same_problems(
    rows: Sequence[Mapping[str, object]], problems: Sequence[Problem], file: Path
) -> None:
    """Raises UsageError if a file has completions of other problems."""
    if {row["id"] for row in rows} != {problem.id for problem in problems}:
        raise UsageError(
            f"{file} holds completions of other problems than the {len(problems)} that "
            "this evaluation asks; give another --out"
        )


def open_directory(
    out: Path, request: Mapping[str, object], files: Mapping[str, Mapping[str, str]]
) -> None:
    """Creates the directory, or checks that its completions are for the same request.

    Raises UsageError if it does not.
    """
    (out / "rollouts").mkdir(parents=True, exist_ok=True)
    path = out / _REQUEST
    known: dict[str, Any] = {"files": {}}
    if path.exists():
        known = json.loads(path.read_text())
        changed = [
            f"{name} was {json.dumps(known.get(name))}, is {json.dumps(value)}"
            for name, value in json.loads(json.dumps(request)).items()
            if known.get(name) != value
        ]
        changed += [
            f"the files of {name} have changed"
            for name in files
            if name in known["files"] and known["files"][name] != files[name]
        ]
        if changed:
            raise UsageError(
                f"{out} holds completions of another evaluation: {'; '.join(changed)}; "
                "give another --out"
            )
    write_json(path, {**request, "files": {**known["files"], **files}})
