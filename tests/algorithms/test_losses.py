"""The policy loss: its theorems, checked by hand on small numbers."""

import itertools
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlvr_jax.algorithms.losses import aggregation_weights, policy_loss
from rlvr_jax.algorithms.objective import Aggregation
from rlvr_jax.config import LossConfig

LEVELS = ("token", "sequence", "trajectory")
CLIPPINGS = ("ppo", "cispo", "reinforce")
AGGREGATIONS = get_args(Aggregation)
VARIANTS = list(itertools.product(LEVELS, CLIPPINGS))
LENGTHS = np.array([5, 1, 3, 5, 2, 4])
MAX_LENGTH = 7
FULL = {"kl_coef": 0.3, "entropy_coef": 0.2}


def _numbers(seed: int = 0, *, lengths=LENGTHS, width: int = 5) -> dict:
    """Returns a batch with ratios on both sides of the bounds, padding included."""
    rng = np.random.default_rng(seed)
    shape = (len(lengths), width)
    logprobs = -rng.uniform(0.2, 3.0, shape)
    return {
        "logprobs": logprobs,
        "old_logprobs": logprobs + rng.normal(0.0, 0.3, shape),
        "ref_logprobs": logprobs + rng.normal(0.0, 0.3, shape),
        "entropies": rng.uniform(0.1, 2.0, shape),
        "advantages": rng.normal(0.0, 1.0, len(lengths)),
        "lengths": np.asarray(lengths),
    }


def _weigh(numbers: dict, config: LossConfig) -> dict:
    """Returns the batch with the config's token weights, as in the earlier stage."""
    weights = aggregation_weights(
        jnp.asarray(numbers["lengths"]),
        width=numbers["logprobs"].shape[1],
        aggregation=config.aggregation,
        max_length=MAX_LENGTH,
    )
    return {**numbers, "loss_weights": np.asarray(weights)}


def _evaluate(batch: dict, config: LossConfig):
    """Returns loss, parts, and the gradient for logprobs and for entropies."""
    arrays = {
        k: jnp.asarray(v, None if k == "lengths" else jnp.float32)
        for k, v in batch.items()
    }

    def loss(differentiated):
        a = {**arrays, **differentiated}
        return policy_loss(
            a["logprobs"],
            a["old_logprobs"],
            a["advantages"],
            a["loss_weights"],
            lengths=a["lengths"],
            config=config,
            ref_logprobs=a["ref_logprobs"],
            entropies=a["entropies"],
            token_weights=a.get("token_weights"),
        )

    wanted = {k: arrays[k] for k in ("logprobs", "entropies")}
    (value, parts), gradient = jax.value_and_grad(loss, has_aux=True)(wanted)
    return value, parts, gradient


def _mask(batch: dict) -> np.ndarray:
    return np.arange(batch["logprobs"].shape[1]) < batch["lengths"][:, None]


def _on_policy(numbers: dict) -> dict:
    return {**numbers, "old_logprobs": numbers["logprobs"]}


# ---- weights


def test_weights_are_the_four_divisors():
    """Lengths 2, 1, 3: six tokens, three completions, constant length 4."""
    expected = {
        "token_mean": [[1 / 6, 1 / 6, 0], [1 / 6, 0, 0], [1 / 6, 1 / 6, 1 / 6]],
        "seq_mean_token_mean": [[1 / 6, 1 / 6, 0], [1 / 3, 0, 0], [1 / 9] * 3],
        "seq_mean_token_sum": [[1 / 3, 1 / 3, 0], [1 / 3, 0, 0], [1 / 3] * 3],
        "seq_mean_token_sum_norm": [[1 / 12, 1 / 12, 0], [1 / 12, 0, 0], [1 / 12] * 3],
    }
    for aggregation, rows in expected.items():
        weights = aggregation_weights(
            jnp.array([2, 1, 3]), width=3, aggregation=aggregation, max_length=4
        )
        np.testing.assert_allclose(weights, rows, rtol=1e-6, err_msg=aggregation)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_filler_rows_weigh_nothing_and_change_no_other(aggregation):
    def weights(lengths):
        return aggregation_weights(
            jnp.array(lengths), width=4, aggregation=aggregation, max_length=4
        )

    filled = weights([3, 0, 4, 0, 0])
    np.testing.assert_array_equal(filled[jnp.array([0, 2])], weights([3, 4]))
    np.testing.assert_array_equal(filled[jnp.array([1, 3, 4])], np.zeros((3, 4)))
    np.testing.assert_array_equal(weights([0, 0]), np.zeros((2, 4)))


def test_unknown_aggregation_is_refused():
    with pytest.raises(ValueError, match=r"'token_meen'; .*did you mean 'token_mean'"):
        aggregation_weights(
            jnp.array([1]), width=1, aggregation="token_meen", max_length=1
        )


# ---- the surrogate


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize(("level", "clipping"), VARIANTS)
def test_on_policy_gradient_is_the_plain_policy_gradient(level, clipping, aggregation):
    """At ratio 1 no bound binds: d loss / d logprob_it = -A_i * (weight of i at t).

    A completion's ratio moves with all its tokens. So the sequence level spreads the
    row's weight evenly, and the product level gives every token the whole row's weight.
    CISPO's gradient comes from the log-probability alone, with each token's weight.
    """
    config = LossConfig(
        importance_sampling_level=level, surrogate=clipping, aggregation=aggregation
    )
    batch = _weigh(_on_policy(_numbers()), config)
    w = batch["loss_weights"]
    row = w.sum(axis=1, keepdims=True) * _mask(batch)
    share = {"token": w, "sequence": row / LENGTHS[:, None], "trajectory": row}[level]
    share = w if clipping == "cispo" else share
    _, parts, gradient = _evaluate(batch, config)
    expected = -batch["advantages"][:, None] * share
    np.testing.assert_allclose(gradient["logprobs"], expected, rtol=1e-5, atol=1e-8)
    assert (
        parts.scalars["clip_low"]
        == parts.scalars["clip_high"]
        == parts.logprob_mismatch_max
        == 0
    )


@pytest.mark.parametrize("bounds", [(0.0, 0.0), (3e-4, 4e-4), (0.2, 0.28)])
def test_on_policy_gradient_does_not_depend_on_the_bounds(bounds):
    """Also if ratio 1 is on both bounds: a minimum would halve a tie."""
    batch = _weigh(_on_policy(_numbers()), LossConfig())
    config = LossConfig(clip_low=bounds[0], clip_high=bounds[1])
    _, _, gradient = _evaluate(batch, config)
    expected = -batch["advantages"][:, None] * batch["loss_weights"]
    np.testing.assert_allclose(gradient["logprobs"], expected, rtol=1e-6)


def _single_token(ratio: float, advantage: float, config: LossConfig):
    """Returns loss, parts and d loss / d logprob of one token of probability 1/2."""
    batch = {
        "logprobs": np.log([[0.5]]),
        "old_logprobs": np.log([[0.5 / ratio]]),
        "ref_logprobs": np.zeros((1, 1)),
        "entropies": np.zeros((1, 1)),
        "advantages": np.array([advantage]),
        "loss_weights": np.ones((1, 1)),
        "lengths": np.array([1]),
    }
    loss, parts, gradient = _evaluate(batch, config)
    return loss, parts, gradient["logprobs"][0, 0]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient"),
    [
        (1.5, 2.0, -2.56, 0.0),  # raised beyond the bound: held at 1.28 * A
        (1.5, -2.0, 3.0, 3.0),  # raised but bad: full pull back
        (0.5, 2.0, -1.0, -1.0),  # cut but good: full pull back
        (0.5, -2.0, 1.6, 0.0),  # cut beyond the bound: held at 0.8 * A
        (1.1, 2.0, -2.2, -2.2),  # within bounds
        (0.9, -2.0, 1.8, 1.8),
    ],
)
def test_ppo_clip_in_its_four_sign_cases(level, ratio, advantage, loss, gradient):
    config = LossConfig(importance_sampling_level=level, clip_low=0.2, clip_high=0.28)
    got, parts, slope = _single_token(ratio, advantage, config)
    np.testing.assert_allclose([got, slope], [loss, gradient], rtol=1e-6)
    assert (gradient == 0) == (slope == 0)
    assert float(parts.scalars["clip_high"]) == (ratio == 1.5 and advantage > 0)
    assert float(parts.scalars["clip_low"]) == (ratio == 0.5 and advantage < 0)


@pytest.mark.parametrize(
    ("ratio", "weight"), [(0.01, 0.01), (1.0, 1.0), (4.0, 4.0), (9.0, 5.0)]
)
@pytest.mark.parametrize("advantage", [1.5, -1.5])
def test_cispo_bounds_the_weight_and_never_drops_a_token(ratio, weight, advantage):
    """Value -weight * A * log(1/2), gradient -weight * A; the weight is in [0, 5]."""
    config = LossConfig(surrogate="cispo", clip_low=1.0, clip_high=4.0)
    loss, parts, slope = _single_token(ratio, advantage, config)
    np.testing.assert_allclose(loss, weight * advantage * np.log(2), rtol=1e-5)
    np.testing.assert_allclose(slope, -weight * advantage, rtol=1e-5)
    assert float(parts.scalars["clip_high"]) == (ratio > 5)
    assert float(parts.scalars["clip_low"]) == 0


def test_rloo_weighs_a_completion_by_its_whole_probability_ratio():
    """Loss -mean_i R_i A_i with R_i = pi(o_i) / pi_old(o_i), gradient -R_i A_i / B."""
    config = LossConfig(
        importance_sampling_level="trajectory",
        surrogate="reinforce",
        aggregation="seq_mean_token_mean",
    )
    batch = _weigh(_numbers(), config)
    change = np.where(_mask(batch), batch["logprobs"] - batch["old_logprobs"], 0.0)
    returned = np.exp(change.sum(axis=1)) * batch["advantages"]
    loss, _, gradient = _evaluate(batch, config)
    np.testing.assert_allclose(loss, -returned.mean(), rtol=1e-5)
    expected = -returned[:, None] / len(LENGTHS) * _mask(batch)
    np.testing.assert_allclose(gradient["logprobs"], expected, rtol=1e-5)


def test_gspo_gives_every_token_of_a_completion_the_same_gradient():
    """Gradient -s_i A_i / (B |o_i|) with s_i the geometric mean of token ratios."""
    config = LossConfig(
        importance_sampling_level="sequence",
        surrogate="reinforce",
        aggregation="seq_mean_token_mean",
    )
    batch = _weigh(_numbers(), config)
    change = np.where(_mask(batch), batch["logprobs"] - batch["old_logprobs"], 0.0)
    s = np.exp(change.sum(axis=1) / LENGTHS)
    expected = -(s * batch["advantages"] / LENGTHS / len(LENGTHS))[:, None]
    _, _, gradient = _evaluate(batch, config)
    np.testing.assert_allclose(gradient["logprobs"], expected * _mask(batch), rtol=1e-5)


# ---- KL and entropy


@pytest.mark.parametrize(
    ("estimator", "value", "slope"),
    [
        ("k1", lambda d: -d, lambda d: 1.0 + 0 * d),
        ("k2", lambda d: d**2 / 2, lambda d: -d),
        ("k3", lambda d: np.exp(d) - d - 1, lambda d: 1 - np.exp(d)),
    ],
)
def test_kl_estimator_and_its_slope(estimator, value, slope):
    """With d = log pi_ref - log pi, and no advantage, the loss is the KL term alone."""
    config = LossConfig(kl_coef=0.5, kl_estimator=estimator)
    batch = _weigh(_numbers(), config) | {"advantages": np.zeros(len(LENGTHS))}
    d = batch["ref_logprobs"] - batch["logprobs"]
    w, mask = batch["loss_weights"], _mask(batch)
    loss, parts, gradient = _evaluate(batch, config)
    np.testing.assert_allclose(loss, 0.5 * (w * value(d)).sum(), rtol=2e-5)
    np.testing.assert_allclose(gradient["logprobs"], 0.5 * w * slope(d), atol=1e-7)
    np.testing.assert_allclose(parts.scalars["kl"], value(d)[mask].sum(), rtol=2e-5)


def test_k3_is_never_negative():
    """Checked per token: without advantage, d loss / d weight is the token's KL."""
    gaps = jnp.append(jnp.linspace(-30.0, 30.0, 241), jnp.array([1e-4, -1e-4]))[:, None]

    def loss(weights):
        return policy_loss(
            jnp.zeros_like(gaps),
            jnp.zeros_like(gaps),
            jnp.zeros_like(gaps[:, 0]),
            weights,
            lengths=jnp.ones(len(gaps), int),
            config=LossConfig(kl_coef=1.0, kl_estimator="k3"),
            ref_logprobs=gaps,
        )[0]

    kl = jax.grad(loss)(jnp.ones_like(gaps))
    assert bool((kl >= 0).all())
    np.testing.assert_array_equal(kl == 0, gaps == 0)


@pytest.mark.parametrize(
    ("estimator", "unbiased_value", "true_gradient"),
    [("k1", True, False), ("k2", False, True), ("k3", True, False)],
)
def test_kl_estimators_in_expectation(estimator, unbiased_value, true_gradient):
    """Averaged over all five actions, k1 and k3 are KL(pi || ref) and k2 is not.

    Only k2's gradient averages to the KL's gradient; k1's averages to zero.
    """
    theta, reference = jax.random.normal(jax.random.key(1), (2, 5))
    log_ref = jax.nn.log_softmax(reference)
    pi = jax.nn.softmax(theta)

    def exact(logits):
        logp = jax.nn.log_softmax(logits)
        return (jnp.exp(logp) * (logp - log_ref)).sum()

    def estimate(logits):
        logp = jax.nn.log_softmax(logits)[:, None]
        return policy_loss(
            logp,
            logp,
            jnp.zeros(5),
            pi[:, None],
            lengths=jnp.ones(5, int),
            config=LossConfig(kl_coef=1.0, kl_estimator=estimator),
            ref_logprobs=log_ref[:, None],
        )[0]

    def agrees(a, b):
        return bool(jnp.allclose(a, b, atol=1e-6))

    assert agrees(estimate(theta), exact(theta)) == unbiased_value
    gradient = jax.grad(estimate)(theta)
    assert agrees(gradient, jax.grad(exact)(theta)) == true_gradient
    assert agrees(gradient, jnp.zeros(5)) == (estimator == "k1")


def test_entropy_bonus_lowers_the_loss_by_its_weighted_sum():
    batch = _weigh(_numbers(), LossConfig())
    plain, _, _ = _evaluate(batch, LossConfig())
    loss, parts, gradient = _evaluate(batch, LossConfig(entropy_coef=0.2))
    w, h = batch["loss_weights"], batch["entropies"]
    np.testing.assert_allclose(plain - loss, 0.2 * (w * h).sum(), rtol=1e-5)
    np.testing.assert_allclose(gradient["entropies"], -0.2 * w, rtol=1e-6)
    np.testing.assert_allclose(
        parts.scalars["entropy"], h[_mask(batch)].sum(), rtol=1e-5
    )


def test_old_and_reference_policies_are_constants_to_the_gradient():
    """Even if all three are one array; with k2 at d = -1 the gradient is w (1 - A)."""
    config = LossConfig(kl_coef=1.0, kl_estimator="k2")
    batch = _weigh(_numbers(), config)
    advantages, weights, lengths = (
        jnp.asarray(batch[k]) for k in ("advantages", "loss_weights", "lengths")
    )

    def loss(logprobs):
        return policy_loss(
            logprobs,
            logprobs,
            advantages.astype(jnp.float32),
            weights,
            lengths=lengths,
            config=config,
            ref_logprobs=logprobs - 1.0,
        )[0]

    gradient = jax.grad(loss)(jnp.asarray(batch["logprobs"], jnp.float32))
    expected = batch["loss_weights"] * (1 - batch["advantages"][:, None])
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("clipping", CLIPPINGS)
def test_credit_weighs_the_gain_and_neither_kl_nor_entropy(clipping):
    config = LossConfig(surrogate=clipping, **FULL)
    batch = _weigh(_numbers(), config)
    shape = batch["logprobs"].shape
    credit = np.random.default_rng(1).uniform(0.5, 2.0, shape)
    idle = {**batch, "advantages": np.zeros(len(LENGTHS))}
    for a, b in zip(
        jax.tree.leaves(_evaluate({**idle, "token_weights": credit}, config)),
        jax.tree.leaves(_evaluate(idle, config)),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)
    # The gain is linear in the advantage: a credit of 2 is an advantage twice as large.
    double = {**batch, "advantages": 2 * batch["advantages"]}
    twice = {**batch, "token_weights": np.full(shape, 2.0)}
    for a, b in zip(
        jax.tree.leaves(_evaluate(twice, config)),
        jax.tree.leaves(_evaluate(double, config)),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("clipping", CLIPPINGS)
@pytest.mark.parametrize("level", ["token", "sequence", "trajectory"])
def test_weights_of_mean_one_turn_nothing_where_tokens_share_one_gain(level, clipping):
    """`has_token_gains` decides; in other cases RFGO's weights are refused."""
    config = LossConfig(importance_sampling_level=level, surrogate=clipping)
    batch = _weigh(_numbers(), config)
    mask = _mask(batch)
    weights = np.where(mask, np.random.default_rng(1).uniform(0.5, 2, mask.shape), 0)
    count = np.maximum(mask.sum(axis=1, keepdims=True), 1)
    weights *= count / np.maximum(weights.sum(axis=1, keepdims=True), 1e-9)
    _, _, plain = _evaluate(batch, config)
    _, _, weighed = _evaluate({**batch, "token_weights": weights}, config)
    moved = np.abs(weighed["logprobs"] - plain["logprobs"]).max()
    largest = np.abs(plain["logprobs"]).max()
    if config.has_token_gains:
        assert moved > 0.05 * largest
    else:
        assert moved < 1e-6 * largest


@pytest.mark.parametrize("missing", [{"kl_coef": 0.1}, {"entropy_coef": 0.1}])
def test_term_without_its_array_is_refused(missing):
    one = jnp.ones((1, 1))
    with pytest.raises(ValueError, match=f"loss.{next(iter(missing))}=0.1 needs"):
        policy_loss(
            one,
            one,
            one[0],
            one,
            lengths=jnp.array([1]),
            config=LossConfig(**missing),
        )


def test_reference_policy_is_not_read_when_kl_is_off():
    batch = _weigh(_numbers(), LossConfig())
    unread = batch | {"ref_logprobs": np.full((6, 5), np.nan)}
    loss, parts, _ = _evaluate(unread, LossConfig())
    assert loss == _evaluate(batch, LossConfig())[0]
    assert parts.scalars["kl"] == 0
