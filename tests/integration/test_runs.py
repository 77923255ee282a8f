"""Whole runs: cut anywhere, repeated, finished, under other seeds and lengths."""

import json
import random
import re
import resource
import shutil
import signal

import pytest

from job_jax.files import checkpoint_steps
from rlvr_jax.run.load import find_checkpoint
from tests.support.command import completions, files, metrics, outcome, summary, tiny

# Every line that a tiny run prints while it works, in order.
LINES = [
    *(f"sft  {n}/6" for n in range(1, 7)),
    *("train  1/4", "train  2/4", "eval at 3", "train  3/4", "train  4/4"),
    *("eval before", "eval after"),
]


def test_a_run_killed_in_every_stage_ends_as_one_never_cut(command, whole, tmp_path):
    # In mid-stage, after a checkpoint; as a stage ends, while its last checkpoint is
    # being written to disk; and during the evaluation.
    for line in ("sft  3/6", "sft  6/6", "train  3/4", "eval before"):
        ended = command.cut(line, signal.SIGKILL, *tiny(tmp_path))
        assert ended.code == -signal.SIGKILL
    ended = command.run(*tiny(tmp_path))
    assert ended.code == 0, ended.err
    assert outcome(tmp_path) == outcome(whole)


def test_a_run_killed_after_a_checkpoint_by_time_resumes_from_it(
    command, whole, tmp_path
):
    """Shorter than checkpoint.every, so only the time saves checkpoints in it.

    Every step is overdue, and a save begins when the one before it has ended. So the
    first step's checkpoint is there when the line of the third appears.
    """
    by_time = "--config.checkpoint.every_minutes=0.00001"  # 0.6 ms
    args = tiny(tmp_path, "--config.checkpoint.every=50", by_time)
    ended = command.cut("train  3/4", signal.SIGKILL, *args)
    assert ended.code == -signal.SIGKILL
    ended = command.run(*args)
    assert ended.code == 0, ended.err
    first = re.search(r"^train  (\d)/4", ended.err, re.MULTILINE)
    assert int(first[1]) > 1
    assert outcome(tmp_path) == outcome(whole)


@pytest.mark.usefixtures("restored_signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_or_a_closed_terminal_saves_and_exits_75(
    command, whole, tmp_path, number
):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # children inherit what nohup ignores
    ended = command.cut("sft  3/6", number, *tiny(tmp_path))
    assert ended.code == 75
    assert ended.err.endswith("\nstopped; run the same command again to continue\n")
    # No finished step is repeated.
    done = [row["step"] for row in metrics(tmp_path)]
    assert done == list(range(len(done)))
    ended = command.run(*tiny(tmp_path))
    assert ended.code == 0, ended.err
    assert re.search(r"(?m)^sft  (\d)/6", ended.err)[1] == str(len(done) + 1)
    assert outcome(tmp_path) == outcome(whole)


@pytest.mark.usefixtures("restored_signals")
def test_nohup_is_heeded_and_a_reader_that_goes_away_ends_nothing(
    command, whole, tmp_path
):
    """The reader takes the first line of progress, and then closes the pipe."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # which children inherit
    process = command.start(*tiny(tmp_path))
    while not process.stderr.readline().startswith("sft"):
        assert process.poll() is None
    process.stderr.close()
    process.stdout.close()
    process.send_signal(signal.SIGHUP)
    assert process.wait() == 0
    assert outcome(tmp_path) == outcome(whole)
    assert (tmp_path / "report" / "index.html").is_file()


def test_a_flipped_bit_in_the_newest_checkpoint_costs_the_steps_since_the_one_before(
    command, whole, tmp_path
):
    """And nobody evaluates the damaged weights."""
    ended = command.cut("train  2/4", signal.SIGTERM, *tiny(tmp_path))
    assert ended.code == 75
    steps = tmp_path / "checkpoints" / "train"
    *earlier, newest = checkpoint_steps(steps)
    files = (path for path in (steps / str(newest)).rglob("*") if path.is_file())
    array = max(files, key=lambda path: path.stat().st_size)
    content = bytearray(array.read_bytes())
    content[len(content) // 2] ^= 1
    array.write_bytes(content)
    name = array.relative_to(steps / str(newest))
    ended = command.run(
        f"--config={tmp_path}/config.json",
        f"--checkpoint={tmp_path}",
        module="rlvr_jax.evaluate",
    )
    assert (ended.code, ended.out) == (1, "")
    assert (
        f"{newest} cannot be read ({name} has changed since it was written)"
        in ended.err
    )
    ended = command.run(*tiny(tmp_path))
    assert ended.code == 0, ended.err
    begins = (
        f"from {earlier[-1]}" if earlier else "from the beginning"
    )  # the signal was fast
    assert f"the run continues {begins}\n" in ended.err
    assert outcome(tmp_path) == outcome(whole)


def test_a_disk_that_takes_no_more_ends_in_a_line_and_costs_nothing(
    command, whole, tmp_path
):
    """A limit on file size simulates it: no checkpoint can be written."""
    limited = command.start(*tiny(tmp_path))
    resource.prlimit(limited.pid, resource.RLIMIT_FSIZE, (10_000, 10_000))
    _, err = limited.communicate()
    assert limited.returncode == 1
    *_, last = err.splitlines()
    assert last == (
        f"error: {tmp_path}/checkpoints/sft: File too large; allow larger files "
        "(ulimit -f), then run the same command again"
    )
    assert "Traceback" not in err
    ended = command.run(*tiny(tmp_path))
    assert ended.code == 0, ended.err
    assert outcome(tmp_path) == outcome(whole)


def test_a_workdir_has_one_run_at_a_time(command, whole, tmp_path):
    first = command.start(*tiny(tmp_path))
    while not (line := first.stderr.readline()).startswith("sft"):
        assert first.poll() is None, line
    first.send_signal(signal.SIGSTOP)  # otherwise it would end before the second begins
    before = files(tmp_path)
    second = command.run(*tiny(tmp_path))
    assert second.code == 2
    assert second.err.startswith(
        f"error: workdir {tmp_path} is in use by process {first.pid} on "
    )
    assert second.err.count("\n") == 1
    assert files(tmp_path) == before
    first.kill()  # a killed run's lock is free
    first.communicate()
    ended = command.run(*tiny(tmp_path))
    assert ended.code == 0, ended.err
    assert outcome(tmp_path) == outcome(whole)


@pytest.mark.exhaustive
@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_run_cut_at_any_line_ends_as_one_never_cut(
    command, whole, tmp_path, line, number
):
    ended = command.cut(line, number, *tiny(tmp_path))
    assert ended.code == (-9 if number == signal.SIGKILL else 75)
    assert command.run(*tiny(tmp_path)).code == 0
    assert outcome(tmp_path) == outcome(whole)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(6))
def test_a_run_killed_again_and_again_ends_as_one_never_cut(
    command, whole, tmp_path, seed
):
    rng = random.Random(seed)
    every_step = "--config.checkpoint.every=1"
    kills, code = 0, -signal.SIGKILL
    while code == -signal.SIGKILL:
        # At the third line from here, whichever it is: each attempt gets further.
        lines = rng.randint(2, 4)
        ended = command.cut_after(lines, signal.SIGKILL, *tiny(tmp_path, every_step))
        code = ended.code
        kills += 1
    assert code == 0, ended.err
    assert kills > 3
    assert outcome(tmp_path) == outcome(whole)


@pytest.mark.exhaustive
@pytest.mark.parametrize("stage", ["sft", "train"])
def test_a_run_killed_within_a_checkpoint_ends_as_one_never_cut(
    command, whole, tmp_path, stage
):
    directory = tmp_path / "checkpoints" / stage
    process = command.start(*tiny(tmp_path))
    while not list(directory.glob("*tmp*")):
        assert process.poll() is None
    process.kill()
    process.communicate()
    assert command.run(*tiny(tmp_path)).code == 0
    assert not list(directory.glob("*tmp*"))
    assert outcome(tmp_path) == outcome(whole)


def test_one_seed_gives_one_run(command, whole, tmp_path):
    assert command.run(*tiny(tmp_path), hash_seed=1).code == 0
    assert outcome(tmp_path) == outcome(whole)


def test_another_seed_gives_other_rollouts_and_more_steps_compile_no_more(
    command, whole, tmp_path
):
    longer = "--config.train.steps=8"
    assert command.run(*tiny(tmp_path, "--config.seed=1", longer)).code == 0
    name = "train_000000.jsonl.gz"
    one, other = completions(whole, name), completions(tmp_path, name)
    assert [row["prompt"] for row in one] != [row["prompt"] for row in other]
    assert [row["completion"] for row in one] != [row["completion"] for row in other]
    assert summary(tmp_path)["compile_count"] == summary(whole)["compile_count"] > 0


def test_the_policy_is_not_the_same_before_and_after(whole):
    """Guards the other tests: runs that learn nothing would all end the same."""
    norms = [row["optimizer/grad_norm"] for row in metrics(whole)]
    assert len(norms) == 10
    assert min(norms) > 0


def test_every_rollout_carries_the_version_of_its_weights(whole):
    for name, version in (
        ("train_000000", 0),
        ("train_000003", 3),
        ("eval_before_000000", 0),
        ("eval_after_000000", 4),
    ):
        rows = completions(whole, f"{name}.jsonl.gz")
        assert {row["weight_version"] for row in rows} == {version}


def test_a_finished_run_says_so_and_touches_nothing(command, whole):
    before = files(whole)
    ended = command.run(*tiny(whole))
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("finished: ")
    assert ended.out.count("\n") == 1
    assert files(whole) == before
    # A lost report is written again, and nothing else.
    report = whole / "report" / "index.html"
    page = report.read_text()
    report.unlink()
    assert command.run(*tiny(whole)).out == f"report: {report}\n"
    assert report.read_text() == page
    lost = "report/index.html"
    assert files(whole).keys() == before.keys()
    assert {n: f for n, f in files(whole).items() if n != lost} == {
        n: f for n, f in before.items() if n != lost
    }


def test_difficulties_that_are_removed_are_made_again_as_rl_left_them(
    command, tmp_path
):
    sizes = ("num_samples=1", "pool_size=8")
    argv = tiny(tmp_path, *(f"--config.difficulty.{size}" for size in sizes))
    assert command.run(*argv).code == 0
    file = tmp_path / "difficulty.jsonl"
    known, ended = file.read_bytes(), outcome(tmp_path)
    file.unlink()
    again = command.run(*argv)
    assert again.code == 0, again.err
    assert file.read_bytes() == known
    assert outcome(tmp_path) == ended


def test_the_record_counts_the_cpu_devices(whole):
    record = json.loads((whole / "config.json").read_text())
    assert record["cpu_devices"] == int(record["device"].split(" x cpu")[0]) > 1


def test_the_summary_holds_the_run_in_numbers(whole):
    found = summary(whole)
    assert found["seed"] == 0
    assert found["config"]["name"] == "smoke"
    assert found["stages"].keys() == {"sft", "train", "eval"}
    gaps = [row for row in metrics(whole) if row["stage"] == "train"]
    assert len(gaps) == 4
    mean = sum(row["logprob_mismatch/mean"] for row in gaps) / 4
    assert found["logprob_mismatch"] == {
        "mean": pytest.approx(mean),
        "max": max(row["logprob_mismatch/max"] for row in gaps),
    }
    assert 0 < found["logprob_mismatch"]["mean"] < 1e-5
    told = [
        row for n in range(4) for row in completions(whole, f"train_{n:06}.jsonl.gz")
    ]
    statuses = [row["verdict"] for row in told]
    assert len(statuses) == 4 * 8 * 4
    assert found["verdicts"] == {
        status: statuses.count(status)
        for status in ("correct", "incorrect", "unverified")
    }
    assert found["too_long"] == {"sft": 0, "train": 0, "eval": 0}
    # After so few steps the doctor can report only that nothing was correct.
    assert statuses.count("correct") == 0
    assert [alarm["code"] for alarm in found["alarms"]] == ["no_signal"]
    assert found["rfgo"]["proxy_groups"] == 0
    assert found["probe_overhead"] is None
    assert re.fullmatch("[0-9a-f]{64}", found["params_sha256"])
    for when in ("before", "after"):
        assert found["eval"][when]["problems"] == 8
        assert found["eval"][when]["pass@k"].keys() == {"1", "2", "4"}
        by_band = found["eval"][when]["by_band"]
        assert sum(each["problems"] for each in by_band.values()) == 8
        assert found["eval"][when]["by_band_fresh"].keys() <= {"easy", "medium", "hard"}
        rows = completions(whole, f"eval_{when}_000000.jsonl.gz")
        assert {row["band"] for row in rows} == by_band.keys()
    assert by_band.keys() == found["eval"]["before"]["by_band"].keys()
    gain = found["eval"]["gain"]
    for k in ("1", "2", "4"):
        after, before = (
            found["eval"][when]["pass@k"][k]["mean"] for when in ("after", "before")
        )
        assert gain["pass@k"][k]["mean"] == pytest.approx(after - before)
        assert gain["pass@k"][k]["low"] < gain["pass@k"][k]["high"]
    assert gain["crossing"] is None or gain["crossing"]["max_k"] == 4
    assert found["throughput"].keys() >= {
        "rollout_tokens_per_s",
        "update_tokens_per_s",
        "mfu",
    }
    assert (whole / "report" / "index.html").read_text().startswith("<!doctype html>")


@pytest.mark.parametrize("inside", ["", "checkpoints/train", "checkpoints/train/4"])
def test_a_checkpoint_is_found_wherever_one_points(whole, inside):
    directory, step = find_checkpoint(whole / inside)
    assert (directory.resolve(), step) == ((whole / "checkpoints/train").resolve(), 4)


def test_a_checkpoint_evaluated_by_itself_scores_as_in_its_run(
    command, whole, tmp_path
):
    before = files(whole)
    ended = command.run(
        f"--config={whole / 'config.json'}",
        f"--checkpoint={whole}",
        module="rlvr_jax.evaluate",
    )
    assert ended.code == 0, ended.err
    assert json.loads(ended.out) == summary(whole)["eval"]["after"]
    assert files(whole) == before
    # Without the first policy's answers it reports that it cannot split by band.
    alone = tmp_path / "alone"
    shutil.copytree(whole / "checkpoints", alone / "checkpoints")
    ended = command.run(
        f"--config={whole / 'config.json'}",
        f"--checkpoint={alone}",
        module="rlvr_jax.evaluate",
    )
    assert ended.code == 0, ended.err
    assert "scores are not split by band: there is no " in ended.err
    uncut = json.loads(ended.out)
    cut = {"by_band", "by_band_fresh"}
    assert uncut.keys() == summary(whole)["eval"]["after"].keys() - cut


def test_a_gap_above_the_limit_stops_the_run(command, tmp_path):
    ended = command.run(
        *tiny(
            tmp_path,
            "--config.sft.steps=0",
            "--config.train.max_logprob_mismatch=1e-12",
        )
    )
    assert ended.code == 1
    *_, error = ended.err.splitlines()
    assert re.fullmatch(r"error: sampler and scorer differ by \S+ nats.*", error)
    assert metrics(tmp_path) == []


def test_steps_that_are_not_finite_are_skipped_counted_and_bounded(command, tmp_path):
    # The first step moves the weights beyond what float32 can square.
    ended = command.run(
        *tiny(
            tmp_path,
            "--config.sft.optimizer.learning_rate=1e30",
            "--config.sft.optimizer.max_consecutive_nonfinite=2",
        )
    )
    assert ended.code == 1
    *progress, error = ended.err.splitlines()
    assert error.startswith("error: 3 optimizer steps in a row had a non-finite")
    assert len([line for line in progress if line.startswith("sft")]) == 3
    assert [row["optimizer/skipped"] for row in metrics(tmp_path)] == [0, 1, 1]
