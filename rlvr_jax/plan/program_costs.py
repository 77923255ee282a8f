"""The costs of one run of a compiled program on a device: FLOPs, bytes, collectives.

XLA's own count takes the body of a loop once, and a collective that it cut into steps
once a step. Here a loop's body counts as often as its condition in the program's text
allows, and a collective counts once for each run of the code around it.
"""

import collections
import dataclasses
import functools
import re
from collections.abc import Iterable, Mapping, Sequence

from rlvr_jax.plan.hlo import Array, Instruction, parse_hlo
from rlvr_jax.plan.product_flops import convolution_flops, dot_flops

_NAME = re.compile(r"%([\w.\-]+)")
_CALLED = re.compile(r"(?:calls|body|to_apply)=%?([\w.\-]+)")
_BRANCHES = re.compile(
    r"(?:branch_computations=\{(.*?)\}|"
    r"true_computation=(%[\w.\-]+), false_computation=(%[\w.\-]+))"
)
_CONDITION = re.compile(r"condition=%?([\w.\-]+)")
_INDEX = re.compile(r"\bindex=(\d+)")
_CHANNEL = re.compile(r"channel_id=(\d+)")
_TRIPS = re.compile(r'op_name="[^"]*trips_(\d+)/while"')  # the loop's own scope
_CONSTANT = re.compile(r"^(\d+)\)")  # after the opening parenthesis
_COLLECTIVES = {
    "all-reduce": 2,  # summed, then sent back
    "all-gather": 1,
    "reduce-scatter": 1,
    "all-to-all": 1,
    "collective-permute": 1,
}
# These only name values that are already in memory.
_FREE = {
    "parameter",
    "constant",
    "tuple",
    "get-tuple-element",
    "bitcast",
    "while",
    "conditional",
    "call",
    "after-all",
    "partition-id",
    "replica-id",
}
_SLICES = {"dynamic-slice", "gather", "slice"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProgramCosts:
    """The costs of one run of a program on one device.

    `flops` counts matrix products and convolutions, without kernels that XLA cannot
    see into. `hbm_bytes` counts reads and writes of the program's instructions. Fused
    instructions count as one; slices and updates in place count only the bytes that
    they touch. `collective_bytes` is sent by the device if rings serve all collectives.
    """

    flops: float = 0.0
    hbm_bytes: float = 0.0
    collective_bytes: float = 0.0

    def __add__(self, other: "ProgramCosts") -> "ProgramCosts":
        """Returns the costs of both, one after the other."""
        return ProgramCosts(
            flops=self.flops + other.flops,
            hbm_bytes=self.hbm_bytes + other.hbm_bytes,
            collective_bytes=self.collective_bytes + other.collective_bytes,
        )

    def times(self, count: int) -> "ProgramCosts":
        """Returns the costs of `count` runs."""
        return ProgramCosts(
            flops=self.flops * count,
            hbm_bytes=self.hbm_bytes * count,
            collective_bytes=self.collective_bytes * count,
        )


def program_costs(
    hlo: str, *, unbounded_trips: int = 1, skipped_scopes: Sequence[str] = ()
) -> ProgramCosts:
    """Returns the costs of a compiled program from its text.

    A scan or counted loop runs as often as the constant in its condition says. A loop
    directly in `jax.named_scope("trips_N")` runs N times, and any other loop
    `unbounded_trips` times. A conditional counts as its most expensive branch, without
    the branches in `skipped_scopes`, the named scopes that never run.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> def five_products(x):
        ...     return jax.lax.fori_loop(0, 5, lambda _, y: y @ y, x)
        >>> compiled = jax.jit(five_products).lower(jnp.ones((8, 8))).compile()
        >>> program_costs(compiled.as_text()).flops == 5 * 2 * 8**3
        True
    """
    return _Program(hlo, unbounded_trips, skipped_scopes).costs()


class _Program:
    """A program's computations, each parsed once."""

    def __init__(self, hlo: str, unbounded_trips: int, skipped_scopes: Sequence[str]):
        self._computations, self._entry = parse_hlo(hlo)
        self._unbounded_trips = unbounded_trips
        self._skipped_scopes = skipped_scopes

    def costs(self) -> ProgramCosts:
        """Returns the costs of the entry computation."""
        own = self._costs_of(self._entry)
        sent = self._channels(self._entry)
        return dataclasses.replace(own, collective_bytes=float(sum(sent.values())))

    @functools.cache  # noqa: B019 - a program lives no longer than its count
    def _costs_of(self, name: str) -> ProgramCosts:
        """Returns the FLOPs and bytes of a computation that is not fused."""
        lines = self._computations[name]
        total = ProgramCosts()
        for line in lines.values():
            total += self._costs_of_line(lines, line)
        return total

    def _costs_of_line(
        self, lines: Mapping[str, Instruction], line: Instruction
    ) -> ProgramCosts:
        if line.opcode == "while":
            return self._costs_of(_called(line)[0]).times(self._trips(line))
        if line.opcode == "conditional":
            names = [name for name in _branches(line) if not self._is_skipped(name)]
            branches = [self._costs_of(name) for name in names]
            return max(branches, key=lambda each: (each.flops, each.hbm_bytes))
        if line.opcode == "call":
            return self._costs_of(_called(line)[0])
        return ProgramCosts(
            flops=self._flops(lines, line), hbm_bytes=self._bytes(lines, line)
        )

    def _is_skipped(self, branch: str) -> bool:
        """Returns whether a branch is in a scope that never runs."""
        return any(
            f"/{scope}/" in line.rest
            for line in self._computations[branch].values()
            for scope in self._skipped_scopes
        )

    def _trips(self, line: Instruction) -> int:
        """Returns how often a loop runs, at most."""
        if told := _TRIPS.search(line.rest):
            return int(told[1])
        found = _CONDITION.search(line.rest)
        condition = self._computations[found[1]] if found else {}
        bounds = [
            number
            for each in condition.values()
            if (number := _constant(each)) is not None
        ]
        if len(bounds) != 1:
            return self._unbounded_trips
        counters = [_INDEX.search(each.rest) for each in condition.values()]
        places = {int(place[1]) for place in counters if place}
        steps = {self._step(line, place) for place in places}
        return -(-bounds[0] // (steps.pop() if len(steps) == 1 else 1))

    def _step(self, loop: Instruction, place: int) -> int:
        """Returns the number that a loop's body adds to a counter; > 1 if unrolled."""
        body = self._computations[_called(loop)[0]]
        root = next(each for each in body.values() if each.is_root)
        line, step = body.get(root.operands[place]) if root.operands else None, 0
        while line is not None and line.opcode == "add":
            given = [body[name] for name in line.operands]
            step += sum(_constant(each) or 0 for each in given)
            line = next((each for each in given if _constant(each) is None), None)
        return max(1, step)

    def _flops(self, lines: Mapping[str, Instruction], line: Instruction) -> float:
        """Returns the FLOPs of the products in an instruction, fused ones included."""
        if line.opcode == "fusion":
            fused = self._computations[_called(line)[0]]
            return sum(self._flops(fused, each) for each in fused.values())
        if line.opcode not in ("dot", "convolution"):
            return 0.0
        left, right = (lines[name].results[0] for name in line.operands[:2])
        if line.opcode == "dot":
            return dot_flops(line, left)
        return convolution_flops(line, left, right)

    def _bytes(self, lines: Mapping[str, Instruction], line: Instruction) -> float:
        """Returns the bytes that an instruction reads and writes in main memory."""
        if line.opcode in _FREE or line.opcode.endswith("-done"):
            return 0.0
        given = [lines[name].results for name in line.operands]
        results: Sequence[Array] = line.results
        if line.opcode.endswith("-start"):  # its results include its operands
            results = _without(results, [array for each in given for array in each])
        written = _hbm_bytes(results)
        if line.opcode.removesuffix("-start") in _SLICES:
            taken = sum(array.num_bytes for array in results if array.sides)
            return written + (taken if _hbm_bytes(given[0]) else 0.0)
        if line.opcode == "dynamic-update-slice":
            put = _hbm_bytes(given[1])
            return put + (sum(x.num_bytes for x in given[1]) if written else 0.0)
        reads = [_hbm_bytes(arrays) for arrays in given]
        if line.opcode != "fusion":
            return written + sum(reads)
        fused = _called(line)[0]
        used = self._bytes_used_of_parameters(fused)
        reads = [min(whole, used.get(i, whole)) for i, whole in enumerate(reads)]
        lines = self._computations[fused]
        root = next(each for each in lines.values() if each.is_root)
        if root.opcode == "dynamic-update-slice" and written:
            written = sum(x.num_bytes for x in lines[root.operands[1]].results)
        return written + sum(reads)

    @functools.cache  # noqa: B019
    def _bytes_used_of_parameters(self, name: str) -> Mapping[int, float]:
        """Returns the bytes read from a fusion's parameters that are only sliced.

        An inner fusion may slice them, too. An array that is updated in place counts as
        not read.
        """
        fused = self._computations[name]
        users = collections.defaultdict(list)
        for line in fused.values():
            for operand in set(line.operands):
                users[operand].append(line)

        def read_of(array: str) -> float | None:
            sizes = [read_by(user, array) for user in users[array]]
            whole = fused[array].is_root or None in sizes
            return None if whole else sum(filter(None, sizes))

        def read_by(user: Instruction, array: str) -> float | None:
            """Returns the bytes that an instruction reads from an array; None: all."""
            if user.opcode == "bitcast":
                return read_of(user.name)
            places = [i for i, each in enumerate(user.operands) if each == array]
            if user.opcode == "fusion":
                used = self._bytes_used_of_parameters(_called(user)[0])
                sizes = [used.get(place) for place in places]
                return None if None in sizes else sum(filter(None, sizes))
            if places != [0]:
                return None
            if user.opcode in _SLICES:
                return sum(result.num_bytes for result in user.results)
            return 0.0 if user.opcode == "dynamic-update-slice" else None

        parameters = {
            int(line.rest.split(")")[0]): read_of(line.name)
            for line in fused.values()
            if line.opcode == "parameter"
        }
        return {at: size for at, size in parameters.items() if size is not None}

    @functools.cache  # noqa: B019
    def _channels(self, name: str) -> Mapping[str, float]:
        """Returns the bytes sent in a run of a computation, by channel.

        A collective that XLA cut into steps has one channel, and counts once.
        """
        sent: dict[str, float] = collections.defaultdict(float)
        for line in self._computations[name].values():
            kind = line.opcode.removesuffix("-start")
            if kind in _COLLECTIVES:
                found = _CHANNEL.search(line.rest)
                size = _COLLECTIVES[kind] * self._whole_bytes(name, line)
                channel = found[1] if found else f"{name}/{line.name}"
                sent[channel] = max(sent[channel], size)
            trips = self._trips(line) if line.opcode == "while" else 1
            called = [*_called(line), *_branches(line)]
            if line.opcode in ("while", "call", "fusion", "conditional", "async-start"):
                for each in called:
                    for channel, size in self._channels(each).items():
                        sent[channel] = max(sent[channel], trips * size)
        return sent

    def _whole_bytes(self, name: str, line: Instruction) -> float:
        """Returns the bytes of a collective: the larger of its operands and results.

        XLA joins many arrays into one collective. A started collective also returns its
        operands, except for sums.
        """
        lines = self._computations[name]
        given = sum(
            array.num_bytes for each in line.operands for array in lines[each].results
        )
        returned = sum(array.num_bytes for array in line.results if array.sides)
        if line.opcode.endswith("-start") and not line.opcode.startswith("all-reduce"):
            returned -= given
        return max(given, returned)


def _constant(line: Instruction) -> int | None:
    """Returns the value of an instruction that is a whole number, else None."""
    found = _CONSTANT.search(line.rest) if line.opcode == "constant" else None
    return int(found[1]) if found else None


def _called(line: Instruction) -> list[str]:
    return _CALLED.findall(line.rest)


def _branches(line: Instruction) -> list[str]:
    found = _BRANCHES.search(line.rest)
    return (
        _NAME.findall(" ".join(part or "" for part in found.groups())) if found else []
    )


def _hbm_bytes(arrays: Iterable[Array]) -> float:
    return sum(each.num_bytes for each in arrays if each.in_hbm)


def _without(arrays: Sequence[Array], taken: Sequence[Array]) -> list[Array]:
    """Returns the arrays without one occurrence of each taken array."""
    rest = list(arrays)
    for array in taken:
        if array in rest:
            rest.remove(array)
    return rest
