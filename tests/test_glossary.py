"""One word, one sense: the names that retired_words.txt retires are used nowhere."""

import ast
import pathlib
import re

import pytest

_ROOT = pathlib.Path(__file__).parents[1]
_FOLDERS = ("benchmarks", "configs", "job_jax", "rlvr_jax", "sae_jax", "tests")
# History keeps the words of its time.
_HISTORY = ("CHANGELOG.md",)
_LOG = _ROOT / "docs/log"


def retired_words(column=0):
    """Returns the retired words; with column 1, the words that replace them."""
    lines = (_ROOT / "tests/retired_words.txt").read_text().splitlines()[1:]
    return [word for line in lines for word in line.split(" -> ")[column].split(", ")]


def names_of(tree):
    """Yields every identifier of a module, and the parts of dotted imports."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.keyword(arg=str(name)):
                yield name
            case ast.alias(name=name, asname=other):
                yield from (*name.split("."), other or "")
            case ast.ImportFrom(module=str(name)):
                yield from name.split(".")


def keys_of(tree):
    """Yields every string that could be a key, metric, flag or file: no spaces."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r"^\S+$", node.value)


def uses(source, words):
    """Returns the retired words that a module uses, as identifiers or within keys.

    A word of one part, such as "trim", is searched only among identifiers: as a
    string it may be part of a prompt.
    """
    words = [word for word in words if word in source]  # most modules have none
    if not words:
        return []
    tree = ast.parse(source)
    names = set(names_of(tree))
    keys = "\n".join(keys_of(tree))
    return sorted(
        word for word in words if word in names or (_is_key(word) and _has(keys, word))
    )


def _is_key(word):
    return re.search(r"[_/.]", word) is not None


def _has(text, word):
    pattern = rf"(?<!\w){re.escape(word)}(?!\w)"
    return word in text and re.search(pattern, text) is not None


def test_no_module_uses_a_retired_word():
    words = retired_words()
    assert len(words) > 100
    modules = [m for folder in _FOLDERS for m in (_ROOT / folder).rglob("*.py")]
    assert len(modules) > 200
    found = {
        str(module.relative_to(_ROOT)): used
        for module in modules
        if module != pathlib.Path(__file__)
        and (used := uses(module.read_text(), words))
    }
    assert found == {}


def test_no_page_and_no_script_uses_a_retired_key():
    keys = [word for word in retired_words() if _is_key(word)]
    pages = [*_ROOT.glob("*.md"), *(_ROOT / "docs").rglob("*.md")]
    pages += [*(_ROOT / "launch").glob("*"), _ROOT / "pyproject.toml"]
    found = {
        page.name: used
        for page in pages
        if page.name not in _HISTORY and page.parent != _LOG and page.is_file()
        for text in [page.read_text()]
        if (used := [word for word in keys if _has(text, word)])
    }
    assert found == {}


@pytest.mark.parametrize(
    "source",
    [
        "samples_per_prompt = 8",
        "config.samples_per_prompt",
        "run(samples_per_prompt=8)",
        "def run(samples_per_prompt): ...",
        "class samples_per_prompt: ...",
        "from package import samples_per_prompt",
        "from samples_per_prompt.module import x",
        "argv = ['--config.train.samples_per_prompt=8']",
        "row['train/samples_per_prompt']",
    ],
)
def test_a_planted_word_is_found(source):
    assert uses(source, ["samples_per_prompt"]) == ["samples_per_prompt"]


@pytest.mark.parametrize(
    "source",
    ["num_samples_per_prompt_line = 8", "'the old samples_per_prompt is gone'"],
)
def test_other_words_and_sentences_are_not(source):
    assert uses(source, ["samples_per_prompt", "trim"]) == []


def test_no_word_is_both_retired_and_a_replacement():
    assert set(retired_words(column=1)).isdisjoint(retired_words())
