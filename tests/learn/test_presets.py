"""Presets: what docs/algorithm.md says of them, and how a run's algorithm is called."""

import pathlib
import re

import pytest

from rlvr_jax.config import AdvantageConfig, LossConfig, TrainConfig
from rlvr_jax.learn.presets import PRESETS, algorithm_name, dapo, grpo

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "algorithm.md"


def _row(name):
    """Returns the cells of a preset's row in the page."""
    lines = PAGE.read_text().splitlines()
    return next(
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines
        if line.startswith(f"| {name} | [")
    )


@pytest.mark.parametrize("name", PRESETS)
def test_the_page_says_what_the_preset_sets(name):
    settings = PRESETS[name]()
    loss, advantage = settings["loss"], settings["advantage"]
    _, source, level, surrogate, bounds, aggregation, scale, kl = _row(name)
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


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_called_by_its_name(name):
    assert algorithm_name(TrainConfig(**PRESETS[name]())) == name


def test_what_differs_from_the_nearest_preset_is_named():
    config = TrainConfig(
        **{**dapo(), "advantage": AdvantageConfig(overhard_advantage="clip")}
    )
    name = algorithm_name(config)
    assert name == "DAPO with advantage.overhard_advantage=clip"
    loss = LossConfig(aggregation="seq_mean_token_mean", kl_coef=0.1)
    assert algorithm_name(TrainConfig(**{**grpo(), "loss": loss})) == (
        "GRPO with loss.kl_coef=0.1"
    )
