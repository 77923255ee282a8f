"""Which config fields a program reads: the proof that no knob is silent."""

import contextlib
import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path

import job_jax
import rlvr_jax.config
import sae_jax.config
from job_jax import command, config_io, schema
from job_jax.schema import Section, sections

JOBS, RLVR, SAE = (Path(each.__file__).parent for each in (job_jax, rlvr_jax, sae_jax))
# These handle every field alike, whatever it means: their reads prove nothing.
_HANDLERS = {
    Path(module.__file__)
    for module in (
        rlvr_jax.config,
        rlvr_jax.config_difficulty,
        rlvr_jax.config_learn,
        rlvr_jax.config_probe,
        rlvr_jax.config_model,
        rlvr_jax.config_tasks,
        sae_jax.config,
        config_io,
        command,
        schema,
    )
}


@contextlib.contextmanager
def record_reads() -> Iterator[set[tuple[str, str]]]:
    """Yields a set that gains (class, field) whenever the package reads that field.

    Equality, hash and repr are made by dataclasses from text, and copies by its own
    module: neither is a file of the package. Worker processes are not seen.
    """
    reads: set[tuple[str, str]] = set()

    def read(section: Section, name: str) -> object:
        reader = Path(sys._getframe(1).f_code.co_filename)
        if (
            name in type(section).__dataclass_fields__
            and not {JOBS, RLVR, SAE}.isdisjoint(reader.parents)
            and reader not in _HANDLERS
        ):
            reads.add((type(section).__name__, name))
        return object.__getattribute__(section, name)

    Section.__getattribute__ = read
    try:
        yield reads
    finally:
        del Section.__getattribute__


def knobs(section: Section) -> set[tuple[str, str]]:
    """Returns (class, field) of every field within that holds a value, no section."""
    return {
        (type(owner).__name__, field.name)
        for _, owner in sections(section)
        for field in dataclasses.fields(owner)
        if not isinstance(vars(owner)[field.name], Section)
    }
