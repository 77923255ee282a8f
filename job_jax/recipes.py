"""Where recipes are: --config=quickstart names one, wherever the package is installed.

A checkout has them in configs/. setup.py puts copies next to this file in the wheel.
"""

from pathlib import Path

from job_jax.buckets import local_record
from job_jax.schema import did_you_mean

_INSTALLED, _CHECKOUT = Path(__file__).parent / "configs", Path("configs")


def recipe_folder() -> Path:
    """Returns the folder of the recipes that came with the package."""
    if _INSTALLED.is_dir():
        return _INSTALLED
    return Path(__file__).parents[1] / _CHECKOUT


def recipe_names() -> list[str]:
    """Returns what can follow --config=, such as quickstart and paper/inverted_u."""
    folder = recipe_folder()
    files = sorted(folder.rglob("*.py"))
    return [path.relative_to(folder).with_suffix("").as_posix() for path in files]


def find_config(text: str) -> Path:
    """Returns the file that --config names: a recipe by its name, or a path or URL.

    A file of your own comes before a recipe: quickstart is the recipe unless the
    working directory has a file of that name. The path may name no file at all.
    """
    if not Path(text).is_file() and text in recipe_names():
        return recipe_folder() / f"{text}.py"
    return local_record(text)


def suggest_config(path: Path) -> str:
    """Returns the end of the error about a path where no config is."""
    names = recipe_names()
    name = path.with_suffix("")
    if name.is_relative_to(_CHECKOUT):
        name = name.relative_to(_CHECKOUT)
    if name.as_posix() in names:
        return f"; the package's own recipe is --config={name.as_posix()}"
    if path.suffix:
        names = [str(file) for file in path.parent.glob(f"*{path.suffix}")]
    return did_you_mean(str(path), names)
