"""Options of other libraries' losses, against float64 NumPy.

The references follow verl's formulas (`clip_ratio_c`, `tis_imp_ratio_cap`); their
gradients are central differences.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from job_jax.schema import ConfigError
from rlvr_jax.config import LossConfig, RFGOConfig, TrainConfig
from rlvr_jax.learn.batches import make_batch
from rlvr_jax.learn.logprobs import TokenScores
from rlvr_jax.learn.objectives import policy_objective
from rlvr_jax.types import Prompts

B, T = 6, 5
LENGTHS = np.array([5, 1, 3, 5, 2, 4], np.int32)
MASK = np.arange(T) < LENGTHS[:, None]
WEIGHTS = MASK / MASK.sum()
ADVANTAGES = np.array([1.5, -0.7, -1.2, 0.4, -0.3, 0.9])
RANDOM = np.random.RandomState(2)
LOGPROBS = -RANDOM.uniform(0.2, 4.0, (B, T))
# Ratios from e^-2.5 to e^2.5: beyond every bound on both sides, for both signs.
OLD = LOGPROBS - RANDOM.uniform(-2.5, 2.5, (B, T))
SAMPLER = OLD - RANDOM.uniform(-1.5, 1.5, (B, T))


def _ours(config, **changed):
    """Returns loss, diagnostics and the gradient; padding holds NaN."""
    one_prompt = Prompts(
        tokens=np.ones((1, 1), np.int32),
        lengths=np.ones(1, np.int32),
        uid=np.zeros(1, np.uint32),
    )
    arrays = {"old_logprobs": OLD, "sampler_logprobs": SAMPLER} | changed
    batch = make_batch(
        one_prompt,
        np.ones((B, T), np.int32),
        LENGTHS,
        loss_weights=np.float32(WEIGHTS),
        advantages=np.float32(ADVANTAGES),
        **{
            name: np.where(MASK, np.float32(values), np.nan)
            if np.ndim(values) == 2
            else values
            for name, values in arrays.items()
        },
    )
    objective = policy_objective(config)

    def loss(logprobs):
        scores = TokenScores(logprobs=logprobs, entropies=jnp.zeros((B, T)))
        return objective(scores, jax.tree.map(jnp.asarray, batch))

    start = jnp.where(MASK, jnp.asarray(LOGPROBS, jnp.float32), jnp.nan)
    (value, aux), gradient = jax.value_and_grad(loss, has_aux=True)(start)
    return value, aux, gradient


def _slopes(function):
    """Returns the central differences of a float64 function of log-probabilities."""
    slopes = np.zeros((B, T))
    for place in np.ndindex(B, T):
        step = np.zeros((B, T))
        step[place] = 1e-6
        slopes[place] = (function(LOGPROBS + step) - function(LOGPROBS - step)) / 2e-6
    return slopes


def _ratio(logprobs, old, level):
    change = np.where(MASK, logprobs - old, 0.0)
    if level == "sequence":
        change = np.repeat(change.sum(1, keepdims=True) / LENGTHS[:, None], T, axis=1)
    return np.exp(change)


def _verl(logprobs, *, level="token", c=np.inf, weight=1.0):
    advantage = ADVANTAGES[:, None]
    ratio = _ratio(logprobs, OLD, level)
    loss = np.maximum(-advantage * ratio, -advantage * np.clip(ratio, 0.8, 1.2))
    bounded = np.minimum(-advantage * c, loss)
    return (WEIGHTS * weight * np.where(advantage < 0, bounded, loss)).sum()


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_the_dual_clip_is_verls(level):
    config = LossConfig(clip_ratio_c=3.0, importance_sampling_level=level)
    value, aux, gradient = _ours(config)
    bounds = {"level": level, "c": 3.0}
    assert value == pytest.approx(_verl(LOGPROBS, **bounds), rel=1e-5)
    slopes = _slopes(lambda x: _verl(x, **bounds))
    np.testing.assert_allclose(gradient, slopes, atol=2e-6)
    # Both kinds of upper bound are counted: of a raise and of a cut.
    ratio, up = _ratio(LOGPROBS, OLD, level), ADVANTAGES[:, None] > 0
    high = MASK & np.where(up, ratio > 1.2, ratio > 3.0)
    assert int(aux.scalars["clip_high"]) == high.sum()
    assert (high & up).any()
    assert (high & ~up).any()
    assert value != pytest.approx(_verl(LOGPROBS, level=level), rel=1e-3)


def test_without_a_dual_clip_a_cut_has_no_upper_bound():
    value, _, gradient = _ours(LossConfig())
    assert value == pytest.approx(_verl(LOGPROBS), rel=1e-5)
    np.testing.assert_allclose(gradient, _slopes(_verl), atol=2e-6)


@pytest.mark.parametrize("cap", [0.5, 2.0])
def test_truncated_importance_weights_are_verls(cap):
    weight = np.minimum(np.exp(OLD - SAMPLER), cap)
    value, aux, gradient = _ours(LossConfig(tis_cap=cap))
    assert value == pytest.approx(_verl(LOGPROBS, weight=weight), rel=1e-5)
    slopes = _slopes(lambda x: _verl(x, weight=weight))
    np.testing.assert_allclose(gradient, slopes, atol=2e-6)
    assert aux.scalars["tis_weight"] == pytest.approx(weight[MASK].sum(), rel=1e-5)
    truncated = (np.exp(OLD - SAMPLER) > cap)[MASK]
    assert 0 < int(aux.scalars["tis_truncated"]) == truncated.sum() < MASK.sum()


def test_on_policy_rows_are_weighed_by_the_trainer_over_the_sampler():
    """Rows 0 and 2 have ratio 1, old log-probabilities unread; others are unchanged."""
    own = np.isin(np.arange(B), [0, 2])
    old = np.where(own[:, None], LOGPROBS, OLD)
    weight = np.minimum(np.exp(old - SAMPLER), 2.0)

    def reference(logprobs):
        ratio = np.exp(logprobs - old)
        loss = np.maximum(
            -ADVANTAGES[:, None] * ratio,
            -ADVANTAGES[:, None] * np.clip(ratio, 0.8, 1.2),
        )
        return (WEIGHTS * weight * loss).sum()

    given = np.where(own[:, None], np.inf, OLD)
    value, aux, gradient = _ours(
        LossConfig(tis_cap=2.0), on_policy=own, old_logprobs=given
    )
    assert value == pytest.approx(reference(LOGPROBS), rel=1e-5)
    np.testing.assert_allclose(gradient, _slopes(reference), atol=2e-6)
    mismatch = np.abs(LOGPROBS - SAMPLER)[MASK]
    assert aux.logprob_mismatch == pytest.approx(mismatch.sum(), rel=1e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LossConfig(clip_ratio_c=1.0), "clip_ratio_c=1.0 would bound"),
        (
            lambda: LossConfig(clip_ratio_c=3.0, surrogate="cispo"),
            "clip_ratio_c=3.0 does nothing with surrogate=cispo",
        ),
        (
            lambda: TrainConfig(loss=LossConfig(tis_cap=2.0), num_epochs=2),
            "set old_logprobs=trainer",
        ),
        (
            lambda: TrainConfig(
                loss=LossConfig(exclude_zero_variance=True),
                rfgo=RFGOConfig(lambda_p=0.1),
            ),
            "leaves out the groups that rfgo.lambda_p=",
        ),
    ],
)
def test_options_that_nothing_could_read_are_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_one_optimizer_step_a_batch_needs_no_scoring_pass_to_be_weighed():
    for train in ({}, {"old_logprobs": "trainer", "num_epochs": 2}):
        TrainConfig(loss=LossConfig(tis_cap=2.0), **train)
