"""Whole runs with a difficulty stage and a curriculum, one of them cut."""

import json
import signal

import pytest

from tests.support.command import completions, metrics, outcome, summary, tiny

# So young a policy is never right: every problem is hard, and no group splits.
POOL, SAMPLES = 20, 2
ESTIMATED = (
    f"--config.difficulty.num_samples={SAMPLES}",
    f"--config.difficulty.pool_size={POOL}",
)
CURRICULA = {
    "uniform": (),
    "band": ("band=hard",),
    "mixture": ("bands=hard,medium", "band_weights=3,1"),
    "easy_to_hard": (),
    "target": (),
    "variance": (),
    "vcrl": (),
    "filter": (),
    "one_sample": ("problem_index=7",),
    "replay": (),
}


def arguments(workdir, name, *more):
    chosen = [
        f"--config.curriculum.{field}" for field in (f"name={name}", *CURRICULA[name])
    ]
    return tiny(workdir, *ESTIMATED, *chosen, *more)


def lines(workdir):
    text = (workdir / "difficulty.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CURRICULA)
def test_a_run_with_each_curriculum(command, tmp_path, name):
    ended = command.run(*arguments(tmp_path, name))
    assert ended.code == 0, ended.err
    stages = [row["stage"] for row in metrics(tmp_path)]
    # 20 problems in batches of 8.
    assert [stages.count(s) for s in ("sft", "difficulty", "train")] == [6, 3, 4]
    assert summary(tmp_path)["difficulty"]["problems"] == POOL
    found = {row["id"]: row for row in lines(tmp_path)}
    assert len(found) == POOL
    by_step = [
        [row["id"] for row in completions(tmp_path, f"train_{step:06}.jsonl.gz")]
        for step in range(4)
    ]
    asked = [id_ for step in by_step for id_ in step]
    assert found.keys() >= set(asked)
    for name_, row in found.items():
        assert row["initial"]["n"] == SAMPLES
        assert row["n"] == SAMPLES + asked.count(name_)
        steps = [-1, *(n for n, step in enumerate(by_step) if name_ in step)]
        assert [visit[0] for visit in row["history"]] == steps
        assert row["visits"] == len(steps)
    if name == "one_sample":
        assert len(set(asked)) == 1


REFILLED = (
    "--config.dynamic_sampling.max_rounds=2",
    "--config.train.advantage.overhard_advantage=clip",
)


@pytest.mark.exhaustive
def test_a_run_cut_in_estimation_and_in_mid_epoch_ends_as_one_never_cut(
    command, tmp_path
):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    ended = command.run(*arguments(whole, "vcrl", *REFILLED))
    assert ended.code == 0, ended.err
    # Three batches a step, and none splits. The doctor's window is too long to report
    # it; the metrics do.
    steps = [row for row in metrics(whole) if row["stage"] == "train"]
    assert [row["dynamic_sampling/batches"] for row in steps] == [3] * 4
    assert {row["n"] for row in lines(whole)} >= {SAMPLES + 4 * 4}
    saved = "--config.checkpoint.every=1"
    for line, number in (
        ("difficulty  2/3", signal.SIGKILL),
        ("difficulty  3/3", signal.SIGTERM),
        ("train  3/4", signal.SIGKILL),
    ):
        ended = command.cut(line, number, *arguments(cut, "vcrl", *REFILLED, saved))
        assert ended.code == (75 if number == signal.SIGTERM else -number)
    ended = command.run(*arguments(cut, "vcrl", *REFILLED, saved))
    assert ended.code == 0, ended.err
    assert outcome(cut) == outcome(whole)
    assert lines(cut) == lines(whole)
