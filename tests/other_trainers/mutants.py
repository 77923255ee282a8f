"""One-line mutants of rlvr_jax/other_trainers/; CONTRIBUTING.md says how to add one."""

from tests.mutants.mutant import rows

_FAULTS = ("tests/other_trainers/test_faults.py",)
_LOGS = ("tests/other_trainers/test_logs.py",)

MUTANTS = [
    *rows(
        "rlvr_jax/other_trainers/check.py",
        _FAULTS,
        doctor_tells_all_at_the_row=("step=log.steps[alarm.step]", "step=alarm.step"),
        doctor_sees_tiny_gradients=("_NO_GRADIENT = 1e-5", "_NO_GRADIENT = 0.0"),
        doctor_trusts_any_scale=("reward if is_share else None", "reward"),
        doctor_forgets_what_it_told=(
            "state = dataclasses.replace(state, last_active=held)",
            "pass",
        ),
        doctor_needs_gradients=(
            'metrics.get("optimizer/grad_norm", signal)',
            'metrics.get("optimizer/grad_norm")',
        ),
        doctor_averages_nan=(
            'if k != "reward" or not math.isnan(v)',
            "",
        ),
        doctor_swaps_solved=(
            '"solved_all": "groups/all_c',
            '"solved_none": "groups/all_c',
        ),
        doctor_needs_all_alternatives=(
            "if any(present.issuperset(needs)",
            "if all(present.issuperset(needs)",
        ),
    ),
    *rows(
        "rlvr_jax/other_trainers/symptoms.py",
        _FAULTS,
        signal_is_the_same=(
            'return 1.0 - row["same_reward"]',
            'return row["same_reward"]',
        ),
        any_spread_is_none=(
            '(row["reward_std"] > _ROUNDING)',
            '(row["reward_std"] >= 0)',
        ),
        collapse_counts_from_zero=(
            "if now - self.lowest >= _COLLAPSE * (self.best - self.lowest):",
            "if now >= _COLLAPSE * self.best:",
        ),
        collapse_ignores_scatter=(
            "max(_MIN_DEVIATIONS * self.deviation, _MIN_FALL",
            "max(0.0, _MIN_FALL",
        ),
        collapse_is_from_the_start=(
            "and mean > self.best:",
            "and self.best == -math.inf:",
        ),
        collapse_may_be_small=("_MIN_FALL = 0.1", "_MIN_FALL = 0.0"),
        mismatch_at_once=("if num_steps >= FEW_STEPS:", "if num_steps >= 1:"),
        silent_too_soon=("if len(shares) >= _EARLY_STEPS and", "if"),
    ),
    *rows(
        "rlvr_jax/metrics/symptoms.py",
        _FAULTS,
        half_cut_is_not_most=(
            "cut_now < _MOSTLY_CUT <= cut",
            "cut_now < _MOSTLY_CUT < cut",
        ),
        ends_whatever_it_earns=("and paid_now > paid", "and paid_now > 0"),
        ends_while_most_are_cut=("cut_now < _MOSTLY_CUT <= cut", "_MOSTLY_CUT <= cut"),
    ),
    *rows(
        "rlvr_jax/other_trainers/log.py",
        _LOGS,
        doctor_believes_any_share=(
            "if not 0 <= row.get(name, 0) <= 1]",
            "if row.get(name, 0) < 0]",
        ),
        keeps_the_given_up_steps=(
            "if column and step < next(reversed(column)):",
            "if False:",
        ),
        null_is_missing=("if not values and may_be_null", "if False"),
        dropped_is_missing=(
            "if trainer.drops_nonfinite and",
            "if not trainer.drops_nonfinite and",
        ),
        poisons_every_column=("elif quantity in NONFINITE:", "else:"),
        mixes_trainers=("if len(recognized) > 1:", "if len(recognized) > 2:"),
        a_rate_is_training=(
            'if columns.keys() <= {"learning_rate"}:',
            "if not columns:",
        ),
    ),
    *rows(
        "rlvr_jax/other_trainers/files.py",
        _LOGS,
        newest_by_name=("(int(match[1]), folder", "(match[1], folder"),
        cut_lines_are_damage=(
            "if number == len(lines) and number > 1:",
            "if False:",
        ),
        any_last_line_may_be_cut=(
            "if number == len(lines) and number > 1:",
            "if number >= len(lines) - 1 and number > 1:",
        ),
    ),
    *rows(
        "rlvr_jax/other_trainers/trainer.py",
        (*_FAULTS, *_LOGS),
        a_star_takes_slashes=('r"\\*", "[^/]+"', 'r"\\*", ".+"'),
        merges_versions=("                    break\n", ""),
    ),
    *rows(
        "rlvr_jax/doctor.py",
        _LOGS,
        doctor_of_another_window=("= LogConfig.alarm_window", "= 21"),
        doctor_reports_json_in_text=("if flags.json:", "if not flags.json:"),
    ),
]
