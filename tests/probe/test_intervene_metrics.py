"""Metrics of completions under an intervention, counted by problem."""

from rlvr_jax.probe.intervene_metrics import intervention_metrics
from rlvr_jax.rollouts.graded import GradedCompletion
from rlvr_jax.tasks import FiniteFieldTask
from rlvr_jax.types import Problem, Verdict


def judged(problem, completion, status="correct", strategy="forward"):
    return GradedCompletion(
        problem=problem,
        completion=completion,
        verdict=Verdict(status=status),
        length=len(completion.split()),
        finished=True,
        strategy=strategy,
        weight_version=0,
    )


def test_steps_are_counted_by_the_operation_that_is_due():
    """3 + 2, then * 4 in GF(7) gives 5, then 6. One sample writes + instead of *."""
    problem = Problem(
        id="a",
        prompt="evaluate : e3 k + e2 l * e4 = ?",
        gold="e6",
        verifier="finite_field",
        source="",
        type="evaluation",
    )
    right = "forward : k e3 + e2 = e5 l e5 * e4 = e6 answer e6"
    wrong = "forward : k e3 + e2 = e5 l e5 + e4 = e2 answer e2"
    found = intervention_metrics(
        FiniteFieldTask(modulus=7),
        [judged(problem, right), judged(problem, wrong, "incorrect")],
        num_samples=2,
        k=(1, 2, 4),
    )
    means = {name: each.mean() for name, each in found.items()}
    assert means["step accuracy, due +"] == 1.0
    assert means["step accuracy, due *"] == 0.5
    assert means["step accuracy, from e5"] == 0.5
    assert means["pass@1"] == means["pass@1, evaluation"] == 0.5
    assert means["pass@2"] == 1.0
    assert means["forward, evaluation"] == 1.0
    assert "pass@4" not in means
