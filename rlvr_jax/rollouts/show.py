"""Saved completions as text: prompt, completion, answer, verdict and reward."""

import gzip
import json
import pathlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from job_jax.flags import UsageError
from rlvr_jax.run.workdir import rollouts_file, saved_rollouts

# Fields that every line of rollouts/ must have.
_FIELDS = (
    "id",
    "level",
    "type",
    "prompt",
    "gold",
    "completion",
    "answer",
    "verdict",
    "reason",
    "reward",
    "length",
    "finished",
    "weight_version",
)

_MAX_FIELD = 60  # characters of a record's field that is shown

Row = dict[str, Any]


def find_rollouts(
    folder: pathlib.Path, *, stage: str, step: int | None
) -> tuple[pathlib.Path, int]:
    """Returns the rollouts file of a stage's step, and the step (default: the last).

    `folder` is a run's workdir. Raises UsageError if nothing was saved.
    """
    if not folder.is_dir():
        raise UsageError(f"{str(folder)!r} is not a directory; give a run's workdir")
    saved = saved_rollouts(folder)
    if not saved:
        raise UsageError(
            f"{str(folder)!r} holds no rollouts/; give the workdir of a run that has "
            "saved completions"
        )
    if stage not in saved:
        raise UsageError(
            f"no completions of stage {stage!r} in {str(folder)!r}; choose "
            f"--stage={', '.join(saved)}"
        )
    steps = saved[stage]
    if step is not None and step not in steps:
        raise UsageError(
            f"no completions of step {step} of stage {stage!r}; saved are "
            f"{_name_steps(steps)}"
        )
    chosen = steps[-1] if step is None else step
    return rollouts_file(folder, stage, chosen), chosen


def _name_steps(steps: Sequence[int]) -> str:
    """Returns "step 3", or "steps 0, 20, 40 ... 980"."""
    if len(steps) == 1:
        return f"step {steps[0]}"
    head = ", ".join(map(str, steps if len(steps) <= 6 else steps[:3]))
    return f"steps {head}" + (f" ... {steps[-1]}" if len(steps) > 6 else "")


def read_rows(file: pathlib.Path) -> list[Row]:
    """Returns a file's completions, each with its `sample`: its number in its group.

    Raises UsageError if the file is damaged or from another version.
    """
    rows: list[Row] = []
    counts: dict[str, int] = {}
    try:
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise UsageError(
            f"cannot read {str(file)!r} ({' '.join(str(error).split())}); check that "
            "the file is complete"
        ) from error
    for number, row in enumerate(rows, start=1):
        missing = [f for f in _FIELDS if not isinstance(row, dict) or f not in row]
        if missing:
            raise UsageError(
                f"{file}, line {number}: no field {missing[0]!r}; another version of "
                "rlvr_jax wrote it"
            )
        row["sample"] = counts[row["id"]] = counts.get(row["id"], 0) + 1
    return rows


def count_verdicts(rows: Sequence[Mapping[str, object]]) -> str:
    """Returns "64 completions: 12 correct, 50 incorrect, 2 unverified"."""
    statuses = [row["verdict"] for row in rows]
    counts = {
        status: statuses.count(status)
        for status in ("correct", "incorrect", "unverified")
    }
    told = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    return f"{len(rows)} completion{'s' * (len(rows) != 1)}: {told or 'none'}"


def format_row(row: Mapping[str, Any]) -> str:
    """Returns one completion as text that is safe to print on a terminal."""
    facts = {
        "gold": " or ".join(map(printable, [row["gold"], *row.get("other_golds", [])])),
        "answer": describe_answer(row),
        "earned": describe_reward(row),
        "length": describe_length(row),
    }
    if told := describe_fields(row):
        facts["fields"] = told
    lines = [
        f"problem {printable(row['id'])}, {describe_origin(row)}",
        f"  {row['verdict']}: {printable(describe_reason(row))}",
        *(f"  {name:<9} {value}" for name, value in facts.items()),
    ]
    lines += ["  prompt", *_quote(row["prompt"])]
    for speaker, text in spoken_parts(row):
        lines += [f"  {speaker}", *_quote(text)]
    return "\n".join(lines)


def spoken_parts(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns (speaker, text) of all that followed the prompt.

    It is one completion, or the turns of an episode ("policy" and "environment").
    """
    if messages := row.get("messages"):
        return [(message["role"], message["text"]) for message in messages]
    return [("completion", row["completion"])]


def describe_origin(row: Mapping[str, Any]) -> str:
    """Returns a row's sample number, band, level and type, if it has them."""
    name = f" ({printable(row['level_name'])})" if row.get("level_name") else ""
    told = [f"sample {row['sample']}"] if "sample" in row else []
    told += [f"band {row['band']}"] if "band" in row else []
    told += [f"level {row['level']}{name}"] if row["level"] else []
    told += [printable(row["type"])] if row["type"] else []
    return ", ".join(told)


def describe_reason(row: Mapping[str, Any]) -> str:
    """Returns the reason for a verdict, in the verifier's words if it gave any.

    >>> describe_reason({"verdict": "incorrect", "reason": "", "answer": "4"})
    'the answer is not the gold'
    """
    if row["reason"]:
        return row["reason"]
    if row["verdict"] == "correct":
        return "the answer is the gold"
    if row["verdict"] == "unverified" or row["answer"] is None:
        return "the verifier gave no reason"
    return "the answer is not the gold"


def describe_answer(row: Mapping[str, Any]) -> str:
    """Returns the answer that the verifier read."""
    return "(none was read)" if row["answer"] is None else printable(row["answer"])


def describe_reward(row: Mapping[str, Any]) -> str:
    """Returns the reward and, for training rows, its parts and the advantage."""
    told = f"reward {row['reward']:.3g}"
    if parts := row.get("reward_parts"):
        each = ", ".join(f"{name} {value:.3g}" for name, value in parts.items())
        told += f" ({each})"
    return told + (f", advantage {row['advantage']:+.3g}" if "advantage" in row else "")


def describe_length(row: Mapping[str, object]) -> str:
    """Returns a completion's number of tokens, and whether the limit cut it."""
    cut = "" if row["finished"] else ", cut by the limit"
    if (thought := row.get("thinking_tokens")) is not None:
        cut = f" ({thought} of thinking, {row['answer_tokens']} of the answer){cut}"
    return (
        f"{row['length']} tokens{cut}; by the policy after {row['weight_version']} "
        "optimizer steps"
    )


def describe_fields(row: Mapping[str, Any]) -> str:
    """Returns the record's other fields that are short: "lo 3, hi 9", "" without any.

    >>> describe_fields({"fields": {"lo": 3, "kind": "a", "text": "x" * 99}})
    'lo 3, kind a (longer: text)'
    """
    texts = {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in row.get("fields", {}).items()
    }
    short = [f"{n} {text}" for n, text in texts.items() if len(text) <= _MAX_FIELD]
    longer = [name for name, text in texts.items() if len(text) > _MAX_FIELD]
    told = [", ".join(short)] if short else []
    told += [f"(longer: {', '.join(longer)})"] if longer else []
    return printable(" ".join(told))


def printable(text: str) -> str:
    r"""Returns a text as one line that cannot move a terminal's cursor.

    >>> printable("4\n2\x1b[2J")
    '4\\n2\\x1b[2J'
    """
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode()
        for char in text
    )


def _quote(text: str) -> Iterator[str]:
    """Yields a text's lines, each after a vertical bar."""
    for line in text.split("\n"):
        yield f"    | {printable(line)}".rstrip()
