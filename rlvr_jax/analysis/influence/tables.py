"""The tables that `influence` prints, and the sentences that explain them."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from job_jax.resampling import Interval
from rlvr_jax.analysis.influence.difficulty_scores import (
    EL2N,
    FORGETTING,
    OWN_SOLUTION,
)
from rlvr_jax.analysis.influence.measure import (
    ADVANTAGES,
    BATCH,
    LOGPROB,
    MIN_VALUES,
    PASS_AT_1,
    Influence,
    ProblemInfluence,
    Result,
)
from rlvr_jax.report.tables import Table, align_table

_UNITS = {LOGPROB: "log-probability, nats/token", PASS_AT_1: "pass@1, points"}
_SCALES = {LOGPROB: 1.0, PASS_AT_1: 100.0}


def format_result(result: Result) -> str:
    """Returns all tables, and how to read them."""
    parts = [*_describe_replay(result.checks), ""]
    if result.parts:
        parts += [align_table(_parts_table(result.parts)), ""]
    if result.problems:
        parts += [align_table(_problems_table(result.problems)), ""]
        parts += _describe_correlations(result)
    parts.append(
        "Influence: the outcome with this thing in the batch, minus the outcome "
        "without it; above 0 it helped.\nThe same completions and the same keys, "
        f"{result.num_held_out} held-out problems, {result.num_solutions} with a "
        "worked solution. Brackets: 95 % over held-out problems."
    )
    if any(part.removed == BATCH for part in result.parts):
        parts.append(
            f"{BATCH}: compared with no update. {ADVANTAGES}: compared with an update "
            "in which every advantage is 0, which leaves Adam's momentum, weight decay "
            "and the terms for KL and entropy."
        )
    if result.tracin_steps:
        steps = ", ".join(map(str, result.tracin_steps))
        parts.append(
            f"dot product: <gradient of the problem's loss, gradient of the held-out "
            f"loss> at this checkpoint.\nTracIn: learning rate times the dot product, "
            f"summed over the checkpoints {steps}. It is the form for plain gradient "
            "descent, without Adam's scaling and moments."
        )
    if result.problems and EL2N in result.problems[0].estimates:
        parts.append(
            f"{EL2N}: distance of the policy from its own worked solution, mean over "
            f"tokens. {OWN_SOLUTION}: the solution's log-probability, per token."
        )
    if result.problems and FORGETTING in result.problems[0].estimates:
        parts.append(
            f"{FORGETTING}: how often the problem was solved and then lost, inf if it "
            "was never solved."
        )
    return "\n".join(parts)


def _describe_replay(checks: Mapping[str, Any]) -> list[str]:
    """Returns a line that says whether the step came out as in the run."""
    gap, differing = checks["next_checkpoint"], checks["metric"]
    if gap == 0:
        return ["The replay ends with the bits of the run's own next checkpoint."]
    if gap is not None:
        return [
            f"WARNING: the replay differs from the run's own next checkpoint by up to "
            f"{gap:.2g} in a weight; use the machine and version of the run."
        ]
    if differing is None:
        return ["The run has no record of this step to compare the replay with."]
    metric, difference = differing
    if not metric:
        return ["The replay has the metrics that the run recorded for this step."]
    return [
        f"WARNING: the replay differs from the run's record, most in {metric} "
        f"({100 * difference:.2g} %); use the machine and version of the run."
    ]


def _parts_table(parts: Sequence[Influence]) -> Table:
    outcomes = [*parts[0].outcomes]
    return Table(
        head=("removed", *(_UNITS[name] for name in outcomes)),
        rows=[
            (part.removed, *(_format(part.outcomes[name], name) for name in outcomes))
            for part in parts
        ],
    )


def _problems_table(problems: Sequence[ProblemInfluence]) -> Table:
    """Returns the problems, the most helpful first."""
    outcomes, estimates = [*problems[0].outcomes], [*problems[0].estimates]
    ranked = sorted(
        problems,
        key=lambda one: [-one.outcomes[name].value for name in outcomes],
    )
    rows = [
        (
            f"{one.index}",
            one.problem,
            f"{one.pass_rate:.2f}" if one.has_signal else f"{one.pass_rate:.2f} -",
            *(f"{_SCALES[n] * one.outcomes[n].value:+.3g}" for n in outcomes),
            *(f"{one.estimates[name]:+.3g}" for name in estimates),
        )
        for one in ranked
    ]
    head = ("place", "problem", "p", *(_UNITS[n] for n in outcomes), *estimates)
    return Table(head=head, rows=rows)


def _describe_correlations(result: Result) -> list[str]:
    """Returns the table of rank correlations, or why there is none."""
    num_known = sum(problem.has_signal for problem in result.problems)
    if not result.correlations:
        return [
            f"No rank correlations: {num_known} of the problems have a signal, and "
            f"{MIN_VALUES} different influences are needed.",
            "",
        ]
    outcomes = [*result.correlations]
    estimates = dict.fromkeys(
        name for by_name in result.correlations.values() for name in by_name
    )
    rows = [
        (
            name,
            *(
                _format(result.correlations[outcome][name], "")
                if name in result.correlations[outcome]
                else ""
                for outcome in outcomes
            ),
        )
        for name in estimates
    ]
    head = ("estimate", *(f"rank correlation, {outcome}" for outcome in outcomes))
    return [
        align_table(Table(head=head, rows=rows)),
        "",
        f"Over the {num_known} problems with a signal (the others, marked -, have an "
        "influence of exactly 0). An estimate that does not vary has no row. Brackets: "
        "bootstrap over these problems.",
    ]


def _format(interval: Interval, outcome: str) -> str:
    value, low, high = (_SCALES.get(outcome, 1.0) * end for end in interval)
    digits = "+.3g" if outcome else "+.2f"
    if math.isnan(low):
        return f"{value:{digits}}"
    return f"{value:{digits}} [{low:{digits}}, {high:{digits}}]"
