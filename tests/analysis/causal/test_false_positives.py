"""Latents with no more effect than others are rarely called causes.

The effect of an arm's latent on an outcome is a draw from one distribution, the same
for the target and its controls. Thousands of problems would measure each effect without
error. Judged by problems alone, any two latents differ.
"""

import sys

import numpy as np
import pytest

from rlvr_jax.analysis.causal.contrasts import NONSPECIFIC, SPECIFIC, compute_contrasts
from rlvr_jax.metrics.bootstrap import RatioStatistic, max_rank_p_values
from rlvr_jax.probe.intervene import ArmResult, EditArm

N, OUTCOMES, DRAWS = 32, 12, 20


def normal(rng, shape):
    return rng.normal(size=shape)


def heavy(rng, shape):
    """Student's t with two degrees of freedom: a few latents matter, most do not."""
    return rng.standard_t(2, size=shape)


def skewed(rng, shape):
    """Every edit lowers the outcome, and for some latents by very much."""
    return -rng.lognormal(sigma=1.5, size=shape)


def one_fate(rng, shape):
    """All outcomes of an arm fall together."""
    return rng.normal(size=(shape[0], 1)) + 0.3 * rng.normal(size=shape)


def run_arm(arm, effects, clean, rng):
    """Returns an arm with the outcomes of `clean`, shifted, with some noise."""
    metrics = {
        f"outcome {i}": RatioStatistic(
            numerator=clean[:, i] + effect + 0.02 * rng.normal(size=len(clean)),
            denominator=np.ones(len(clean)),
        )
        for i, effect in enumerate(effects)
    }
    tokens = np.zeros((len(clean), 1), np.int32)
    correct = np.ones((len(clean), 1), bool)
    return ArmResult(arm=arm, metrics=metrics, correct=correct, tokens=tokens)


def experiment(draw, *, causes=(0.0,), strengths=(1.0,), outcomes=(), rng):
    """Returns the contrasts of one target per cause, added to its first outcome."""
    clean = rng.normal(size=(N, OUTCOMES))
    results = []
    for target, cause in enumerate(causes):
        size = 1 + 2 * DRAWS
        effects = 0.1 * draw(rng, (size, OUTCOMES))
        effects[-DRAWS:] *= 0.1  # random directions have less effect than any latent
        effects[0, 0] += cause
        kinds = ["target"] + ["random latents"] * DRAWS + ["random direction"] * DRAWS
        for strength in strengths:
            for i, kind in enumerate(kinds):
                arm = EditArm(
                    kind=kind,
                    strength=strength,
                    control_index=(i - 1) % DRAWS,
                    latents=(target,) if kind == "target" else (),
                )
                results.append(run_arm(arm, strength * effects[i], clean, rng))
    nothing = run_arm(EditArm(kind="clean"), np.zeros(OUTCOMES), clean, rng)
    return compute_contrasts(nothing, results, resamples=100, seed=0, outcomes=outcomes)


def specific(contrasts):
    return {(c.latents[0], c.outcome) for c in contrasts if c.verdict == SPECIFIC}


def false_positive_rate(draw, *, experiments):
    """Returns the share of targets without a cause for which any outcome is claimed."""
    rng = np.random.default_rng(0)
    found = [bool(specific(experiment(draw, rng=rng))) for _ in range(experiments)]
    return np.mean(found)


@pytest.mark.parametrize("draw", [normal, heavy, skewed, one_fate])
def test_a_latent_like_any_other_is_hardly_ever_a_cause(draw):
    """Nominal 5 % for any distribution of effects: exact by the ranks."""
    assert false_positive_rate(draw, experiments=1000) <= 0.06


@pytest.mark.parametrize("draw", [normal, skewed])
def test_few_of_forty_latents_like_any_other_are_causes(draw):
    """At 5 %, at most four of 40, 95 times of 100; by problems alone, most are."""
    assert false_positive_rate(draw, experiments=40) <= 4 / 40


def test_a_cause_is_found_and_no_other_outcome_with_it():
    rng = np.random.default_rng(0)
    found = [specific(experiment(normal, causes=[-0.8], rng=rng)) for _ in range(10)]
    assert sum((0, "outcome 0") in each for each in found) >= 9
    assert sum(len(each) for each in found) <= 11


def test_an_outcome_that_is_named_before_is_tested_with_more_power():
    """A cause of four standard deviations of the draws is found nearly always."""
    power = {}
    for outcomes in ((), ("outcome 0",)):
        rng = np.random.default_rng(0)
        found = [
            specific(experiment(normal, causes=[-0.4], outcomes=outcomes, rng=rng))
            for _ in range(60)
        ]
        power[outcomes] = np.mean([(0, "outcome 0") in each for each in found])
    assert power[()] < 0.7
    assert power["outcome 0",] > 0.9


def test_an_outcome_that_is_named_before_is_no_easier_to_claim_by_chance():
    rng = np.random.default_rng(0)
    found = [
        bool(specific(experiment(skewed, outcomes=("outcome 0",), rng=rng)))
        for _ in range(200)
    ]
    assert np.mean(found) <= 0.08


def _drawn(kind, rng, shape):
    """Returns effects of random latents, in docs/lab/causal.md's three cases."""
    if kind == "normal":
        return -0.08 + 0.08 * rng.normal(size=shape)
    if kind == "log-normal":
        return -0.08 * rng.lognormal(size=shape)
    matters = rng.random((shape[0], 1)) < 0.15
    return 0.01 * rng.normal(size=shape) - matters * rng.uniform(0.1, 0.5, size=shape)


@pytest.mark.parametrize(
    ("kind", "num_outcomes", "power"),
    [
        *(("normal", 12, 0.17), ("normal", 1, 0.82)),
        *(("few matter", 12, 0.03), ("few matter", 1, 0.20)),
        *(("log-normal", 12, 0.0), ("log-normal", 1, 0.13)),
    ],
)
def test_the_power_of_the_rank_p_is_as_documented(kind, num_outcomes, power):
    """A target costs 30 points of one outcome, among 20 draws."""
    rng, found = np.random.default_rng(1), []
    for _ in range(300):
        effects = _drawn(kind, rng, (1 + DRAWS, num_outcomes))
        effects[0] = 0.01 * rng.normal(size=num_outcomes)
        effects[0, 0] = -0.3
        found.append(max_rank_p_values(effects)[0] <= 0.05)
    assert np.mean(found) == pytest.approx(power, abs=0.06)


def test_only_true_causes_are_found_among_many_latents():
    """Eight latents at two strengths, 192 contrasts: only the third is a cause."""
    rng = np.random.default_rng(0)
    causes = [-1.2 if latent == 2 else 0.0 for latent in range(8)]
    found = experiment(normal, causes=causes, strengths=(0.5, 1.0), rng=rng)
    assert specific(found) == {(2, "outcome 0")}


def test_too_few_draws_claim_nothing(monkeypatch):
    """With 18 controls, the farthest of 19 has a rank p of 1/19."""
    monkeypatch.setattr(sys.modules[__name__], "DRAWS", 18)
    rng = np.random.default_rng(0)
    (contrast, *_) = experiment(normal, causes=[-9.0], rng=rng)
    assert contrast.q < 1e-6
    assert contrast.rank_p == pytest.approx(1 / 19)
    assert contrast.verdict == NONSPECIFIC
