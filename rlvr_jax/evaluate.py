"""The command `python -m rlvr_jax.evaluate`: held-out scores of a checkpoint."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import flags

from job_jax.calls import CallError
from job_jax.checkpoint import CheckpointReadError
from job_jax.command import define_config_flags, parse_command, run_command
from job_jax.metrics import Progress
from rlvr_jax.config import Config
from rlvr_jax.metrics.scores import evaluate_policy, summarize_completions
from rlvr_jax.metrics.statistics import majority_at_k, pass_at_k, summarize_results
from rlvr_jax.rollouts.graded import Verdicts, verdicts_by_problem
from rlvr_jax.run.fetch import local_checkpoint
from rlvr_jax.run.load import load_policy, workdir_of
from rlvr_jax.run.workdir import read_rollouts, rollouts_file
from rlvr_jax.types import Problem

__all__ = ["evaluate_policy", "majority_at_k", "pass_at_k", "summarize_results"]

_USAGE = """\
usage: python -m rlvr_jax.evaluate --config=FILE --checkpoint=DIR [--config.a.b=v ...]

Samples the held-out problems of a config (eval.*) from a checkpoint, and prints pass@k,
maj@k and what goes with them, with 95 % intervals over problems, as JSON. DIR is one
checkpoint of a run, WORKDIR/checkpoints/STAGE/STEP; of WORKDIR/checkpoints/STAGE the
newest is taken, of WORKDIR the newest of train, else of sft. FILE may be
WORKDIR/config.json.
Bands of difficulty are those of the policy before RL, by its completions in
WORKDIR/rollouts; where there are none the scores are not cut by band.
"""


def main(argv: Sequence[str]) -> int:
    """Returns the exit code: 0 done, 1 failed, 2 bad usage or config."""
    return run_command(lambda: _print_summary(argv), (CallError, CheckpointReadError))


def _print_summary(argv: Sequence[str]) -> None:
    values = define_config_flags()
    flags.DEFINE_string(
        "checkpoint", None, "the checkpoint to evaluate; see above", flag_values=values
    )
    _, config = parse_command(
        argv,
        values,
        usage=_USAGE,
        default=Config(),
        find_faults=lambda values: (
            () if values.checkpoint else ("--checkpoint=DIR is missing; see --help",)
        ),
    )
    summary = _evaluate_checkpoint(config, local_checkpoint(values.checkpoint))
    print(json.dumps(summary, indent=2))


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
    initial = _load_initial_verdicts(workdir_of(path), problems)
    return summarize_completions(config, graded, initial)


def _load_initial_verdicts(
    workdir: Path, problems: Sequence[Problem]
) -> Verdicts | None:
    """Returns the verdicts of the policy before RL; None, and says why, if unknown."""
    file = rollouts_file(workdir, "eval_before", 0)
    if not file.exists():
        print(f"not cut by band: there is no {file}", file=sys.stderr)
        return None
    initial = verdicts_by_problem(read_rollouts(file))
    if missing := sum(problem.id not in initial for problem in problems):
        print(
            f"{missing} of {len(problems)} problems are of unknown band: {file} does "
            "not hold them",
            file=sys.stderr,
        )
    return initial if missing < len(problems) else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
