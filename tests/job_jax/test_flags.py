"""Flags are read by the types, bounds, defaults and comments of a class's fields."""

import dataclasses
from typing import Annotated, Literal

import pytest

from job_jax.flags import Flags, Repeated, UsageError, one_of, parse_flags
from job_jax.schema import PositiveInt, UnitInterval

FRUITS = ["apple", "pear"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Given(Flags):
    """One flag of each kind."""

    in_: str  # the file
    layers: tuple[int, ...] = (1, 2)  # which layers
    # a prompt; may
    # be repeated
    prompt: Repeated = ()
    seed: int | None = None  # of the draw
    count: PositiveInt | None = None  # how many
    share: UnitInterval = 0.5  # of all
    dry: bool = False  # do nothing
    checked: bool = True  # check first
    fruit: Annotated[str, one_of(FRUITS)] = "apple"  # which fruit
    other: Annotated[str, one_of(FRUITS)] | None = None  # another fruit
    table: Literal["md", "tex"] | None = None  # its format


def _parse(*argv, **options):
    return parse_flags(["--in=f", *argv], Given, usage="usage: x", **options)


def _refusal(*argv, **options):
    with pytest.raises(UsageError) as caught:
        parse_flags(argv, Given, usage="usage: x", **options)
    return str(caught.value).splitlines()


def test_what_is_not_given_has_its_default():
    flags, rest = _parse()
    assert (flags, rest) == (Given(in_="f"), [])
    assert flags.stated == {"in_"}


@pytest.mark.parametrize(
    ("argv", "values"),
    [
        (["--layers=3,4"], {"layers": (3, 4)}),
        (["--layers="], {"layers": ()}),
        (["--prompt=a,b", "--prompt=c"], {"prompt": ("a,b", "c")}),
        (["--seed=-1"], {"seed": -1}),
        (["--seed", "0"], {"seed": 0}),
        (["--count=1"], {"count": 1}),
        (["--share=1"], {"share": 1.0}),
        (["--dry"], {"dry": True}),
        (["--nochecked"], {"checked": False}),
        (["--checked=false"], {"checked": False}),
        (["--fruit=pear", "--other=pear"], {"fruit": "pear", "other": "pear"}),
        (["--table=tex"], {"table": "tex"}),
        (["--share=0", "--share=0.25"], {"share": 0.25}),
    ],
)
def test_texts_become_values(argv, values):
    flags, _ = _parse(*argv)
    assert vars(flags) == vars(Given(in_="f", **values))
    assert flags.stated == {"in_", *values}


@pytest.mark.parametrize(
    ("argument", "line"),
    [
        ("--layers=1,x", "--layers expects a tuple of int, got (1, 'x')"),
        ("--seed=1.5", "--seed expects an int, got '1.5'"),
        ("--count=0", "--count=0; it must be at least 1"),
        ("--share=1.5", "--share=1.5; it must lie within [0, 1]"),
        ("--share=nan", "--share expects a finite float, got nan"),
        ("--fruit=peer", "--fruit='peer'; it must be one of apple, pear"),
        ("--other=", "--other=''; it must be one of apple, pear"),
        ("--table=html", "--table expects one of md, tex, got 'html'"),
        ("--dry=maybe", "--dry=maybe is not true or false; write --dry alone"),
        ("--shore=1", "unknown flag '--shore'; did you mean '--share'?"),
        ("more", "unexpected argument 'more'; write --flag=value"),
    ],
)
def test_what_cannot_be_read_is_refused(argument, line):
    assert _refusal("--in=f", argument) == [line]


def test_wrong_and_missing_flags_are_named_together():
    assert _refusal("--count=0", "--seed=x") == [
        "--in is missing: the file",
        "--seed expects an int, got 'x'",
        "--count=0; it must be at least 1",
    ]
    assert _refusal("--in=") == ["--in is missing: the file"]


def test_arguments_are_counted():
    _, rest = _parse("a", "--dry", "b", arguments=["A", "B"])
    assert rest == ["a", "b"]
    assert _parse("a", "b", "c", arguments=["A"], at_least=True)[1] == ["a", "b", "c"]
    assert _refusal("--in=f", "a", arguments=["A", "B"]) == [
        "B missing; expected A B (see --help)"
    ]
    assert _refusal("--in=f", "a", "b", arguments=["A"]) == [
        "unexpected argument 'b'; see --help"
    ]


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_the_help_has_comments_and_defaults(word, capsys):
    with pytest.raises(SystemExit) as caught:
        parse_flags([word], Given, usage="usage: x")
    assert caught.value.code == 0
    assert capsys.readouterr().out.splitlines() == [
        "usage: x",
        "  --in               the file",
        "  --layers           which layers (default: 1,2)",
        "  --prompt           a prompt; may be repeated",
        "  --seed             of the draw",
        "  --count            how many",
        "  --share            of all (default: 0.5)",
        "  --dry              do nothing",
        "  --checked          check first (default: True)",
        "  --fruit            which fruit (default: apple)",
        "  --other            another fruit",
        "  --table            its format",
        "  --help             show this and exit",
    ]
