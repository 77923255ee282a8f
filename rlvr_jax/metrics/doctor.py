"""The run doctor: says in plain words when a run stops learning, and why.

`check_step` looks at each training step's metrics and at the steps before it. It raises
alarms for problems that accuracy alone would show too late: when a policy unlearns
reasoning, its completions get shorter well before accuracy falls
(https://arxiv.org/abs/2605.28388). It reads

    groups/nonzero_std, groups/all_correct, groups/all_incorrect, groups/truncated,
    groups/unverified
        shares of all groups: groups with a learning signal, and groups without one by
        cause; each group has one cause, so the five add up to 1
    level_{n}/pass, level_{n}/nonzero_std, level_{n}/length
    band_{name}/pass, band_{name}/length
    rollout/length_mean, rollout/entropy, rollout/truncated, reward/mean
    verdict/correct, verdict/incorrect, verdict/unverified, verdict/time_limit,
    verdict/failed, verdict/reward_gap, reward_time_limit/{name}, reward_failed/{name}
    behavior/repetition, behavior/bare_answer, behavior/skipped_steps,
    behavior/forgotten, dynamic_sampling/zero_variance
    logprob_mismatch/mean, logprob_mismatch/clipped
    optimizer/grad_norm, optimizer/skipped
    staleness/versions_behind, loss/tis_truncated
    sae/fve_reference, sae/splice_kl_reference, sae/splice_cost_reference

and skips metrics that a step does not have. `metrics.symptoms` has the conditions.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from job_jax.config_io import to_json
from job_jax.metrics_file import StageMetrics
from rlvr_jax.metrics.progress_symptoms import CORRECT, Trend, draws_alike
from rlvr_jax.metrics.step_metrics import StepMetrics
from rlvr_jax.metrics.symptoms import FEW_STEPS, find_symptoms, is_read

if TYPE_CHECKING:  # logs of other trainers are read without JAX
    from rlvr_jax.config import Config


@dataclasses.dataclass(frozen=True, kw_only=True)
class Alarm:
    """One problem of a run: a stable code, the step, the finding and the advice."""

    code: str
    step: int
    finding: str
    advice: str

    def __str__(self) -> str:
        """Returns the alarm as one line of the log."""
        return f"step {self.step}: {self.code}: {self.finding} {self.advice}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class DoctorState:
    """The state that the alarms of the next step depend on.

    `first` and `recent` are metrics of the first and the latest steps, `accuracy` is
    the trend of verdict/correct over all steps. `last_active` maps each alarm's code to
    the step at which its condition last held.
    """

    num_steps: int = 0
    first: Sequence[StepMetrics] = ()
    recent: Sequence[StepMetrics] = ()
    accuracy: Trend = dataclasses.field(default_factory=Trend)
    last_active: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Returns the state as plain JSON."""
        return {
            "num_steps": self.num_steps,
            "first": [dict(row) for row in self.first],
            "recent": [dict(row) for row in self.recent],
            "accuracy": dataclasses.asdict(self.accuracy),
            "last_active": dict(self.last_active),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Returns the state that `to_json` wrote, in this version or an earlier one."""
        first, recent = tuple(data["first"]), tuple(data["recent"])
        accuracy = Trend(**data.get("accuracy", {}))
        return cls(**{**data, "first": first, "recent": recent, "accuracy": accuracy})


def check_step(
    state: DoctorState,
    step: int,
    metrics: Mapping[str, float | None],
    *,
    total_steps: int,
    window: int,
    max_logprob_mismatch: float,
    max_unexplained_growth: float,
    max_splice_cost: float,
    draws_alike: bool = False,
) -> tuple[DoctorState, list[Alarm]]:
    """Returns the state after this step and the alarms that the step raises.

    An alarm is raised when its condition begins to hold. It is raised again only after
    the condition has been absent for a whole window. `total_steps` is the planned
    number of steps of the run. `draws_alike`: its steps draw from the same problems.
    """
    row = {
        name: float(value)
        for name, value in metrics.items()
        if value is not None and math.isfinite(value) and is_read(name)
    }
    seen = state.num_steps + 1
    first = (*state.first, row)[: min(FEW_STEPS, window)]
    recent = (*state.recent, row)[-window:]
    correct = row.get(CORRECT)
    accuracy = state.accuracy if correct is None else state.accuracy.add(correct)
    found = find_symptoms(
        first,
        recent,
        num_steps=seen,
        total_steps=total_steps,
        window=window,
        max_logprob_mismatch=max_logprob_mismatch,
        max_unexplained_growth=max_unexplained_growth,
        max_splice_cost=max_splice_cost,
        accuracy=accuracy if draws_alike else None,
    )

    held, alarms = raise_alarms(state.last_active, step, found, window=window)
    new_state = DoctorState(
        num_steps=seen,
        first=first,
        recent=recent,
        accuracy=accuracy,
        last_active=held,
    )
    return new_state, alarms


def raise_alarms(
    last_active: Mapping[str, int],
    step: int,
    symptoms: Iterable[tuple[str, str, str]],
    *,
    window: int,
) -> tuple[dict[str, int], list[Alarm]]:
    """Returns `last_active` after this step, and alarms of symptoms that are new.

    A symptom is (code, finding, advice), and new if it was absent for a whole window.
    """
    held, alarms = dict(last_active), []
    for code, finding, advice in symptoms:
        if code not in held or step - held[code] > window:
            alarms.append(Alarm(code=code, step=step, finding=finding, advice=advice))
        held[code] = step
    return held, alarms


def describe_short_run(num_steps: int, window: int) -> str:
    """Returns a note that the run is too short for most alarms, "" if it is not."""
    if num_steps >= window:
        return ""
    return (
        f"Most alarms need {window} steps (log.alarm_window), and there were "
        f"{num_steps}: they could not be raised."
    )


def alarm_limits(config: "Config") -> dict[str, Any]:
    """Returns the keyword arguments of `check_run` and `check_step`."""
    return {
        "total_steps": config.train.steps,
        "window": config.log.alarm_window,
        "max_logprob_mismatch": config.train.max_logprob_mismatch,
        "max_unexplained_growth": config.probe.max_unexplained_growth,
        "max_splice_cost": config.probe.max_splice_cost,
        "draws_alike": draws_alike(
            to_json(config.curriculum), max_rounds=config.dynamic_sampling.max_rounds
        ),
    }


def check_run(
    train: StageMetrics,
    *,
    total_steps: int,
    window: int,
    max_logprob_mismatch: float,
    max_unexplained_growth: float,
    max_splice_cost: float,
    draws_alike: bool = False,
) -> list[Alarm]:
    """Returns the alarms of a whole run, from the training lines of metrics.jsonl."""
    state, alarms = DoctorState(), []
    for step, metrics in train.rows(is_read):
        state, raised = check_step(
            state,
            step,
            metrics,
            total_steps=total_steps,
            window=window,
            max_logprob_mismatch=max_logprob_mismatch,
            max_unexplained_growth=max_unexplained_growth,
            max_splice_cost=max_splice_cost,
            draws_alike=draws_alike,
        )
        alarms += raised
    return alarms
