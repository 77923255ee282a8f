"""Whether luck is why over-hard problems harm: a dose of paid luck, and a control.

Question. docs/findings/luck.md compares two doses, all luck paid and none, over five
seeds: 17.0 points, p = .03. Here the dose is graded. RL on the hard band of
configs/paper/inverted_u.py pays every worked answer 1, and a lucky one (right, with a
wrong or missing step or a guessed start) with probability 0, 1/4, 1/2 or 1. The control
asks whether wrong answers that are paid as often harm as much: for each lucky answer
that the dose would pay, a wrong answer of the same group, drawn at random, is paid
instead. Its expected number is read from the group: dose * lucky answers. So both have
as many rewards of 1 in a group, and the same advantages, on other completions
(rlvr_jax/tasks/finite_field/paid_luck.py).

Arms. luck_0 (no luck paid; dose 0 of both lines), luck_25, luck_50, luck_100, wrong_25,
wrong_50, wrong_100, in GF(7).
Seeds. 10 to 17, which no run has used.

Primary outcome. The slope of `pass@1 gained` on the dose: luck minus wrong.
Test. Least squares within a seed; Student's t over the eight seeds' slopes, two-sided,
5 %. Secondary: each slope alone.

Next: larger fields, where a guess is right less often and luck should harm less. Their
starts must be found first, without RL: they should solve about as much as those of
GF(7) (57 % of held-out problems). After the SFT of GF(7), one of GF(31) solves 3 %.

Power, by stored results. Paying all luck minus none was -27.6, -12.2, -30.1, -3.0 and
-11.9 points (sd 11.5; docs/results/features_by_band.md): eight seeds find a slope of
13.3 with 80 % power. For the difference of slopes the nearest stored numbers are all
luck paid minus a coin on hard problems: 9.1, 10.1, -0.2, 18.6, 15.0 (sd 7.1), which
finds 8.2. If the two slopes varied independently (sd 16.3), only 18.8 would be found.

What counts, with 95 % intervals:
  reproduced    luck's slope is below 0, and so is luck minus wrong: luck harms, and
                more than wrong answers that are paid as often.
  in shape      luck's slope is below 0, and luck minus wrong contains 0: luck is a
                cause, perhaps like any misplaced reward.
  contradicted  luck minus wrong is above 0: luck harms less than wrong answers do. Or
                luck's slope is not below 0, with an interval that begins above -13.3:
                any harm is smaller than we could find.
  inconclusive  anything else.

Compute. 56 runs and 8 starts: about 170 CPU minutes. A run takes 2.4 by stored costs, a
start 4.6; one of each took 7.0 on a busy machine.

Command: bash launch/reproduce.sh luck_dose
Results: docs/findings/luck.md
"""

import dataclasses
from pathlib import Path

from job_jax.command import call_recipe, load_config
from rlvr_jax.config import Arm, Config, Experiment, Slope

_INVERTED_U = Path(__file__).with_name("inverted_u.py")
_REWARD = "rlvr_jax.tasks.finite_field.paid_luck"
_DOSES = {"25": 0.25, "50": 0.5, "100": 1.0}


def get_config() -> Config:
    """Returns the recipe: RL on the hard band, with 16 samples in evaluations."""
    config = load_config(_INVERTED_U, Config)
    return dataclasses.replace(
        config,
        name="luck_dose",
        curriculum=dataclasses.replace(config.curriculum, band="hard"),
        eval=dataclasses.replace(config.eval, num_samples=16),
    )


def get_experiment() -> Experiment:
    """Returns the doses of luck and of wrong answers, and their lines."""
    of_bands = call_recipe(_INVERTED_U, "get_experiment", Experiment)
    return dataclasses.replace(
        of_bands,
        question="Does paying for luck harm, and more than paying for wrong answers?",
        reference="ours; docs/findings/luck.md found 17.0 points over five other seeds",
        outcomes=(
            "pass@1 gained",
            "pass@1 before RL",
            "pass@8 gained",
            "pass@1 gained, easy, fresh",
            "pass@1 gained, medium, fresh",
            "pass@1 gained, hard, fresh",
            "positive mass on wrong steps",
            "positive mass on wrong answers",
            "mass on wrong steps",
            "completion length",
            "groups without signal",
        ),
        baseline="luck_0",
        seed_sd=11.5,
        seed_sd_source="all luck paid minus none, five seeds: -27.6, -12.2, -30.1, "
        "-3.0, -11.9",
        seeds=tuple(range(10, 18)),
        arms={
            name: Arm(
                overrides={"train.reward.names": f"{_REWARD}:{reward}"},
                start="start@0",
            )
            for name, reward in _rewards().items()
        },
        slopes={
            kind: Slope(
                dose_by_arm={"luck_0": 0.0}
                | {f"{kind}_{name}": dose for name, dose in _DOSES.items()},
                minus="" if kind == "wrong" else "wrong",
            )
            for kind in ("wrong", "luck")
        },
    )


def _rewards() -> dict[str, str]:
    """Returns the reward's class by the arm's name."""
    kinds = {"luck": "Luck", "wrong": "Wrong"}
    return {"luck_0": "Luck0"} | {
        f"{kind}_{name}": f"{reward}{name}"
        for kind, reward in kinds.items()
        for name in _DOSES
    }
