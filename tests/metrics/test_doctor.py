"""The run doctor: which alarm it raises and when, also after a run resumes."""

import json
import math

import pytest

from job_jax.metrics_file import StageMetrics
from rlvr_jax.metrics.doctor import (
    DoctorState,
    check_run,
    check_step,
    describe_short_run,
)

WINDOW = 20
LIMIT = 0.5
HEALTHY = {
    "groups/nonzero_std": 0.6,
    "groups/all_correct": 0.2,
    "groups/all_incorrect": 0.2,
    "groups/truncated": 0.0,
    "groups/unverified": 0.0,
    "rollout/length_mean": 40.0,
    "rollout/entropy": 0.3,
    "rollout/truncated": 0.05,
    "verdict/correct": 0.5,
    "verdict/incorrect": 0.5,
    "verdict/unverified": 0.0,
    "verdict/time_limit": 0.0,
    "verdict/reward_gap": 1.0,
    "behavior/repetition": 0.01,
    "behavior/bare_answer": 0.05,
    "behavior/skipped_steps": 0.05,
    "behavior/forgotten": 0.02,
    "dynamic_sampling/zero_variance": 0.0,
    **{f"reward_time_limit/{name}": 0.0 for name in ("a:b", "judge", "x")},
    **{f"reward_failed/{name}": 0.0 for name in ("a:b", "judge", "x")},
    "band_hard/pass": 0.7,
    "band_hard/length": 30.0,
    "logprob_mismatch/mean": 1e-4,
    "optimizer/grad_norm": 0.3,
    "optimizer/skipped": 0.0,
    "level_4/pass": 0.7,
    "level_4/nonzero_std": 0.5,
    "level_4/length": 30.0,
}


def alarms_of(rows, window=WINDOW, total_steps=100):
    train = StageMetrics()
    for step, row in enumerate(rows):
        train.append(step, row)
    return check_run(
        train,
        total_steps=total_steps,
        window=window,
        max_logprob_mismatch=LIMIT,
        max_unexplained_growth=0.5,
        max_splice_cost=0.1,
    )


def sick_from(step, changes, steps=60):
    return [HEALTHY | (changes if i >= step else {}) for i in range(steps)]


def test_healthy_run_raises_nothing():
    assert alarms_of([HEALTHY] * 100) == []


@pytest.mark.parametrize(
    ("changes", "code", "step"),
    [
        # The window's mean falls below 0.10 when 17 of 20 steps have no signal.
        ({"groups/nonzero_std": 0.0}, "no_signal", 30 + 16),
        # The mean of the latest 5 steps falls below half of 40 at (5 * 40 - 3 * 36) / 5
        # = 18.4.
        ({"rollout/length_mean": 4.0}, "length_collapse", 32),
        ({"level_4/length": 2.0}, "length_collapse", 32),
        ({"band_hard/length": 2.0}, "length_collapse", 32),
        # It falls below half of 0.5 at 2 * 0.5 / 5 = 0.2.
        (
            {"verdict/correct": 0.0, "level_4/pass": 0.0, "band_hard/pass": 0.0},
            "accuracy_collapse",
            32,
        ),
        # 3 of 5 steps at .5 + .05 and 2 at .1: the mean is .37, .27 more than at the
        # start.
        ({"behavior/bare_answer": 0.5}, "shortcuts", 32),
        ({"behavior/skipped_steps": 0.5}, "shortcuts", 32),
        # 4 of 20 steps at 1 exceed 0.2; 2 of 20 exceed 0.1.
        ({"behavior/repetition": 1.0}, "repetition", 33),
        ({"behavior/forgotten": 1.0}, "forgetting", 31),
        ({"dynamic_sampling/zero_variance": 0.5}, "dynamic_sampling_short", 30),
        # It falls below a tenth of 0.3 at the fifth step at 0.01.
        ({"rollout/entropy": 0.01}, "entropy_collapse", 34),
        ({"logprob_mismatch/mean": 0.26}, "logprob_mismatch", 30),
        ({"logprob_mismatch/clipped": 0.06}, "mismatch_clips", 30),
        (
            {"loss/tis_truncated": 0.06, "staleness/versions_behind": 1.0},
            "stale_rollouts",
            30,
        ),
        ({"optimizer/skipped": 1.0}, "skipped_updates", 30),
        # 9 of 20 steps have a gradient, the last of them at step 29.
        ({"optimizer/grad_norm": 0.0}, "rare_gradient", 40),
        # With 3 of 20 steps at 1, the mean .15 minus 2.09 standard errors of .082 is
        # below 0; with 4 it is above 0.
        ({"verdict/reward_gap": 0.0}, "blind_reward", 46),
        # (15 * 0.05 + 5 * 1) / 20 = 0.2875 > 0.25.
        ({"rollout/truncated": 1.0}, "truncation", 34),
        # 2 of 20 unverified steps are 10 %; 1 of 20 is not above 5 %.
        (
            {"verdict/unverified": 1.0, "verdict/correct": 0, "verdict/incorrect": 0},
            "unverified",
            31,
        ),
        ({"verdict/time_limit": 0.6}, "unverified", 31),
        # A fifth of the completions in 6 of 20 steps is 6 %; in 5 steps it is only 5 %.
        ({"reward_time_limit/a:b": 0.2}, "unscored_a:b", 35),
        ({"reward_failed/judge": 0.2}, "unscored_judge", 35),
        ({"reward_failed/x": 0.1, "reward_time_limit/x": 0.1}, "unscored_x", 35),
    ],
)
def test_each_alarm_is_raised_once_at_the_step_where_it_begins(changes, code, step):
    (alarm,) = alarms_of(sick_from(30, changes))
    assert (alarm.code, alarm.step) == (code, step)


def test_no_gradient_at_all_moves_nothing_and_half_of_the_steps_are_not_few():
    silent = HEALTHY | {"optimizer/grad_norm": 0.0}
    assert alarms_of([silent] * 60) == []
    assert alarms_of([HEALTHY, silent] * 30) == []
    infinite = HEALTHY | {"optimizer/grad_norm": math.nan}
    assert alarms_of([infinite, silent] * 30) == []
    (alarm,) = alarms_of([HEALTHY, silent, silent] * 30)
    assert (alarm.code, alarm.step) == ("rare_gradient", WINDOW - 1)
    assert "Only 7 of the last 20 steps had a gradient" in alarm.finding


def test_failures_of_a_verifier_and_of_a_reward_are_separate():
    sick = {"verdict/unverified": 0.3, "verdict/correct": 0.3, "verdict/failed": 0.1}
    sick |= {"verdict/time_limit": 0.2, "reward_failed/judge": 0.25}
    unverified, unscored = alarms_of([HEALTHY | sick] * WINDOW)
    assert "27 % of completions could not be judged" in unverified.finding  # .3 / 1.1
    assert "20 % of all ran over the time limit, on 10 % the verifier failed" in (
        unverified.finding
    )
    assert "The reward judge scored 75 % of completions" in unscored.finding
    assert "0 % ran over its time limit, on 25 % it failed" in unscored.finding
    assert "judge.timeout_s" in unscored.advice


@pytest.mark.parametrize(("share", "behind"), [(0.05, 1.0), (1.0, 0.0)])
def test_truncated_weights_are_stale_rollouts_only_where_many_are_of_old_ones(
    share, behind
):
    sick = {"loss/tis_truncated": share, "staleness/versions_behind": behind}
    assert alarms_of(sick_from(30, sick)) == []


@pytest.mark.parametrize(
    ("cause", "advice"),
    [
        ("all_correct", "too easy"),
        ("all_incorrect", "too hard"),
        ("truncated", "max_new_tokens"),
        ("unverified", "verifier"),
    ],
)
def test_no_signal_names_shares_by_cause_and_level_and_advises_by_the_main_cause(
    cause, advice
):
    silent = dict.fromkeys([n for n in HEALTHY if n.startswith("groups/")], 0.02)
    silent |= {"groups/nonzero_std": 0.04, f"groups/{cause}": 0.9}
    silent |= {"level_4/nonzero_std": 0.04, "level_4/pass": 0.013}
    (alarm,) = alarms_of([HEALTHY | silent] * WINDOW)
    assert (alarm.code, alarm.step) == ("no_signal", WINDOW - 1)
    assert "only 4 % of groups" in alarm.finding
    assert f"; 90 % {cause.replace('_', ' ')}, 2 % " in alarm.finding
    assert "level 4 4 % at pass rate 0.01" in alarm.finding
    assert advice in alarm.advice


def test_no_signal_in_verdicts_is_not_none_where_other_rewards_are_paid():
    silent = HEALTHY | {"groups/nonzero_std": 0.0, "groups/all_incorrect": 1.0}
    verdicts = {"reward/mean": 0.0, "reward/std": 0.1, "reward/correctness": 0.0}
    (alarm,) = alarms_of([silent | verdicts] * WINDOW)
    assert alarm.finding.startswith("No learning signal: ")
    assert "reward/" not in alarm.finding
    (alarm,) = alarms_of([silent | verdicts | {"reward/tidy:f": 0.5}] * WINDOW)
    assert alarm.finding.startswith("No learning signal in verdicts: ")
    assert alarm.finding.endswith(
        " Other parts of the reward may teach: reward/tidy:f."
    )


def test_length_collapse_names_the_level_that_collapses_alone():
    (alarm,) = alarms_of(sick_from(30, {"level_4/length": 2.0}))
    # Three of the latest five steps have 2 tokens, two have 30.
    assert "(mean tokens of level 4: 30.0 to 13.2)" in alarm.finding


def test_length_shows_the_collapse_before_accuracy_falls():
    """Follows the published collapse: 510.7 tokens fall to 45.7 within 58 steps.

    Length halves by step 14, and accuracy starts to fall at step 30.
    """
    steps = range(60)
    lengths = [max(45.7, 510.7 * 0.5 ** (step / 14)) for step in steps]
    accuracy = [0.5 if step < 30 else 0.5 - 0.01 * (step - 30) for step in steps]
    rows = [
        HEALTHY | {"rollout/length_mean": length, "verdict/correct": right}
        for length, right in zip(lengths, accuracy, strict=True)
    ]
    first = alarms_of(rows)[0]
    assert first.code == "length_collapse"
    # The alarm comes when the mean of the latest five steps is half of the first
    # five's.
    assert 14 <= first.step <= 20


def fall_of_accuracy(before, after, passes_before=None, passes_after=None):
    """Returns the alarms of a run whose accuracy changes after five steps."""
    groups = ("level_", "band_")
    rows = {name: v for name, v in HEALTHY.items() if not name.startswith(groups)}

    def row(correct, passes):
        shares = {f"{group}/pass": share for group, share in (passes or {}).items()}
        return rows | {"verdict/correct": correct} | shares

    return alarms_of([row(before, passes_before)] * 5 + [row(after, passes_after)] * 5)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [(0.6, 0.25, True), (0.6, 0.3, False), (0.15, 0.06, False), (0.16, 0.05, True)],
)
def test_accuracy_collapses_where_less_than_half_is_left_and_that_was_not_little(
    before, after, told
):
    alarms = fall_of_accuracy(before, after)
    assert [alarm.code for alarm in alarms] == ["accuracy_collapse"] * told


@pytest.mark.parametrize(
    ("gaps", "told"),
    [
        # alternating: 2.09 x 0.205 / sqrt(20)
        ([0.2, -0.2] * 10, "+0 [-0.096, +0.096]"),
        ([0.3, -0.2] * 10, "+0.05 [-0.07, +0.17]"),
        ([0.15, 0.05] * 10, ""),  # a small gap, but at every step
        ([-0.3] * 20, "-0.3 [-0.3, -0.3]"),
        ([1.0] * 20, ""),
        ([0.0] * 10 + [None] * 10, "+0 [+0, +0]"),
        ([0.0] * 9 + [None] * 11, ""),  # too few groups have both verdicts
    ],
)
def test_a_reward_that_does_not_follow_the_verdicts_is_reported(gaps, told):
    rows = [{**HEALTHY, "verdict/reward_gap": gap} for gap in gaps]
    alarms = alarms_of(rows)
    assert [alarm.code for alarm in alarms] == ["blind_reward"] * bool(told)
    assert all(f"group: {told} over the last 20 steps." in a.finding for a in alarms)


@pytest.mark.parametrize("group", ["level_{}", "band_{}"])
@pytest.mark.parametrize(
    ("passes_before", "passes_after", "told"),
    [
        ({4: 0.6}, {4: 0.2}, True),
        ({4: 0.6}, {4: 0.3}, False),
        # Group 4 is unchanged, and the harder group 9 was not sampled before.
        ({4: 0.6}, {4: 0.6, 9: 0.1}, False),
        ({4: 0.6, 2: 0.9}, {4: 0.2, 9: 0.6}, True),
        ({2: 0.9}, {9: 0.1}, False),
    ],
)
def test_harder_levels_or_bands_do_not_raise_accuracy_collapse(
    group, passes_before, passes_after, told
):
    before, after = (
        {group.format(each): share for each, share in passes.items()}
        for passes in (passes_before, passes_after)
    )
    alarms = fall_of_accuracy(0.6, 0.2, before, after)
    assert [alarm.code for alarm in alarms] == ["accuracy_collapse"] * told


def test_harder_bands_of_one_level_do_not_raise_accuracy_collapse():
    before = {"level_4": 0.9, "band_easy": 0.9, "band_medium": 0.8}
    after = {"level_4": 0.2, "band_medium": 0.7, "band_hard": 0.1}
    assert fall_of_accuracy(0.9, 0.2, before, after) == []


def test_collapse_of_accuracy_is_reported_in_percent():
    (alarm,) = fall_of_accuracy(0.65, 0.24)
    assert alarm.finding == "24 % of completions are correct, 65 % at the start."


ENDLESS = {"rollout/truncated": 0.91, "verdict/correct": 0.09}


@pytest.mark.parametrize(
    ("changes", "codes"),
    [
        ({}, ["no_ending"]),
        ({"rollout/truncated": 0.89}, ["truncation"]),
        ({"verdict/correct": 0.11}, ["truncation"]),
        # A reward that is paid without a right answer does not end completions.
        ({"reward/mean": 0.5}, ["no_ending"]),
    ],
)
def test_completions_that_never_end_are_told_of_at_the_fifth_step(changes, codes):
    alarms = alarms_of([HEALTHY | ENDLESS | changes] * 60)
    assert [alarm.code for alarm in alarms] == codes
    assert alarms[0].step == (4 if codes == ["no_ending"] else WINDOW - 1)


def test_completions_that_ended_at_first_are_truncated():
    alarms = alarms_of(sick_from(5, ENDLESS))
    assert "truncation" in [alarm.code for alarm in alarms]
    assert "no_ending" not in [alarm.code for alarm in alarms]


def test_completions_that_learn_to_end_are_no_longer_endless():
    rows = [HEALTHY | ENDLESS] * 4 + [HEALTHY] * 60
    assert alarms_of(rows) == []
    rows = [HEALTHY | ENDLESS] * 9
    rows += [HEALTHY | ENDLESS | {"rollout/truncated": 0.3}] * 60
    assert [alarm.code for alarm in alarms_of(rows)] == ["no_ending", "truncation"]


def test_windowed_alarms_wait_for_a_full_window():
    sick = HEALTHY | {"groups/nonzero_std": 0.0, "rollout/truncated": 1.0}
    assert alarms_of([sick] * (WINDOW - 1)) == []


NEVER_CORRECT = HEALTHY | {
    "groups/nonzero_std": 0.0,
    "groups/all_correct": 0.0,
    "groups/all_incorrect": 1.0,
    "verdict/correct": 0.0,
    "verdict/incorrect": 1.0,
}


@pytest.mark.parametrize(
    ("done", "total_steps", "step"),
    [(3, 3, 2), (1, 1, 0), (2, 3, None), (5, 100, 4), (4, 100, None), (30, 100, 4)],
)
def test_a_run_without_one_correct_answer_is_told_of_early(done, total_steps, step):
    """The alarm comes at the fifth step or the last; the full window adds nothing."""
    alarms = alarms_of([NEVER_CORRECT] * done, total_steps=total_steps)
    assert [(a.code, a.step) for a in alarms] == [("no_signal", step)] * (
        step is not None
    )


def test_a_short_run_without_a_correct_answer_says_so():
    (alarm,) = alarms_of([NEVER_CORRECT] * 3, total_steps=3)
    assert alarm.finding == (
        "No learning signal: over the last 3 steps only 0 % of groups had both correct "
        "and incorrect completions; 100 % all incorrect. No completion was correct. "
        "Groups with signal: level 4 50 % at pass rate 0.70."
    )
    assert "too hard" in alarm.advice


def test_one_correct_answer_waits_for_the_window():
    rows = [NEVER_CORRECT] * 3 + [NEVER_CORRECT | {"verdict/correct": 1e-3}]
    assert alarms_of(rows, total_steps=4) == []
    assert [a.step for a in alarms_of(rows + rows, total_steps=100)] == []


@pytest.mark.parametrize(("steps", "told"), [(19, True), (20, False), (0, True)])
def test_a_run_shorter_than_the_window_has_too_few_steps_to_say(steps, told):
    text = describe_short_run(steps, WINDOW)
    assert bool(text) == told
    assert not told or text == (
        "Most alarms need 20 steps (log.alarm_window), and there were "
        f"{steps}: they could not be raised."
    )


def test_alarm_returns_only_after_a_window_without_it():
    gap = HEALTHY | {"logprob_mismatch/mean": 0.4}
    soon = [gap] + [HEALTHY] * (WINDOW - 1) + [gap]
    late = [gap] + [HEALTHY] * WINDOW + [gap]
    assert [a.step for a in alarms_of(soon)] == [0]
    assert [a.step for a in alarms_of(late)] == [0, WINDOW + 1]


def test_absent_and_null_values_are_left_out():
    skipped = {"optimizer/skipped": 1.0, "rollout/entropy": None}
    (alarm,) = alarms_of([skipped] + [{}] * 50)
    assert (alarm.code, alarm.step) == ("skipped_updates", 0)


def test_a_number_that_is_not_finite_is_not_remembered():
    """A skipped step may have an entropy of NaN, which is null once it is written."""
    state = DoctorState()
    for step, value in enumerate((1.0, math.nan, 0.9)):
        state, alarms = check_step(
            state,
            step,
            {**HEALTHY, "rollout/entropy": value},
            total_steps=100,
            window=WINDOW,
            max_logprob_mismatch=LIMIT,
            max_unexplained_growth=0.5,
            max_splice_cost=0.1,
        )
        assert alarms == []
    assert [row.get("rollout/entropy") for row in state.first] == [1.0, None, 0.9]


@pytest.mark.parametrize("cut", [0, 3, 29, 31, 45, 59])
def test_resumed_run_raises_the_same_alarms_at_the_same_steps(cut):
    changes = {"groups/nonzero_std": 0.0, "rollout/length_mean": 4.0}
    rows = sick_from(30, changes)
    state, heard = DoctorState(), []
    for step, row in enumerate(rows):
        if step == cut:  # what saving to a checkpoint does to the state
            state = DoctorState.from_json(json.loads(json.dumps(state.to_json())))
        state, alarms = check_step(
            state,
            step,
            row,
            total_steps=len(rows),
            window=WINDOW,
            max_logprob_mismatch=LIMIT,
            max_unexplained_growth=0.5,
            max_splice_cost=0.1,
        )
        heard += alarms
    assert heard == alarms_of(rows)
    assert [a.code for a in heard] == ["length_collapse", "no_signal"]


def test_examine_leaves_the_state_it_was_given_alone():
    state = DoctorState()
    check_step(
        state,
        0,
        HEALTHY,
        total_steps=100,
        window=WINDOW,
        max_logprob_mismatch=LIMIT,
        max_unexplained_growth=0.5,
        max_splice_cost=0.1,
    )
    assert state == DoctorState()


def test_state_stays_small():
    state = DoctorState()
    for step in range(200):
        state, _ = check_step(
            state,
            step,
            HEALTHY | {f"other/{i}": 1.0 for i in range(100)},
            total_steps=200,
            window=WINDOW,
            max_logprob_mismatch=LIMIT,
            max_unexplained_growth=0.5,
            max_splice_cost=0.1,
        )
    assert len(state.recent) == WINDOW
    assert set(state.recent[0]) == set(HEALTHY)


def test_window_shorter_than_the_first_steps_still_works():
    (alarm,) = alarms_of(sick_from(10, {"rollout/length_mean": 4.0}, 20), window=2)
    assert (alarm.code, alarm.step) == ("length_collapse", 11)


def test_alarm_reads_as_one_line():
    (alarm,) = alarms_of(sick_from(30, {"logprob_mismatch/mean": 0.26}))
    assert str(alarm) == (
        "step 30: logprob_mismatch: Sampler and update disagree on log-probabilities "
        "by 0.260 nats per token; the run stops at 0.5. Compute in float32, or compare "
        "the sampler's settings with the update's."
    )


def measured(name, values):
    """Returns rows that have a figure of the autoencoder at some steps only."""
    name = f"sae/{name}_reference"
    return [
        HEALTHY | ({name: values[step]} if step in values else {}) for step in range(25)
    ]


@pytest.mark.parametrize(
    ("name", "values", "step"),
    [
        # An FVE that falls by 0.03 leaves 60 % more variance unexplained.
        ("fve", {0: 0.95, 10: 0.926, 20: 0.92}, 20),
        ("fve", {0: 0.95, 10: 0.928, 20: 0.926}, None),
        ("fve", {0: 0.5, 10: 0.3, 20: 0.24}, 20),
        ("splice_kl", {0: 0.02, 10: 0.029, 20: 0.031}, 20),
        # Weight noise that costs 38 % of the cross-entropy: FVE 0.926 to 0.913.
        ("splice_kl", {0: 0.0167, 20: 0.0252}, 20),
        ("splice_kl", {0: 0.02, 10: 0.0, 20: 0.03}, None),
    ],
)
def test_a_policy_that_outgrew_its_dictionary_is_reported_once(name, values, step):
    """The error now is compared with the error at the start."""
    alarms = alarms_of(measured(name, values))
    assert [(a.code, a.step) for a in alarms] == [("sae_stale", step)] * bool(step)


def test_a_stale_dictionary_says_what_it_missed_then_and_now():
    (alarm,) = alarms_of(measured("fve", {0: 0.95, 20: 0.92}))
    assert "leaves 8.0 % of the stream's variance unexplained, 5.0 % at" in str(alarm)
    (alarm,) = alarms_of(measured("splice_kl", {0: 0.02, 20: 0.04}))
    assert "reads its output by 0.04 nats per token (KL), 0.02" in str(alarm)


@pytest.mark.parametrize(("cost", "raised"), [(0.2, True), (0.11, True), (0.1, False)])
def test_a_dictionary_that_harms_the_policy_is_reported(cost, raised):
    """It comes at the first step: 20 % more cross-entropy, despite an FVE of 0.99."""
    rows = [row | {"sae/fve_reference": 0.99} for row in measured("splice_cost", {})]
    rows[0]["sae/splice_cost_reference"] = cost
    alarms = alarms_of(rows)
    assert [(a.code, a.step) for a in alarms] == [("sae_unfaithful", 0)] * raised
    assert not raised or f"{100 * cost:.0f} % more cross-entropy" in alarms[0].finding
