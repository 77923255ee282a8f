"""What people read stays in plain English: few stiff phrases, few long sentences."""

import pathlib

import pytest

from tests.support.plain_english import count

_ROOT = pathlib.Path(__file__).parents[1]


def _files(folder):
    paths = [*(_ROOT / folder).rglob("*.md"), *(_ROOT / folder).rglob("*.py")]
    return sorted(path for path in paths if "results" not in path.parts)


@pytest.mark.parametrize(
    "folder",
    ["benchmarks", "configs", "docs", "examples", "job_jax", "rlvr_jax", "sae_jax"],
)
def test_stiff_phrases_are_rare(folder):
    found = count(_files(folder))
    assert found.words > 500
    assert found.stiff_per_thousand <= 2, "\n".join(found.stiff)


def test_long_sentences_are_rare_in_the_docs():
    found = count(_files("docs"))
    assert len(found.long) <= 60, "\n".join(found.long)


def test_the_front_pages_have_none():
    found = count(_ROOT / name for name in ("README.md", "CHANGELOG.md"))
    assert (found.stiff, found.long) == ([], [])


@pytest.mark.parametrize(
    ("text", "hits"),
    [
        ("Fix the file, then resume.", 0),
        ("The run goes on, and what was told of it stands beside that of another.", 6),
        ("The code `what is` is not read.\n\n    nor is this\n", 0),
        ("With less data, the loss is higher.", 0),
        ("The gain of hard less medium.", 1),
    ],
)
def test_stiff_phrases_are_counted_in_prose(tmp_path, text, hits):
    page = tmp_path / "page.md"
    page.write_text(text)
    assert len(count([page]).stiff) == hits


def test_docstrings_comments_and_messages_are_read_and_code_is_not(tmp_path):
    module = tmp_path / "module.py"
    module.write_text(
        '"""Mends."""\nasked = 1  # anew\nraise ValueError("it is no number")\n'
    )
    assert [hit.rpartition(": ")[2] for hit in count([module]).stiff] == [
        "is no",
        "anew",
    ]


@pytest.mark.parametrize(("words", "is_long"), [(35, False), (36, True)])
def test_a_sentence_has_at_most_35_words(tmp_path, words, is_long):
    page = tmp_path / "page.md"
    page.write_text(f"Short one. {'Word ' + 'word ' * (words - 1)}")
    assert bool(count([page]).long) == is_long
