"""The card of a prepared data set: its sources, and the records left out."""

import collections
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlvr_jax.data.overlap import split_words
from rlvr_jax.data.prepare import Prepared, Source

_MAX_LISTED = 20  # evaluation problems of a set, one line each
_MAX_TYPES = 20


def format_card(
    prepared: Prepared,
    sources: Sequence[Source],
    *,
    evaluation_sets: Mapping[str, int],
    n: int,
    max_shared: int,
    command: str,
    output: tuple[str, str],
) -> str:
    """Returns the card as Markdown: the same records and command give the same text.

    `evaluation_sets` maps each set to its number of problems; `output` is the file's
    name and sha256.
    """
    lines = [
        f"# {', '.join(source.data_set.title for source in sources)}, prepared",
        "",
        f"{len(prepared.kept)} problems with answers, one JSON object a line. Made by",
        "",
        f"    {command}",
        "",
        *_source_lines(sources),
        *_count_lines(prepared),
        *_spread_lines(prepared),
        *_overlap_lines(prepared, evaluation_sets, n, max_shared),
        "## Files",
        "| file | sha256 |",
        "|---|---|",
        *(
            f"| {name} | `{digest}` |"
            for source in sources
            for name, digest in source.inputs
        ),
        f"| **{output[0]}** | `{output[1]}` |",
    ]
    return "\n".join(lines) + "\n"


def _source_lines(sources: Sequence[Source]) -> Iterator[str]:
    yield from (
        "## Sources",
        "| set | from | license | verifier |",
        "|---|---|---|---|",
    )
    for source in sources:
        which = source.data_set
        page = (
            f"[{which.title}](https://huggingface.co/datasets/{which.hub})"
            if which.hub
            else which.title
        )
        yield f"| {page} | {source.described} | {which.license} | {which.verifier} |"
    yield ""


def _count_lines(prepared: Prepared) -> Iterator[str]:
    counts = prepared.counts()
    reasons = sorted({reason for each in counts.values() for reason in each} - {"kept"})
    yield from ("## Records in and out", f"| | {' | '.join(counts)} |")
    yield f"|---|{'---:|' * len(counts)}"
    for title, amounts in (
        ("read", [each.total() for each in counts.values()]),
        *((reason, [each[reason] for each in counts.values()]) for reason in reasons),
        ("**kept**", [each["kept"] for each in counts.values()]),
    ):
        yield f"| {title} | {' | '.join(map(str, amounts))} |"
    yield ""


def _spread_lines(prepared: Prepared) -> Iterator[str]:
    levels = collections.Counter(one.said.level for one in prepared.kept)
    types = collections.Counter(one.said.type for one in prepared.kept if one.said.type)
    words = [len(split_words(one.said.problem)) for one in prepared.kept]
    with_solution = sum(bool(one.said.solution) for one in prepared.kept)
    yield from ("## Levels and lengths", "| | |", "|---|---|")
    if set(levels) != {None}:
        told = sorted((level, n) for level, n in levels.items() if level is not None)
        parts = [f"{level}: {count}" for level, count in told]
        parts += [f"none: {levels[None]}"] if levels[None] else []
        yield f"| problems by level | {', '.join(parts)} |"
    if types:
        parts = [f"{name}: {count}" for name, count in types.most_common(_MAX_TYPES)]
        parts += [f"{len(types) - _MAX_TYPES} more"] * (len(types) > _MAX_TYPES)
        yield f"| problems by type | {', '.join(parts)} |"
    yield f"| words of a problem | {_describe_spread(words)} |"
    yield f"| with a worked solution | {with_solution} |"
    yield ""


def _describe_spread(values: Sequence[int]) -> str:
    """Returns smallest, median, 95th percentile (nearest ranks) and largest value."""
    ordered = sorted(values)
    median, high = (ordered[-(-len(ordered) * q // 100) - 1] for q in (50, 95))
    return f"{ordered[0]} to {ordered[-1]}, median {median}, 95 % up to {high}"


def _overlap_lines(
    prepared: Prepared, evaluation_sets: Mapping[str, int], n: int, max_shared: int
) -> Iterator[str]:
    yield "## Overlap with evaluation sets"
    if not evaluation_sets:
        yield from ("Not checked, because `--against` was not given.", "")
        return
    yield (
        f"Removed: problems that share {n} words in a row with an evaluation problem, "
        "or have the same text, apart from case and punctuation."
    )
    if max_shared:
        yield (
            f"Words in a row that more than {max_shared} of the problems have are "
            f"common phrases and do not count; {prepared.phrases_only} problems that "
            "share only such phrases are kept."
        )
    by_set: dict[str, dict[str, list[str]]] = {name: {} for name in evaluation_sets}
    for drop in prepared.dropped:
        for overlap in drop.overlaps:
            by_set[overlap.set].setdefault(overlap.problem, []).append(drop.id)
    yield from ("", "| evaluation set | its problems | found here | removed here |")
    yield "|---|---:|---:|---:|"
    for name, found in by_set.items():
        removed = {one for ids in found.values() for one in ids}
        yield f"| {name} | {evaluation_sets[name]} | {len(found)} | {len(removed)} |"
    yield ""
    if any(by_set.values()):
        yield from ("| evaluation problem | removed |", "|---|---|")
    for name, found in by_set.items():
        for problem, ids in [*found.items()][:_MAX_LISTED]:
            more = f" and {len(ids) - 3} more" if len(ids) > 3 else ""
            yield f"| {name}: {problem} | {', '.join(ids[:3])}{more} |"
        if len(found) > _MAX_LISTED:
            rest = len(found) - _MAX_LISTED
            yield f"| {name}: {rest} more | see the removed records |"
    if any(by_set.values()):
        yield ""


def summarize(prepared: Prepared, files: Mapping[str, object]) -> dict[str, Any]:
    """Returns the command's output: counts by set, and the files written."""
    return {
        "kept": len(prepared.kept),
        "removed": sum(drop.times for drop in prepared.dropped),
        "counts": {name: dict(each) for name, each in prepared.counts().items()},
        **files,
    }
