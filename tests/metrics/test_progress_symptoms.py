"""Weak starts, and runs without progress: never reported of a run that improves."""

import json

import numpy as np
import pytest

from job_jax.config_io import to_json
from job_jax.metrics_file import StageMetrics
from rlvr_jax.config.difficulty import CURRICULA
from rlvr_jax.metrics.doctor import DoctorState, check_run, check_step
from rlvr_jax.metrics.progress_symptoms import Trend, draws_alike

WINDOW = 20
LIMITS = {
    "max_logprob_mismatch": 1.0,
    "max_unexplained_growth": 1.0,
    "max_splice_cost": 1.0,
}


def rows_of(accuracy, *, wrong=0.3, split=0.5):
    return [
        {
            "verdict/correct": float(correct),
            "groups/all_incorrect": wrong,
            "groups/nonzero_std": split,
        }
        for correct in accuracy
    ]


def alarms_of(rows, *, total_steps=None, is_comparable=True):
    train = StageMetrics()
    for step, row in enumerate(rows):
        train.append(step, row)
    return check_run(
        train,
        total_steps=total_steps or len(rows),
        window=WINDOW,
        draws_alike=is_comparable,
        **LIMITS,
    )


def codes_of(rows, **settings):
    return [alarm.code for alarm in alarms_of(rows, **settings)]


def noisy(rng, steps, start, rise, scatter):
    """Returns accuracies on a line from `start`, with scatter from step to step."""
    line = start + rise * np.arange(steps) / (steps - 1)
    return np.clip(line + scatter * rng.normal(size=steps), 0, 1)


def test_the_trend_is_the_least_squares_line_with_its_standard_error():
    values = np.random.default_rng(0).normal(size=37)
    trend = Trend()
    for value in values:
        trend = trend.add(float(value))
    positions = np.arange(37)
    (slope, _), covariance = np.polyfit(positions, values, 1, cov=True)
    rise, error = trend.rise()
    assert rise == pytest.approx(36 * slope)
    assert error == pytest.approx(36 * np.sqrt(covariance[0, 0]))
    assert Trend(**json.loads(json.dumps(vars(trend)))) == trend


def test_a_weak_start_is_reported_after_the_first_five_steps():
    rows = rows_of([0.05, 0.02, 0.03, 0.02, 0.03] + [0.5] * 5, wrong=0.61, split=0.39)
    (alarm,) = alarms_of(rows, total_steps=100)
    assert (alarm.code, alarm.step) == ("weak_start", 4)
    assert alarm.finding == (
        "RL starts from a policy that solves 3.0 % of its problems: in the first 5 "
        "steps 61 % of groups were all wrong and taught nothing."
    )
    assert "sft.steps" in alarm.advice
    assert "chat template" in alarm.advice


@pytest.mark.parametrize(
    ("correct", "wrong", "split", "codes"),
    [
        (0.099, 0.5, 0.5, ["weak_start"]),
        (0.1, 0.5, 0.5, []),
        (0.099, 0.49, 0.5, []),
        (0.03, 0.9, 0.1, ["weak_start"]),
        (0.03, 0.91, 0.09, ["no_signal"]),  # one fault, one code
        (0.0, 1.0, 0.0, ["no_signal"]),
    ],
)
def test_a_weak_start_has_few_correct_and_most_groups_wrong(
    correct, wrong, split, codes
):
    rows = rows_of([correct] * 30, wrong=wrong, split=split)
    assert codes_of(rows, total_steps=300) == codes


def test_a_run_that_starts_well_and_gets_bad_had_no_weak_start():
    rows = rows_of([0.5] * 5) + rows_of([0.02] * 20, wrong=0.8)
    assert "weak_start" not in codes_of(rows, total_steps=300)


def test_the_reported_run_from_3_to_2_percent_is_told_both():
    accuracy = noisy(np.random.default_rng(0), 40, 0.03, -0.01, 0.012)
    rows = rows_of(accuracy, wrong=0.61, split=0.39)
    weak, still = alarms_of(rows)
    assert (weak.code, still.code) == ("weak_start", "no_progress")
    assert still.step == 39
    assert still.finding.startswith("Accuracy has not risen in 40 steps: ")
    assert still.advice.startswith("61 % of groups are all wrong: train on easier")


@pytest.mark.parametrize(
    ("start", "scatter", "steps", "least"),
    [(0.5, 0.05, 200, 0.9), (0.3, 0.03, 60, 0.8), (0.03, 0.015, 60, 0.8)],
)
def test_flat_noise_is_found(start, scatter, steps, least):
    rng = np.random.default_rng(1)
    runs = [rows_of(noisy(rng, steps, start, 0.0, scatter)) for _ in range(40)]
    found = ["no_progress" in codes_of(rows) for rows in runs]
    assert np.mean(found) >= least


@pytest.mark.parametrize(
    ("start", "rise", "scatter", "steps"),
    [
        (0.5, 0.1, 0.05, 60),
        (0.5, 0.1, 0.05, 200),
        (0.3, 0.1, 0.03, 40),
        (0.03, 0.03, 0.01, 100),  # doubles
        (0.03, 0.06, 0.02, 60),
    ],
)
def test_a_slow_but_sure_rise_raises_nothing(start, rise, scatter, steps):
    rng = np.random.default_rng(2)
    runs = [rows_of(noisy(rng, steps, start, rise, scatter)) for _ in range(40)]
    assert sum("no_progress" in codes_of(rows) for rows in runs) <= 1


def test_a_rise_in_the_first_steps_counts():
    early = [0.1 + 0.02 * step for step in range(10)] + [0.3] * 290
    assert codes_of(rows_of(early)) == []
    assert codes_of(rows_of([0.3] * 300)) == ["no_progress"]
    falling = [*early[:10], *np.linspace(0.34, 0.26, 290)]  # and yet above the start
    assert codes_of(rows_of(falling)) == []


def test_a_scatter_that_could_hide_a_rise_decides_nothing():
    # The error of the rise is 0.3 sqrt(12 / 40) = 0.16.
    assert codes_of(rows_of([0.7, 0.1] * 20)) == []
    assert codes_of(rows_of([0.41, 0.39] * 20)) == ["no_progress"]


@pytest.mark.parametrize(
    ("steps", "total_steps", "step"),
    [
        (39, 39, None),
        (40, 40, 39),
        (40, 80, 39),
        (40, 81, None),
        (41, 81, 40),
        (100, 200, 99),
        (99, 200, None),
    ],
)
def test_it_waits_for_two_windows_and_half_of_the_steps(steps, total_steps, step):
    alarms = alarms_of(rows_of([0.3] * steps), total_steps=total_steps)
    assert [alarm.step for alarm in alarms] == ([] if step is None else [step])


@pytest.mark.parametrize(("accuracy", "is_found"), [(0.79, True), (0.8, False)])
def test_accuracy_that_is_already_high_need_not_rise(accuracy, is_found):
    assert bool(codes_of(rows_of([accuracy] * 40))) == is_found


def test_accuracy_of_steps_that_cannot_be_compared_is_left_alone():
    assert codes_of(rows_of([0.3] * 100), is_comparable=False) == []


def test_a_symptom_that_explains_it_is_reported_alone():
    rows = rows_of([0.03] * 60, wrong=0.95, split=0.05)
    assert codes_of(rows) == ["no_signal"]
    blind = [row | {"verdict/reward_gap": 0.0} for row in rows_of([0.3] * 60)]
    assert codes_of(blind) == ["blind_reward"]


def test_the_curriculum_decides_whether_steps_can_be_compared():
    alike = {
        name
        for name in CURRICULA.names
        if draws_alike(to_json(CURRICULA.load(name)()), max_rounds=0)
    }
    assert alike == {"uniform", "band", "mixture", "one_sample"}
    online = {"name": "band", "difficulty_source": "online"}
    assert not draws_alike(online, max_rounds=0)
    assert not draws_alike({"name": "uniform"}, max_rounds=1)
    assert not draws_alike({"name": "mine:Own"}, max_rounds=0)


def test_a_run_that_resumes_from_an_older_state_counts_from_there():
    state = DoctorState()
    for step, row in enumerate(rows_of([0.3] * 60)):
        if step == 10:
            saved = json.loads(json.dumps(state.to_json()))
            del saved["accuracy"]  # as earlier versions wrote it
            state = DoctorState.from_json(saved)
        settings = {"total_steps": 60, "window": WINDOW, "draws_alike": True}
        state, alarms = check_step(state, step, row, **settings, **LIMITS)
        assert [alarm.code for alarm in alarms] == ["no_progress"] * (step == 49)
