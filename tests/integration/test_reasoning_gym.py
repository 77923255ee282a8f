"""A whole run on a mixture of reasoning-gym's generators, with a curriculum."""

import pytest

from tests.support.command import SMOKE, TINY, completions, summary

pytest.importorskip("reasoning_gym")

TASK = (
    "--config.task.source=reasoning_gym",
    "--config.task.generators=chain_sum levels=0;2 weight=3, gcd",
    "--config.tokenizer.kind=sentencepiece",
    "--config.tokenizer.vocab_size=400",
)
SMALL = (
    *("--config.sft.steps=2", "--config.train.steps=2", "--config.eval.num_samples=2"),
    *("--config.eval.k=1,2", "--config.train.group_size=2"),
    *("--config.difficulty.num_samples=2", "--config.difficulty.pool_size=40"),
    *("--config.curriculum.name=easy_to_hard", "--config.train.batch_size=4"),
    "--config.curriculum.window_fraction=0.2",
)


def test_two_steps_of_an_estimated_mixture(command, tmp_path):
    ended = command.run(
        f"--config={SMOKE}", f"--workdir={tmp_path / 'run'}", *TINY, *TASK, *SMALL
    )
    assert ended.code == 0, ended.err
    told = summary(tmp_path / "run")
    assert told["task"] == "problems of reasoning-gym: chain_sum, gcd"
    assert told["difficulty"]["problems"] == 40
    easy, hard = (
        completions(tmp_path / "run", f"train_{step:06}.jsonl.gz") for step in (0, 1)
    )
    assert len(easy) == len(hard) == 4 * 2
    for row in (*easy, *hard):
        assert (row["verdict"], bool(row["reason"])) == ("incorrect", True)
    # Nothing is solved, so only the levels rank the pool: the hardest come last.
    assert not any(row["id"].startswith("chain_sum levels=2 #") for row in easy)
    assert all(row["id"].startswith("chain_sum levels=2 #") for row in hard)


def test_a_dry_run_refuses_what_the_library_cannot_make(command, tmp_path):
    ended = command.run(
        f"--config={SMOKE}",
        f"--workdir={tmp_path / 'run'}",
        *TASK,
        "--config.task.generators=chain_sum min_term=2",
        "--dry_run",
    )
    assert ended.code == 2
    assert "no option 'min_term'; did you mean 'min_terms'?" in ended.err
    assert not (tmp_path / "run").exists()
