"""The command that asks the problems of a file backward.

python -m rlvr_jax.rewrite --in=train.jsonl --out=backward.jsonl

It prints what was made, what was dropped and why, and what the worked solutions verify.
"""

import collections
import json
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import flags

from job_jax.command import UsageError, exit_code
from rlvr_jax.config import RecordConfig
from rlvr_jax.tasks.backward import Drop, Rewrite, quantities, rewrites
from rlvr_jax.tasks.files import records
from rlvr_jax.tasks.records import Fields, read_all

_USAGE = """\
usage: python -m rlvr_jax.rewrite --in=FILE --out=FILE [--share=S] [...]

IN   problems, one JSON object a line or parquet; GSM8K's layout unless flags say other
OUT  JSON lines: the problems of IN, then problems asked backward, as many as are at
     most the share S of all lines (S=1: these alone). A line asked backward has the
     fields of IN that flags name, and
       id, parent     its own name, and that of the problem that it was made from
       parent_gold    the answer that it gives away
       template       "condition" or "appended"
       check          "verified", or why the worked solution does not verify it
     Read it with task.record.id_field=id and task.record.parent_field=parent.

flags:"""

# Fields of RecordConfig that say what a line of IN holds.
_MAPPING = (
    "prompt_field",
    "answer_field",
    "answer_marker",
    "solution_field",
    "level_field",
    "type_field",
    "id_field",
)


def main(argv: Sequence[str]) -> int:
    """Returns 0 when done, 1 where OUT cannot be written, 2 on bad usage or data."""
    return exit_code(lambda: _do(argv), (OSError,))


def _do(argv: Sequence[str]) -> None:
    values = _flags()
    try:
        extra = values(["", *argv])[1:]
    except flags.Error as error:
        raise UsageError(str(error)) from error
    if extra:
        raise UsageError(f"unexpected argument {extra[0]!r}; write --flag=value")
    if values.help:
        print(_USAGE)
        for name in values:
            print(f"  {f'--{name}':<18} {values[name].help} ({values[name].default!r})")
        return
    source, target = values["in"].value, values.out
    if not source or not target:
        raise UsageError("--in=FILE and --out=FILE say what to read and write")
    if Path(source).resolve() == Path(target).resolve():
        raise UsageError(f"--in and --out are both {source}; write to another file")
    mapping: dict[str, Any] = {name: values[name].value for name in _MAPPING}
    config = RecordConfig(**mapping)
    pairs = records(Path(source))[: values.first or None]
    parents = read_all(pairs, config, source=Path(source).name)
    made = list(rewrites(parents))
    kept, drops = _chosen(made, parents, values)
    originals = [] if values.share == 1 else [record for _, record in pairs]
    lines = [
        record | {"id": parent.id, "parent": None}
        for record, parent in zip(originals, parents, strict=False)
    ]
    lines += [_line(one, config) for one in kept]
    _write(Path(target), lines)
    print("\n".join(_report(parents, made, kept, drops, originals=len(originals))))


def _flags() -> flags.FlagValues:
    default = RecordConfig()
    values = flags.FlagValues()
    flags.DEFINE_string("in", None, "the file of problems", flag_values=values)
    flags.DEFINE_string("out", None, "the file to write", flag_values=values)
    flags.DEFINE_float(
        "share",
        0.3,
        "at most this share of OUT is asked backward",
        lower_bound=0.0,
        upper_bound=1.0,
        flag_values=values,
    )
    flags.DEFINE_boolean(
        "verified_only", False, "drop what is not verified", flag_values=values
    )
    flags.DEFINE_integer(
        "first", 0, "read so many problems; 0: all", lower_bound=0, flag_values=values
    )
    flags.DEFINE_integer("seed", 0, "chooses within the share", flag_values=values)
    for name in _MAPPING:
        flags.DEFINE_string(
            name, vars(default)[name], "as task.record's", flag_values=values
        )
    flags.DEFINE_boolean("help", False, "show this and exit", flag_values=values)
    return values


def _chosen(
    made: Sequence[Rewrite | Drop], parents: Sequence[Fields], values: flags.FlagValues
) -> tuple[list[Rewrite], list[Drop]]:
    """Returns the rewrites to write, in order, and everything that was dropped."""
    drops = [one for one in made if isinstance(one, Drop)]
    kept = [one for one in made if isinstance(one, Rewrite)]
    if values.verified_only:
        drops += [
            _dropped(one, f"not verified: {one.check.reason}")
            for one in kept
            if one.check.outcome != "verified"
        ]
        kept = [one for one in kept if one.check.outcome == "verified"]
    if values.share < 1:
        room = int(values.share / (1 - values.share) * len(parents))
        order = random.Random(values.seed).sample(range(len(kept)), len(kept))
        within = set(order[:room])
        drops += [
            _dropped(one, "over the share")
            for i, one in enumerate(kept)
            if i not in within
        ]
        kept = [one for i, one in enumerate(kept) if i in within]
    return kept, drops


def _dropped(one: Rewrite, reason: str) -> Drop:
    return Drop(parent=one.parent, token=one.quantity.text, reason=reason)


def _line(one: Rewrite, config: RecordConfig) -> dict[str, Any]:
    """Returns the record of a rewrite, in the layout of the file that it came from."""
    at = f"{one.quantity.start}-{one.template}"
    line: dict[str, Any] = {
        config.prompt_field: one.question,
        config.answer_field: f"{config.answer_marker} {one.gold}".strip(),
    }
    if config.level_field:
        line[config.level_field] = one.parent.level
    if config.type_field:
        line[config.type_field] = one.parent.type
    return line | {
        "id": f"{one.parent.id}-{at}",
        "parent": one.parent.id,
        "parent_gold": one.parent.gold,
        "template": one.template,
        "check": one.check.reason or one.check.outcome,
    }


def _write(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Writes the lines, all or none."""
    unfinished = path.with_name(f"{path.name}.tmp")
    with unfinished.open("w", encoding="utf-8") as file:
        for line in lines:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
    unfinished.replace(path)


def _report(
    parents: Sequence[Fields],
    made: Sequence[Rewrite | Drop],
    kept: Sequence[Rewrite],
    drops: Sequence[Drop],
    *,
    originals: int,
) -> list[str]:
    tokens = sum(len(list(quantities(parent.question))) for parent in parents)
    verified = sum(one.check.outcome == "verified" for one in kept)
    share = len(kept) / max(1, len(kept) + originals)
    verified_share = verified / max(1, len(kept))
    lines = [
        f"problems            {len(parents)}",
        f"number tokens       {tokens}, two templates each: {len(made)} rewrites",
        f"dropped             {len(drops)}",
        *_counted([drop.reason for drop in drops]),
        f"written             {originals} problems, {len(kept)} rewrites ({share:.1%})",
        f"verified            {verified} of {len(kept)} ({verified_share:.1%})",
    ]
    unchecked = [one.check.reason for one in kept if one.check.outcome != "verified"]
    return lines + _counted(unchecked)


def _counted(reasons: Sequence[str]) -> list[str]:
    """Returns a line a reason, the most frequent first."""
    counts = collections.Counter(reasons)
    return [f"  {count:>6}  {reason}" for reason, count in counts.most_common()]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
