"""Each `--config.KEY=VALUE` of the pages and recipes is accepted as an override."""

import pathlib
import re
import shlex

import pytest

from job_jax.command import load_config
from job_jax.config_io import override_faults
from rlvr_jax.config import Config
from sae_jax.config import Config as AutoencoderConfig

_ROOT = pathlib.Path(__file__).parents[1]
_PAGES = sorted(
    [
        *_ROOT.glob("*.md"),
        *(path for path in (_ROOT / "docs").rglob("*.md") if path.parent.name != "log"),
        *(_ROOT / "configs").rglob("*.py"),
    ]
)
_SCRIPTS = {"quickstart.sh": "quickstart", "real_model.sh": "smollm2"}
# Of overrides that are named without the others of their command, and of users' files.
_NEEDS_MORE = ("set that as well", "cannot import")
_EXAMPLES = ("a.b", "train.lr")  # any key, and another trainer's


def read_commands(text):
    """Returns the words of each line that has an override, backslashes joined."""
    joined = re.sub(r"\\\n\s*", "", text)
    lines = [line for line in joined.splitlines() if "--config." in line]
    found = []
    for line in lines:
        parts = re.findall(r"`([^`]*--config\.[^`]*)`", line) or [line.strip(" $>#")]
        for part in parts:
            try:
                found.append(shlex.split(part, comments=True))
            except ValueError:  # an apostrophe: prose
                found.append(part.split())
    return found


def read_overrides(words):
    """Returns a command's overrides, without those whose value is a placeholder."""
    pairs = (
        word.removeprefix("--config.").split("=", 1)
        for word in words
        if re.match(r"--config\.[a-z]\S*=", word)
    )
    return {
        key: value.rstrip(".,;:)")
        for key, value in pairs
        if key not in _EXAMPLES and not re.search(r"[A-Z]{2}|\$|\.\.\.|[{}<>]", value)
    }


def recipe_of(words):
    """Returns the path of the recipe in configs/ that a command names, or None."""
    for word in words:
        name = pathlib.Path(word).name
        if name in _SCRIPTS:
            return _ROOT / f"configs/{_SCRIPTS[name]}.py"
        if word.startswith("--config="):
            stem = word.removeprefix("--config=").removeprefix("configs/")
            path = _ROOT / f"configs/{stem.removesuffix('.py')}.py"
            if path.exists():
                return path
    return None


def configs_of(words):
    """Returns the config that a command overrides, or each that it may override."""
    recipe = recipe_of(words)
    if recipe is None:
        return [Config(), AutoencoderConfig()]
    kind = AutoencoderConfig if recipe.name.startswith("tsae_") else Config
    return [load_config(recipe, kind)]


@pytest.mark.parametrize(
    "page", _PAGES, ids=lambda page: page.relative_to(_ROOT).as_posix()
)
def test_overrides_are_those_of_a_config(page):
    wrong = []
    for words in read_commands(page.read_text()):
        overrides = read_overrides(words)
        faults = [
            [
                fault
                for fault in override_faults(config, overrides)
                if not any(text in fault for text in _NEEDS_MORE)
            ]
            for config in configs_of(words)
        ]
        wrong += min(faults, key=len)
    assert wrong == []


def test_a_wrong_key_or_value_in_a_page_is_found():
    text = "    python -m rlvr_jax.main --config=smoke \\\n        --config.seed=one"
    (words,) = read_commands(text)
    assert recipe_of(words) == _ROOT / "configs/smoke.py"
    overrides = read_overrides(words)
    assert overrides == {"seed": "one"}
    assert override_faults(load_config(recipe_of(words), Config), overrides)
    assert override_faults(Config(), {"task.train.steps": "2,3"})
    assert read_overrides(["--config.train.steps=N", "--config.seed=1,"]) == {
        "train.steps": "N",
        "seed": "1",
    }
