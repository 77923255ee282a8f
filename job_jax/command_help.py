"""The text of --help for a command with a config: its flags and every config field.

A field's description is its comment in the source, so a default, its bound and its
meaning are written in one place. The comment may be above the field, on its line, or
inside its brackets.
"""

import ast
import dataclasses
import inspect
import io
import textwrap
import tokenize
from collections.abc import Iterable, Iterator

from job_jax.hints import iter_alternatives
from job_jax.schema import ConfigSection, iter_sections, split_annotation, type_name


def help_text(flags: Iterable[str], *, usage: str, config: ConfigSection) -> str:
    """Returns the flags' lines and every config field: path, default, type, comment."""
    lines = [usage, "flags:", *flags]
    lines += ["", "config fields, with their values unless FILE sets others:"]
    for path, section in iter_sections(config):
        lines += _section_help(path, section, path.rstrip(".") or "config")
    for path, section in iter_alternatives(config):
        tags = section.tags().items()
        chosen = ", ".join(f"with {path}{tag}={name}" for tag, name in tags)
        for inner, each in iter_sections(section, path):
            title = chosen if each is section else f"{inner.rstrip('.')} of {chosen}"
            lines += _section_help(inner, each, title)
    return "\n".join(lines)


def field_comments(section_class: type[ConfigSection]) -> dict[str, str]:
    """Returns the comment of each field that has one, inherited fields included."""
    bases = [c for c in section_class.__mro__ if issubclass(c, ConfigSection)]
    comments: dict[str, str] = {}
    for base in reversed(bases):
        comments |= _class_comments(textwrap.dedent(inspect.getsource(base)))
    return comments


def _class_comments(source: str) -> dict[str, str]:
    """Returns the comments of the annotated names in the source of one class."""
    by_line, alone = {}, set()  # `alone`: lines that hold nothing but a comment
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            line = token.start[0]
            by_line[line] = token.string.removeprefix("#").strip()
            if token.line.lstrip().startswith("#"):
                alone.add(line)
    comments = {}
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)
    for node in definition.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            first, last = node.lineno, node.end_lineno or node.lineno
            start = first
            while start - 1 in alone:
                start -= 1
            above = " ".join(by_line[n] for n in range(start, first))
            within = " ".join(
                by_line[n] for n in range(first, last + 1) if n in by_line
            )
            if above or within:
                comments[node.target.id] = "; ".join(filter(None, (above, within)))
    return comments


def _section_help(path: str, section: ConfigSection, title: str) -> Iterator[str]:
    yield f"\n{title}: {inspect.cleandoc(type(section).__doc__ or '').splitlines()[0]}"
    for tag, name in section.tags().items():
        names = ", ".join(type(section).registry.names)  # type: ignore[attr-defined]
        assignment = f"--config.{path}{tag}={name}"
        yield f"  {assignment:<50} one of {names}, or package.module:name"
    comments = field_comments(type(section))
    for field in dataclasses.fields(section):
        value = vars(section)[field.name]
        if not isinstance(value, ConfigSection):
            kind, bound = split_annotation(field.type)
            notes = [type_name(kind)]
            notes += [f"must {bound.requirement}"] if bound else []
            notes += [comments[field.name]] if field.name in comments else []
            assignment = f"--config.{path}{field.name}={_format_value(value)}"
            yield f"  {assignment:<50} {'; '.join(notes)}"


def _format_value(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, str) and not value.isidentifier():
        return repr(value)
    return str(value)
