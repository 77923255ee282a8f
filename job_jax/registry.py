"""Names for the classes and functions that a config can choose, ours and users'.

A registry maps our names to the places of classes or functions, and imports one only
when it is needed. Anything else is named by its place, "package.module:name", in any
module that Python can import.
"""

import dataclasses
import difflib
import importlib
import pkgutil
import traceback
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, get_args, get_origin

from job_jax.schema import (
    ConfigError,
    ConfigSection,
    did_you_mean,
    split_annotation,
    suggest,
)


def describe_import_failure(error: Exception) -> str:
    """Returns in one line which error a module's import raised, and where."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    if isinstance(error, SyntaxError):
        return text  # already contains file and line
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{text} ({last.filename.rpartition('/')[2]}, line {last.lineno})"


_NO_NOTES: Mapping[str, str] = {}


def find_places(package: str) -> dict[str, str]:
    """Returns the place of the class in each module of a package: name.py has Name.

    So a new file in the package is registered by being there. The package's
    __init__.py must import none of them.

    Example:
        >>> find_places("job_jax")["registry"]
        'job_jax.registry:Registry'
    """
    paths = importlib.import_module(package).__path__
    names = sorted(module.name for module in pkgutil.iter_modules(paths))
    return {name: f"{package}.{name}:{name.title().replace('_', '')}" for name in names}


class Registry:
    """Finds a class or function by our name for it, or by its place.

    Args:
        what: the kind of thing that is registered, for messages ("curriculum").
        places: our names, each with its place, "package.module:name".
        notes: names of other kinds of things, each with what to do, for messages.

    Example:
        >>> registry = Registry("shape", {"fraction": "fractions:Fraction"})
        >>> registry.load("fraction") is registry.load("fractions:Fraction")
        True
        >>> registry.load("fractoin")
        Traceback (most recent call last):
        ...
        job_jax.schema.ConfigError: unknown shape 'fractoin'; did you mean 'fraction'? \
Name your own as package.module:name
    """

    def __init__(
        self, what: str, places: Mapping[str, str], notes: Mapping[str, str] = _NO_NOTES
    ):
        self.what = what
        self._places = dict(places)
        self._notes = dict(notes)

    @property
    def names(self) -> tuple[str, ...]:
        """Returns our names, in the order they were given."""
        return tuple(self._places)

    def load(self, name: str) -> Any:
        """Returns the class or function of this name. Raises ConfigError if missing."""
        place = self._places.get(name, name)
        module_name, colon, attribute = place.partition(":")
        if not (colon and module_name and attribute):
            raise ConfigError(f"unknown {self.what} {name!r}{self._hint(name)}")
        folder, _, file = module_name.rpartition("/")
        if folder or file.endswith(".py"):
            stem = file.removesuffix(".py")
            raise ConfigError(
                f"{self.what} {name!r} names a file; write {stem}:{attribute}, and run "
                f"from {f'the folder {folder!r}' if folder else 'its folder'}, or put "
                "the file next to the recipe or its folder on PYTHONPATH"
            )
        try:
            module = importlib.import_module(module_name)
        except ImportError as error:
            raise ConfigError(
                f"{self.what} {name!r}: cannot import {module_name}: {error}; install "
                "the module, or put it in the current folder, next to the recipe, or "
                "on PYTHONPATH"
            ) from error
        except Exception as error:  # a user's code
            raise ConfigError(
                f"{self.what} {name!r}: {module_name} fails while it is imported: "
                f"{describe_import_failure(error)}"
            ) from error
        if attribute not in vars(module):
            nearest = did_you_mean(attribute, [n for n in vars(module) if n[0] != "_"])
            raise ConfigError(
                f"{self.what} {name!r}: {module_name} has no {attribute!r}{nearest}"
            )
        return vars(module)[attribute]

    def _hint(self, name: str) -> str:
        """Returns what an unknown name without a colon may mean."""
        own = " Name your own as package.module:name"
        if name in self._notes:
            return f"; {self._notes[name]}"
        if difflib.get_close_matches(name, self.names):
            return f"{did_you_mean(name, self.names)}{own}"
        if name.endswith(".py"):
            return f"; name something in that file, as in {name[:-3]}:NAME"
        module, dot, attribute = name.rpartition(".")
        if dot and all(part.isidentifier() for part in name.split(".")):
            return suggest([f"{module}:{attribute}"])
        return f"; give one of {', '.join(self.names)}.{own}"

    def name_of(self, thing: Any) -> str:
        """Returns the name by which `load` finds a class or function.

        Raises ConfigError if no other process could import it, because it is local or
        defined in the recipe itself.
        """
        place = f"{thing.__module__}:{thing.__qualname__}"
        for name, known in self._places.items():
            if known == place:
                return name
        if thing.__module__ in ("__main__", "<run_path>") or "." in thing.__qualname__:
            raise ConfigError(
                f"{self.what} {thing.__qualname__} is defined where config.json cannot "
                "name it; define it at the top of a separate module, next to the recipe"
            )
        return place


@dataclasses.dataclass(frozen=True, kw_only=True)
class OpenSection(ConfigSection):
    """A config section whose class is chosen by name: one of ours, or a user's.

    The base class of a choice sets `registry`. A config field is annotated with that
    base and holds one of its subclasses, whose fields are the options of that choice.
    On the command line and in config.json the key `tag` names the class:
    `--config.curriculum.name=target --config.curriculum.target=0.3`. Every field needs
    a default. Fields of the base class keep their values when the class is changed.
    """

    registry: ClassVar[Registry]
    tag: ClassVar[str] = "name"
    # The name of sections that were saved before there was a choice, if they were.
    earlier_tag: ClassVar[str | None] = None

    def __post_init__(self) -> None:
        """Refuses values of another type, and a class that cannot be named."""
        super().__post_init__()
        self.registry.name_of(type(self))

    def tags(self) -> dict[str, str]:
        """Returns {key: name of the section's class}."""
        return {self.tag: self.registry.name_of(type(self))}

    @classmethod
    def choose(cls, name: str, *, path: str = "") -> type["OpenSection"]:
        """Returns the class of that name. Raises ConfigError if it is no subclass.

        `path` is the section's path with its last dot, for the message.
        """
        if ":" not in name and name not in cls.registry.names:
            cls._refuse_field_value(name, path)
        chosen = cls.registry.load(name)
        if not (isinstance(chosen, type) and issubclass(chosen, cls)):
            raise ConfigError(
                f"{cls.registry.what} {name!r} is not a subclass of "
                f"{cls.__module__}.{cls.__name__}; derive it from that class"
            )
        return chosen

    @classmethod
    def _refuse_field_value(cls, value: str, path: str) -> None:
        """Raises ConfigError if one of our classes has a field with this value."""
        shared = {field.name for field in dataclasses.fields(cls)}
        for name in cls.registry.names:
            chosen = cls.registry.load(name)
            for field in dataclasses.fields(chosen):
                if field.name not in {*chosen.__annotations__, *shared}:
                    continue  # a class that it derives from declares the field
                kind, _ = split_annotation(field.type)
                if get_origin(kind) is Literal and value in get_args(kind):
                    raise ConfigError(
                        f"unknown {cls.registry.what} {value!r}; did you mean "
                        f"{path}{cls.tag}={name} with {path}{field.name}={value}?"
                    )
