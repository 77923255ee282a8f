"""An experiment: variants ("arms") of a recipe, run over seeds to answer a question.

A recipe with an experiment defines `get_experiment()` next to `get_config()`.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Self

from job_jax.schema import check, did_you_mean

# Values of --config.NAME flags: {"curriculum.band": "hard"}. In an arm's values,
# {start} means the workdir that it starts from: {"probe.sae_path": "{start}/sae"}.
Overrides = Mapping[str, str]

START = "start"
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_STEP = re.compile(r"0|[1-9][0-9]*")
# Folders that an experiment's directory holds next to its runs.
RESULT_FOLDER, LOG_FOLDER = "result", "log"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arm:
    """Runs, one for each seed, that change `overrides` of the run they start from.

    `start` names this run, of the same seed:

      - "NAME": the policy after SFT of the start NAME;
      - "NAME@0": the start NAME after all its stages (rlvr_jax.fork);
      - "NAME@STEP": the earlier arm NAME after that step of RL;
      - "": none; the runs begin as the recipe does.

    `published` is the paper's result for this arm.
    """

    overrides: Overrides = dataclasses.field(default_factory=dict)
    start: str = START
    published: str = ""

    @property
    def parent(self) -> str:
        """Returns the name of the start or arm that it starts from, "" for none."""
        return self.start.partition("@")[0]

    @property
    def fork_step(self) -> int | None:
        """Returns the step of RL at which it forks from its parent, None if no fork.

        Raises ValueError if the text after the @ is not a number.
        """
        _, is_fork, step = self.start.partition("@")
        return int(step) if is_fork else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Slope:
    """A line through arms, which shows how each outcome changes with a dose.

    `dose_by_arm` has at least two different doses. For each seed a line is fitted by
    least squares, and its slope is the change of an outcome per unit of dose. `minus`
    names an earlier slope; the difference from it is then shown too.
    """

    dose_by_arm: Mapping[str, float]  # by the arm's name
    minus: str = ""  # "": no difference is taken


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment:
    """A question, and the runs that answer it: every arm for every seed.

    `outcomes` are the measures, named as in the tables of `analysis compare` ("pass@1",
    "pass@1, hard, fresh"); the first one decides the question. Differences are taken
    from the arm `baseline`.

    `seed_sd` is the standard deviation, over seeds, of the difference between two arms
    in the first outcome. It comes from earlier runs (`seed_sd_source`), is in points if
    the outcome is a fraction, and determines which differences can be detected.

    `starts` are the runs that arms start from: their names and overrides, which also
    hold for the arms that start from them. Each start runs the `start_stages`, which
    include SFT at least; the arms begin with its policy.

    `reduced` are the overrides of a trial that takes minutes, with the first two seeds;
    no arm changes a setting that `reduced` sets. Among `feature_arms`, by default all
    arms, "features of its own" are those that no other of these arms gained.

    `slopes` are lines through arms, by name. If there are any, the experiment is
    decided by the slopes of its first outcome. `corrected` are outcomes whose
    differences from the baseline are also shown with p-values, corrected by Holm for
    the number of arms. `pairs` are outcomes that are drawn against each other, a dot
    for each run, with their rank correlation over arms.
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
    slopes: Mapping[str, Slope] = dataclasses.field(default_factory=dict)
    corrected: tuple[str, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        """Raises ConfigError if it could not run, or could not answer its question."""
        self._check_names()
        self._check_overrides()
        before_rl = ("sft", "difficulty", "probe")
        check(
            self.start_stages in (before_rl[:1], before_rl[:2], before_rl),
            f"start_stages={self.start_stages}; give sft, or the first two or three of "
            f"{', '.join(before_rl)}",
        )
        check(len(self.outcomes) > 0, "outcomes is empty; name at least one measure")
        paired = [outcome for pair in self.pairs for outcome in pair]
        for field, named in (("corrected", self.corrected), ("pairs", paired)):
            for outcome in named:
                check(
                    outcome in self.outcomes,
                    f"{field}: {outcome!r} is not an outcome"
                    f"{did_you_mean(outcome, self.outcomes)}",
                )
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
                f"{name!r} cannot name an arm or a start, because it becomes a "
                "directory; use a-z, 0-9 and _, begin with a letter, and avoid "
                f"{RESULT_FOLDER!r} and {LOG_FOLDER!r}",
            )
        both = ", ".join(sorted(self.starts.keys() & self.arms))
        check(not both, f"{both}: names a start and an arm; give them different names")
        check(
            self.baseline in self.arms,
            f"baseline={self.baseline!r} is not an arm"
            f"{did_you_mean(self.baseline, [*self.arms])}",
        )
        for name in self.feature_arms:
            check(
                name in self.arms,
                f"feature_arms: {name!r} is not an arm"
                f"{did_you_mean(name, [*self.arms])}",
            )
        earlier: list[str] = []
        for name, arm in self.arms.items():
            self._check_start(name, arm, earlier)
            earlier.append(name)
        self._check_slopes()

    def _check_slopes(self) -> None:
        earlier: list[str] = []
        for name, slope in self.slopes.items():
            for arm in slope.dose_by_arm:
                check(
                    arm in self.arms,
                    f"slope {name}: {arm!r} is not an arm"
                    f"{did_you_mean(arm, [*self.arms])}",
                )
            check(
                len({*slope.dose_by_arm.values()}) > 1,
                f"slope {name}: dose_by_arm={dict(slope.dose_by_arm)}; give two "
                "different doses",
            )
            check(
                not slope.minus or slope.minus in earlier,
                f"slope {name}: minus={slope.minus!r} is not an earlier slope"
                f"{did_you_mean(slope.minus, earlier)}",
            )
            earlier.append(name)

    def _check_start(self, name: str, arm: Arm, earlier: list[str]) -> None:
        """Refuses a start that an arm cannot start from."""
        where = f"arm {name} starts from {arm.start!r}"
        _, is_fork, step = arm.start.partition("@")
        check(
            not is_fork or _STEP.fullmatch(step) is not None,
            f"{where}; after the @ give a step of RL, such as 40",
        )
        if is_fork and step != "0":
            check(
                arm.parent in earlier,
                f"{where}, which is not an earlier arm"
                f"{did_you_mean(arm.parent, earlier)}",
            )
        else:
            check(
                not arm.start or arm.parent in self.starts,
                f"{where}, which is not a start"
                f"{did_you_mean(arm.parent, [*self.starts])}",
            )

    def _check_overrides(self) -> None:
        of_starts = [(name, given, "") for name, given in self.starts.items()]
        of_arms = [(name, arm.overrides, arm.start) for name, arm in self.arms.items()]
        for name, overrides, start in (*of_starts, *of_arms):
            check(
                "seed" not in overrides,
                f"{name} sets the seed; set it for all arms in `seeds`",
            )
            check(
                bool(start) or "{start}" not in "".join(overrides.values()),
                f"{name} uses {{start}} but starts from none; only an arm with a start "
                "may use it",
            )

    def to_json(self) -> dict[str, Any]:
        """Returns the experiment as plain JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Returns the experiment that `to_json` wrote."""
        arms = {name: Arm(**arm) for name, arm in data["arms"].items()}
        names = ("outcomes", "seeds", "start_stages", "feature_arms", "corrected")
        lists = {name: tuple(data.get(name, ())) for name in names}
        given = data.get("slopes", {}).items()
        slopes = {name: Slope(**slope) for name, slope in given}
        pairs = tuple((first, second) for first, second in data.get("pairs", ()))
        return cls(**{**data, **lists, "arms": arms, "slopes": slopes, "pairs": pairs})
