"""Outputs of the difficulty estimates: a line for each problem, metrics, a summary."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from rlvr_jax.config import DifficultyConfig
from rlvr_jax.data.difficulty import (
    PRIOR_COUNT,
    SOLVED_PASS_RATE,
    Difficulty,
    bands_of_pass_rates,
    nan_to_none,
)
from rlvr_jax.types import BANDS


def difficulty_rows(
    state: Difficulty,
    problem_ids: Sequence[str],
    levels: Sequence[int],
    *,
    config: DifficultyConfig,
) -> Iterator[dict[str, Any]]:
    """Yields a line of difficulty.jsonl for each problem that was ever visited.

    Next to the posterior, it has difficulty scores from the literature, for comparison:
    forgetting events, variance of accuracy over visits, level (steps of a chain), and
    entropy of the answers. Forgetting events are null if a problem was never solved,
    which counts as infinitely many. Length is left out, because it follows closeness to
    the training distribution.
    """
    posterior_N = state.posterior_bands(config)
    initial_N = state.initial_bands(config)
    mean_N, variance_N = state.mean, state.pass_variance
    for i in np.flatnonzero(state.num_visits).tolist():
        solved = state.last_pass_rate[i] >= SOLVED_PASS_RATE
        ever_solved = solved or state.forgetting_events[i] > 0
        yield {
            "id": problem_ids[i],
            "n": int(state.attempts[i]),
            "c": int(state.correct[i]),
            "posterior": {
                "alpha": float(state.discounted_correct[i]) + PRIOR_COUNT,
                "beta": float(state.discounted_incorrect[i]) + PRIOR_COUNT,
                "mean": float(mean_N[i]),
                "band": BANDS[posterior_N[i]],
            },
            "initial": {
                "n": int(state.initial_attempts[i]),
                "c": int(state.initial_correct[i]),
                "band": BANDS[initial_N[i]],
            },
            "visits": int(state.num_visits[i]),
            "scores": {
                "forgetting": int(state.forgetting_events[i]) if ever_solved else None,
                "pass_variance": float(variance_N[i]),
                "level": levels[i],
                "answer_entropy": nan_to_none([float(state.answer_entropy[i])])[0],
            },
            "history": [list(visit) for visit in state.history.get(i, ())],
        }


def summarize_initial_bands(
    state: Difficulty, config: DifficultyConfig
) -> dict[str, Any]:
    """Returns how many problems each initial band holds, for summary.json."""
    counts = np.bincount(state.initial_bands(config), minlength=len(BANDS)).tolist()
    return {
        "num_samples": config.num_samples,
        "problems": state.size,
        "bands": dict(zip(BANDS, counts, strict=True)),
    }


def count_band_moves(
    state: Difficulty, config: DifficultyConfig
) -> dict[str, dict[str, int]]:
    """Returns initial band -> posterior band -> number of problems.

    Problems that were not sampled before RL are left out.
    """
    sampled_N = state.initial_attempts > 0
    initial_N, posterior_N = state.initial_bands(config), state.posterior_bands(config)
    moves: dict[str, dict[str, int]] = {}
    for i in np.unique(initial_N[sampled_N]).tolist():
        found = np.bincount(posterior_N[sampled_N & (initial_N == i)], minlength=4)
        moves[BANDS[i]] = dict(zip(BANDS, found.tolist(), strict=True))
    return moves


def difficulty_metrics(state: Difficulty, config: DifficultyConfig) -> dict[str, float]:
    """Returns metrics of the pool: its shares by band, and how many changed band.

    `difficulty/BAND` is the share by posterior band, `difficulty/initial_BAND` by
    initial band. `changed_band` is the share of problems whose posterior mean is now in
    another band than before RL; absent if no problem was estimated before RL. Empty
    before the first visit to the pool.
    """
    if not state.num_visits.any():
        return {}
    bands_N = state.posterior_bands(config)
    metrics = {
        f"difficulty/{band}": float((bands_N == i).mean())
        for i, band in enumerate(BANDS)
    }
    graded_N, initial_N = state.num_graded_visits > 0, state.initial_attempts > 0
    if graded_N.any():
        metrics["difficulty/mean"] = float(state.mean[graded_N].mean())
    if initial_N.any():
        metrics |= {
            f"difficulty/initial_{band}": float(fraction)
            for band, fraction in zip(
                BANDS,
                np.bincount(state.initial_bands(config), minlength=4) / state.size,
                strict=True,
            )
        }
        now_N = bands_of_pass_rates(state.mean, config)
        then_N = bands_of_pass_rates(
            _posterior_mean(state.initial_correct, state.initial_attempts), config
        )
        metrics["difficulty/changed_band"] = float((now_N != then_N)[initial_N].mean())
    return metrics


def _posterior_mean(correct: np.ndarray, attempts: np.ndarray) -> np.ndarray:
    return (correct + PRIOR_COUNT) / (attempts + 2 * PRIOR_COUNT)
