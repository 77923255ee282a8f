"""The command that turns the problems of a file around.

python -m rlvr_jax.rewrite --in=train.jsonl --out=backward.jsonl

A backward problem gives the answer, and a number of the question becomes the unknown.
The command prints how many it made, how many it dropped and why, and how many are
verified by worked solutions.
"""

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from job_jax.command import run_command
from job_jax.files import write_atomically
from job_jax.flags import Flags, UsageError, one_of, parse_flags
from job_jax.schema import NonNegativeInt, UnitInterval
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

_RECORD = RecordConfig()


@dataclasses.dataclass(frozen=True, kw_only=True)
class RewriteFlags(Flags):
    """The flags of this command."""

    in_: str  # the file of problems
    out: str  # the file to write
    fraction: UnitInterval = 0.3  # at most this share of OUT is backward problems
    verified_only: bool = False  # drop unverified ones
    first: NonNegativeInt = 0  # read only N problems; 0: all
    difficulty: str = ""  # the WORKDIR whose difficulty.jsonl has the bands
    # with --difficulty: the initial band to use
    bucket: Annotated[str, one_of(BANDS)] = "hard"
    # metamath: the published wording, with unknown x
    wording: Annotated[str, one_of(WORDINGS)] = "plain"
    seed: int = 0  # of the choice within S
    prompt_field: str = _RECORD.prompt_field  # as in task.record
    answer_field: str = _RECORD.answer_field  # as in task.record
    answer_prefix: str = _RECORD.answer_prefix  # as in task.record
    solution_field: str = _RECORD.solution_field  # as in task.record
    level_field: str = _RECORD.level_field  # as in task.record
    type_field: str = _RECORD.type_field  # as in task.record
    id_field: str = _RECORD.id_field  # as in task.record

    def record_config(self) -> RecordConfig:
        """Returns how the lines of IN are read."""
        names = {field.name for field in dataclasses.fields(RecordConfig)}
        chosen = {name: value for name, value in vars(self).items() if name in names}
        return RecordConfig(**chosen)


def main(argv: Sequence[str]) -> int:
    """Returns 0 when done, 1 if OUT cannot be written, 2 on bad usage or data."""
    return run_command(lambda: _run(argv), (OSError,))


def _run(argv: Sequence[str]) -> None:
    flags, _ = parse_flags(argv, RewriteFlags, usage=_USAGE)
    source, target = flags.in_, flags.out
    if Path(source).resolve() == Path(target).resolve():
        raise UsageError(f"--in and --out are both {source}; write to another file")
    config = flags.record_config()
    placed_records = read_records(Path(source))[: flags.first or None]
    parents = parse_records(placed_records, config, source=Path(source).name)
    chosen = parents
    if flags.difficulty:
        ids = read_band(Path(flags.difficulty), flags.bucket)
        chosen = select_parents(parents, ids, flags.difficulty)
    results = list(rewrite_problems(chosen, WORDINGS[flags.wording]))
    rewrites, drops = select_rewrites(
        results,
        num_parents=len(parents),
        fraction=flags.fraction,
        verified_only=flags.verified_only,
        seed=flags.seed,
    )
    originals = [] if flags.fraction == 1 else [record for _, record in placed_records]
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
