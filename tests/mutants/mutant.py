"""A one-line mutant of the program, and a helper that builds several for one file.

A good row changes a line that affects a result and that no shape or type check guards,
such as a choice of weights, key, sign or row.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Mutant:
    """`old`, found once in `file`, becomes `new`; one of `tests` must then fail."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def applied(self, text: str) -> str:
        """Returns the mutated text of the file. ValueError unless `old` occurs once."""
        if text.count(self.old) != 1:
            raise ValueError(
                f"{self.name}: {self.file} contains {self.old!r} "
                f"{text.count(self.old)} times instead of once; update the row "
                f"{self.name.rpartition('.')[2]} in the mutants.py of that area"
            )
        return text.replace(self.old, self.new)

    def __str__(self) -> str:
        return f"{self.name}: {self.old!r} -> {self.new!r}"


def rows(file: str, tests: tuple[str, ...], **lines: tuple[str, str]) -> list[Mutant]:
    """Returns mutants of one file: NAME=(old, new), all killed by the same tests."""
    stem = file.removesuffix(".py").replace("/", ".").removeprefix("rlvr_jax.")
    return [
        Mutant(f"{stem}.{name}", file, old, new, tests)
        for name, (old, new) in lines.items()
    ]
