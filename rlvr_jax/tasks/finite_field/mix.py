"""The mix of finite-field problems in a stage."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Literal

from job_jax.config import NON_EMPTY, PositiveFraction
from job_jax.schema import (
    ConfigSection,
    Constraint,
    NonNegativeInt,
    UnitInterval,
    check,
)

_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31)

Prime = Annotated[int, Constraint(f"be one of {_PRIMES}", lambda n: n in _PRIMES)]
ProblemType = Literal["evaluation", "inversion", "composition"]
Strategy = Literal["forward", "backward"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChainMix(ConfigSection):
    """The mix of finite-field problems in a stage."""

    num_problems: NonNegativeInt = 0  # repeated in epochs; 0: unlimited
    # Evaluate a chain, find its start, or compose several chains
    types: Annotated[tuple[ProblemType, ...], NON_EMPTY] = ("evaluation", "inversion")
    type_weights: tuple[float, ...] = ()  # share of each type; () is uniform
    # Operations in a chain
    chain_lengths: Annotated[
        tuple[int, ...],
        Constraint(
            "hold at least one chain length, each within 1..20",
            lambda steps: bool(steps) and all(1 <= n <= 20 for n in steps),
        ),
    ] = (2, 3, 4, 5)
    chain_length_weights: tuple[float, ...] = ()  # share of each length; () is uniform
    composition_parts: Annotated[
        tuple[int, ...],
        Constraint(
            "hold at least one number of chains, each within 2..5",
            lambda parts: bool(parts) and all(2 <= n <= 5 for n in parts),
        ),
    ] = (2,)  # chains in a composition; counts above its number of steps are not drawn
    composition_part_weights: tuple[float, ...] = ()  # share of each; () is uniform
    # How often operand n+1 is drawn relative to n; 1: equally often
    operand_decay: PositiveFraction = 1.0
    # How worked solutions go through a chain
    strategies: Annotated[tuple[Strategy, ...], NON_EMPTY] = ("forward", "backward")
    direct_lengths: tuple[int, ...] = ()  # lengths whose solutions never guess
    # Share of problems that are reversed; less of compositions, because some would be
    # held out then
    inverted_fraction: UnitInterval = 0.0

    def __post_init__(self) -> None:
        """Refuses weights that do not fit their values, and too short compositions."""
        super().__post_init__()
        check(
            set(self.direct_lengths) <= set(self.chain_lengths),
            f"direct_lengths={self.direct_lengths} must be among chain_lengths="
            f"{self.chain_lengths}",
        )
        _check_weights("chain_length", self.chain_length_weights, self.chain_lengths)
        _check_weights("type", self.type_weights, self.types)
        _check_weights(
            "composition_part", self.composition_part_weights, self.composition_parts
        )
        weights = self.composition_part_weights or (1.0,) * len(self.composition_parts)
        weighted = zip(self.composition_parts, weights, strict=True)
        parts = min(n for n, weight in weighted if weight > 0)
        check(
            "composition" not in self.types or min(self.chain_lengths) >= parts,
            f"chain_lengths={self.chain_lengths} with types={self.types}: a "
            f"composition splits its steps into at least {parts} chains; give lengths "
            f"within {parts}..20",
        )


def _check_weights(
    name: str, weights: Sequence[float], values: Sequence[object]
) -> None:
    """Raises ConfigError unless there are no weights, or one for each value."""
    check(
        len(weights) in (0, len(values)),
        f"{name}_weights has {len(weights)} entries for {len(values)} {name}s; "
        f"give one weight per {name}, or none",
    )
    check(
        not weights or (min(weights) >= 0 and sum(weights) > 0),
        f"{name}_weights={weights}: weights must be >= 0 and not all 0",
    )
