"""Which finite-field problems a stage sees."""

import dataclasses
from typing import Annotated, Literal

from job_jax.config import NON_EMPTY, PositiveFraction
from job_jax.schema import ConfigSection, Constraint, UnitInterval, check

_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31)

Prime = Annotated[int, Constraint(f"be one of {_PRIMES}", lambda n: n in _PRIMES)]
ProblemType = Literal["evaluation", "inversion", "composition"]
Strategy = Literal["forward", "backward"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChainMix(ConfigSection):
    """Which finite-field problems a stage sees."""

    types: Annotated[tuple[ProblemType, ...], NON_EMPTY] = ("evaluation", "inversion")
    chain_lengths: Annotated[
        tuple[int, ...],
        Constraint(
            "hold at least one chain length, each within 1..20",
            lambda steps: bool(steps) and all(1 <= n <= 20 for n in steps),
        ),
    ] = (2, 3, 4, 5)
    chain_length_weights: tuple[float, ...] = ()  # share of each length; () is uniform
    operand_decay: PositiveFraction = (
        1.0  # operand n+1 is this often drawn for one n; 1: alike
    )
    strategies: Annotated[tuple[Strategy, ...], NON_EMPTY] = ("forward", "backward")
    inverted_fraction: UnitInterval = 0.0  # of problems asked the other way round

    def __post_init__(self) -> None:
        """Refuses weights that do not fit the lengths, and too short compositions."""
        super().__post_init__()
        weights = self.chain_length_weights
        check(
            "composition" not in self.types or min(self.chain_lengths) > 1,
            f"chain_lengths={self.chain_lengths} with types={self.types}; a "
            "composition splits its "
            "steps between two chains, give lengths within 2..20",
        )
        check(
            len(weights) in (0, len(self.chain_lengths)),
            f"chain_length_weights has {len(weights)} entries for "
            f"{len(self.chain_lengths)} chain_lengths; "
            "give one weight a length, or none",
        )
        check(
            not weights or (min(weights) >= 0 and sum(weights) > 0),
            f"chain_length_weights={weights}; weights are >= 0 and not all 0",
        )
