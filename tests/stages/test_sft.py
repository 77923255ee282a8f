"""Stage `sft`: which solutions each step is fitted to, and by which optimizer."""

import dataclasses
import types

import jax
import numpy as np
import pytest

from rlvr_jax.data import Loader
from rlvr_jax.learn.optimizer import OptimizerMetrics
from rlvr_jax.stages import sft as stage
from tests.support.stand_ins import CONFIG, stand_in

STEPS, B = CONFIG.sft.steps, CONFIG.sft.batch_size


class Recorder:
    """Stands in for an Updater: records its constructor's arguments and its calls."""

    made: list

    def __init__(self, graphdef, objective, **settings):
        self.settings, self.batches = settings, []
        self.start = None
        self.made.append(self)

    def init(self, params):
        self.start = params
        return {"steps": np.int32(0)}

    def abstract_state(self, params):
        return {"steps": np.int32(0)}

    def step(self, state, parts, sampling):
        self.sampling = sampling
        self.batches.append(list(parts))
        losses = types.SimpleNamespace(
            loss=np.float32(2.0), tokens=4.0, scalars={"entropy": np.float32(6.0)}
        )
        report = OptimizerMetrics(
            grad_norm=np.float32(1),
            learning_rate=np.float32(1),
            consecutive_nonfinite=np.int32(0),
        )
        return {"steps": state["steps"] + 1}, losses, report


@pytest.fixture
def fitted(tmp_path, monkeypatch):
    """Returns a function that runs the stage and gives its context and updater."""
    monkeypatch.setattr(Recorder, "made", [], raising=False)
    monkeypatch.setattr(stage, "Updater", Recorder)
    monkeypatch.setattr(stage, "device_get", lambda tree: tree)

    def fit(config=CONFIG, name="run"):
        with stand_in(tmp_path / name, config) as found:
            monkeypatch.setattr(
                type(found.ctx.setup), "initial_params", lambda self: "the start"
            )
            stage.sft(found.ctx)
            return found.ctx, Recorder.made[-1]

    return fit


def _prompts(updater):
    return [
        [
            tuple(part.prompt_tokens[b, :length].tolist())
            for part in parts
            for b, length in enumerate(part.prompt_lengths)
        ]
        for parts in jax.device_get(updater.batches)
    ]


def test_each_step_has_the_next_problems_in_the_order_of_the_seed(fitted):
    ctx, updater = fitted()
    source, tokenizer = ctx.setup.sources["sft"], ctx.setup.tokenizer
    for seed, is_ours in ((CONFIG.seed, True), (0, False), (CONFIG.seed + 1, False)):
        loader = Loader(source, batch_size=B, seed=seed)
        expected = [
            [
                tuple(tokenizer.encode_prompt(problem.prompt))
                for problem in loader.next_batch(step)
            ]
            for step in range(STEPS)
        ]
        assert (_prompts(updater) == expected) == is_ours


def test_the_problems_follow_the_seed(fitted):
    ctx, _ = fitted()
    found = [ctx.setup.sources["sft"][i] for i in range(8)]
    for seed, is_ours in ((CONFIG.seed, True), (0, False)):
        source = CONFIG.task.problems("sft", seed=seed)
        assert (found == [source[i] for i in range(8)]) == is_ours


def test_the_optimizer_is_sfts_over_its_own_steps(fitted):
    _, updater = fitted()
    assert updater.settings["optimizer"] == CONFIG.sft.optimizer
    assert updater.settings["optimizer"] != CONFIG.train.optimizer
    assert updater.settings["total_steps"] == STEPS != CONFIG.train.steps
    assert updater.settings["seed"] == CONFIG.seed != 0
    assert updater.start == "the start"


def test_solutions_are_fitted_at_temperature_one_for_any_rl_sampling(fitted):
    _, updater = fitted()
    found = {name: np.asarray(x).item() for name, x in vars(updater.sampling).items()}
    assert found == {
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "min_new_tokens": 0,
    }


def test_a_batch_may_be_cut_in_parts_and_is_the_same_batch(fitted):
    halves = dataclasses.replace(
        CONFIG, sft=dataclasses.replace(CONFIG.sft, batch_size=16, grad_accum_steps=2)
    )
    whole = dataclasses.replace(
        CONFIG, sft=dataclasses.replace(CONFIG.sft, batch_size=16)
    )
    _, in_two = fitted(halves, "halves")
    _, in_one = fitted(whole, "whole")
    assert [len(parts) for parts in in_two.batches] == [2] * STEPS
    assert [len(parts) for parts in in_one.batches] == [1] * STEPS
    for two, one in zip(_prompts(in_two), _prompts(in_one), strict=True):
        assert sorted(two) == sorted(one)
    for parts in jax.device_get(in_two.batches):
        assert sum(part.loss_weights.sum() for part in parts) == pytest.approx(1.0)


def test_the_metrics_are_the_loss_and_its_entropy_a_token(fitted):
    ctx, _ = fitted()
    lines = (ctx.workdir.path / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == STEPS
    for line in lines:
        assert '"loss/total": 2.0' in line
        assert '"loss/entropy": 1.5' in line


def test_without_steps_nothing_is_fitted_and_the_stage_is_over(fitted, monkeypatch):
    monkeypatch.setattr(Recorder, "made", [None])
    none = dataclasses.replace(CONFIG, sft=dataclasses.replace(CONFIG.sft, steps=0))
    ctx, updater = fitted(none)
    assert updater is None
    assert ctx.workdir.read_summary()["stages"] == {"sft": 0.0}
