"""Text -> verdict: right, wrong, or could not judge."""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rlvr_jax.config import VerifierConfig
from rlvr_jax.types import Problem, Verdict
from rlvr_jax.verifiers import exact, finite_field
from rlvr_jax.verifiers.math import MathVerifier


class Judge:
    """Judges completions by their problem's kind; mathematics in worker processes."""

    def __init__(self, config: VerifierConfig):
        self._math = MathVerifier(config.workers, config.timeout_s)

    def __call__(
        self, problems: Sequence[Problem], completions: Sequence[str]
    ) -> list[Verdict]:
        """Returns a verdict on each completion of the problem beside it."""
        asked = list(zip(problems, completions, strict=True))
        of_math = [(p.gold, text) for p, text in asked if p.kind == "math"]
        math_verdicts = iter(self._math.judge_all(of_math) if of_math else ())
        verdicts = []
        for problem, text in asked:
            if problem.kind == "math":
                verdicts.append(next(math_verdicts))
            elif problem.kind == "exact":
                verdicts.append(exact.judge(problem.gold, text))
            else:
                verdicts.append(finite_field.judge(problem, text))
        return verdicts

    def close(self) -> None:
        """Ends the worker processes."""
        self._math.close()

    def __enter__(self) -> Self:
        """Returns the judge itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes, whatever happened."""
        self.close()
