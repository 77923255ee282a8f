"""--help describes every config field by its comment, wherever that is written."""

import dataclasses
from typing import Annotated, ClassVar

import pytest

import rlvr_jax.config
import sae_jax.config
from job_jax.command_help import field_comments, help_text
from job_jax.hints import iter_alternatives
from job_jax.schema import ConfigSection, Constraint, NonNegativeInt, iter_sections

CONFIGS = (rlvr_jax.config.Config(), sae_jax.config.Config())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Base(ConfigSection):
    """The inherited fields."""

    inherited: int = 0  # of the base
    replaced: int = 0  # of the base


@dataclasses.dataclass(frozen=True, kw_only=True)
class Section(Base):
    """One field for each place of a comment."""

    # Not a field
    flag: ClassVar[bool] = True
    replaced: int = 1
    inline: int = 0  # on the line
    bare: int = 0
    # Above,
    # in two lines
    above: int = 0
    # A remark that a blank line separates

    after_blank: int = 0
    # Above
    both: int = 0  # and on the line
    brackets: NonNegativeInt = (
        -1 + 1  # inside the brackets
    )
    annotated: Annotated[
        int,
        Constraint("be odd # not a comment", lambda n: n % 2 == 1),
    ] = 1  # after the bracket
    text: str = "a # b"

    def method(self) -> int:  # not a field's
        """Returns a local, which is not a field."""
        inline: int = 5  # a local's
        return inline


def test_each_place_of_a_comment():
    assert field_comments(Section) == {
        "inherited": "of the base",
        "replaced": "of the base",
        "flag": "Not a field",
        "inline": "on the line",
        "above": "Above, in two lines",
        "both": "Above; and on the line",
        "brackets": "inside the brackets",
        "annotated": "after the bracket",
    }


def _described_fields():
    """Yields (flag's start, field's name, comment) of each field of both configs."""
    for config in CONFIGS:
        places = [*iter_sections(config)]
        for path, section in iter_alternatives(config):
            places += iter_sections(section, path)
        text = help_text((), usage="", config=config)
        for path, section in places:
            comments = field_comments(type(section))
            for field in dataclasses.fields(section):
                if not isinstance(vars(section)[field.name], ConfigSection):
                    start = f"  --config.{path}{field.name}="
                    yield text, start, comments.get(field.name)


def test_every_field_of_every_command_has_its_comment_in_the_help():
    described = [*_described_fields()]
    assert len(described) > 250
    assert [start for _, start, comment in described if not comment] == []
    for text, start, comment in described:
        lines = [line for line in text.splitlines() if line.startswith(start)]
        assert any(line.endswith(f"; {comment}") for line in lines), start


@pytest.mark.parametrize(
    "line",
    [
        "--config.train.staleness=0 "
        "int; must be 0, 1 or 2; Rollouts of step t are sampled with the weights "
        "before step t - staleness",
        "--config.mesh.cpu_devices=-1 int; must be positive, or -1; per process, on "
        "CPU; -1: one per core, at most 8",
    ],
)
def test_lines_as_a_reader_sees_them(line):
    text = help_text((), usage="", config=CONFIGS[0])
    assert line in [" ".join(each.split()) for each in text.splitlines()]
