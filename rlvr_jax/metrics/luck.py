"""How much of a step's credit goes to answers that the steps did not earn."""

from collections.abc import Sequence

import numpy as np

from rlvr_jax.rollouts.behavior import UNEARNED_FLAGS
from rlvr_jax.rollouts.graded import GradedCompletion


def lucky_masses(
    graded: Sequence[GradedCompletion], mass_B: np.ndarray
) -> dict[str, float]:
    """Returns shares of the advantage mass on right answers that steps do not justify.

    `wrong_steps_mass`: a step is wrong or missing, or no step is written.
    `guessed_start_mass`: the steps are right, but begin by guessing the answer.
    Returns {} if the task does not analyze completions (`Task.behavior`), or if the
    total mass is 0.
    """
    if mass_B.sum() == 0 or any(completion.strategy is None for completion in graded):
        return {}
    return {
        f"{name}_mass": float(
            mass_B[
                [
                    c.verdict.status == "correct" and not flags.isdisjoint(c.flags)
                    for c in graded
                ]
            ].sum()
            / mass_B.sum()
        )
        for name, flags in UNEARNED_FLAGS.items()
    }


def positive_masses(
    graded: Sequence[GradedCompletion], advantages_B: np.ndarray
) -> dict[str, float]:
    """Returns shares of the positive advantages that reward what was not earned.

    `positive_wrong_steps_mass` and `positive_guessed_start_mass` are `lucky_masses` of
    the advantages above 0. `positive_incorrect_mass` is their share on answers that are
    not correct, which a reward other than the verdict may pay. Returns {} where
    `lucky_masses` does.
    """
    positive_B = np.maximum(advantages_B, 0.0)
    lucky = lucky_masses(graded, positive_B)
    if not lucky:
        return {}
    missed_B = np.array(
        [completion.verdict.status != "correct" for completion in graded]
    )
    incorrect = float(positive_B[missed_B].sum() / positive_B.sum())
    named = {f"positive_{name}": value for name, value in lucky.items()}
    return named | {"positive_incorrect_mass": incorrect}
