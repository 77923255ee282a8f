"""`analysis influence` on a real run, against the checkpoints that the run stored."""

import json
import os
import pathlib

import jax
import numpy as np
import pytest

from job_jax.command import load_config
from rlvr_jax.config import Config
from rlvr_jax.models import Transformer
from rlvr_jax.run.load import load_checkpoint
from rlvr_jax.tokenizer import open_tokenizer
from tests.support.command import Command, completions, files, tiny

STEP, NUM_HELD_OUT = 2, 8
LOGPROB = "log-probability"


@pytest.fixture(scope="module")
def run(once):
    """The workdir of a tiny run that keeps every checkpoint of RL, and the command."""
    kept = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    command = Command(
        cache=pathlib.Path(kept) if kept else once("programs", lambda _: None)
    )

    def make(workdir):
        ended = command.run(
            *tiny(
                workdir,
                "--config.checkpoint.every=1",
                "--config.checkpoint.max_to_keep=9",
                "--config.train.reward.names=correctness,random",
                "--config.train.reward.weights=1,0.5",
            )
        )
        assert ended.code == 0, ended.err

    return once("influence", make), command


def mean_logprob(policy: Transformer, workdir) -> float:
    """Returns the mean log-probability of held-out solutions, without our scorer.

    The whole text goes through the policy at once, and each solution's mean over its
    tokens counts equally.
    """
    config = load_config(workdir / "config.json", Config)
    tokenizer = open_tokenizer(config, texts=tuple, trained_path=workdir / "none")
    source = config.task.problems("eval", seed=config.seed)
    means = []
    for problem in (source[i] for i in range(NUM_HELD_OUT)):
        prompt = tokenizer.encode_prompt(problem.prompt, literal=problem.literal)
        solution = [*tokenizer.encode(problem.solution), tokenizer.eos_ids[0]]
        ids = np.array([[*prompt, *solution]], np.int32)
        logits = policy(ids, np.ones(ids.shape, bool))[0]
        logprobs = np.asarray(jax.nn.log_softmax(logits), np.float64)
        at = np.arange(len(prompt) - 1, ids.shape[1] - 1)
        means.append(logprobs[at, solution].mean())
    return float(np.mean(means))


def test_the_influence_of_a_batch_is_the_difference_of_two_stored_checkpoints(
    run, tmp_path
):
    """And the replayed step has the run's bits, completions and metrics.

    The run itself is not touched. Its length penalty can be removed as a part.
    """
    workdir, command = run
    before, out = files(workdir), tmp_path / "found.json"
    ended = command.run(
        "influence",
        f"--run={workdir}@{STEP}",
        *("--batch", "--problems=0,5", "--reward=random", "--reward=overlong"),
        f"--out={out}",
        module="rlvr_jax.analysis",
    )
    assert ended.code == 0, ended.err
    assert "ends with the bits of the run's own next checkpoint" in ended.out
    assert "policies  7/7" in ended.err
    assert files(workdir) == before
    assert [path.name for path in tmp_path.iterdir()] == ["found.json"]
    found = json.loads(out.read_text())
    assert found["checks"] == {"next_checkpoint": 0.0, "metric": ["", 0.0]}
    batch, advantages, random, overlong = found["parts"]
    assert batch["removed"] == "the whole batch"
    checkpoints = workdir / "checkpoints/train"
    after, earlier = (
        mean_logprob(load_checkpoint(checkpoints / str(step)), workdir)
        for step in (STEP + 1, STEP)
    )
    exact = batch["influence"][LOGPROB]["mean"]
    assert exact == pytest.approx(after - earlier, rel=1e-2, abs=1e-7)
    assert abs(exact) > 1e-6
    # Adam's momentum moves the policy even without advantages.
    assert advantages["influence"][LOGPROB]["mean"] not in (0.0, exact)
    assert random["influence"][LOGPROB]["mean"] != 0
    assert overlong["removed"] == "reward overlong"
    # The problems are those that the run itself asked in this step.
    rows = completions(workdir, f"train_{STEP:06d}.jsonl.gz")
    asked = [row["id"] for row in rows[:: len(rows) // 8]]
    assert [(p["index"], p["problem"]) for p in found["problems"]] == [
        (0, asked[0]),
        (5, asked[5]),
    ]
    assert found["tracin_steps"] == [1, 2, 3, 4]
