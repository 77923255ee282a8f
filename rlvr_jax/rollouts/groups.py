"""Groups of completions, one for each problem, and the problems' outcomes."""

import collections
import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Int

from rlvr_jax.data import Difficulty, ProblemOutcome
from rlvr_jax.rollouts.graded import GradedCompletion
from rlvr_jax.types import BANDS, Prompts, Rollouts


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProblemGroups:
    """P problems, each with its G graded completions. Rollouts are in NumPy."""

    problem_index: Int[np.ndarray, " P"]  # within the pool, -1 for problems outside it
    rollouts: Rollouts
    graded: list[GradedCompletion]

    def __len__(self) -> int:
        """Returns P."""
        return len(self.problem_index)

    def completions_of(self, p: int) -> list[GradedCompletion]:
        """Returns the completions of problem p."""
        G = len(self.graded) // len(self)
        return self.graded[p * G : (p + 1) * G]

    def has_signal(self, p: int) -> bool:
        """Returns whether the group holds a correct and an incorrect completion.

        Unverified completions do not count as either.
        """
        statuses = {graded.verdict.status for graded in self.completions_of(p)}
        return {"correct", "incorrect"} <= statuses

    def count_with_signal(self) -> int:
        """Returns how many groups have a signal."""
        return sum(self.has_signal(p) for p in range(len(self)))


def select_groups(
    rounds: Sequence[ProblemGroups],
    count: int,
    rng: np.random.Generator,
    is_preferred: Callable[[ProblemGroups, int], bool] = ProblemGroups.has_signal,
) -> ProblemGroups:
    """Returns `count` groups of several sampling rounds, preferred ones before others.

    Among equals it chooses at random: a batch may be in order of difficulty. The
    selected groups keep the order in which they were sampled. A single round is
    returned unchanged.
    """
    if len(rounds) == 1:
        return rounds[0]
    positions = [(r, p) for r, groups in enumerate(rounds) for p in range(len(groups))]
    shuffled = [positions[i] for i in rng.permutation(len(positions))]
    ranked = sorted(shuffled, key=lambda rp: not is_preferred(rounds[rp[0]], rp[1]))
    selected = sorted(ranked[:count])
    return ProblemGroups(
        problem_index=np.array([rounds[r].problem_index[p] for r, p in selected]),
        rollouts=_select_rollouts(
            [groups.rollouts for groups in rounds],
            np.array([positions.index(position) for position in selected]),
            num_groups=len(positions),
        ),
        graded=[graded for r, p in selected for graded in rounds[r].completions_of(p)],
    )


def _select_rollouts(
    rounds: Sequence[Rollouts], index_Q: np.ndarray, *, num_groups: int
) -> Rollouts:
    """Returns groups `index_Q` of all rounds, with prompts padded to one width."""
    width = max(rollouts.prompts.tokens.shape[1] for rollouts in rounds)

    def pad(tokens_PS: np.ndarray) -> np.ndarray:
        return np.pad(tokens_PS, ((0, 0), (0, width - tokens_PS.shape[1])))

    def select(arrays: Sequence[np.ndarray]) -> np.ndarray:
        joined = np.concatenate(arrays)
        grouped = joined.reshape(num_groups, -1, *joined.shape[1:])[index_Q]
        return grouped.reshape(-1, *joined.shape[1:])

    masks = [r.policy_mask for r in rounds if r.policy_mask is not None]
    return Rollouts(
        prompts=Prompts(
            tokens=select([pad(rollouts.prompts.tokens) for rollouts in rounds]),
            lengths=select([rollouts.prompts.lengths for rollouts in rounds]),
            uid=select([rollouts.prompts.uid for rollouts in rounds]),
        ),
        tokens=select([rollouts.tokens for rollouts in rounds]),
        lengths=select([rollouts.lengths for rollouts in rounds]),
        logprobs=select([rollouts.logprobs for rollouts in rounds]),
        finished=select([rollouts.finished for rollouts in rounds]),
        weight_version=rounds[0].weight_version,
        slot_steps=None,  # it counts all groups, not only the selected ones
        policy_mask=select(masks) if masks else None,
    )


def problem_outcomes(groups: ProblemGroups) -> list[ProblemOutcome]:
    """Returns the outcome of each problem in the pool; others are skipped.

    The entropy of answers counts them by value (`Verifier.answer_value`), and all
    unreadable answers as the same answer.
    """
    outcomes = []
    for p, index in enumerate(groups.problem_index.tolist()):
        if index < 0:
            continue
        verified = [
            graded
            for graded in groups.completions_of(p)
            if graded.verdict.status != "unverified"
        ]
        counts = collections.Counter(graded.answer_value for graded in verified)
        shares = [count / len(verified) for count in counts.values()]
        outcomes.append(
            ProblemOutcome(
                problem_index=index,
                num_graded=len(verified),
                num_correct=sum(one.verdict.status == "correct" for one in verified),
                answer_entropy=sum(-share * math.log(share) for share in shares),
            )
        )
    return outcomes


def merge_outcomes(outcomes: Sequence[ProblemOutcome]) -> list[ProblemOutcome]:
    """Returns one outcome per problem: sums of counts, weighted means of entropies.

    The weights are numbers of verdicts. A step may sample a problem twice, but both
    groups are from the same policy.
    """
    by_problem: dict[int, list[ProblemOutcome]] = {}
    for outcome in outcomes:
        by_problem.setdefault(outcome.problem_index, []).append(outcome)
    totals = {i: sum(o.num_graded for o in same) for i, same in by_problem.items()}
    return [
        ProblemOutcome(
            problem_index=index,
            num_graded=totals[index],
            num_correct=sum(o.num_correct for o in same),
            answer_entropy=sum(o.answer_entropy * o.num_graded for o in same)
            / max(totals[index], 1),
        )
        for index, same in by_problem.items()
    ]


def add_history_flags(
    groups: ProblemGroups,
    prior: Difficulty,
    bands_P: Int[np.ndarray, " P"],
    posterior_P: Int[np.ndarray, " P"],
) -> list[GradedCompletion]:
    """Returns the completions with their problem's bands and with history flags.

    `prior` is the difficulty of these P problems before the step. `bands_P` are their
    telemetry bands and `posterior_P` their posterior bands at that time (indices into
    BANDS, -1 for none). The flags are `lucky_guess`, `first_success` (of a problem that
    was hard before RL and never solved since) and `forgotten`.
    """
    flagged = []
    num_since_P = prior.correct - prior.initial_correct
    for p in range(len(groups)):
        group = groups.completions_of(p)
        band, posterior = (
            BANDS[index] if index >= 0 else None
            for index in (bands_P[p], posterior_P[p])
        )
        num_correct = sum(graded.verdict.status == "correct" for graded in group)
        num_verified = sum(graded.verdict.status != "unverified" for graded in group)
        was_solved = prior.last_pass_rate[p] >= 0.5
        is_lost = was_solved and num_verified > 0 and num_correct < 0.5 * num_verified
        of_success = {
            # Once the posterior has settled on another band, success is not luck.
            "lucky_guess": band == "hard" and posterior in ("hard", "unknown"),
            "first_success": band == "hard" and num_since_P[p] == 0,
        }
        added = {
            "correct": tuple(flag for flag, holds in of_success.items() if holds),
            "incorrect": ("forgotten",) if is_lost else (),
            "unverified": (),
        }
        flagged += [
            dataclasses.replace(
                graded,
                flags=graded.flags + added[graded.verdict.status],
                band=band,
                posterior_band=posterior,
            )
            for graded in group
        ]
    return flagged
