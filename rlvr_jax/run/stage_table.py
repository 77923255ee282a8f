"""The stages of a run, in order. All other lists of stages come from this one."""

import dataclasses
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from job_jax.files import latest_step
from job_jax.processes import broadcast
from rlvr_jax.config import Config
from rlvr_jax.run.workdir import DIFFICULTY_FILE, Workdir


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stage:
    """A stage: where to find its code, and when it must run.

    `function` is "module:name", imported when the stage runs. `disabled_by` returns the
    setting that turns the stage off, "" if it is on. `num_steps` is None for stages
    whose steps the config does not count. `has_results` returns whether the workdir
    holds the stage's results, apart from checkpoints.
    """

    function: str
    disabled_by: Callable[[Config], str] = lambda config: ""
    num_steps: Callable[[Config], int] | None = None
    has_results: Callable[[Workdir], bool] = lambda workdir: False

    def load_function(self) -> Callable[[Any], None]:
        """Imports and returns the stage's function, which takes the run's context."""
        module, _, name = self.function.partition(":")
        return vars(importlib.import_module(module))[name]


def _has_summary(key: str, stage: str) -> Callable[[Workdir], bool]:
    return lambda workdir: stage in workdir.read_summary().get(key, {})


def _has_difficulties(workdir: Workdir) -> bool:
    return (workdir.path / DIFFICULTY_FILE).exists()


def _has_begun(stage: str, workdir: Workdir) -> bool:
    return latest_step(workdir.checkpoints / stage) is not None


STAGES: Mapping[str, Stage] = {
    "sft": Stage(
        function="rlvr_jax.stages.sft:sft",
        disabled_by=lambda config: "" if config.sft.steps else "sft.steps=0",
        num_steps=lambda config: config.sft.steps,
        has_results=_has_summary("stages", "sft"),
    ),
    "difficulty": Stage(
        function="rlvr_jax.stages.difficulty:estimate_difficulty",
        disabled_by=lambda config: (
            "" if config.difficulty.num_samples else "difficulty.num_samples=0"
        ),
        has_results=lambda workdir: (
            "difficulty" in workdir.read_summary()
            # `train` writes it again at its end, with more evidence on the problems.
            and (_has_difficulties(workdir) or _has_begun("train", workdir))
        ),
    ),
    "probe": Stage(
        function="rlvr_jax.stages.probe:probe",
        disabled_by=lambda config: "" if config.probe.enabled else "probe.name=none",
        has_results=lambda workdir: "probe" in workdir.read_summary(),
    ),
    "train": Stage(
        function="rlvr_jax.stages.train:train",
        disabled_by=lambda config: "" if config.train.steps else "train.steps=0",
        num_steps=lambda config: config.train.steps,
        has_results=lambda workdir: (
            _has_summary("stages", "train")(workdir) and _has_difficulties(workdir)
        ),
    ),
    "eval": Stage(
        function="rlvr_jax.stages.eval:evaluate",
        has_results=lambda workdir: (
            workdir.read_summary().get("eval", {}).keys() >= {"before", "after"}
        ),
    ),
}
REPORT = "report"  # needs only a workdir, without a policy or problems


def count_steps(stage: str, workdir: Workdir) -> int:
    """Returns the steps of a stage's newest complete checkpoint, 0 without one."""
    return broadcast(lambda: latest_step(workdir.checkpoints / stage)) or 0


def describe_pending(
    pending: Sequence[str],
    *,
    config: Config,
    workdir: Workdir,
    ends_with: Sequence[str],
) -> str:
    """Returns "done before: sft; stages to do: train (60 of 100 steps), eval, report".

    A stage that the recipe turns off is not named. `ends_with` names more parts, not in
    STAGES. All processes call it together.
    """

    def describe(stage: str) -> str:
        if (num_steps := STAGES[stage].num_steps) is None:
            return stage
        total, done = num_steps(config), count_steps(stage, workdir)
        count = f"{total - done} of {total}" if done else str(total)
        return f"{stage} ({count} steps)"

    has_stage = [name for name in STAGES if not STAGES[name].disabled_by(config)]
    done = [
        name
        for name in has_stage
        if name not in pending and is_finished(name, config=config, workdir=workdir)
    ]
    before = f"done before: {', '.join(done)}; " if done else ""
    to_do = [describe(name) for name in has_stage if name in pending]
    return f"{before}stages to do: {', '.join([*to_do, *ends_with])}"


def is_finished(stage: str, *, config: Config, workdir: Workdir) -> bool:
    """Returns whether a stage is done, with its results in the workdir.

    A stage whose steps the config does not count is also finished if it is turned off.
    """
    entry = STAGES[stage]
    has_results = broadcast(lambda: entry.has_results(workdir))
    if entry.num_steps is None:
        return bool(entry.disabled_by(config)) or has_results
    return has_results and count_steps(stage, workdir) == entry.num_steps(config)
