"""The documentation site has every page, in the right place."""

import pathlib

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
