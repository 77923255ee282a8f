"""Problems that every completion failed are sampled again in the same step."""

import dataclasses
from collections.abc import Sequence

from rlvr_jax.config import DynamicSamplingConfig
from rlvr_jax.rollouts.groups import ProblemGroups
from rlvr_jax.types import Problem


@dataclasses.dataclass(frozen=True, kw_only=True)
class IncorrectAgain(DynamicSamplingConfig):
    """Samples a problem again until it is solved once; new problems fill the batch.

    The next batch has a new group for each problem of the step without a correct
    completion. The idea is from https://arxiv.org/abs/2609.13443, reported by readers.
    There the new completions enlarge the group; here they are another group, because
    groups of one size share a program (ours).
    """

    def is_enough(self, rounds: Sequence[ProblemGroups], batch_size: int) -> bool:
        """Returns whether each problem of the step has a correct completion."""
        return not self.problems_again(rounds, batch_size)

    def problems_again(
        self, rounds: Sequence[ProblemGroups], batch_size: int
    ) -> list[tuple[int, Problem]]:
        """Returns the problems without a correct completion, at most `batch_size`."""
        unsolved: dict[str, tuple[int, Problem]] = {}
        solved = set()
        for groups in rounds:
            for p, index in enumerate(groups.problem_index.tolist()):
                completions = groups.completions_of(p)
                problem = completions[0].problem
                unsolved[problem.id] = (index, problem)
                if any(one.verdict.status == "correct" for one in completions):
                    solved.add(problem.id)
        left = [again for name, again in unsolved.items() if name not in solved]
        return left[:batch_size]
