"""The task `finite_field`: generated arithmetic with distinguishable strategies."""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar, Literal

from rlvr_jax.config.task import Behavior, Stage, Task
from rlvr_jax.tasks.finite_field.chains import INVERSE_OP, parse_prompt
from rlvr_jax.tasks.finite_field.mix import ChainMix, Prime
from rlvr_jax.tasks.finite_field.source import ChainSource, vocabulary
from rlvr_jax.tasks.finite_field.traces import (
    FACTORS,
    label_words,
    parse_trace,
    step_start_value,
)
from rlvr_jax.types import Problem
from rlvr_jax.verifiers.confidence import STATEMENTS, strip_confidence

_EVAL_SEED = 0  # every run has the same held-out set, so runs can be compared
_MAX_ANSWERS = 2  # an answer and its restatement


@dataclasses.dataclass(frozen=True, kw_only=True)
class FiniteFieldTask(Task):
    """Arithmetic in GF(modulus): generated, exact, graded (arXiv 2606.13125)."""

    checks_golds: ClassVar[bool] = False
    strategies: ClassVar[tuple[str, ...]] = ("forward", "backward", "mixed", "none")
    factors: ClassVar[tuple[str, ...]] = FACTORS

    modulus: Prime = 7  # numbers are 0 .. modulus - 1
    symbols: Literal["fixed", "permuted"] = "fixed"  # permuted: map given in the prompt
    ask_confidence: bool = False  # solutions end in <confidence>q</confidence> (RLCR)
    sft: ChainMix = ChainMix()
    train: ChainMix = ChainMix(chain_lengths=(4, 5, 6))
    eval: ChainMix = ChainMix(chain_lengths=(2, 3, 4, 5, 6))

    def problems(self, stage: Stage, *, seed: int) -> ChainSource:
        """Returns the stage's problems; in `eval` they are the same for every seed."""
        if stage == "eval":
            return ChainSource(self, self.eval, split="heldout", seed=_EVAL_SEED)
        mix = self.sft if stage == "sft" else self.train
        return ChainSource(self, mix, split="train", seed=seed)

    def describe(self) -> str:
        """Returns a phrase that names the field."""
        return f"arithmetic in GF({self.modulus})"

    def vocabulary(self) -> tuple[str, ...]:
        """Returns every word of prompts and solutions."""
        words = vocabulary(self.modulus)
        return (*words, *STATEMENTS) if self.ask_confidence else words

    def behavior(
        self, problem: Problem, completion: str, *, is_correct: bool
    ) -> Behavior:
        """Returns the strategy, and flags that are read from the written steps."""
        completion = strip_confidence(completion)
        trace = parse_trace(problem.prompt, completion, modulus=self.modulus)
        is_sound = trace.complete and trace.first_error is None
        is_bare = not trace.step_correct and trace.answer is not None
        flags = {
            "bare_answer": is_bare,
            "skipped_steps": is_correct and not is_sound and not is_bare,
            "guessed_start": is_correct and is_sound and not trace.consistent_start,
            # The steps reach the correct answer, but the completion states another.
            "no_aggregation": is_sound and trace.consistent_start and not is_correct,
            "repeated_answer": completion.split().count("answer") > _MAX_ANSWERS,
        }
        return Behavior(strategy=trace.strategy, flags=flags)

    def step_correctness(
        self, problem: Problem, completion: str
    ) -> list[tuple[str, bool]]:
        """Returns whether each written step is correct, by operation and start value.

        The operation is the expected one, even if the completion wrote another.
        Completions with several parts are skipped, and so are surplus steps.
        """
        completion = strip_confidence(completion)
        words = completion.split()
        chain, *others = parse_prompt(problem.prompt, modulus=self.modulus).chains
        if others or "then" in words:
            return []
        trace = parse_trace(problem.prompt, completion, modulus=self.modulus)
        operations = [step.op for step in chain.steps]
        if trace.strategy == "backward":
            operations = [INVERSE_OP[op] for op in reversed(operations)]
        steps = zip(trace.step_correct, operations, strict=False)
        return [
            (name, is_correct)
            for index, (is_correct, op) in enumerate(steps)
            for name in (f"due {op}", f"from {step_start_value(words, index)}")
        ]

    def token_factors(
        self, problem: Problem, words: Sequence[str]
    ) -> dict[str, list[int]]:
        """Returns step, operation, value and direction of every word."""
        symbols = parse_prompt(problem.prompt, modulus=self.modulus).symbols
        return label_words(words, symbols)
