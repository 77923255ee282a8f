"""Knowledge of a problem: counts by hand, and a policy that suddenly improves."""

import json
import math

import numpy as np
import pytest
from scipy.stats import beta

from rlvr_jax.config import DifficultyConfig
from rlvr_jax.data.difficulty import (
    BANDS,
    INITIAL_STEP,
    ProblemOutcome,
    from_json,
    group_variance_score,
    init_difficulty,
    record_outcomes,
)
from rlvr_jax.data.difficulty_summary import (
    count_band_moves,
    difficulty_metrics,
    difficulty_rows,
    summarize_initial_bands,
)

CONFIG = DifficultyConfig()


def names(bands):
    return [BANDS[band] for band in bands]


def visit(problem, right, judged=8, entropy=0.0):
    return ProblemOutcome(
        problem_index=problem,
        num_graded=judged,
        num_correct=right,
        answer_entropy=entropy,
    )


def after(*visits, size=4, config=CONFIG, step=0):
    return record_outcomes(
        init_difficulty(size),
        visits,
        step=step,
        num_batches=1,
        config=config,
    )


def band(state, problem=0, config=CONFIG):
    return BANDS[state.posterior_bands(config)[problem]]


def test_the_posterior_counts_what_was_seen_and_lets_it_fade():
    """Beta(1/2 + .7 * 6 + 1, 1/2 + .7 * 2 + 7) has mean 5.7 / 14.6."""
    state = after(visit(1, 6), visit(1, 1))
    assert (state.discounted_correct[1], state.discounted_incorrect[1]) == (
        0.7 * 6 + 1,
        0.7 * 2 + 7,
    )
    assert state.mean[1] == pytest.approx(5.7 / 14.6)
    assert (state.attempts[1], state.correct[1], state.num_visits[1]) == (16, 7, 2)
    assert state.mean[0] == 0.5


def test_spread_is_the_posterior_mean_of_p_times_one_less_p():
    """E[p (1 - p)] = E[p] - E[p]^2 - Var[p], for Beta(6.5, 2.5)."""
    state = after(visit(0, 6))
    mean = 6.5 / 9
    variance = 6.5 * 2.5 / (81 * 10)
    assert state.learning_signal[0] == pytest.approx(mean - mean**2 - variance)


@pytest.mark.parametrize(
    ("visits", "expected"),
    [
        ([], "unknown"),
        ([visit(0, 0)], "unknown"),  # 0 of 8: mass 0.70 below 1/16
        ([visit(0, 0, judged=16)], "hard"),  # 0.85
        ([visit(0, 0), visit(0, 0)], "hard"),  # 13.6 faded failures: 0.82
        ([visit(0, 8)], "unknown"),
        ([visit(0, 8), visit(0, 8)], "easy"),
        ([visit(0, 4)], "medium"),
        ([visit(0, 1)], "medium"),  # 0.80 above 1/16
        ([visit(0, 1, judged=2)], "medium"),  # 0.93 between: it saw both
    ],
)
def test_thin_evidence_names_no_band(visits, expected):
    assert band(after(*visits)) == expected


@pytest.mark.parametrize("judged", [1, 2, 4, 8])
def test_no_success_in_few_is_unknown_not_impossible(judged):
    assert band(after(visit(0, 0, judged=judged))) == "unknown"


def test_buckets_take_the_policy_before_rl_at_its_word():
    found = [visit(0, 0), visit(1, 1), visit(2, 8)]
    before = after(*found, step=INITIAL_STEP)
    assert [BANDS[b] for b in before.initial_bands(CONFIG)] == [
        *("hard", "medium", "easy", "unknown")
    ]
    assert summarize_initial_bands(before, CONFIG)["bands"] == dict.fromkeys(BANDS, 1)
    # RL moves posterior bands, never the initial buckets.
    later = record_outcomes(
        before, [visit(0, 8)] * 10, step=3, num_batches=10, config=CONFIG
    )
    assert band(later) == "easy"
    assert later.initial_bands(CONFIG).tolist() == before.initial_bands(CONFIG).tolist()
    assert difficulty_metrics(later, CONFIG)[
        "difficulty/changed_band"
    ] == pytest.approx(1 / 3)


def test_telemetry_takes_the_first_samples_at_their_word():
    """At 0 and 8 of 8 the posterior is unsure; Hard@8 and Easy@8 are not."""
    before = after(visit(0, 0), visit(1, 8), visit(2, 3), step=INITIAL_STEP)
    # Mass below 1/16 of Beta(1/2, 17/2), from SciPy; above 15/16 of its mirror.
    assert beta(0.5, 8.5).cdf(1 / 16) == pytest.approx(0.698, abs=5e-4)
    assert names(before.posterior_bands(CONFIG)) == [
        *("unknown", "unknown", "medium", "unknown")
    ]
    assert names(before.telemetry_bands(CONFIG)) == [
        *("hard", "easy", "medium", "unknown")
    ]
    # RL moves the posterior, and the initial bands stay.
    learned = record_outcomes(
        before, [visit(0, 8)] * 10, step=0, num_batches=1, config=CONFIG
    )
    assert names(learned.telemetry_bands(CONFIG))[0] == "hard"
    assert names(learned.posterior_bands(CONFIG))[0] == "easy"
    assert count_band_moves(learned, CONFIG) == {
        "easy": {"easy": 0, "medium": 0, "hard": 0, "unknown": 1},
        "medium": {"easy": 0, "medium": 1, "hard": 0, "unknown": 0},
        "hard": {"easy": 1, "medium": 0, "hard": 0, "unknown": 0},
    }
    metrics = difficulty_metrics(learned, CONFIG)
    assert metrics["difficulty/initial_hard"] == metrics["difficulty/easy"] == 0.25


def test_without_samples_before_rl_telemetry_has_the_posterior():
    state = after(visit(0, 0, judged=16), visit(1, 4), step=0)
    assert names(state.telemetry_bands(CONFIG)) == [
        *("hard", "medium", "unknown", "unknown")
    ]
    assert count_band_moves(state, CONFIG) == {}
    assert "difficulty/initial_hard" not in difficulty_metrics(state, CONFIG)


@pytest.mark.parametrize(("before", "now"), [(0.02, 0.9), (0.95, 0.05), (0.3, 0.7)])
def test_the_posterior_follows_an_ability_that_jumps_within_five_visits(before, now):
    """At decay .7, .7^5 = 17 % of the jump is left after five visits of eight.

    The mean lags by that share of a settled posterior's knowledge. Over 400 problems,
    the noise of draws is below 0.01, and the prior's pull is below 0.02.
    """
    rng = np.random.default_rng(0)
    config = CONFIG
    state = init_difficulty(400)
    for step, ability in enumerate([before] * 15 + [now] * 5):
        visits = [visit(i, int(k)) for i, k in enumerate(rng.binomial(8, ability, 400))]
        state = record_outcomes(state, visits, step=step, num_batches=1, config=config)
        if step == 14:
            assert state.mean.mean() == pytest.approx(before, abs=0.03)
    expected = now + (before - now) * 0.7**5
    assert state.mean.mean() == pytest.approx(expected, abs=0.03)
    # The band has also left the old one on nearly every problem.
    old = BANDS.index("hard" if before < 0.1 else "easy" if before > 0.9 else "unknown")
    assert (state.posterior_bands(config) == old).mean() < 0.05


def test_without_decay_the_past_is_never_forgotten():
    """15 visits at 0 of 8, 5 at 8 of 8: mean 40.5 / 161."""
    keep = DifficultyConfig(decay=1.0)
    state = after(*[visit(0, 0)] * 15, *[visit(0, 8)] * 5, config=keep)
    assert state.mean[0] == pytest.approx(40.5 / 161)


def test_forgetting_is_counted_from_solved_to_not_solved():
    shares = [2, 6, 8, 3, 3, 4, 0]  # solved from 4 of 8 on; lost at the 4th and the 7th
    state = after(*[visit(0, k) for k in shares], visit(1, 3), visit(2, 8))
    assert state.forgetting_events.tolist() == [2, 0, 0, 0]
    assert state.is_forgotten.tolist() == [True, False, False, False]
    found = list(difficulty_rows(state, "abcd", [1, 2, 3, 4], config=CONFIG))
    # Never solved: infinitely many steps, which JSON cannot store.
    assert [row["scores"]["forgetting"] for row in found] == [2, None, 0]


def test_unverified_visits_are_visits_and_no_evidence():
    state = after(visit(0, 0, judged=0), visit(1, 4), visit(1, 0, judged=0))
    assert state.num_visits.tolist() == [1, 2, 0, 0]
    assert state.mean[0] == 0.5
    assert state.mean[1] == 0.5
    assert state.discounted_correct[1] == 4  # unjudged completions fade nothing either


@pytest.mark.parametrize("n", [2, 3, 4, 7, 8, 16])
def test_the_variance_score_is_one_at_its_largest_and_zero_where_all_agree(n):
    scores = [group_variance_score(n, k) for k in range(n + 1)]
    assert max(scores) == pytest.approx(1.0)
    assert scores[n // 2] == max(scores)
    assert scores[0] == scores[n] == 0.0
    assert scores == pytest.approx(scores[::-1])


def test_vcrl_score_moves_by_its_momentum():
    """2 of 8: 2 * 6 / 56 over 8 / 28 is 0.75; then 0.9 * 0.75 + 0.1 * 1."""
    assert after(visit(0, 2)).vcrl_score[0] == pytest.approx(0.75)
    assert after(visit(0, 2), visit(0, 4)).vcrl_score[0] == pytest.approx(0.775)


def test_a_state_read_from_json_is_the_state_that_was_written():
    state = after(
        visit(2, 3, entropy=0.1), visit(0, 1, judged=3), visit(2, 8, judged=0)
    )
    again = from_json(json.loads(json.dumps(state.to_json())))
    assert again.history == state.history == {2: ((0, 8, 3),), 0: ((0, 3, 1),)}
    for name, value in vars(state).items():
        np.testing.assert_array_equal(vars(again)[name], value)
    # ... and so are its children.
    more = [visit(2, 5), visit(3, 1)]
    one, other = (
        record_outcomes(each, more, step=9, num_batches=1, config=CONFIG).to_json()
        for each in (state, again)
    )
    assert one == other


def test_a_checkpoint_holds_the_problems_that_were_met_and_sixteen_visits_of_each():
    state = after(*[visit(7, 4)] * 40, size=100_000)
    saved = state.to_json()
    assert saved["problem"] == [7]
    assert len(saved["history"][0]) == 16
    assert len(json.dumps(saved)) < 700


def test_updating_does_not_change_its_input():
    state = after(visit(0, 3))
    told = state.to_json()
    record_outcomes(state, [visit(0, 8)], step=1, num_batches=1, config=CONFIG)
    assert state.to_json() == told


def test_strangers_are_known_as_nothing():
    found = after(visit(1, 6)).gather([1, -1, 0])
    assert found.mean.tolist() == [pytest.approx(6.5 / 9), 0.5, 0.5]
    assert found.num_visits.tolist() == [1, 0, 0]
    assert np.isnan(found.last_pass_rate[1])


def test_a_line_of_the_file_says_it_all():
    state = after(visit(1, 2, entropy=math.log(2)), step=INITIAL_STEP)
    state = record_outcomes(state, [visit(1, 6)], step=0, num_batches=1, config=CONFIG)
    (row,) = difficulty_rows(state, ["a", "b", "c", "d"], [0, 5, 0, 0], config=CONFIG)
    assert row == {
        "id": "b",
        "n": 16,
        "c": 8,
        "posterior": {
            "alpha": 0.5 + 0.7 * 2 + 6,
            "beta": 0.5 + 0.7 * 6 + 2,
            "mean": pytest.approx(7.9 / 14.6),
            "band": "medium",
        },
        "initial": {"n": 8, "c": 2, "band": "medium"},
        "visits": 2,
        "scores": {
            "forgetting": 0,
            "pass_variance": pytest.approx(0.0625),  # of 1/4 and 3/4
            "level": 5,
            "answer_entropy": 0.0,
        },
        "history": [[-1, 8, 2], [0, 8, 6]],
    }


def test_drift_is_silent_before_the_first_visit():
    assert difficulty_metrics(init_difficulty(3), CONFIG) == {}
