"""The command `python -m rlvr_jax.evaluate`: held-out scores of a checkpoint."""

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from job_jax.buckets import is_url
from job_jax.calls import CallError
from job_jax.checkpoint import CheckpointReadError
from job_jax.command import parse_command, run_command
from job_jax.flags import ConfigFlags, UsageError
from job_jax.metrics import Progress
from job_jax.processes import is_primary
from job_jax.schema import NonNegativeInt
from job_jax.working import working
from rlvr_jax.config import Config
from rlvr_jax.metrics.scores import evaluate_policy, summarize_completions
from rlvr_jax.metrics.statistics import majority_at_k, pass_at_k, summarize_results
from rlvr_jax.metrics.suite import TableFormat, format_table
from rlvr_jax.metrics.suite_run import describe_request, run_suite
from rlvr_jax.models.huggingface.config import is_hf_directory
from rlvr_jax.rollouts.graded import Verdicts, verdicts_by_problem
from rlvr_jax.run.fetch import local_checkpoint
from rlvr_jax.run.load import find_checkpoint, load_policy, workdir_of
from rlvr_jax.run.workdir import read_rollouts, rollouts_file
from rlvr_jax.tasks.public.suite import SuiteTask, expand_suite, find_benchmarks
from rlvr_jax.tasks.records.task import RecordTask
from rlvr_jax.types import Problem

__all__ = ["evaluate_policy", "majority_at_k", "pass_at_k", "summarize_results"]

_USAGE = """\
usage: python -m rlvr_jax.evaluate --config=FILE --checkpoint=DIR [--config.a.b=v ...]
       ... --suite=NAME,... --suite_dir=DIR [--table=md|tex] [--out=DIR] [--first=N]

Samples a checkpoint's answers to the held-out problems of a config (eval.*). Prints
pass@k, maj@k and related scores as JSON, with 95 % intervals over problems.

FILE may be WORKDIR/config.json. DIR is one of
  WORKDIR/checkpoints/STAGE/STEP  this checkpoint
  WORKDIR/checkpoints/STAGE       the stage's newest checkpoint
  WORKDIR                         the newest checkpoint of train, else of sft
  a Hugging Face directory        its model and tokenizer replace the config's

Scores are also split by difficulty band, as measured on the policy before RL. This
needs its completions in WORKDIR/rollouts; without them scores are not split.

With --suite, the command samples all problems of published evaluation sets instead,
with the prompt templates of the config's task.record (docs/use/data_sets.md). math5
means MATH-500, AIME 2024, AMC, Minerva and OlympiadBench. The files are
--suite_dir/NAME.jsonl (.json, .parquet) or lie in --suite_dir/NAME/. If one is missing,
the command says so before it starts, and how to get it.
"""

_SUITE_FLAGS = ("suite_dir", "out", "table", "first")  # those that need --suite


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateFlags(ConfigFlags):
    """The flags of this command."""

    # a run's workdir, one of its checkpoints, or a Hugging Face directory
    checkpoint: str
    suite: tuple[str, ...] = ()  # evaluation sets to score on; see above
    # with --suite: the folder that holds a file or folder for each set
    suite_dir: str = ""
    # with --suite: a directory for completions, scores and tables; run again, the
    # command resumes where it stopped
    out: str = ""
    # with --suite: print a table in Markdown or LaTeX instead of JSON
    table: TableFormat | None = None
    # with --suite: only the first N problems of each set; 0: all
    first: NonNegativeInt = 0


def main(argv: Sequence[str]) -> int:
    """Returns the exit code: 0 done, 1 failed, 2 bad usage or config."""
    return run_command(
        lambda: _print_summary(argv), (CallError, CheckpointReadError, OSError)
    )


def _print_summary(argv: Sequence[str]) -> None:
    flags, _, config = parse_command(
        argv, EvaluateFlags, usage=_USAGE, default=Config(), find_faults=_find_faults
    )
    if not flags.suite:
        with working("evaluation"):
            path = local_checkpoint(flags.checkpoint)
            summary = _evaluate_checkpoint(config, path)
        print(json.dumps(summary, indent=2))
        return
    with working("evaluation"):
        summary = _evaluate_suite(config, flags)
    if is_primary():
        table = flags.table and format_table(summary, flags.table)
        print(table or json.dumps(summary, indent=2))


def _find_faults(flags: EvaluateFlags) -> list[str]:
    """Returns the faults of the flags, one line each."""
    faults = []
    if flags.suite and not flags.suite_dir:
        faults.append("--suite needs --suite_dir=DIR, the folder of its files")
    if is_url(flags.out):
        faults.append(f"--out={flags.out} is in a bucket; give a directory")
    given = [name for name in _SUITE_FLAGS if vars(flags)[name]]
    if given and not flags.suite:
        faults.append(f"--{given[0]} needs --suite=NAME")
    return faults


def _evaluate_suite(config: Config, flags: EvaluateFlags) -> dict[str, Any]:
    names = expand_suite(flags.suite)
    benchmarks = find_benchmarks(names, Path(flags.suite_dir))
    if not isinstance(config.task, RecordTask):
        raise UsageError(
            "--suite writes prompts with the templates of task.record, and "
            f"task.source={config.task.tags()['source']} has none; give a recipe with "
            "task.source=files or hub"
        )
    task = SuiteTask(
        record=config.task.record,
        benchmarks=(*names,),
        directory=flags.suite_dir,
        first=flags.first,
    )
    config = dataclasses.replace(config, task=task)
    path = local_checkpoint(flags.checkpoint)
    name = flags.checkpoint
    if not is_url(name):
        # A workdir's newest checkpoint may be of another stage next time.
        directory = path if is_hf_directory(path) else find_checkpoint(path)[0]
        name = str(directory.resolve())
    with load_policy(config, path, stage="eval") as policy:
        request = describe_request(policy.setup, name, policy.step, flags.first)
        return run_suite(
            policy,
            benchmarks,
            request=request,
            out=Path(flags.out) if flags.out else None,
        )


def _evaluate_checkpoint(config: Config, path: Path) -> dict[str, Any]:
    with load_policy(config, path, stage="eval") as (setup, params, step):
        problems = setup.problems("eval", config.eval.num_problems)
        progress = Progress("eval", len(problems), every=1)
        graded = evaluate_policy(
            setup,
            params,
            problems,
            weight_version=step,
            on_batch=lambda done, tokens: progress.update(done, {}, tokens=tokens),
        )
        progress.close()
    if is_hf_directory(path):
        return summarize_completions(config, graded)
    initial = _load_initial_verdicts(workdir_of(path), problems)
    return summarize_completions(config, graded, initial)


def _load_initial_verdicts(
    workdir: Path, problems: Sequence[Problem]
) -> Verdicts | None:
    """Returns the verdicts of the policy before RL; if unknown, prints why: None."""
    file = rollouts_file(workdir, "eval_before", 0)
    if not file.exists():
        print(f"scores are not split by band: there is no {file}", file=sys.stderr)
        return None
    initial = verdicts_by_problem(read_rollouts(file))
    if missing := sum(problem.id not in initial for problem in problems):
        print(
            f"{missing} of {len(problems)} problems have no known band: {file} does "
            "not hold them",
            file=sys.stderr,
        )
    return initial if missing < len(problems) else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
