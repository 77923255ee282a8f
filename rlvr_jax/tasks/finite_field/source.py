"""The problems of the finite-field task, in graded difficulty, generated on demand.

Every problem is a pure function of its id, which spells out field, mix, split, seed and
index. So an index gives the same problem in any order and in any process. The idea and
the two strategies are from https://arxiv.org/abs/2606.13125; the wording is ours
(docs/lab/finite_field.md).
"""

import hashlib
import itertools
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from job_jax.schema import ConfigError
from rlvr_jax.tasks.finite_field.chains import (
    INVERSE_OP,
    STEP_LABELS,
    Chain,
    ChainKind,
    ChainStep,
    Question,
    chain_answer,
    invert_question,
    numerals,
    solve,
    write_prompt,
)
from rlvr_jax.tasks.finite_field.mix import ChainMix, ProblemType
from rlvr_jax.tasks.finite_field.traces import DIRECT_STRATEGY, write_trace
from rlvr_jax.types import Problem
from rlvr_jax.verifiers.confidence import state_any_confidence

if TYPE_CHECKING:
    from rlvr_jax.tasks.finite_field.task import FiniteFieldTask

Split = Literal["train", "heldout"]

_HELDOUT_MODULUS = 8  # one chain in 8 is held out
# A side that has any chains has at least about 1 in 8 of them. So if hundreds of draws
# miss it, it is empty: only a handful of chains exist, all on the other side.
_MAX_DRAWS = 1000
_INVERTED_TYPE: dict[ProblemType, ProblemType] = {
    "evaluation": "inversion",
    "inversion": "evaluation",
    "composition": "composition",
}
_CHAIN_KINDS: tuple[ChainKind, ...] = ("evaluation", "inversion")


def vocabulary(modulus: int) -> tuple[str, ...]:
    """Returns every word of prompts and traces, `<pad>` and `<eos>` first."""
    return (
        "<pad>",
        "<eos>",
        "evaluate",
        "invert",
        "compose",
        "map",
        "forward",
        "backward",
        "then",
        "answer",
        ":",
        ";",
        "=",
        "?",
        "!",
        *INVERSE_OP.keys(),
        *INVERSE_OP.values(),
        *STEP_LABELS,
        *numerals(modulus),
    )


class ChainSource:
    """Problems of one mix on one side of the split; a grain random-access source.

    Only a hash of the chains' start values and operations decides the side. Kind,
    labels and permutation do not matter: an evaluation and the inversion of the same
    chain have the same worked traces, so they are always on the same side.
    """

    def __init__(
        self, config: "FiniteFieldTask", mix: ChainMix, *, split: Split, seed: int
    ) -> None:
        """Refuses a mix if this side has no problem of some type and length in it."""
        self._config = config
        self._mix = mix
        self._split = split
        self._symbols = numerals(config.modulus)
        self._operations = tuple(
            itertools.product(INVERSE_OP, range(1, config.modulus))
        )
        self._cum_operations = tuple(
            itertools.accumulate(
                mix.operand_decay ** (operand - 1) for _, operand in self._operations
            )
        )
        weights = mix.chain_length_weights or (1.0,) * len(mix.chain_lengths)
        self._cum_weights = tuple(itertools.accumulate(weights))
        tag = hashlib.blake2b(
            repr(_drawn_from(config, mix, weights)).encode(), digest_size=4
        ).hexdigest()
        self._id = f"gf{config.modulus}-{tag}-{split}-{seed}"
        lengths = [n for n, w in zip(mix.chain_lengths, weights, strict=True) if w > 0]
        for type_, steps in itertools.product(mix.types, lengths):
            self._sample_question(random.Random(0), type_, steps)

    def __repr__(self) -> str:
        """Returns the text that grain compares before it resumes from a position."""
        mix = self._mix
        stated = ", ask_confidence=True" if self._config.ask_confidence else ""
        return (
            f"ChainSource({self._id}, strategies={mix.strategies}, "
            f"direct_lengths={mix.direct_lengths}, "
            f"inverted_fraction={mix.inverted_fraction}{stated})"
        )

    def __len__(self) -> int:
        """Returns the number of problems; unlimited means more than any run reads."""
        return self._mix.num_problems or 2**31 - 1

    def __getitem__(self, index: int) -> Problem:
        """Returns problem `index`; IndexError outside 0 .. len - 1."""
        if not 0 <= index < len(self):
            raise IndexError(f"problem {index} lies outside 0..{len(self) - 1}")
        name = f"{self._id}-{index}"
        rng = random.Random(name)  # by SHA-512 of the text: alike in every process
        type_ = self._sample_type(rng)
        steps = rng.choices(self._mix.chain_lengths, cum_weights=self._cum_weights)[0]
        question, values = self._sample_question(rng, type_, steps)
        # Drawn last, so that the question does not depend on it.
        strategies = [rng.choice(self._mix.strategies)] * len(question.chains)
        parent = None
        if rng.random() < self._mix.inverted_fraction:
            inverse = invert_question(question, values)
            found = solve(inverse)
            # The chains of a composition change their order, and perhaps the side. Then
            # it stays as it is.
            if _assign_split(inverse, found) == self._split:
                question, values = inverse, found
                parent, name = name, f"{name}-backward"
                type_ = _INVERTED_TYPE[type_]
        if steps in self._mix.direct_lengths:
            strategies = [DIRECT_STRATEGY[chain.kind] for chain in question.chains]
        solution = write_trace(question, values, strategies)
        if self._config.ask_confidence:
            solution += f" {state_any_confidence(name)}"
        return Problem(
            id=name,
            parent=parent,
            prompt=write_prompt(question),
            gold=question.symbols[chain_answer(question.chains[-1], values[-1])],
            verifier="finite_field",
            source=f"finite_field/GF({self._config.modulus})",
            level=steps,
            type=type_,
            solution=solution,
        )

    def _sample_type(self, rng: random.Random) -> ProblemType:
        types, weights = self._mix.types, self._mix.type_weights
        return rng.choices(types, weights)[0] if weights else rng.choice(types)

    def _sample_question(
        self, rng: random.Random, type_: ProblemType, steps: int
    ) -> tuple[Question, list[list[int]]]:
        """Returns a question on this source's side, with the values of its chains."""
        symbols = self._symbols
        if self._config.symbols == "permuted":
            symbols = tuple(rng.sample(symbols, len(symbols)))
        for _ in range(_MAX_DRAWS):
            question = Question(
                chains=self._sample_chains(rng, type_, steps),
                symbols=symbols,
                permuted=self._config.symbols == "permuted",
            )
            values = solve(question)
            if _assign_split(question, values) == self._split:
                return question, values
        raise ConfigError(
            f"GF({self._config.modulus}) has no {self._split} {type_} with steps="
            f"{steps}: too few chains exist; use more steps or a larger task.modulus"
        )

    def _sample_chains(
        self, rng: random.Random, type_: ProblemType, steps: int
    ) -> tuple[Chain, ...]:
        offset = rng.randrange(len(STEP_LABELS))
        operations = rng.choices(
            self._operations, cum_weights=self._cum_operations, k=steps
        )
        drawn = [
            ChainStep(STEP_LABELS[(offset + i) % len(STEP_LABELS)], op, operand)
            for i, (op, operand) in enumerate(operations)
        ]
        input_value = rng.randrange(self._config.modulus)
        if type_ != "composition":
            return (Chain(kind=type_, input_value=input_value, steps=tuple(drawn)),)
        parts = self._sample_parts(rng, steps)
        starts = [0, *sorted(rng.sample(range(1, steps), parts - 1)), steps]
        kinds = rng.choices(_CHAIN_KINDS, k=parts)
        return tuple(
            Chain(
                kind=kind,
                input_value=None if start else input_value,
                steps=tuple(drawn[start:end]),
            )
            for kind, (start, end) in zip(
                kinds, itertools.pairwise(starts), strict=True
            )
        )

    def _sample_parts(self, rng: random.Random, steps: int) -> int:
        """Returns a number of chains for a composition, at most its number of steps."""
        parts, weights = self._mix.composition_parts, self._mix.composition_part_weights
        counts = [n for n in parts if n <= steps]
        # Without weights there are no shares, and all counts are equally likely.
        shares = [w for n, w in zip(parts, weights, strict=False) if n <= steps]
        if len(counts) == 1:
            return counts[0]
        return rng.choices(counts, shares)[0] if shares else rng.choice(counts)


def _drawn_from(
    config: "FiniteFieldTask", mix: ChainMix, weights: Sequence[float]
) -> tuple[object, ...]:
    """Returns the settings that decide which questions are drawn, for their ids.

    Worked solutions, the inverted fraction and the number of problems do not matter.
    """
    drawn_from: tuple[object, ...] = (
        *(config.symbols, mix.types, mix.chain_lengths, weights, mix.operand_decay),
    )
    # Added only if they change a draw, so that problems without them keep their ids.
    if mix.type_weights:
        drawn_from += (mix.type_weights,)
    if "composition" in mix.types and mix.composition_parts != (2,):
        drawn_from += (mix.composition_parts,)
        if mix.composition_part_weights:
            drawn_from += (mix.composition_part_weights,)
    return drawn_from


def _assign_split(question: Question, values: Sequence[Sequence[int]]) -> Split:
    """Returns a question's side of the split, which does not depend on its symbols."""
    content = bytearray([question.modulus])
    for chain, chain_values in zip(question.chains, values, strict=True):
        content += bytes([len(chain.steps), chain_values[0]])
        for _, op, operand in chain.steps:
            content += bytes([ord(op), operand])
    digest = hashlib.blake2b(content, digest_size=1).digest()
    return "train" if digest[0] % _HELDOUT_MODULUS else "heldout"
