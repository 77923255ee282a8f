"""Reading other trainers' logs, and the command `python -m rlvr_jax.doctor`."""

import json
import math
import subprocess
import sys

import pytest

from rlvr_jax import doctor
from rlvr_jax.config.run import LogConfig
from rlvr_jax.other_trainers.log import read_log
from rlvr_jax.other_trainers.prime_rl import PRIME_RL
from rlvr_jax.other_trainers.trl import TRL
from rlvr_jax.other_trainers.verl import VERL
from tests.other_trainers.synthetic import (
    TRAINERS,
    healthy,
    plant,
    trl_row,
    verl_row,
    write,
    write_lines,
)

TABLES = (TRL, VERL, PRIME_RL)


def run_doctor(capsys, *argv):
    code = doctor.main([str(arg) for arg in argv])
    out, err = capsys.readouterr()
    return code, out.splitlines(), err.splitlines()


# As transformers 5 and TRL write it, with an evaluation and the summary of the run.
STATE = """\
{
  "best_global_step": null,
  "best_metric": null,
  "epoch": 0.02,
  "eval_steps": 2,
  "global_step": 3,
  "is_hyper_param_search": false,
  "log_history": [
    {
      "clip_ratio/high_max": 0.0,
      "completions/clipped_ratio": 0.25,
      "completions/mean_length": 211.5,
      "entropy": 0.41,
      "epoch": 0.01,
      "frac_reward_zero_std": 0.5,
      "grad_norm": NaN,
      "kl": null,
      "learning_rate": 1e-06,
      "loss": 0.0123,
      "reward": 0.375,
      "reward_std": 0.2,
      "rewards/accuracy_reward/mean": 0.375,
      "rewards/accuracy_reward/std": 0.48,
      "step": 2,
      "step_time": 10.1
    },
    {
      "epoch": 0.01,
      "eval_completions/mean_length": 5.0,
      "eval_reward": 0.0,
      "eval_runtime": 3.2,
      "step": 2
    },
    {
      "completions/clipped_ratio": 0.125,
      "completions/mean_length": 199.0,
      "frac_reward_zero_std": 0.25,
      "grad_norm": 0.3359375,
      "loss": -0.004,
      "reward": null,
      "step": 3
    },
    {
      "epoch": 0.02,
      "step": 3,
      "total_flos": 0.0,
      "train_loss": 0.004,
      "train_runtime": 40.2
    }
  ],
  "logging_steps": 1,
  "save_steps": 500,
  "stateful_callbacks": {"TrainerControl": {"args": {"should_save": true}}},
  "train_batch_size": 8
}
"""


def test_a_state_of_transformers_is_read_without_its_evaluations(tmp_path):
    file = tmp_path / "any_name.txt"
    file.write_text(STATE)
    log = read_log([file], TABLES)
    assert (log.trainer.name, [*log.steps]) == ("TRL", [2, 3])
    first, second = log.rows
    assert math.isnan(first.pop("grad_norm"))
    assert first == {
        "reward": 0.375,
        "reward_std": 0.2,
        "same_reward": 0.5,
        "length": 211.5,
        "truncated": 0.25,
        "entropy": 0.41,
        "loss": 0.0123,
        "learning_rate": 1e-6,
    }
    assert second == {
        "same_reward": 0.25,
        "length": 199.0,
        "truncated": 0.125,
        "loss": -0.004,
        "grad_norm": 0.3359375,
    }


def test_a_directory_means_its_state_or_the_newest_checkpoint(tmp_path, capsys):
    for step in (500, 1000, 20):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        write(folder, "trl", healthy(0, steps=3), steps=[step - 2, step - 1, step])
    (tmp_path / "checkpoint-2000").mkdir()  # still being written
    _, lines, _ = run_doctor(capsys, tmp_path)
    assert lines[0].endswith("trainer_state.json: 3 training rows, steps 998 to 1000")
    write(tmp_path, "trl", healthy(0, steps=3))
    _, lines, _ = run_doctor(capsys, tmp_path)
    assert lines[0].endswith("3 training rows, steps 1 to 3")


def test_rows_of_a_resumed_run_replace_the_given_up_ones(tmp_path):
    """Steps 1 to 20, resumed after step 10, and stopped at step 15."""
    rows = [trl_row(step, {**healthy(0)[0], "reward": 0.1}) for step in range(1, 21)]
    rows += [trl_row(step, {**healthy(0)[0], "reward": 0.2}) for step in range(11, 16)]
    log = read_log([write_lines(tmp_path / "a.jsonl", rows)], TABLES)
    assert [*log.steps] == [*range(1, 16)]
    assert [row["reward"] for row in log.rows] == [0.1] * 10 + [0.2] * 5


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_log_that_repeats_itself_is_read_as_the_last_attempt(tmp_path, trainer):
    whole = read_log(write(tmp_path, trainer, healthy(1)), TABLES)
    if trainer == "trl":
        file = tmp_path / "trainer_state.json"
        state = json.loads(file.read_text())
        history = state["log_history"]
        state["log_history"] = history[:70] + history[40:]
        file.write_text(json.dumps(state))
        files = [file]
    else:
        files = list(whole.files)
        for file in files:
            lines = file.read_text().splitlines(keepends=True)
            each = len(lines) // 80
            file.write_text("".join(lines[: 70 * each] + lines[40 * each :]))
    again = read_log(files, TABLES)
    assert (again.steps, again.rows) == (whole.steps, whole.rows)


def test_verl_rows_may_be_flat_and_its_null_is_not_finite(tmp_path):
    row = healthy(0)[0] | {"grad_norm": math.nan, "entropy": math.nan}
    nested = verl_row(7, row)
    assert nested["data"]["actor/grad_norm"] is None
    flat = nested["data"] | {"step": 8}
    val = {"step": 9, "data": {"val-core/math/acc/mean@1": 0.5}}
    log = read_log([write_lines(tmp_path / "a", [nested, flat, val])], TABLES)
    assert (log.trainer, log.steps) == (VERL, [7, 8])
    for quantities in log.rows:
        assert math.isnan(quantities["grad_norm"])
        assert "entropy" not in quantities  # only loss and gradient may be NaN
        assert quantities["advantage_high"] == 1.2
        assert quantities["reward"] == row["reward"]  # the score comes first


def test_prime_rl_is_joined_by_step_and_a_dropped_norm_is_not_finite(tmp_path):
    run = plant(healthy(0, steps=3), 1, grad_norm=math.nan)
    both = write(tmp_path, "prime-rl", run)
    log = read_log(both, TABLES)
    assert [math.isnan(row["grad_norm"]) for row in log.rows] == [False, True, True]
    assert all({"reward", "entropy", "solved_all"} <= row.keys() for row in log.rows)
    alone = read_log(both[:1], TABLES)  # the orchestrator's
    assert not alone.quantities() & {"entropy", "grad_norm"}


@pytest.mark.parametrize(
    ("row", "quantities"),
    [
        (
            {"batch/solve_none": 0.5, "batch/solve_all": 0.25, "reward/mean": 0.4}
            | {"completion_len/mean": 9, "is_truncated/mean": 0.1},
            {"solved_none": 0.5, "solved_all": 0.25, "reward": 0.4}
            | {"length": 9.0, "truncated": 0.1},
        ),
        (
            {"solve_none/all": 0.5, "solve_none/env": 0.1, "solve_all/all": 0.25}
            | {"reward/all/mean": 0.4, "reward/env/mean": 0.9, "seq_len/all/mean": 9},
            {"solved_none": 0.5, "solved_all": 0.25, "reward": 0.4, "length": 9.0},
        ),
        (
            {
                "train/agg/all/a/reward/mean": 0.2,
                "train/agg/all/b/reward/mean": 0.4,
                "train/agg/effective/a/reward/mean": 0.9,
                "train/math/all/a/reward/mean": 0.9,
                "train/agg/all/a/metrics/reward/mean": 0.9,
                "train/agg/all/a/is_truncated/mean": 0.1,
            },
            {"reward": pytest.approx(0.3), "truncated": 0.1},
        ),
    ],
)
def test_prime_rl_had_other_names_in_other_versions(tmp_path, row, quantities):
    file = write_lines(tmp_path / "a", [{"step": 4} | row])
    log = read_log([file], TABLES)
    assert (log.trainer, log.rows) == (PRIME_RL, [quantities])


def test_older_trl_is_read(tmp_path):
    row = {"completion_length": 99.0, "reward": 1.5, "reward_std": 0.5, "step": 1}
    row |= {"rewards/accuracy": 0.5, "kl": 0.001, "loss": 0.0, "grad_norm": 0.1}
    file = tmp_path / "a.json"
    file.write_text(json.dumps([row]))  # a list: the log_history alone
    log = read_log([file], TABLES)
    assert log.trainer is TRL
    assert log.rows[0]["length"] == 99.0


def test_a_cut_last_line_is_still_being_written(tmp_path):
    lines = "".join(json.dumps(verl_row(s, healthy(0)[s])) + "\n" for s in (1, 2))
    file = tmp_path / "a.jsonl"
    file.write_bytes(lines.encode() + '{"step": 3, "data": {"é'.encode()[:-1])
    assert [*read_log([file], TABLES).steps] == [1, 2]


GOOD = json.dumps(verl_row(1, healthy(0)[0])) + "\n"


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("", "LOG: the file is empty"),
        (" \n\n", "LOG: the file is empty"),
        (GOOD + '{"step": 2,\n' + GOOD, "LOG:2: damaged JSON (Expecting property"),
        (GOOD + '{"step": 2\n', "LOG:2: damaged JSON (Expecting ',' delimiter)"),
        ('{"step": 2', "LOG:1: damaged JSON (Expecting ',' delimiter)"),
        (GOOD + "[1]\n", "LOG:2: not a JSON object; each line must be one"),
        (GOOD + "\n\n7\n", "LOG:4: not a JSON object; each line must be one"),
        (STATE[:900], "LOG:37: damaged JSON (Unterminated string"),
        ("[1, 2]", "LOG: the rows of a log must be JSON objects"),
        ("[" * 100_000, "LOG:1: damaged JSON (too deep); remove"),
        (
            '{"step": 1, "ppo/loss/mean": 2, "env/x": 3}\n',
            "LOG: unknown format; known are the logs of TRL, verl, prime-rl, and any "
            "other with --names. Names found: step, ppo/loss/mean, env/x.",
        ),
        (
            json.dumps({f"n{i}": i for i in range(20)}),
            "Names found: n0, n1, n2, n3, n4, n5, n6, n7, ....",
        ),
        (
            '{"stage": "train", "step": 1, "verdict/correct": 1}\n',
            " This is a log of rlvr_jax: its report has the run doctor's alarms.",
        ),
        (
            '{"log_history": [{"step": 9, "eval_reward": 1, "rewards/x": 0}]}',
            "LOG: no training rows; a row needs a step (one of step, _step, ",
        ),
        ('{"critic/score/mean": 1.0}\n', "LOG: no training rows; a row needs a step"),
        (
            '{"step": "1", "critic/score/mean": 1.0}\n',
            "training/global_step, a number and not a text) and a number of training",
        ),
        ('{"log_history": []}', "LOG: no rows; either the run has not logged a step"),
        (
            '{"log_history": [{"step": 1, "loss": 2.0, "epoch": 0.1}]}',
            "loss, epoch. It has a loss and no reward: is it a log of supervised tr",
        ),
        (
            "step,reward\n1,0.5\n",
            "LOG: not a log in JSON, beginning with 'step,reward'; give a file of JSON",
        ),
        ("step:1 - critic/score/mean:0.5\n", "not the output of a terminal or a table"),
        ("{'loss': 0.1, 'reward': 0.5}\n", "LOG: not a log in JSON, beginning with"),
        ("{loss: 0.1}\n", "LOG:1: damaged JSON (Expecting property name"),
        (
            '{"step": 1, "optim/lr": 0.1}\n',
            "LOG: no training rows; a row needs a step",
        ),
    ],
)
def test_a_log_that_cannot_be_read_is_one_line_and_exit_code_2(
    tmp_path, capsys, content, error
):
    file = tmp_path / "log"
    file.write_text(content)
    code, out, (line,) = run_doctor(capsys, file)
    assert (code, out) == (2, [])
    assert line.startswith(f"error: {file}")
    assert error in line.replace(str(file), "LOG")


def test_wrong_paths_and_flags_are_one_line_and_exit_code_2(tmp_path, capsys):
    (trl,) = write(tmp_path, "trl", healthy(0))
    (verl,) = write(tmp_path, "verl", healthy(0))
    (tmp_path / "empty").mkdir()
    for argv, error in [
        ((tmp_path / "no",), f"{tmp_path}/no: no such file or directory"),
        (
            (tmp_path / "empty",),
            f"{tmp_path}/empty: no trainer_state.json here or in a checkpoint-N, and "
            "no metrics.jsonl; name the log's file",
        ),
        (
            (trl, verl),
            f"{trl} (TRL) and {verl} (verl) are logs of different trainers; give one "
            "run's logs",
        ),
        ((), "LOG missing; expected LOG (see --help)"),
        (("--jsn", trl), "unknown flag '--jsn'; did you mean '--json'?"),
        (("--window=1", trl), "--window=1; it must be at least 2"),
    ]:
        code, out, (line,) = run_doctor(capsys, *argv)
        assert (code, out) == (2, [])
        assert line.startswith(f"error: {error}"), argv


def test_shares_beyond_0_and_1_are_left_out_and_told(tmp_path, capsys):
    """TRL has written negative shares of clipped completions, and percent are usual."""
    rows = [trl_row(n, row) for n, row in enumerate(healthy(0, steps=30), start=1)]
    for row, share in ((rows[4], 12.0), (rows[9], -8.0), (rows[10], 1.0)):
        row["completions/clipped_ratio"] = share
    file = write_lines(tmp_path / "a.jsonl", rows)
    code, lines, _ = run_doctor(capsys, file)
    assert code == 0
    assert lines[1] == (
        "left out: completions/clipped_ratio where it is not between 0 and 1: 2 "
        "of 30 rows, such as 12 at step 5"
    )
    assert lines[2].startswith("nothing to report; checked: no_ending, truncation, ")
    assert [row.get("truncated") for row in read_log([file], TABLES).rows][9:11] == [
        None,
        1.0,
    ]


def test_a_healthy_log_is_nothing_to_report(tmp_path, capsys):
    (file,) = write(tmp_path, "verl", healthy(0))
    code, lines, _ = run_doctor(capsys, file)
    assert code == 0
    assert lines == [
        f"verl: {file}: 80 training rows, steps 1 to 80",
        "nothing to report; checked: no_ending, truncation, no_signal, rare_gradient, "
        "length_collapse, entropy_collapse, reward_collapse, logprob_mismatch, "
        "nonfinite",
    ]


def test_the_report_names_rows_of_several_steps_and_checks_not_made(tmp_path, capsys):
    run = plant(healthy(0, steps=30), 20, length=10.0)
    rows = [trl_row(10 * n, row) for n, row in enumerate(run, start=1)]
    for row in rows:
        del row["entropy"], row["sampling/sampling_logp_difference/mean"]
    file = write_lines(tmp_path / "a.jsonl", rows)
    code, lines, _ = run_doctor(capsys, file, "--window=40")
    assert code == 0
    header, spacing, short, finding, skipped = lines
    assert header == f"TRL: {file}: 30 training rows, steps 10 to 300"
    assert spacing == ("one row every 10 steps; below, 'the last 40 steps' are 40 rows")
    assert short == (
        "too few rows to say: most checks look at 40 rows (--window), and the log has "
        "30"
    )
    assert finding.startswith("step 230: length_collapse: Completions are less than")
    assert skipped == (
        "not checked: entropy_collapse: log entropy (TRL 0.20 or newer); "
        "logprob_mismatch: log sampling/sampling_logp_difference/mean (use_vllm with "
        "vllm_importance_sampling_correction)"
    )


def test_findings_may_be_json_lines(tmp_path, capsys):
    run = plant(healthy(0), 30, length=10.0)
    code, (line,), _ = run_doctor(capsys, "--json", *write(tmp_path, "trl", run))
    assert code == 0
    finding = json.loads(line)
    assert finding.keys() == {"code", "step", "finding", "advice"}
    assert (finding["code"], finding["step"]) == ("length_collapse", 33)


def test_a_file_of_names_reads_any_other_trainer(tmp_path, capsys):
    names = tmp_path / "mine.json"
    names.write_text('{"reward": ["r2", "r"], "length": "len/*", "truncated": "cut"}')
    rows = [{"_step": s, "r": 0.0, "len/a": 9, "cut": 1.0} for s in range(6)]
    log = write_lines(tmp_path / "log", rows)
    code, lines, _ = run_doctor(capsys, f"--names={names}", log)
    assert code == 0
    assert lines[0] == f"mine: {log}: 6 training rows, steps 0 to 5"
    assert lines[2].startswith("step 4: no_ending: ")
    assert "Raise the limit on completion tokens only after that." in lines[2]
    assert lines[3].startswith("not checked: no_signal: log same_reward; rare_")
    for content, error in [
        ('{"rewards": "r"}', "unknown quantity 'rewards'; the quantities are reward,"),
        ('{"reward": 3}', "reward must be a name or a list of names"),
        ("{}", "unknown quantity '(none)'"),
        ("[]", "unknown quantity '(none)'"),
    ]:
        names.write_text(content)
        code, _, (line,) = run_doctor(capsys, f"--names={names}", log)
        assert code == 2
        assert f"{names}: {error}" in line


def test_help_names_the_formats(capsys):
    with pytest.raises(SystemExit) as ended:
        doctor.main(["-h"])
    assert ended.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("usage: python -m rlvr_jax.doctor")
    assert any("--window" in line and "(default: 20)" in line for line in lines)


def test_the_window_is_the_one_of_our_own_runs():
    assert LogConfig().alarm_window == doctor.DoctorFlags().window


def test_the_command_starts_without_jax_and_scipy(tmp_path):
    (file,) = write(tmp_path, "trl", healthy(0))
    program = (
        "import runpy, sys\n"
        f"sys.argv = ['doctor', {str(file)!r}]\n"
        "try: runpy.run_module('rlvr_jax.doctor', run_name='__main__')\n"
        "except SystemExit as end: assert not end.code\n"
        "assert not {'jax', 'scipy', 'flax'} & sys.modules.keys()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "nothing to report" in done.stdout
