"""The subcommand `influence`: what a part of a step did to the held-out score."""

import functools
import signal
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from job_jax.calls import CallError
from job_jax.checkpoint import CheckpointReadError
from job_jax.command import run_command
from job_jax.files import write_json
from job_jax.metrics import Progress
from job_jax.resampling import Interval
from job_jax.working import working
from rlvr_jax.analysis.influence.difficulty_scores import score_difficulty
from rlvr_jax.analysis.influence.estimates import (
    DotProducts,
    learning_rate,
    pass_rates,
    verdict_variance,
)
from rlvr_jax.analysis.influence.held_out import HeldOut, Outcome, open_held_out
from rlvr_jax.analysis.influence.measure import (
    ADVANTAGES,
    BATCH,
    Influence,
    ProblemInfluence,
    Result,
    compare_outcomes,
    correlate_estimates,
)
from rlvr_jax.analysis.influence.removals import (
    find_signals,
    without_problems,
    without_reward,
)
from rlvr_jax.analysis.influence.replay import (
    Replay,
    largest_metric_gap,
    open_replay,
)
from rlvr_jax.analysis.influence.request import Request, parse_request
from rlvr_jax.analysis.influence.tables import format_result
from rlvr_jax.learn.optimizer import DivergedError
from rlvr_jax.learn.run_updates import LogprobMismatchError
from rlvr_jax.report.run_files import to_plain_json
from rlvr_jax.rollouts.collect import RolloutBatch

DOT, TRACIN, VARIANCE = "dot product", "TracIn", "p (1 - p)"


def main(argv: Sequence[str]) -> int:
    """Returns 0, or 1 if the step cannot be taken again, or 2 on bad usage."""
    errors = (
        CallError,
        CheckpointReadError,
        DivergedError,
        LogprobMismatchError,
        OSError,
    )
    return run_command(lambda: _run_command(argv), errors)


def _run_command(argv: Sequence[str]) -> None:
    request = parse_request(argv)
    # A stopped command must still remove its temporary fork.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with open_replay(
        request.source, request.step, request.config, scratch=request.out.parent
    ) as replay:
        held_out = open_held_out(
            replay.trainer, request.num_held_out, samples=request.samples
        )
        result = measure_influence(request, replay, held_out)
    asked = {
        "run": str(request.source),
        "step": request.step,
        "seed": request.config.seed,
    }
    write_json(request.out, to_plain_json(asked | result.to_json()))
    print(f"{request.source}, step {request.step} to {request.step + 1}")
    print(f"{format_result(result)}\n{request.out}")


def measure_influence(request: Request, replay: Replay, held_out: HeldOut) -> Result:
    """Returns the influence of everything that the request removes."""
    removals = _list_removals(request, replay)
    progress = Progress("policies", 1 + request.batch + len(removals), every=1)
    params, metrics = replay.update(replay.rollouts)
    checks = {
        "next_checkpoint": replay.gap_to_next_checkpoint(params),
        "metric": largest_metric_gap(replay.source, replay.step, metrics),
    }
    as_it_was, done = held_out.measure(params), 1
    progress.update(done, {})
    outcomes: dict[str, Outcome] = {}
    if request.batch:
        outcomes[BATCH] = held_out.measure(replay.state.device.params)
        progress.update(done := done + 1, {})
    for name, remove in removals.items():
        params, _ = replay.update(remove())
        outcomes[name] = held_out.measure(params)
        progress.update(done := done + 1, {})
    progress.close()
    evaluation = replay.trainer.setup.config.eval
    seed = replay.trainer.setup.config.seed
    influences = {
        name: compare_outcomes(
            as_it_was, outcome, resamples=evaluation.bootstrap_resamples, seed=seed
        )
        for name, outcome in outcomes.items()
    }
    steps, problems = _describe_problems(request, replay, held_out, influences)
    return Result(
        num_held_out=len(held_out.problems),
        num_solutions=held_out.num_solutions,
        checks=checks,
        tracin_steps=steps,
        parts=[
            Influence(removed=name, outcomes=found)
            for name, found in influences.items()
            if name not in map(_problem_name, request.problems)
        ],
        problems=problems,
        correlations=correlate_estimates(
            problems, resamples=evaluation.bootstrap_resamples, seed=seed
        ),
    )


def _list_removals(
    request: Request, replay: Replay
) -> dict[str, Callable[[], RolloutBatch]]:
    """Returns by name how the rollouts without one thing are made."""
    removals: dict[str, Callable[[], RolloutBatch]] = {}
    everything = range(len(replay.rollouts.groups))
    if request.batch:
        removals[ADVANTAGES] = functools.partial(
            without_problems, replay.rollouts, everything
        )
    for name in request.rewards:
        removals[f"reward {name}"] = functools.partial(without_reward, replay, name)
    for p in request.problems:
        removals[_problem_name(p)] = functools.partial(
            without_problems, replay.rollouts, [p]
        )
    return removals


def _problem_name(p: int) -> str:
    return f"problem {p}"


def _describe_problems(
    request: Request,
    replay: Replay,
    held_out: HeldOut,
    influences: Mapping[str, Mapping[str, Interval]],
) -> tuple[list[int], list[ProblemInfluence]]:
    """Returns the problems with their estimates, and the steps that TracIn sums over.

    Without worked solutions there is no gradient of the held-out outcome.
    """
    if not request.problems:
        return [], []
    chosen = [*request.problems]
    rates, groups = pass_rates(replay.rollouts), replay.rollouts.groups
    estimates: dict[str, np.ndarray] = {}
    steps: list[int] = []
    if held_out.solutions is not None:
        steps = replay.checkpoint_steps()
        products = DotProducts(replay, held_out)
        at_step: dict[int, np.ndarray] = {}
        progress = Progress("gradients", len(steps), every=1)
        for done, step in enumerate(steps, 1):
            with working(f"gradients at step {step}"):
                at_step[step] = products.measure(step, chosen)
            progress.update(done, {})
        progress.close()
        estimates[DOT] = at_step[replay.step]
        rates_S = np.array([learning_rate(replay, step) for step in steps])
        estimates[TRACIN] = rates_S @ np.array([at_step[step] for step in steps])
    estimates[VARIANCE] = np.array([verdict_variance(rates[p]) for p in chosen])
    estimates |= score_difficulty(replay, held_out, chosen)
    has_signal = find_signals(replay.rollouts)
    return steps, [
        ProblemInfluence(
            removed=_problem_name(p),
            outcomes=influences[_problem_name(p)],
            index=p,
            problem=groups.completions_of(p)[0].problem.id,
            pass_rate=float(rates[p]),
            has_signal=bool(has_signal[p]),
            estimates={name: float(found[at]) for name, found in estimates.items()},
        )
        for at, p in enumerate(chosen)
    ]
