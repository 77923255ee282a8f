"""Held-out scores: pass@k and maj@k, also by difficulty band."""

import collections
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from flax import nnx

from job_jax.working import working
from rlvr_jax.config import Config, DifficultyConfig
from rlvr_jax.data.difficulty import assign_bands
from rlvr_jax.metrics.calibration import summarize_calibration
from rlvr_jax.metrics.lenient import has_lenient_accuracy, is_lenient_success
from rlvr_jax.metrics.statistics import ProblemResult, summarize_results
from rlvr_jax.rollouts.graded import GradedCompletion, Verdicts, grade_completions
from rlvr_jax.rollouts.sample import sample_problems
from rlvr_jax.run.setup import RunSetup
from rlvr_jax.types import BANDS, Band, Problem


def evaluate_policy(
    setup: RunSetup,
    params: nnx.State,
    problems: Sequence[Problem],
    *,
    weight_version: int,
    on_batch: Callable[[int, int], None],
) -> list[GradedCompletion]:
    """Returns all graded completions, `config.eval.num_samples` per problem, in order.

    Samples of two policies are paired: see `sample_problems`. After each batch,
    `on_batch` is called with the number of problems done so far and the batch's tokens.
    """
    config = setup.config.eval
    graded: list[GradedCompletion] = []
    for batch, rollouts in sample_problems(
        setup,
        params,
        problems,
        sampling=config.sampling,
        num_samples=config.num_samples,
        batch_size=config.batch_size,
        stream="eval",
        weight_version=weight_version,
    ):
        completions = grade_completions(setup, batch, rollouts)
        graded += completions
        num_done = len(graded) // config.num_samples
        on_batch(num_done, sum(completion.length for completion in completions))
    return graded


def summarize_completions(
    config: Config, graded: Sequence[GradedCompletion], initial: Verdicts | None = None
) -> dict[str, Any]:
    """Returns pass@k, maj@k and related scores, also by band if `initial` is given.

    `initial` are the verdicts of the policy before RL. `by_band` assigns bands by all
    of them, which biases it: the scores of that same policy follow from the bands, and
    scores of later policies regress toward the middle. `by_band_fresh` avoids both
    biases: it assigns bands by the first half of each problem's samples and scores only
    the other half. Its largest k is the size of that half. If confidence is rewarded,
    `calibration` comes from `metrics.calibration`. See `statistics.summarize_results`
    for the other keys.
    """
    eval_config = config.eval

    def summary(results: Sequence[ProblemResult], k: Sequence[int]) -> dict[str, Any]:
        with working("scores and their intervals"):
            return summarize_results(
                results,
                k=k,
                resamples=eval_config.bootstrap_resamples,
                seed=config.seed,
            )

    calibration = {}
    if "confidence" in config.train.reward.names:
        calibration["calibration"] = summarize_calibration(
            graded, resamples=eval_config.bootstrap_resamples, seed=config.seed
        )
    if not initial:
        return summary(_problem_results(graded), eval_config.ks) | calibration
    bands = bands_from_verdicts(initial, config.difficulty)
    scores = summary(_problem_results(graded, bands), eval_config.ks) | calibration
    half = min(map(len, initial.values())) // 2
    num_fresh = eval_config.num_samples - half
    if half and (k := [k for k in eval_config.ks if k <= num_fresh]):
        first_half = {name: statuses[:half] for name, statuses in initial.items()}
        bands = bands_from_verdicts(first_half, config.difficulty)
        fresh = summary(_problem_results(graded, bands, skip=half), k)
        scores["by_band_fresh"] = fresh["by_band"]
    return scores


def bands_from_verdicts(initial: Verdicts, config: DifficultyConfig) -> dict[str, Band]:
    """Returns each problem's band by its pass rate; unknown without verified samples.

    With 8 samples of the policy before RL and the default thresholds, this is the
    definition of https://arxiv.org/abs/2605.28388: easy is 8 correct, hard is 0.
    """
    correct_N, verified_N = (
        np.array([sum(s in counted for s in each) for each in initial.values()])
        for counted in (("correct",), ("correct", "incorrect"))
    )
    bands_N = assign_bands(correct_N, verified_N, config)
    return {name: BANDS[i] for name, i in zip(initial, bands_N.tolist(), strict=True)}


def _problem_results(
    graded: Sequence[GradedCompletion],
    problem_bands: Mapping[str, Band] | None = None,
    *,
    skip: int = 0,
) -> list[ProblemResult]:
    """Returns a result for each problem, without its first `skip` completions.

    Where some completions of a type have a strategy, the others have "none".
    """
    with_strategies = {one.problem.type for one in graded if one.strategy}
    is_lenient = has_lenient_accuracy(
        gold for one in graded for gold in one.problem.golds
    )
    groups: dict[str, list[GradedCompletion]] = collections.defaultdict(list)
    for completion in graded:
        groups[completion.problem.id].append(completion)
    return [
        ProblemResult(
            id=name,
            level=group[0].problem.level,
            type=group[0].problem.type,
            statuses=tuple(completion.verdict.status for completion in group),
            answers=tuple(completion.answer_value for completion in group),
            lengths=tuple(completion.length for completion in group),
            finished=tuple(completion.finished for completion in group),
            states_gold=tuple(
                is_lenient_success(
                    one.verdict.status, one.completion, one.problem.golds
                )
                for one in (group if is_lenient else ())
            ),
            strategies=tuple(
                one.strategy or "none"
                for one in (group if group[0].problem.type in with_strategies else ())
            ),
            band=None if problem_bands is None else problem_bands.get(name, "unknown"),
        )
        for name, group in ((name, every[skip:]) for name, every in groups.items())
    ]
