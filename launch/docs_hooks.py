"""Hooks for mkdocs, which add pages to the documentation site besides those in docs/.

The README becomes the home page. CHANGELOG, CONTRIBUTING and the READMEs of folders
become pages, and so does every recipe in configs/ and every example. Every package
below gets an API page from its docstrings. Links between files of the repository become
links between pages.
"""

import pathlib
import re
from typing import Any

import griffe
from mkdocs.structure.files import File, Files

ROOT = pathlib.Path(__file__).resolve().parent.parent

API_PAGES = {
    "learn": "rlvr_jax.learn",
    "sampler": "rlvr_jax.sampler",
    "models": "rlvr_jax.models",
    "evaluate": "rlvr_jax.evaluate",
    "sae_jax": "sae_jax",
    "job_jax": "job_jax",
}
_FILE_PAGES = {  # a file of the repository -> its page on the site
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/README.md": "benchmarks_how.md",
    "examples/README.md": "examples.md",
}
_CODE_FOLDERS = {"configs": "recipes", "examples": "examples"}  # -> pages' folder
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s:]+)\)")
_IMAGE = re.compile(r"!\[([^\]]*)\]\(docs/([^)\s:]+)\)")


def on_config(config: Any) -> Any:
    """Lists recipes and examples in the navigation."""
    for folder, pages in _CODE_FOLDERS.items():
        title = pages.capitalize()
        listed = [f"{pages}/{path.stem}.md" for path in _python_files(folder)]
        config.nav = [
            {title: [*part[title], *listed]} if title in part else part
            for part in config.nav
        ]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that are generated from files outside docs/."""
    pages = {page: (ROOT / name).read_text() for name, page in _FILE_PAGES.items()}
    for folder, code_pages in _CODE_FOLDERS.items():
        for path in _python_files(folder):
            code = f"# {folder}/{path.name}\n\n```python\n{path.read_text()}```\n"
            pages[f"{code_pages}/{path.stem}.md"] = code
    for name, module in API_PAGES.items():
        pages[f"api/{name}.md"] = f"# {module}\n\n::: {module}\n"
    for page, content in pages.items():
        files.append(File.generated(config, page, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Returns the page with links to repository files turned into links to pages."""
    sources = {target: name for name, target in _FILE_PAGES.items()}
    source = sources.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    folder = (ROOT / source).parent
    markdown = _IMAGE.sub(r"![\1](\2)", markdown)
    return _LINK.sub(lambda link: _mended(link, folder), markdown)


def _mended(link: re.Match[str], folder: pathlib.Path) -> str:
    """Returns the link to a file's page, or only the text if it has no page."""
    text, (target, _, anchor) = link[1], link[2].partition("#")
    path = (folder / target).resolve() if target else None
    if path is None or not path.exists() or not path.is_relative_to(ROOT):
        return link[0]
    name = path.relative_to(ROOT).as_posix()
    page = _page_of(name)
    if page is None:
        return text
    return f"[{text}](/{page}{f'#{anchor}' if anchor else ''})"


def _python_files(folder: str) -> list[pathlib.Path]:
    return sorted((ROOT / folder).glob("*.py"))


def _page_of(name: str) -> str | None:
    if name in _FILE_PAGES:
        return _FILE_PAGES[name]
    if name.startswith("docs/"):
        return name.removeprefix("docs/")
    folder, _, file = name.partition("/")
    if folder in _CODE_FOLDERS and file.endswith(".py"):
        has_page = "/" not in file  # configs/paper/ has none
        return f"{_CODE_FOLDERS[folder]}/{file[:-3]}.md" if has_page else None
    module = name.removesuffix(".py").replace("/", ".")
    pages = [page for page, root in API_PAGES.items() if module.startswith(root)]
    return f"api/{pages[0]}.md" if pages else None


class FencedExamples(griffe.Extension):
    """Shows `>>>` examples in docstrings as code; to Markdown they would be quotes."""

    def on_instance(self, *, obj: griffe.Object | griffe.Alias, **_: Any) -> None:
        """Puts fences around every block of lines that starts with `>>>`."""
        if isinstance(obj, griffe.Alias) or obj.docstring is None:
            return
        lines, open_ = [], False
        for line in obj.docstring.value.splitlines():
            if line.lstrip().startswith(">>>") and not open_:
                lines += ["", "```pycon"]
                open_ = True
            elif open_ and not line.strip():
                lines.append("```")
                open_ = False
            lines.append(line.strip() if open_ else line)
        obj.docstring.value = "\n".join([*lines, "```"] if open_ else lines)
