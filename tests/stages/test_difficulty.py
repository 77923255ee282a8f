"""Stage `difficulty`: who answers which problems, and the estimates that follow."""

import collections
import json
import types

import numpy as np
import pytest

from rlvr_jax.data import Pool
from rlvr_jax.rollouts.show import read_rows
from rlvr_jax.run.workdir import rollouts_file
from rlvr_jax.stages import difficulty as stage
from tests.support.stand_ins import CONFIG, name_policies, settings_of, stand_in

NUM, POOL, BATCH = 3, 20, 8


@pytest.fixture
def run(tmp_path, monkeypatch):
    name_policies(monkeypatch, stage)
    with stand_in(tmp_path) as found:
        yield found


def test_the_policy_before_rl_answers_each_train_problem_as_rl_will(run):
    stage.estimate_difficulty(run.ctx)
    problems = run.ctx.setup.problems("train", POOL)
    expected = [run.prompt_of(problem) for problem in problems]
    # 20 problems in batches of 8: the last batch repeats its first problem four times.
    expected += [expected[16]] * 4
    assert [prompt for draw in run.draws for prompt in draw.prompts] == expected
    for draw in run.draws:
        assert draw.policy == "sft"
        assert draw.settings == settings_of(CONFIG.train.sampling)
        assert draw.settings != settings_of(CONFIG.eval.sampling)
        assert (draw.num_samples, draw.max_new_tokens) == (NUM, 24)
        assert draw.key == run.key_of("difficulty")
        assert draw.version == 0
    # rows that only fill up a batch are not judged
    assert len(run.judged) == POOL * NUM


def test_estimates_are_beta_posteriors_of_the_verdicts(run):
    """Beta(1/2 + correct, 1/2 + incorrect): unverified completions do not count."""
    stage.estimate_difficulty(run.ctx)
    counts = collections.defaultdict(collections.Counter)
    for name, _, status in run.judged:
        counts[name][status] += 1
    assert any(count["unverified"] for count in counts.values())
    text = (run.ctx.workdir.path / "difficulty.jsonl").read_text()
    rows = {row["id"]: row for row in map(json.loads, text.splitlines())}
    assert rows.keys() == counts.keys()
    for name, count in counts.items():
        posterior = rows[name]["posterior"]
        if not count["correct"] + count["incorrect"]:
            continue
        assert posterior["alpha"] == 0.5 + count["correct"]
        assert posterior["beta"] == 0.5 + count["incorrect"]


def test_an_interrupted_stage_continues_after_its_last_batch(
    run, tmp_path, monkeypatch
):
    """It samples only the remaining batches and ends with the same estimates."""
    with stand_in(tmp_path / "whole") as whole:
        stage.estimate_difficulty(whole.ctx)
    real = stage.sample_completions
    calls = []

    def cut(setup, request):
        calls.append(request)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(setup, request)

    monkeypatch.setattr(stage, "sample_completions", cut)
    with pytest.raises(KeyboardInterrupt):
        stage.estimate_difficulty(run.ctx)
    monkeypatch.setattr(stage, "sample_completions", real)
    asked = len(run.draws)
    stage.estimate_difficulty(run.ctx)
    assert len(run.draws) - asked == 1
    found, expected = (
        (r.ctx.workdir.path / "difficulty.jsonl").read_text() for r in (run, whole)
    )
    assert found == expected


def test_the_completions_kept_are_those_judged(run):
    stage.estimate_difficulty(run.ctx)
    rows = [
        row
        for step in range(3)
        for row in read_rows(rollouts_file(run.ctx.workdir.path, "difficulty", step))
    ]
    assert [(r["id"], r["completion"], r["verdict"]) for r in rows] == run.judged


def test_without_samples_no_problem_is_sampled_or_known(run):
    config = types.SimpleNamespace(difficulty=types.SimpleNamespace(num_samples=0))
    ctx = types.SimpleNamespace(setup=types.SimpleNamespace(config=config))
    stage.estimate_difficulty(ctx)
    assert run.draws == []
    pool = Pool(run.ctx.setup.sources["train"], run.ctx.setup.config)
    empty = stage.initial_difficulty(ctx, pool)
    assert np.all(empty.mean == 0.5)


def test_rl_begins_with_the_estimates_that_the_stage_left(run):
    stage.estimate_difficulty(run.ctx)
    pool = Pool(run.ctx.setup.sources["train"], run.ctx.setup.config)
    found = stage.initial_difficulty(run.ctx, pool)
    text = (run.ctx.workdir.path / "difficulty.jsonl").read_text()
    for row, mean in zip(map(json.loads, text.splitlines()), found.mean, strict=True):
        alpha, beta = row["posterior"]["alpha"], row["posterior"]["beta"]
        assert mean == pytest.approx(alpha / (alpha + beta))
