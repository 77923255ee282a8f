"""The finite-field world: problems of graded difficulty, drawn lazily.

Every problem is a pure function of its id, which spells what was drawn from (field,
mix, split, seed, index): any index can be asked for in any order, in any process, and
gives the same problem. The idea and the two strategies: https://arxiv.org/abs/2606.13125;
the wording is ours (docs/finite_field.md).
"""

import hashlib
import itertools
import random
from collections.abc import Sequence
from typing import Literal

from job_jax.schema import ConfigError
from rlvr_jax.config import ChainMix, FiniteFieldConfig, ProblemType
from rlvr_jax.tasks.chains import (
    LABELS,
    UNDO,
    Chain,
    Kind,
    Question,
    Step,
    answer,
    backward,
    numerals,
    solve,
    write_prompt,
)
from rlvr_jax.tasks.traces import write_trace
from rlvr_jax.types import Problem

Split = Literal["train", "heldout"]

_HELDOUT_SHARE = 8  # one chain in 8 is held out
# A side that holds any chain at all holds about 1 in 8 of them, so hundreds of draws
# that miss it mean that it is empty: a handful of chains exist, all on the other side.
_MAX_DRAWS = 1000
_BACKWARD: dict[ProblemType, ProblemType] = {
    "evaluation": "inversion",
    "inversion": "evaluation",
    "composition": "composition",
}
_KINDS: tuple[Kind, ...] = ("evaluation", "inversion")


def vocabulary(modulus: int) -> tuple[str, ...]:
    """Returns every word of prompts and traces, `<pad>` and `<eos>` first."""
    return (
        *("<pad>", "<eos>"),
        *("evaluate", "invert", "compose", "map", "forward", "backward"),
        *("then", "answer", ":", ";", "=", "?", "!"),
        *UNDO.keys(),
        *UNDO.values(),
        *LABELS,
        *numerals(modulus),
    )


class ChainSource:
    """Problems of one mix and one side of the split; a grain random-access source.

    The side is decided by a hash of the chains' start values and operations alone.
    Kind, labels and permutation have no say: an evaluation and the inversion of the
    same chain, whose worked traces are the same text, are never on different sides.
    """

    def __init__(
        self, config: FiniteFieldConfig, mix: ChainMix, *, split: Split, seed: int
    ) -> None:
        """Refuses a mix that asks for problems of which this side has none."""
        self._config = config
        self._mix = mix
        self._split = split
        self._symbols = numerals(config.modulus)
        self._operations = tuple(itertools.product(UNDO, range(1, config.modulus)))
        self._cum_operations = tuple(
            itertools.accumulate(
                mix.operand_decay ** (operand - 1) for _, operand in self._operations
            )
        )
        weights = mix.step_weights or (1.0,) * len(mix.steps)
        self._cum_weights = tuple(itertools.accumulate(weights))
        # Worked solutions are no part of the id, nor is the share asked backward: mixes
        # that differ in these alone draw the same questions.
        asked = repr((config.symbols, mix.types, mix.steps, weights, mix.operand_decay))
        tag = hashlib.blake2b(asked.encode(), digest_size=4).hexdigest()
        self._id = f"gf{config.modulus}-{tag}-{split}-{seed}"
        lengths = [n for n, w in zip(mix.steps, weights, strict=True) if w > 0]
        for type_, steps in itertools.product(mix.types, lengths):
            self._draw(random.Random(0), type_, steps)

    def __repr__(self) -> str:
        """Returns what grain compares before it resumes from a saved position."""
        mix = self._mix
        told = f"strategies={mix.strategies}, backward_share={mix.backward_share}"
        return f"ChainSource({self._id}, {told})"

    def __len__(self) -> int:
        """Returns the number of indices, far more than any run will read."""
        return 2**31 - 1

    def __getitem__(self, index: int) -> Problem:
        """Returns problem `index`; IndexError outside 0 .. len - 1."""
        if not 0 <= index < len(self):
            raise IndexError(f"problem {index} lies outside 0..{len(self) - 1}")
        name = f"{self._id}-{index}"
        rng = random.Random(name)  # seeded by SHA-512 of the text, in every process
        type_ = rng.choice(self._mix.types)
        steps = rng.choices(self._mix.steps, cum_weights=self._cum_weights)[0]
        question, solved = self._draw(rng, type_, steps)
        # Drawn last, so that the question does not depend on it.
        strategy = rng.choice(self._mix.strategies)
        parent = None
        if rng.random() < self._mix.backward_share:
            question, parent, name = (
                backward(question, solved),
                name,
                f"{name}-backward",
            )
            solved = solve(question)
            type_ = _BACKWARD[type_]
        return Problem(
            id=name,
            parent=parent,
            prompt=write_prompt(question),
            gold=question.symbols[answer(question.chains[-1], solved[-1])],
            kind="finite_field",
            source=f"finite_field/GF({self._config.modulus})",
            level=steps,
            type=type_,
            solution=write_trace(question, solved, strategy=strategy),
        )

    def _draw(
        self, rng: random.Random, type_: ProblemType, steps: int
    ) -> tuple[Question, list[list[int]]]:
        """Returns a question on this source's side, with its trajectories."""
        symbols = self._symbols
        if self._config.symbols == "permuted":
            symbols = tuple(rng.sample(symbols, len(symbols)))
        for _ in range(_MAX_DRAWS):
            question = Question(
                chains=self._draw_chains(rng, type_, steps),
                symbols=symbols,
                permuted=self._config.symbols == "permuted",
            )
            solved = solve(question)
            if _side(question, solved) == self._split:
                return question, solved
        raise ConfigError(
            f"GF({self._config.modulus}) has no {self._split} {type_} with steps="
            f"{steps}: too few chains exist; use more steps or a larger task.modulus"
        )

    def _draw_chains(
        self, rng: random.Random, type_: ProblemType, steps: int
    ) -> tuple[Chain, ...]:
        offset = rng.randrange(len(LABELS))
        operations = rng.choices(
            self._operations, cum_weights=self._cum_operations, k=steps
        )
        drawn = [
            Step(LABELS[(offset + i) % len(LABELS)], op, operand)
            for i, (op, operand) in enumerate(operations)
        ]
        given = rng.randrange(self._config.modulus)
        if type_ != "composition":
            return (Chain(kind=type_, given=given, steps=tuple(drawn)),)
        cut = rng.randrange(1, steps)
        first, second = rng.choices(_KINDS, k=2)
        return (
            Chain(kind=first, given=given, steps=tuple(drawn[:cut])),
            Chain(kind=second, given=None, steps=tuple(drawn[cut:])),
        )


def _side(question: Question, solved: Sequence[Sequence[int]]) -> Split:
    """Returns the side of the split on which a question lies, whatever its symbols."""
    content = bytearray([question.modulus])
    for chain, values in zip(question.chains, solved, strict=True):
        content += bytes([len(chain.steps), values[0]])
        for _, op, operand in chain.steps:
            content += bytes([ord(op), operand])
    digest = hashlib.blake2b(content, digest_size=1).digest()
    return "train" if digest[0] % _HELDOUT_SHARE else "heldout"
