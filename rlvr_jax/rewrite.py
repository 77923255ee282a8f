"""The command that turns the problems of a file around.

python -m rlvr_jax.rewrite --in=train.jsonl --out=backward.jsonl

A backward problem gives the answer, and a number of the question becomes the unknown.
The command prints how many it made, how many it dropped and why, and how many are
verified by worked solutions.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import flags

from job_jax.command import UsageError, parse_flags, run_command
from job_jax.files import write_atomically
from rlvr_jax.reformulate.backward import WORDINGS, rewrite_problems
from rlvr_jax.reformulate.records import (
    read_band,
    report_lines,
    select_parents,
    select_rewrites,
    to_record,
)
from rlvr_jax.tasks import RecordConfig
from rlvr_jax.tasks.records.files import read_records
from rlvr_jax.tasks.records.records import parse_records
from rlvr_jax.types import BANDS

_USAGE = """\
usage: python -m rlvr_jax.rewrite --in=FILE --out=FILE [--fraction=S] [...]
       ... --difficulty=WORKDIR --bucket=hard

IN   problems, one JSON object a line or parquet; GSM8K's layout unless flags name
     other fields
OUT  JSON lines: the problems of IN, then backward problems, which make up at most the
     fraction S of all lines (S=1: only backward problems). A backward problem has the
     fields of IN that flags name, and
       id, parent     its own id, and the id of the problem that it was made from
       parent_gold    the answer that it gives away
       template       "condition" or "appended"
       check          "verified", or why it is not verified
     Read it with task.record.id_field=id and task.record.parent_field=parent.
WORKDIR  a run whose stage `difficulty` has sampled the problems of IN: only problems of
     one initial band are turned around

flags:"""

# Fields of RecordConfig that name the fields of a line of IN.
_RECORD_FLAGS = (
    "prompt_field",
    "answer_field",
    "answer_prefix",
    "solution_field",
    "level_field",
    "type_field",
    "id_field",
)


def main(argv: Sequence[str]) -> int:
    """Returns 0 when done, 1 if OUT cannot be written, 2 on bad usage or data."""
    return run_command(lambda: _run(argv), (OSError,))


def _run(argv: Sequence[str]) -> None:
    values = _flags()
    parse_flags(argv, values, usage=_USAGE)
    source, target = values["in"].value, values.out
    if not source or not target:
        raise UsageError("give --in=FILE to read and --out=FILE to write; see --help")
    if Path(source).resolve() == Path(target).resolve():
        raise UsageError(f"--in and --out are both {source}; write to another file")
    mapping: dict[str, Any] = {name: values[name].value for name in _RECORD_FLAGS}
    config = RecordConfig(**mapping)
    placed_records = read_records(Path(source))[: values.first or None]
    parents = parse_records(placed_records, config, source=Path(source).name)
    chosen = parents
    if values.difficulty:
        ids = read_band(Path(values.difficulty), values.bucket)
        chosen = select_parents(parents, ids, values.difficulty)
    results = list(rewrite_problems(chosen, WORDINGS[values.wording]))
    rewrites, drops = select_rewrites(
        results,
        num_parents=len(parents),
        fraction=values.fraction,
        verified_only=values.verified_only,
        seed=values.seed,
    )
    originals = [] if values.fraction == 1 else [record for _, record in placed_records]
    records = [
        record | {"id": parent.id, "parent": None}
        for record, parent in zip(originals, parents, strict=False)
    ]
    records += [to_record(rewrite, config) for rewrite in rewrites]
    with write_atomically(target) as path:
        lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in records]
        path.write_text("".join(lines), encoding="utf-8")
    report = report_lines(
        chosen,
        rewrites,
        drops,
        num_attempted=len(results),
        num_originals=len(originals),
    )
    print("\n".join(report))


def _flags() -> flags.FlagValues:
    default = RecordConfig()
    values = flags.FlagValues()
    flags.DEFINE_string("in", None, "the file of problems", flag_values=values)
    flags.DEFINE_string("out", None, "the file to write", flag_values=values)
    flags.DEFINE_float(
        "fraction",
        0.3,
        "at most this share of OUT is backward problems",
        lower_bound=0.0,
        upper_bound=1.0,
        flag_values=values,
    )
    flags.DEFINE_boolean(
        "verified_only", False, "drop unverified ones", flag_values=values
    )
    flags.DEFINE_integer(
        "first", 0, "read only N problems; 0: all", lower_bound=0, flag_values=values
    )
    flags.DEFINE_string(
        "difficulty",
        None,
        "the WORKDIR whose difficulty.jsonl has the bands",
        flag_values=values,
    )
    flags.DEFINE_enum(
        "bucket",
        "hard",
        [*BANDS],
        "with --difficulty: the initial band to use",
        flag_values=values,
    )
    flags.DEFINE_enum(
        "wording",
        "plain",
        [*WORDINGS],
        "metamath: the published wording, with unknown x",
        flag_values=values,
    )
    flags.DEFINE_integer("seed", 0, "of the choice within S", flag_values=values)
    for name in _RECORD_FLAGS:
        flags.DEFINE_string(
            name, vars(default)[name], "as in task.record", flag_values=values
        )
    return values


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
