"""Loads recipes in Python, by the names that the command line takes."""

import os

from job_jax.command import load_config
from job_jax.recipes import find_config
from rlvr_jax.config import Config


def load_recipe(name: str | os.PathLike[str]) -> Config:
    """Returns the config that `--config=NAME` loads on the command line.

    `name` is a recipe of the package such as "quickstart", a Python file with
    get_config(), or the path of a run's config.json. Raises UsageError if the file does
    not exist or does not hold a valid config.
    """
    return load_config(find_config(os.fspath(name)), Config)
