"""An experiment: arms of a recipe that, over seeds, answer a question.

A recipe that has one defines `get_experiment()` beside `get_config()`.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Self

from job_jax.schema import check, did_you_mean

# What follows --config. of each: {"curriculum.band": "hard"}. In an arm's {start} is
# the workdir that it goes on from: {"probe.sae_path": "{start}/sae"}.
Overrides = Mapping[str, str]

START = "start"
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_STEP = re.compile(r"0|[1-9][0-9]*")
# What the directory of an experiment holds beside its runs.
RESULT_FOLDER, LOG_FOLDER = "result", "log"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arm:
    """Runs that differ from what they go on from in `overrides`, one a seed.

    `start` says what that is, in the run of the same seed: of a start, what SFT left;
    "NAME@0", all that a start has done (rlvr_jax.fork); "NAME@STEP", what the run of an
    earlier arm was after that step of RL. With "" they begin as the recipe does.
    `published` says what came of it in the paper.
    """

    overrides: Overrides = dataclasses.field(default_factory=dict)
    start: str = START
    published: str = ""

    @property
    def parent(self) -> str:
        """Returns the name of the start or arm that it goes on from, "" for none."""
        return self.start.partition("@")[0]

    @property
    def fork_step(self) -> int | None:
        """Returns the step of RL up to which it is its parent, None if it is no fork.

        Raises ValueError where what follows the @ is no number.
        """
        _, is_fork, step = self.start.partition("@")
        return int(step) if is_fork else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment:
    """A question, and the runs that answer it: every arm for every seed.

    `outcomes` are what is measured, as the tables of `analysis compare` call it
    ("pass@1", "pass@1, hard"); by the first the question is decided. Differences are
    from the arm `baseline`. `seed_sd` is the standard deviation, from seed to seed, of
    two arms' difference in the first outcome where it was seen before
    (`seed_sd_source`), in points where that is a fraction: what can be found follows
    from it. `starts` are the runs that arms go on from, by name, and their overrides,
    which hold for these arms too; of each the `start_stages` are run, SFT at least,
    whose policy the arms begin with. `reduced` are the overrides of a trial in minutes,
    for the first two seeds; what they set, no arm changes. Of `feature_arms`, all arms
    where it is (), "features of its own" are those that no other of them gained.
    """

    question: str
    reference: str
    arms: Mapping[str, Arm]
    baseline: str
    outcomes: tuple[str, ...]
    seed_sd: float
    seed_sd_source: str
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    starts: Mapping[str, Overrides] = dataclasses.field(
        default_factory=lambda: {START: {}}
    )
    start_stages: tuple[str, ...] = ("sft",)
    reduced: Overrides = dataclasses.field(default_factory=dict)
    feature_arms: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raises ConfigError where it could not be run, or nothing be told of it."""
        self._check_names()
        self._check_overrides()
        before_rl = ("sft", "difficulty", "probe")
        check(
            self.start_stages in (before_rl[:1], before_rl[:2], before_rl),
            f"start_stages={self.start_stages}; give sft, or more of what comes before "
            f"RL: {', '.join(before_rl)}",
        )
        check(len(self.outcomes) > 0, "outcomes is empty; name what is measured")
        check(self.seed_sd > 0, f"seed_sd={self.seed_sd}; give a number above 0")
        check(
            0 < len(self.seeds) == len(set(self.seeds)),
            f"seeds={self.seeds}; give one or more, each once",
        )

    def _check_names(self) -> None:
        for name in (*self.starts, *self.arms):
            check(
                _NAME.fullmatch(name) is not None
                and name not in (RESULT_FOLDER, LOG_FOLDER),
                f"{name!r} is no name of an arm or a start: a-z, 0-9 and _, from a "
                f"letter, and neither {RESULT_FOLDER!r} nor {LOG_FOLDER!r}; it becomes "
                "a directory",
            )
        both = ", ".join(sorted(self.starts.keys() & self.arms))
        check(not both, f"{both}: a start and an arm; give them different names")
        check(
            self.baseline in self.arms,
            f"baseline={self.baseline!r} is no arm"
            f"{did_you_mean(self.baseline, [*self.arms])}",
        )
        for name in self.feature_arms:
            check(
                name in self.arms,
                f"feature_arms: {name!r} is no arm{did_you_mean(name, [*self.arms])}",
            )
        earlier: list[str] = []
        for name, arm in self.arms.items():
            self._check_start(name, arm, earlier)
            earlier.append(name)

    def _check_start(self, name: str, arm: Arm, earlier: list[str]) -> None:
        """Refuses what an arm cannot go on from."""
        where = f"arm {name} goes on from {arm.start!r}"
        _, is_fork, step = arm.start.partition("@")
        check(
            not is_fork or _STEP.fullmatch(step) is not None,
            f"{where}; behind the @ give a step of RL, such as 40",
        )
        if is_fork and step != "0":
            check(
                arm.parent in earlier,
                f"{where}, which is no earlier arm{did_you_mean(arm.parent, earlier)}",
            )
        else:
            check(
                not arm.start or arm.parent in self.starts,
                f"{where}, which is no start{did_you_mean(arm.parent, [*self.starts])}",
            )

    def _check_overrides(self) -> None:
        of_starts = [(name, given, "") for name, given in self.starts.items()]
        of_arms = [(name, arm.overrides, arm.start) for name, arm in self.arms.items()]
        for name, overrides, start in (*of_starts, *of_arms):
            check(
                "seed" not in overrides,
                f"{name} sets the seed; name seeds by `seeds`, for all arms",
            )
            check(
                bool(start) or "{start}" not in "".join(overrides.values()),
                f"{name} names {{start}} and goes on from none; only an arm with a "
                "start has one",
            )

    def to_json(self) -> dict[str, Any]:
        """Returns the experiment as plain JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Returns the experiment that `to_json` wrote."""
        arms = {name: Arm(**arm) for name, arm in data["arms"].items()}
        names = ("outcomes", "seeds", "start_stages", "feature_arms")
        lists = {name: tuple(data.get(name, ())) for name in names}
        return cls(**{**data, **lists, "arms": arms})
