"""What stages share: whose parameters they read, and which work they wait for."""

import dataclasses

import pytest

from job_jax.schema import ConfigError
from rlvr_jax.stages import context
from tests.support.stand_ins import CONFIG, stand_in


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setattr(
        context, "load_params_before_rl", lambda setup, checkpoints: "before"
    )
    monkeypatch.setattr(
        context,
        "load_checkpoint_params",
        lambda setup, directory, step: (directory.name, step),
    )
    with stand_in(tmp_path) as found:
        yield found.ctx


def _with_train_steps(ctx, steps):
    train = dataclasses.replace(ctx.setup.config.train, steps=steps)
    config = dataclasses.replace(ctx.setup.config, train=train)
    return dataclasses.replace(ctx, setup=dataclasses.replace(ctx.setup, config=config))


def test_a_stage_reads_the_policy_that_the_stage_before_left(run):
    assert context.load_stage_params(run, "sft") == "before"
    assert context.load_stage_params(run, "train") == ("train", CONFIG.train.steps)
    assert context.load_stage_params(_with_train_steps(run, 2), "train") == ("train", 2)
    assert context.load_stage_params(_with_train_steps(run, 0), "train") == "before"


@pytest.fixture
def patch(run):
    """Undone before the stand-in's own patches, which monkeypatch would bring back."""
    with pytest.MonkeyPatch.context() as inner:
        yield inner


def test_a_stage_that_stopped_short_is_named_with_what_it_lacks(run, patch):
    patch.setattr(context, "count_steps", lambda stage, workdir: 2)
    with pytest.raises(ConfigError, match=r"stage sft has done 2 of 3 steps"):
        context.require_finished(run, "sft", "difficulty")
    done = {"sft": 3, "train": 4}
    patch.setattr(context, "count_steps", lambda stage, workdir: done[stage])
    context.require_finished(run, "sft")
    with pytest.raises(ConfigError, match=r"stage train .* --stage=train or"):
        context.require_finished(run, "sft", "train")


def test_a_stage_without_steps_is_waited_for_as_well(run, patch):
    patch.setattr(context, "is_finished", lambda stage, **_: stage != "probe")
    with pytest.raises(ConfigError, match="stage probe has not ended"):
        context.require_finished(run, "probe")


def test_the_summary_has_the_seed_and_keeps_other_stages_entries(run):
    run.update_summary({"stages": {"sft": 1.0}, "probe_overhead": {"features": 0.1}})
    assert run.workdir.read_summary()["rfgo"]["num_features"] == 0
    run.update_summary({"rfgo": {"num_features": 3}})
    run.update_summary({"stages": {"train": 2.0}})
    found = run.workdir.read_summary()
    assert found["rfgo"]["num_features"] == 3
    assert found["seed"] == CONFIG.seed == 7
    assert found["stages"] == {"sft": 1.0, "train": 2.0}
    assert found["probe_overhead"] == {"features": 0.1}
    assert found["config"]["seed"] == 7


def test_steps_are_saved_and_logged_as_configured(run):
    every = dataclasses.replace(CONFIG.checkpoint, every=2)
    config = dataclasses.replace(run.setup.config, checkpoint=every)
    ctx = dataclasses.replace(run, setup=dataclasses.replace(run.setup, config=config))
    state = ctx.setup.replicate({"x": 1.0})
    with ctx.stage_steps("sft", 3) as steps:
        steps.resume_or_init(lambda: state, lambda: state)
        for step in steps:
            steps.commit(
                step, state, {"loss": 1.0}, displayed={"loss": "loss"}, tokens=1
            )
    saved = sorted(p.name for p in (ctx.workdir.checkpoints / "sft").iterdir())
    assert [name for name in saved if name.isdigit()] == ["2", "3"]
