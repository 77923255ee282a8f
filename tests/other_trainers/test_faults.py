"""Findings about other trainers' logs, and silence about healthy ones."""

import math
import random

import pytest

from rlvr_jax.other_trainers.check import CHECKS, check_log, split_checks
from rlvr_jax.other_trainers.log import Log, read_log
from rlvr_jax.other_trainers.prime_rl import PRIME_RL
from rlvr_jax.other_trainers.trainer import ADVICE_CODES, OPTIONS, QUANTITIES
from rlvr_jax.other_trainers.trl import TRL
from rlvr_jax.other_trainers.verl import VERL
from tests.other_trainers.synthetic import TRAINERS, healthy, plant, write

TABLES = (TRL, VERL, PRIME_RL)
WINDOW, FAULTY = 20, 40  # rows; the index of the first faulty row


def findings_of(folder, trainer, run, **more):
    log = read_log(write(folder, trainer, run, **more), TABLES)
    assert log.trainer.name.lower() == trainer
    return check_log(log, window=WINDOW)


def findings_of_rows(rows, trainer=TRL):
    log = Log(trainer, [], range(1, len(rows) + 1), rows)
    return check_log(log, window=WINDOW)


def codes_of(findings):
    return [finding.code for finding in findings]


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize("noise", [1.0, 2.0])
def test_healthy_logs_raise_nothing(tmp_path, trainer, noise):
    """Forty runs each: short and long ones, with rewards of any scale, in any rows."""
    for seed in range(40):
        steps = (1, 4, 9, 25, 60, 150)[seed % 6]
        run = healthy(seed, steps=steps, noise=noise)
        scale, shift = ((1, 0), (2, -1), (10, 0), (1, -3))[seed % 4]
        for row in run:
            row["reward"] = scale * row["reward"] + shift
        every = (1, 10)[seed % 2]
        numbers = range(every, every * steps + 1, every)
        assert findings_of(tmp_path, trainer, run, steps=numbers) == []


# Each fault with the codes that are true of it, in order. Where rewards fall to 0, the
# reward collapses too; where no group has a signal, gradients become rare on the way.
FAULTS = {
    "truncation": (
        {"truncated": 0.9, "reward": 0.02},
        ["truncation", "reward_collapse"],
    ),
    "all_wrong": (
        {"same": 1.0, "right": 0.0, "reward": 0.0, "grad_norm": 0.0},
        ["rare_gradient", "reward_collapse", "no_signal"],
    ),
    "all_right": (
        {"same": 1.0, "right": 1.0, "reward": 1.0, "grad_norm": 0.0},
        ["rare_gradient", "no_signal"],
    ),
    "entropy": ({"entropy": 0.004}, ["entropy_collapse"]),
    "rare": ({"grad_norm": lambda at: 0.3 * (at % 3 == 0)}, ["rare_gradient"]),
    "length": ({"length": 10.0}, ["length_collapse"]),
    "reward": ({"reward": 0.01}, ["reward_collapse"]),
    "mismatch": ({"gap": 0.4}, ["logprob_mismatch"]),
    "nonfinite": (
        {"grad_norm": lambda at: math.nan if at == FAULTY else 0.3},
        ["nonfinite"],
    ),
}


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_each_fault_is_found_and_no_other(tmp_path, trainer, fault, seed):
    changes, codes = FAULTS[fault]
    run = plant(healthy(seed), FAULTY, **changes)
    findings = findings_of(tmp_path, trainer, run)
    assert sorted(codes_of(findings)) == sorted(codes)
    assert all(FAULTY < f.step <= FAULTY + WINDOW for f in findings)
    assert all("{" not in f.advice and f.advice for f in findings)


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_missing_chat_template_is_found_at_the_fifth_step(tmp_path, trainer):
    run = plant(healthy(3), 0, truncated=0.97, reward=0.0, same=1.0, right=0.0)
    ending, signal = findings_of(tmp_path, trainer, run)
    assert (ending.code, ending.step) == ("no_ending", 5)
    assert "(97 %) ran into the length limit" in ending.finding
    assert "chat template" in ending.advice
    assert "end token" in ending.advice
    # Ten steps without any signal are enough, and the full window adds nothing.
    assert (signal.code, signal.step) == ("no_signal", 10)
    assert "Completions end before they answer" in signal.advice


@pytest.mark.parametrize(
    ("reward", "told", "option"),
    [
        (0.01, "Nearly all completions are wrong.", "call the reward function by hand"),
        (0.99, "Nearly all completions are right.", "too easy"),
        (0.5, "", "Read one group's completions"),
    ],
)
def test_no_signal_says_whether_all_is_right_or_wrong(tmp_path, reward, told, option):
    for trainer in ("trl", "verl"):  # they log no share of solved groups
        run = plant(healthy(0), 0, same=1.0, reward=reward)
        (finding,) = findings_of(tmp_path, trainer, run)
        assert (finding.code, finding.step) == ("no_signal", 10)
        assert f"The mean reward of these steps is {reward:g}." in finding.finding
        assert finding.finding.endswith(told or f"is {reward:g}.")
        assert option in finding.advice


def test_rewards_of_another_scale_do_not_tell_right_from_wrong(tmp_path):
    run = plant(healthy(0), 0, same=1.0, reward=lambda at: 0.0 if at else -0.1)
    (finding,) = findings_of(tmp_path, "trl", run)
    assert "Nearly all" not in finding.finding


def test_solved_groups_tell_right_from_wrong_whatever_the_reward(tmp_path):
    run = plant(healthy(0), 0, same=0.96, right=0.95, reward=7.0)
    (finding,) = findings_of(tmp_path, "prime-rl", run)
    assert finding.step == WINDOW
    assert "only 4 % of groups had unequal rewards; 95 % all correct, 1 % all inc" in (
        finding.finding
    )
    assert finding.finding.endswith("Nearly all completions are right.")


ROW = {
    "reward": 0.4,
    "same_reward": 0.4,
    "length": 100.0,
    "truncated": 0.05,
    "entropy": 0.5,
    "grad_norm": 0.1,
    "loss": 0.01,
    "logprob_mismatch": 0.01,
}


def fault_from(at, total=60, **changes):
    return [ROW | (changes if i >= at else {}) for i in range(total)]


@pytest.mark.parametrize(
    ("changes", "codes"),
    [
        ({"truncated": 0.91, "reward": 0.09}, ["no_ending"]),
        ({"truncated": 0.89, "reward": 0.09}, ["truncation"]),
        ({"truncated": 0.91, "reward": 0.11}, ["truncation"]),
        ({"truncated": 0.9, "reward": -1.0}, ["no_ending"]),
        ({"truncated": 0.25}, []),
        ({"truncated": 0.26}, ["truncation"]),
        ({"same_reward": 0.9}, []),
        ({"same_reward": 0.91}, ["no_signal"]),
        ({"logprob_mismatch": 0.25}, []),
        ({"logprob_mismatch": 0.26}, ["logprob_mismatch"]),
        ({"logprob_mismatch": 0.0, "prob_mismatch": 0.01}, []),
        ({"logprob_mismatch": 0.0, "prob_mismatch": 0.011}, ["logprob_mismatch"]),
        ({"sampler_kl": 0.05}, []),
        ({"sampler_kl": 0.051}, ["logprob_mismatch"]),
    ],
)
def test_both_sides_of_each_threshold(changes, codes):
    findings = findings_of_rows(fault_from(0, **changes))
    assert codes_of(findings) == codes


@pytest.mark.parametrize(
    ("changes", "codes"),
    [
        ({"entropy": 0.05}, []),
        ({"entropy": 0.049}, ["entropy_collapse"]),
        ({"length": 50.0}, []),
        ({"length": 49.0}, ["length_collapse"]),
        ({"reward": 0.2}, []),
        ({"reward": 0.19}, ["reward_collapse"]),
    ],
)
def test_a_collapse_is_less_than_a_part_of_the_start(changes, codes):
    assert codes_of(findings_of_rows(fault_from(30, **changes))) == codes


@pytest.mark.parametrize(
    ("start", "changes", "codes"),
    [
        (0.5, {"reward": 0.45}, []),
        (0.49, {"reward": 0.45}, ["length_collapse"]),
        (0.5, {"reward": 0.4}, ["length_collapse"]),  # does not earn more
        (0.5, {"reward": 0.45, "truncated": 0.5}, ["length_collapse", "truncation"]),
    ],
)
def test_completions_that_learn_to_end_do_not_collapse(start, changes, codes):
    """As in a run of a base model whose first completions all ran into the limit."""
    cut = [ROW | {"truncated": start}] * 5
    rows = cut + [ROW | {"length": 20.0} | changes] * 20
    assert codes_of(findings_of_rows(rows)) == codes


def test_a_mean_reward_of_nan_is_told_and_counts_nowhere_else():
    rows = [ROW | ({"reward": math.nan} if at % 9 == 4 else {}) for at in range(60)]
    first, *later = findings_of_rows(rows)
    assert (first.code, first.step) == ("nonfinite", 5)
    assert first.finding == "The mean reward is not finite."
    assert {finding.code for finding in later} <= {"nonfinite"}
    for row in rows[30:]:
        row["reward"] = math.nan if math.isnan(row["reward"]) else 0.01
    assert "reward_collapse" in codes_of(findings_of_rows(rows))


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        (0.18, 0.07, True),
        (0.18, 0.09, False),  # half is left
        (0.15, 0.05, False),  # a fall of 0.1 is small
        (-0.5, -0.9, False),  # height counts from the lowest reward, -0.9, or from 0
        (3.0, 1.4, True),
        (3.0, 1.6, False),
    ],
)
def test_height_of_a_reward_counts_from_the_lowest(before, after, found):
    rows = [ROW | {"reward": before}] * 30 + [ROW | {"reward": after}] * 30
    rows[0] = ROW | {"reward": min(before, 0.0) - (before < 0)}  # -1.5 or 0
    found_codes = codes_of(findings_of_rows(rows))
    assert found_codes == ["reward_collapse"] * found


def test_a_reward_that_rose_first_has_collapsed_when_it_is_back():
    rewards = [0.2] * 20 + [0.8] * 30 + [0.2] * 20
    (finding,) = findings_of_rows([ROW | {"reward": r} for r in rewards])
    # 14 of 20 steps at .2 and 6 at .8 have a mean of .38, below half of .8.
    assert (finding.code, finding.step) == ("reward_collapse", 64)
    assert "is 0.38; of the best 20 it was 0.8." in finding.finding


def test_a_reward_that_scatters_widely_has_not_collapsed():
    """Half is lost, but the best window itself scatters by more than half the fall."""
    best = [0.0, 0.8] * 10  # mean .4, deviation .4
    rows = [ROW | {"reward": r} for r in best + [0.1] * 20]
    assert findings_of_rows(rows) == []


@pytest.mark.parametrize(
    ("norm", "codes"), [(0.0, 1), (0.9e-5, 1), (1.1e-5, 0), (math.nan, 0)]
)
def test_a_tiny_gradient_is_none_and_an_infinite_one_is_one(norm, codes):
    norms = [0.1, norm, norm] * 20
    rows = [ROW | {"grad_norm": n} for n in norms]
    found = [c for c in codes_of(findings_of_rows(rows)) if c != "nonfinite"]
    assert found == ["rare_gradient"] * codes


def test_a_log_without_gradients_has_none_in_steps_without_a_signal():
    rows = [ROW | {"same_reward": 0.6 if at % 3 == 0 else 1.0} for at in range(60)]
    for row in rows:
        del row["grad_norm"]
    assert codes_of(findings_of_rows(rows)) == ["rare_gradient"]


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["loss"], "The loss is not finite."),
        (["grad_norm"], "The gradient norm is not finite."),
        (["loss", "grad_norm"], "The loss and the gradient norm are not finite."),
    ],
)
def test_numbers_that_are_not_finite_are_named_once(names, text):
    rows = fault_from(10, **dict.fromkeys(names, math.nan))
    (finding,) = findings_of_rows(rows)
    assert (finding.step, finding.finding) == (11, text)


def test_ten_steps_without_a_signal_are_told_and_nine_are_not():
    silent = ROW | {"same_reward": 1.0}
    assert findings_of_rows([silent] * 9) == []
    assert findings_of_rows([silent] * 5 + [ROW] + [silent] * 9) == []
    assert codes_of(findings_of_rows([silent] * 10)) == ["no_signal"]


@pytest.mark.parametrize(
    ("silent", "alive"),
    [
        ({"reward_std": 0.0}, {"reward_std": 0.1}),
        (
            {"advantage_low": 0.3, "advantage_high": 0.3},
            {"advantage_low": -1.0, "advantage_high": 1.0},
        ),
        (
            {"solved_none": 0.5, "solved_all": 0.5},
            {"solved_none": 0.5, "solved_all": 0.4},
        ),
    ],
)
def test_every_way_to_show_a_signal_is_read(silent, alive):
    base = {"reward": 0.5}
    assert findings_of_rows([base | alive] * 30) == []
    assert codes_of(findings_of_rows([base | silent] * 30)) == ["no_signal"]


def test_a_mismatch_needs_five_steps():
    assert findings_of_rows(fault_from(0, total=4, logprob_mismatch=9.0)) == []
    assert findings_of_rows(fault_from(4, total=5, logprob_mismatch=1.0)) == []  # .208
    (finding,) = findings_of_rows(fault_from(4, total=5, logprob_mismatch=2.0))
    assert "by 0.408 nats per token; above 0.25" in finding.finding


def test_a_fault_that_returns_after_a_window_is_told_again():
    """With a row every ten steps too: a window counts rows."""
    gaps = [0.5] * 6 + [0.0] * 25 + [0.5] * 6
    rows = [ROW | {"logprob_mismatch": gap} for gap in gaps]
    log = Log(TRL, [], range(10, 10 * len(rows) + 1, 10), rows)
    # The mean of five steps exceeds .25 with three of them at .5, at index 33.
    assert [f.step for f in check_log(log, window=WINDOW)] == [50, 340]


def test_missing_columns_are_no_finding(tmp_path):
    rng = random.Random(0)
    for seed in range(10):
        names = rng.sample(sorted(ROW), 3)
        rows = [{n: ROW[n] for n in names} for _ in range(40)]
        assert findings_of_rows(rows) == [], seed


@pytest.mark.parametrize("table", TABLES)
def test_each_table_is_complete(table):
    assert table.names.keys() <= set(QUANTITIES)
    assert table.how_to_log.keys() <= table.names.keys()
    assert table.options.keys() == OPTIONS
    for code in CHECKS:
        assert any(table.names.keys() >= {*needs} for needs in CHECKS[code]), code
        assert code in ADVICE_CODES


@pytest.mark.parametrize(
    ("trainer", "quantities", "missing"),
    [
        (TRL, ROW, {}),
        (
            TRL,
            ["reward", "reward_std", "length", "loss", "grad_norm"],
            {
                "completions/clipped_ratio (TRL 0.17 or newer)": [
                    "no_ending",
                    "truncation",
                ],
                "entropy (TRL 0.20 or newer)": ["entropy_collapse"],
                "sampling/sampling_logp_difference/mean (use_vllm with "
                "vllm_importance_sampling_correction)": ["logprob_mismatch"],
            },
        ),
        (
            VERL,
            ["reward", "length", "truncated", "entropy", "grad_norm", "advantage_low"],
            {
                "critic/advantages/max": ["no_signal"],
                "training/rollout_probs_diff_mean "
                "(actor_rollout_ref.rollout.calculate_log_probs=True)": [
                    "logprob_mismatch"
                ],
            },
        ),
    ],
)
def test_checks_that_a_log_does_not_allow_name_what_to_log(
    trainer, quantities, missing
):
    log = Log(trainer, [], [1], [dict.fromkeys(quantities, 0.5)])
    skipped = {code for codes in missing.values() for code in codes}
    made = [code for code in CHECKS if code not in skipped]
    assert split_checks(log) == (made, missing)
