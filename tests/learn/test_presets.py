"""Presets: the table in docs/method/algorithm.md, and a run's algorithm name."""

import pathlib
import re
import runpy

import pytest

from rlvr_jax.config import (
    AdvantageConfig,
    Config,
    DynamicSamplingConfig,
    LossConfig,
    TrainConfig,
)
from rlvr_jax.learn.presets import PRESETS, algorithm_name, dapo, grpo

PAGE = pathlib.Path(__file__).parents[2] / "docs/method/algorithm.md"


def _row(name):
    """Returns the cells of a preset's row on the page."""
    lines = PAGE.read_text().splitlines()
    return next(
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines
        if line.startswith(f"| {name} | [")
    )


def _name(settings, *, switches=False):
    """Returns a run's algorithm, with or without DAPO's tricks outside the loss."""
    return algorithm_name(
        Config(
            train=TrainConfig(**settings, overlong_buffer=8 if switches else 0),
            dynamic_sampling=DynamicSamplingConfig(max_rounds=2 if switches else 0),
        )
    )


@pytest.mark.parametrize("name", PRESETS)
def test_the_page_says_what_the_preset_sets(name):
    settings = PRESETS[name]()
    loss, advantage = settings["loss"], settings["advantage"]
    _, source, level, surrogate, bounds, aggregation, scale, kl, beside = _row(name)
    assert re.search(r"\[(\d+\.\d+)\]", source)[1] in PRESETS[name].__doc__
    assert (level, surrogate, aggregation) == (
        loss.importance_sampling_level,
        loss.surrogate,
        loss.aggregation,
    )
    if bounds != "-":
        assert [float(x) for x in bounds.split(",")] == [loss.clip_low, loss.clip_high]
    assert scale == f"{advantage.baseline}, {advantage.normalize}"
    expected = f"{loss.kl_estimator}, {loss.kl_coef:g}".replace("0.", ".")
    assert kl in (expected if loss.kl_coef else "0", "see 6")
    assert (beside != "-") == (_name(settings, switches=True) == name)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_called_by_its_name(name):
    assert _name(PRESETS[name](), switches=name == "DAPO") == name


def test_differences_from_the_nearest_preset_are_named():
    clipped = {**dapo(), "advantage": AdvantageConfig(overhard_advantage="clip")}
    assert _name(clipped, switches=True) == (
        "DAPO with advantage.overhard_advantage=clip"
    )
    assert _name(dapo()) == (
        "DAPO with dynamic_sampling.max_rounds=0, overlong_buffer=0"
    )
    loss = LossConfig(aggregation="seq_mean_token_mean", kl_coef=0.1)
    assert _name({**grpo(), "loss": loss}) == "GRPO with loss.kl_coef=0.1"
    assert _name(grpo(), switches=True) == (
        "GRPO with dynamic_sampling.max_rounds=2, overlong_buffer=8"
    )


def test_plain_settings_are_nearer_to_grpo_than_to_dapo_without_its_tricks():
    """Two settings differ from GRPO; clip_high and both tricks from DAPO."""
    plain = "GRPO with loss.aggregation=token_mean, loss.kl_coef=0.0"
    assert _name({}) == plain
    for name, more in (("quickstart", ""), ("quickstart_rfgo", ", RFGO")):
        recipe = runpy.run_path(str(PAGE.parents[2] / "configs" / f"{name}.py"))
        assert algorithm_name(recipe["get_config"]()) == plain + more
    assert _name({}, switches=True) == "DAPO with loss.clip_high=0.2"
