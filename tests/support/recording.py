"""Which config fields a program reads: the proof that no knob is silent."""

import contextlib
import dataclasses
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import job_jax
import rlvr_jax.config
import sae_jax.config
from job_jax import command, config_io, hints, registry, schema
from job_jax.schema import ConfigSection, iter_sections

JOBS, RLVR, SAE = (Path(each.__file__).parent for each in (job_jax, rlvr_jax, sae_jax))
# These treat every field alike, so a read here does not prove that it is used.
_HANDLERS = {
    Path(module.__file__) for module in (config_io, hints, registry, command, schema)
}
# A field read by a section's property or method counts for its caller.
_SECTIONS = {
    Path(__file__),  # the function below handles a property
    Path(sae_jax.config.__file__),
    *Path(rlvr_jax.config.__file__).parent.glob("*.py"),
}


@contextlib.contextmanager
def record_reads() -> Iterator[set[tuple[str, str]]]:
    """Yields a set that gains (class, field) whenever the package reads that field.

    dataclasses generates equality, hash and repr from text and makes copies in its
    module, so none of these is a file of the package. A section's check of its fields
    does not count as a use. Reads in worker processes are not recorded.
    """
    reads: set[tuple[str, str]] = set()

    def read(section: ConfigSection, name: str) -> object:
        frame = sys._getframe(1)
        reader = _find_reader(frame)
        if (
            name in type(section).__dataclass_fields__
            and not {JOBS, RLVR, SAE}.isdisjoint(reader.parents)
            and reader not in _HANDLERS
            and not _is_within_check(frame)
        ):
            reads.add((type(section).__name__, name))
        return object.__getattribute__(section, name)

    ConfigSection.__getattribute__ = read
    try:
        yield reads
    finally:
        del ConfigSection.__getattribute__


def _find_reader(frame: types.FrameType | None) -> Path:
    """Returns the file of the frame's caller: the first that defines no sections."""
    reader = Path()
    while frame and (reader := Path(frame.f_code.co_filename)) in _SECTIONS:
        frame = frame.f_back
    return reader


def _is_within_check(frame: types.FrameType | None) -> bool:
    """Returns whether the frame runs within a section's check of its fields."""
    while frame:
        if frame.f_code.co_name == "__post_init__":
            return True
        frame = frame.f_back
    return False


def knobs(section: ConfigSection) -> set[tuple[str, str]]:
    """Returns (class, field) of every nested field except a section."""
    return {
        (type(owner).__name__, field.name)
        for _, owner in iter_sections(section)
        for field in dataclasses.fields(owner)
        if not isinstance(vars(owner)[field.name], ConfigSection)
    }
