"""Recipes load, and are called what their file is called."""

import pathlib

import pytest

import rlvr_jax.config
import sae_jax.config
from job_jax.command import load_config

_RECIPES = sorted((pathlib.Path(__file__).parents[2] / "configs").glob("*.py"))


@pytest.mark.parametrize("path", _RECIPES, ids=lambda path: path.stem)
def test_every_recipe_loads_under_its_own_name(path):
    package = sae_jax if path.stem.startswith("tsae_") else rlvr_jax
    assert load_config(path, package.config.Config).name == path.stem
