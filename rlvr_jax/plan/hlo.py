"""Parses the text of a compiled program into its computations, line by line."""

import dataclasses
import math
import re
from collections.abc import Iterable

_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (.+?) ([a-z][\w\-]*)\((.*)$")
_ARRAY = re.compile(r"([a-z]+\d*)\[([\d,]*)\](?:\{([^}]*)\})?")
_BITS = re.compile(r"\d+")
_NAME = re.compile(r"%([\w.\-]+)")
# A TPU program's mark for arrays in the core's own memory.
_OTHER_MEMORY = re.compile(r"S\([1-9]\d*\)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Array:
    """An array's element type and sides, and whether it is in a device's HBM."""

    dtype: str
    sides: tuple[int, ...]
    in_hbm: bool

    @property
    def num_bytes(self) -> float:
        """Returns the array's bytes, without padding of its layout."""
        bits = _BITS.search(self.dtype)
        return math.prod(self.sides) * (int(bits[0]) if bits else 8) / 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Instruction:
    """One line of a computation; `rest` is the text after its opening parenthesis."""

    name: str
    opcode: str
    is_root: bool
    results: tuple[Array, ...]
    operands: tuple[str, ...]
    rest: str


def parse_hlo(hlo: str) -> tuple[dict[str, dict[str, Instruction]], str]:
    """Returns a program's computations by name, and the name of the entry."""
    computations: dict[str, dict[str, Instruction]] = {}
    lines: dict[str, Instruction] = {}
    entry = ""
    for text in hlo.splitlines():
        if header := _COMPUTATION.match(text):
            lines = computations[header[1]] = {}
            entry = header[1] if text.startswith("ENTRY") else entry
        elif found := _INSTRUCTION.match(text):
            root, name, results, opcode, rest = found.groups()
            lines[name] = Instruction(
                name=name,
                opcode=opcode,
                is_root=bool(root),
                results=tuple(_arrays(results)),
                operands=tuple(_NAME.findall(_inside_parentheses(rest))),
                rest=rest,
            )
    return computations, entry


def _arrays(text: str) -> Iterable[Array]:
    """Yields the arrays of a type; for a tuple, one by one."""
    for dtype, sides, layout in _ARRAY.findall(text):
        yield Array(
            dtype=dtype,
            sides=tuple(int(side) for side in sides.split(",") if side),
            in_hbm=not _OTHER_MEMORY.search(layout),
        )


def _inside_parentheses(text: str) -> str:
    """Returns the text before the closing parenthesis."""
    depth = 1
    for at, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return text[:at]
    return text
