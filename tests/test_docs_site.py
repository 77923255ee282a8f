"""The documentation site has every page, in the right place."""

import pathlib
import re
import unicodedata

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[1]


def pages(nav) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [page for part in parts for page in pages(part)]


def test_every_page_of_docs_is_in_the_navigation_once():
    listed = pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    assert len(listed) == len(set(listed))
    docs = ROOT / "docs"
    in_docs = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}
    in_docs = {page for page in in_docs if not page.startswith("results/")}
    generated = {page for page in listed if page.startswith("api/")}
    others = {"index.md", "changelog.md", "contributing.md"}
    folders = {"benchmarks_how.md", "examples.md"}
    assert set(listed) - generated - others - folders == in_docs


def slug(heading: str) -> str:
    """Returns the anchor that the site gives a heading."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", text).strip().lower())


def anchors(page: pathlib.Path) -> set[str]:
    """Returns a page's anchors; a heading's second copy gets _1 at its end."""
    text = re.sub(r"(?s)```.*?```", "", page.read_text())
    slugs, seen = [slug(name) for name in re.findall(r"(?m)^#+ (.*)$", text)], set()
    for each in slugs:
        number = next(n for n in range(99) if f"{each}_{n}" not in seen)
        seen.add(f"{each}_{number}")
    return {re.sub(r"_0$", "", each) for each in seen}


@pytest.mark.parametrize(
    "page",
    sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]),
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_every_anchor_is_a_heading(page):
    links = re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", page.read_text())
    broken = [
        f"{file}#{anchor}"
        for file, anchor in links
        if not file or file.endswith(".md")
        if anchor not in anchors((page.parent / file) if file else page)
    ]
    assert broken == []


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("2026-11-22: features, confirmed", "2026-11-22-features-confirmed"),
        ("The stage `probe`", "the-stage-probe"),
        ("See [a page](b.md) - and más", "see-a-page-and-mas"),
    ],
)
def test_slugs_worked_out_by_hand(heading, anchor):
    assert slug(heading) == anchor
