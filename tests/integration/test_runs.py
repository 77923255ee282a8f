"""Whole runs: cut anywhere, repeated, finished, under other seeds and lengths."""

import random
import signal

import pytest
from command import completions, files, metrics, outcome, summary, tiny

_LAST_WARMUP, _LAST_STEP = 6, 4  # of the tiny run


@pytest.mark.parametrize("line", [r"warmup  4/6", r"train  3/4"])
def test_a_run_killed_in_mid_stage_ends_as_one_never_cut(
    command, whole, tmp_path, line
):
    command.cut(line, signal.SIGKILL, *tiny(tmp_path))
    ended = command.run(*tiny(tmp_path))
    assert ended.code == 0, ended.err
    assert outcome(tmp_path) == outcome(whole)


def test_sigterm_saves_and_exits_75(command, whole, tmp_path):
    ended = command.cut(r"train  1/4", signal.SIGTERM, *tiny(tmp_path))
    assert ended.code == 75
    assert "run the same command again" in ended.err
    assert command.run(*tiny(tmp_path)).code == 0
    assert outcome(tmp_path) == outcome(whole)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_a_run_killed_again_and_again_ends_as_one_never_cut(
    command, whole, tmp_path, seed
):
    rng = random.Random(seed)
    for _ in range(3):
        stage, last = rng.choice([("warmup", _LAST_WARMUP), ("train", _LAST_STEP)])
        steps = "|".join(str(n) for n in range(rng.randint(1, last), last + 1))
        line = rf"({stage}  ({steps})/|eval|report)"
        command.cut(line, signal.SIGKILL, *tiny(tmp_path))
        if "eval" in summary_or_empty(tmp_path):
            break
    assert command.run(*tiny(tmp_path)).code == 0
    assert outcome(tmp_path) == outcome(whole)


def summary_or_empty(workdir):
    return summary(workdir) if (workdir / "summary.json").exists() else {}


def test_one_seed_gives_one_run(command, whole, tmp_path):
    assert command.run(*tiny(tmp_path), hash_seed=1).code == 0
    assert outcome(tmp_path) == outcome(whole)


def test_another_seed_gives_other_rollouts_and_as_few_compilations(
    command, whole, tmp_path
):
    longer = "--config.train.steps=9"
    assert command.run(*tiny(tmp_path, "--config.seed=1", longer)).code == 0
    name = "train_000000.jsonl.gz"
    one, other = completions(whole, name), completions(tmp_path, name)
    assert [row["completion"] for row in one] != [row["completion"] for row in other]
    assert summary(tmp_path)["compile_count"] == summary(whole)["compile_count"]


def test_a_finished_run_says_so_and_touches_nothing(command, whole):
    before = files(whole)
    ended = command.run(*tiny(whole))
    assert ended.code == 0
    assert "finished" in ended.out
    assert files(whole) == before


def test_the_summary_holds_the_run_in_numbers(whole):
    found = summary(whole)
    assert found["seed"] == 0
    assert found["config"]["name"] == "smoke"
    assert found["stages"].keys() >= {"warmup", "train", "eval_before", "eval_after"}
    steps = [row for row in metrics(whole) if row["stage"] == "train"]
    assert len(steps) == _LAST_STEP
    assert sum(found["verdicts"].values()) == _LAST_STEP * 8 * 4
    assert 0 <= found["logprob_gap"]["mean"] < 1e-4
    assert len(found["params_sha256"]) == 64
    for when in ("before", "after"):
        assert found["eval"][when]["problems"] == 8
        assert found["eval"][when]["pass@k"].keys() == {"1", "2", "4"}
    assert found["throughput"]["update_tokens_per_s"] > 0
    assert (whole / "report" / "index.html").read_text().startswith("<!doctype html>")


def test_a_dry_run_starts_nothing(command, tmp_path):
    workdir = tmp_path / "never"
    ended = command.run(*tiny(workdir, "--dry_run"))
    assert ended.code == 0
    for part in ("parameters", "optimizer", "mesh", '"name": "smoke"'):
        assert part in ended.out
    assert not workdir.exists()


def test_a_stage_before_its_time_is_refused(command, tmp_path):
    ended = command.run(*tiny(tmp_path, "--stage=train"))
    assert ended.code == 2
    assert "warmup has done 0 of 6 steps" in ended.err
    assert ended.err.count("\n") == 1


def test_a_checkpoint_can_be_evaluated_by_itself(command, whole):
    ended = command.run(
        f"--config={whole / 'config.json'}",
        f"--checkpoint={whole / 'checkpoints' / 'train'}",
        module="rlvr_jax.evaluate",
    )
    assert ended.code == 0, ended.err
    assert f'"problems": {summary(whole)["eval"]["after"]["problems"]}' in ended.out
