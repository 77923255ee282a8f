"""Adds the recipes of configs/ to the wheel; the rest is in pyproject.toml."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithRecipes(build_py):
    """Copies configs/ to where job_jax.recipes finds it; a checkout needs no copy."""

    def run(self):
        """Builds the packages, then copies."""
        super().run()
        if not self.editable_mode:
            copies = Path(self.build_lib, "job_jax", "configs")
            shutil.rmtree(copies, ignore_errors=True)
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree("configs", copies, ignore=ignored)


setup(cmdclass={"build_py": BuildWithRecipes})
