"""Held-out evaluation: pass@k and maj@k, by band, by level, by type, by strategy.

Also a command, of a checkpoint: `python -m rlvr_jax.evaluate --config --checkpoint`.
"""

import collections
import dataclasses
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags

from job_jax.checkpoint import CheckpointReadError
from job_jax.command import UsageError, command_flags, exit_code, read_command
from job_jax.metrics import Progress
from job_jax.processes import on_host
from rlvr_jax import behaviour
from rlvr_jax.config import Config, DifficultyConfig
from rlvr_jax.data.difficulty import buckets
from rlvr_jax.data.loader import encode_prompts
from rlvr_jax.models.distribution import Sampling
from rlvr_jax.restored import restored_policy, workdir_of
from rlvr_jax.run import Run
from rlvr_jax.sampler import stopped
from rlvr_jax.statistics import ProblemResult, majority_at_k, pass_at_k, summarise
from rlvr_jax.types import BANDS, Band, Problem, Rollouts, Verdict, VerdictStatus
from rlvr_jax.workdir import read_rollouts, rollouts_file

__all__ = ["Judged", "evaluate_policy", "majority_at_k", "pass_at_k", "summarise"]

# A problem's verdicts, sample by sample, by its id.
Verdicts = Mapping[str, Sequence[VerdictStatus]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judged:
    """One completion as text, and what was said of it."""

    problem: Problem
    completion: str
    verdict: Verdict
    length: int
    finished: bool
    strategy: str | None
    weight_version: int
    flags: tuple[str, ...] = ()  # of behaviour.FLAGS
    band: Band | None = None  # its problem's before the step; None outside training

    def row(self, stage: str, step: int) -> dict[str, Any]:
        """Returns the completion as a line of rollouts/."""
        return {
            "stage": stage,
            "step": step,
            "id": self.problem.id,
            "level": self.problem.level,
            "type": self.problem.type,
            "prompt": self.problem.prompt,
            "completion": self.completion,
            "verdict": self.verdict.status,
            "reason": self.verdict.reason,
            "reward": float(self.verdict.status == "right"),
            "length": self.length,
            "finished": self.finished,
            "weight_version": self.weight_version,
            **({"strategy": self.strategy} if self.strategy else {}),
            **({"band": self.band} if self.band else {}),
            **({"flags": list(self.flags)} if self.flags else {}),
        }


def completions(
    run: Run, problems: Sequence[Problem], rollouts: Rollouts
) -> list[Judged]:
    """Returns the first P problems' completions (in NumPy) read, judged, classified."""
    G = len(rollouts.lengths) // len(rollouts.prompts.lengths)
    asked = [problem for problem in problems for _ in range(G)]
    tokens = [
        rollouts.tokens[b, : rollouts.lengths[b]].tolist() for b in range(len(asked))
    ]
    texts = [run.tokenizer.decode(each) for each in tokens]
    verdicts = run.judge(asked, texts)
    observed = [
        behaviour.observe(run.config.task, problem, text, tokens=each, verdict=verdict)
        for problem, text, each, verdict in zip(
            asked, texts, tokens, verdicts, strict=True
        )
    ]
    return [
        Judged(
            problem=asked[b],
            completion=texts[b],
            verdict=verdicts[b],
            length=int(rollouts.lengths[b]),
            finished=bool(rollouts.finished[b]),
            strategy=observed[b].strategy,
            weight_version=int(rollouts.weight_version),
            flags=observed[b].flags,
        )
        for b in range(len(asked))
    ]


def evaluate_policy(
    run: Run,
    params: Any,
    problems: Sequence[Problem],
    *,
    weight_version: int,
    on_batch: Callable[[int, int], None],
) -> list[Judged]:
    """Returns every judged completion, a problem's samples in the order of their keys.

    Sampling keys depend on the config's seed and a problem's id alone, so two policies
    are compared on paired draws. `on_batch(problems done, tokens)` is called after
    each batch.
    """
    config = run.config.eval
    sampling = run.replicate(Sampling.of(config.sampling))
    weights = run.layout.weights(params)
    judged: list[Judged] = []
    for start in range(0, len(problems), config.batch_size):
        part = list(problems[start : start + config.batch_size])
        # The last batch is filled up so that it meets the program of the others.
        filled = part + [part[0]] * (config.batch_size - len(part))
        prompts = encode_prompts(filled, run.tokenizer, bucket=run.config.prompt_bucket)
        rollouts = run.sample(
            weights,
            run.place(prompts),
            sampling,
            key=run.key("eval"),
            weight_version=np.int32(weight_version),
            samples_per_prompt=config.samples_per_problem,
            max_new_tokens=config.sampling.max_new_tokens,
        )
        rollouts = stopped(on_host(rollouts), run.tokenizer)
        found = completions(run, part, rollouts)
        judged += found
        on_batch(start + len(part), sum(one.length for one in found))
    return judged


def score(
    config: Config, judged: Sequence[Judged], initial: Verdicts | None = None
) -> dict[str, Any]:
    """Returns the summary of `statistics.summarise`, cut by band too given `initial`.

    `initial` are the verdicts of the policy before RL. `by_band` cuts by all of them:
    its scores of that very policy are fixed by the cut, and later ones lean towards
    the middle. `by_band_fresh` cuts by the first half of each problem's samples and
    scores the others alone, so that neither holds; its k end where those samples do.
    """
    asked = config.eval

    def summary(results: Sequence[ProblemResult], k: Sequence[int]) -> dict[str, Any]:
        return summarise(results, k=k, resamples=asked.bootstrap, seed=config.seed)

    if not initial:
        return summary(_results(judged), asked.k)
    found = summary(_results(judged, bands(initial, config.difficulty)), asked.k)
    half = min(map(len, initial.values())) // 2
    left = asked.samples_per_problem - half
    if k := [each for each in asked.k if half and each <= left]:
        first = {name: statuses[:half] for name, statuses in initial.items()}
        cut = bands(first, config.difficulty)
        fresh = summary(_results(judged, cut, start=half), k)
        found["by_band_fresh"] = fresh["by_band"]
    return found


def bands(initial: Verdicts, config: DifficultyConfig) -> dict[str, Band]:
    """Returns each problem's band by its share right; unknown where none was judged.

    With all of 8 samples of the policy before RL and the default cuts this is the
    definition of https://arxiv.org/abs/2605.28388: easy 8 right, hard 0.
    """
    right_N, judged_N = (
        np.array([sum(s in counted for s in each) for each in initial.values()])
        for counted in (("right",), ("right", "wrong"))
    )
    found_N = buckets(right_N, judged_N, config)
    return {name: BANDS[i] for name, i in zip(initial, found_N.tolist(), strict=True)}


def initial_verdicts(rows: Iterable[Mapping[str, Any]]) -> Verdicts:
    """Returns the verdicts in lines of rollouts/, gathered by problem."""
    found: dict[str, list[VerdictStatus]] = {}
    for row in rows:
        found.setdefault(row["id"], []).append(row["verdict"])
    return found


def _results(
    judged: Sequence[Judged], cut: Mapping[str, Band] | None = None, *, start: int = 0
) -> list[ProblemResult]:
    """Returns the completions gathered by problem; equal questions stay apart by id.

    A problem's first `start` samples are left out.
    """
    groups: dict[str, list[Judged]] = collections.defaultdict(list)
    for one in judged:
        groups[one.problem.id].append(one)
    return [
        ProblemResult(
            id=name,
            level=group[0].problem.level,
            type=group[0].problem.type,
            statuses=tuple(one.verdict.status for one in group),
            answers=tuple(one.verdict.answer for one in group),
            lengths=tuple(one.length for one in group),
            finished=tuple(one.finished for one in group),
            strategies=tuple(one.strategy for one in group if one.strategy),
            band=None if cut is None else cut.get(name, "unknown"),
        )
        for name, group in ((n, each[start:]) for n, each in groups.items())
    ]


_USAGE = """\
usage: python -m rlvr_jax.evaluate --config=FILE --checkpoint=DIR [--config.a.b=v ...]

Samples the held-out problems of a config (eval.*) from a checkpoint, and prints pass@k,
maj@k and what goes with them, with 95 % intervals, as JSON. DIR is one checkpoint of a
run, WORKDIR/checkpoints/STAGE/STEP; of WORKDIR/checkpoints/STAGE the newest is taken,
of WORKDIR the newest of train, else of warmup. FILE may be WORKDIR/config.json.
Bands of difficulty are those of the policy before RL, by its completions in
WORKDIR/rollouts; where there are none the scores are not cut by band.
"""


def main(argv: Sequence[str]) -> int:
    """Returns the exit code: 0 done, 1 failed, 2 bad usage or config."""
    return exit_code(lambda: _print_summary(argv), (CheckpointReadError,))


def _print_summary(argv: Sequence[str]) -> None:
    values = command_flags()
    flags.DEFINE_string(
        "checkpoint", None, "the checkpoint to evaluate; see above", flag_values=values
    )
    _, config = read_command(argv, values, usage=_USAGE, default=Config())
    if not values.checkpoint:
        raise UsageError("--checkpoint=DIR is missing; see --help")
    summary = _evaluate_checkpoint(config, Path(values.checkpoint))
    print(json.dumps(summary, indent=2))


def _evaluate_checkpoint(config: Config, path: Path) -> dict[str, Any]:
    with restored_policy(config, path, stage="eval") as (run, params, step):
        problems = run.problems("eval", config.eval.problems)
        progress = Progress("eval", len(problems), every=1)
        judged = evaluate_policy(
            run,
            params,
            problems,
            weight_version=step,
            on_batch=lambda done, tokens: progress.update(done, {}, tokens=tokens),
        )
        progress.close()
    return score(config, judged, _initial(workdir_of(path), problems))


def _initial(workdir: Path, problems: Sequence[Problem]) -> Verdicts | None:
    """Returns the verdicts of the policy before RL; None, and says why, if unknown."""
    file = rollouts_file(workdir, "eval_before", 0)
    if not file.exists():
        print(f"not cut by band: there is no {file}", file=sys.stderr)
        return None
    initial = initial_verdicts(read_rollouts(file))
    if missing := sum(problem.id not in initial for problem in problems):
        print(
            f"{missing} of {len(problems)} problems are of unknown band: {file} does "
            "not hold them",
            file=sys.stderr,
        )
    return initial if missing < len(problems) else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
