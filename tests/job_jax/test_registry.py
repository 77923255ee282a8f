"""Open choices: classes by name, ours or a user's, each with its options."""

import dataclasses
import sys
from typing import Literal

import pytest

from job_jax.config_io import diff, from_json, override, to_json
from job_jax.hints import iter_alternatives
from job_jax.registry import OpenSection, Registry, find_places
from job_jax.schema import ConfigError, ConfigSection, PositiveInt, check

SHAPES = Registry("shape", {"disc": f"{__name__}:Disc", "bar": f"{__name__}:Bar"})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shape(OpenSection):
    """A shape to draw."""

    registry = SHAPES
    copies: PositiveInt = 1  # shared by all shapes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Disc(Shape):
    """A disc."""

    radius: float = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bar(Shape):
    """A bar."""

    width: float = 1.0
    height: float = 2.0
    style: Literal["outline", "filled"] = "outline"

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.height >= self.width, f"height={self.height} < width={self.width}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drawing(ConfigSection):
    """A config with an open choice."""

    shape: Shape = dataclasses.field(default_factory=Disc)
    title: str = ""


@pytest.fixture(autouse=True)
def importable(monkeypatch, tmp_path):
    """Makes this module importable by name, and adds a folder for a user's modules."""
    monkeypatch.setitem(sys.modules, __name__, sys.modules[Disc.__module__])
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_json_names_the_class_and_brings_it_back():
    drawing = Drawing(shape=Bar(copies=3, height=4))
    data = to_json(drawing)
    assert data["shape"] == {
        "name": "bar",
        "copies": 3,
        "width": 1.0,
        "height": 4.0,
        "style": "outline",
    }
    assert from_json(Drawing, data) == drawing


def test_an_override_changes_the_class_and_keeps_what_all_classes_share():
    drawing = Drawing(shape=Disc(radius=5.0, copies=7))
    changed = override(drawing, {"shape.name": "bar", "shape.width": "1.5"})
    assert changed.shape == Bar(copies=7, width=1.5)
    assert override(drawing, {"shape.name": "disc"}) == drawing
    assert "shape.name: 'disc' -> 'bar'" in diff(drawing, changed)


def test_an_option_of_another_class_is_refused_with_the_choice_that_has_it():
    with pytest.raises(ConfigError, match=r"field of shape\.name=bar; set that"):
        override(Drawing(), {"shape.width": "2"})
    with pytest.raises(ConfigError, match=r"unknown shape 'baar'; did you mean 'bar'"):
        override(Drawing(), {"shape.name": "baar"})


def test_options_are_checked_together_under_their_path():
    with pytest.raises(ConfigError, match=r"^shape\.height=2\.0 < width=3\.0"):
        override(Drawing(), {"shape.name": "bar", "shape.width": "3"})
    with pytest.raises(ConfigError, match="copies=0; it must be at least 1"):
        override(Drawing(), {"shape.copies": "0"})


def test_alternatives_are_the_other_registered_classes():
    assert list(iter_alternatives(Drawing())) == [("shape.", Bar())]


def test_a_users_class_is_chosen_by_its_place(importable):
    (importable / "my_shapes.py").write_text(
        "import dataclasses\n"
        f"from {__name__} import Shape\n"
        "@dataclasses.dataclass(frozen=True, kw_only=True)\n"
        "class Star(Shape):\n"
        "    points: int = 5\n"
    )
    overrides = {"shape.name": "my_shapes:Star", "shape.points": "6"}
    drawing = override(Drawing(), overrides)
    assert drawing.shape.points == 6
    assert to_json(drawing)["shape"] == {
        "name": "my_shapes:Star",
        "copies": 1,
        "points": 6,
    }
    assert from_json(Drawing, to_json(drawing)) == drawing


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:Star", "cannot import no_such_module"),
        ("fractions:Fracton", "fractions has no 'Fracton'; did you mean 'Fraction'"),
        ("fractions:Fraction", "is not a subclass of"),
        ("fractions", "unknown shape 'fractions'; give one of "),
        (":Star", "unknown shape ':Star'"),
        ("baar", r"did you mean 'bar'\? Name your own as package\.module:name"),
        ("shapes.py", "; name something in that file, as in shapes:NAME$"),
        ("my.shapes.Star", r"; did you mean 'my\.shapes:Star'\?$"),
        ("not a name", "; give one of disc, bar. Name your own"),
        (
            "near.py:Star",
            "^shape 'near.py:Star' names a file; write near:Star, and run "
            "from its folder, or put the file next to the recipe or its folder",
        ),
        (
            "my/near.py:Star",
            "names a file; write near:Star, and run from the folder 'my'",
        ),
        ("my/near:Star", "names a file; write near:Star, and run from the folder 'my'"),
        (
            "filled",
            r"^unknown shape 'filled'; did you mean shape\.name=bar with "
            r"shape\.style=filled\?$",
        ),
    ],
)
def test_a_wrong_class_is_refused(name, message):
    with pytest.raises(ConfigError, match=message):
        override(Drawing(), {"shape.name": name})


def test_a_class_that_json_could_not_name_is_refused():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Local(Shape):
        pass

    with pytest.raises(ConfigError, match="at the top of a separate module"):
        Local()


@pytest.mark.parametrize("name", [None, 3])
def test_json_without_the_name_of_the_class_is_refused(name):
    data = to_json(Drawing())
    data["shape"]["name"] = name
    with pytest.raises(ConfigError, match=r"shape\.name expects the name of a shape"):
        from_json(Drawing, data)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def f(:\n", "SyntaxError: invalid syntax (broken_{}.py, line 1)"),
        ("a = 1\nb = c\n", "NameError: name 'c' is not defined (broken_{}.py, line 2)"),
    ],
)
def test_a_module_that_fails_on_import_is_reported_in_one_line(importable, text, said):
    name = f"broken_{len(text)}"
    (importable / f"{name}.py").write_text(text)
    with pytest.raises(ConfigError) as raised:
        SHAPES.load(f"{name}:Mine")
    assert str(raised.value) == (
        f"shape '{name}:Mine': {name} fails while it is imported: "
        + said.format(len(text))
    )


def test_what_a_section_says_of_itself_is_not_glued_to_its_path():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Names(ConfigSection):
        names: tuple[str, ...] = ()

        def __post_init__(self) -> None:
            for name in self.names:
                SHAPES.load(name)
            check(len(self.names) < 2, f"names={self.names} is long")

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Outer(ConfigSection):
        inner: Names = dataclasses.field(default_factory=Names)

    with pytest.raises(ConfigError, match=r"^inner: unknown shape 'ba'; did you mean"):
        override(Outer(), {"inner.names": "ba"})
    with pytest.raises(ConfigError, match=r"^inner\.names=\('bar', 'bar'\) is long$"):
        override(Outer(), {"inner.names": "bar,bar"})


def test_a_new_file_in_a_package_is_registered_by_being_there(tmp_path, monkeypatch):
    folder = tmp_path / "shapes_of_mine"
    folder.mkdir()
    (folder / "__init__.py").write_text('"""Shapes."""\n')
    (folder / "round_one.py").write_text("class RoundOne:\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    places = find_places("shapes_of_mine")
    assert places == {"round_one": "shapes_of_mine.round_one:RoundOne"}
    assert Registry("shape", places).load("round_one").__name__ == "RoundOne"
    assert "shapes_of_mine.round_one" in sys.modules
