"""Changes that must not affect the loss, and two implementations that must agree.

Batches come from the golden file: six completions of 7, 1, 4, 6, 3 and 5 tokens. The
policy moved both ways with both signs of the advantage; one completion is on-policy.
"""

import functools
import itertools
import json
import pathlib
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlvr_jax.algorithms.losses import aggregation_weights, policy_loss
from rlvr_jax.algorithms.objective import Aggregation
from rlvr_jax.config import LossConfig

GOLDEN = json.loads(
    (pathlib.Path(__file__).parents[1] / "golden" / "trl_losses.json").read_text()
)
INPUTS = {k: np.array(v) for k, v in GOLDEN["inputs"].items() if k != "max_length"}
MAX_LENGTH = GOLDEN["inputs"]["max_length"]
MASK = np.arange(7) < INPUTS["lengths"][:, None]

LEVELS = ("token", "sequence", "trajectory")
CLIPPINGS = ("ppo", "cispo", "reinforce")
AGGREGATIONS = get_args(Aggregation)
# Every level, clipping and aggregation, each with KL and entropy terms. The estimators
# take turns, so each occurs with each of the others.
CONFIGS = [
    LossConfig(
        importance_sampling_level=level,
        surrogate=clipping,
        clip_low=0.1,
        clip_high=0.15,
        aggregation=aggregation,
        kl_coef=0.3,
        kl_estimator=("k1", "k2", "k3")[(i + j + k) % 3],
        entropy_coef=0.2,
    )
    for (i, level), (j, clipping), (k, aggregation) in itertools.product(
        enumerate(LEVELS), enumerate(CLIPPINGS), enumerate(AGGREGATIONS)
    )
]


def _name(config: LossConfig) -> str:
    return f"{config.importance_sampling_level}-{config.surrogate}-{config.aggregation}"


every_variant = pytest.mark.parametrize("config", CONFIGS, ids=_name)
some_variants = pytest.mark.parametrize("config", CONFIGS[::7], ids=_name)


def _batch(config: LossConfig, **replaced) -> dict[str, np.ndarray]:
    """Returns the golden inputs, weighed as a whole minibatch."""
    batch = {**INPUTS, **replaced}
    weights = aggregation_weights(
        jnp.asarray(batch["lengths"]),
        width=batch["logprobs"].shape[1],
        aggregation=config.aggregation,
        max_length=MAX_LENGTH,
    )
    return {**batch, "loss_weights": np.asarray(weights)}


def _evaluate(batch: dict[str, np.ndarray], config: LossConfig):
    """Returns the parts and the gradients for log-probabilities and entropies."""
    arrays = {k: jnp.asarray(v, jnp.float32) for k, v in batch.items()}
    arrays["lengths"] = jnp.asarray(batch["lengths"])
    return _compiled(arrays, config)


@functools.partial(jax.jit, static_argnames="config")
def _compiled(arrays, config: LossConfig):
    def loss(wanted):
        a = {**arrays, **wanted}
        return policy_loss(
            a["logprobs"],
            a["old_logprobs"],
            a["advantages"],
            a["loss_weights"],
            lengths=a["lengths"],
            config=config,
            ref_logprobs=a["ref_logprobs"],
            entropies=a["entropies"],
        )

    wanted = {k: arrays[k] for k in ("logprobs", "entropies")}
    (_, parts), gradient = jax.value_and_grad(loss, has_aux=True)(wanted)
    return parts, gradient


def _assert_same(one, other, tolerance: float = 1e-6):
    """Checks two (parts, gradient) pairs, relative to each array's largest entry.

    A part is a sum of terms of order 0.1 to 1 that may cancel; they set its scale.
    """
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        size = max(float(np.abs(a).max()), 0.1 if a.ndim == 0 else 0.0)
        np.testing.assert_allclose(b, a, rtol=0, atol=tolerance * size)


@pytest.mark.parametrize("sizes", [[1] * 6, [3, 3], [1, 1, 3, 1]])
@some_variants
def test_every_micro_batch_split_is_the_same_update(config, sizes):
    """Weights are computed before the split, so loss, metrics and gradients add up."""
    batch = _batch(config)
    whole_parts, whole_gradient = _evaluate(batch, config)
    cuts = np.cumsum(sizes)[:-1]
    pieces = {k: np.split(v, cuts) for k, v in batch.items()}
    results = [
        _evaluate({k: v[i] for k, v in pieces.items()}, config)
        for i in range(len(sizes))
    ]
    parts = functools.reduce(lambda a, b: a + b, [parts for parts, _ in results])
    gradient = jax.tree.map(lambda *g: jnp.concatenate(g), *[g for _, g in results])
    _assert_same((whole_parts, whole_gradient), (parts, gradient))


@some_variants
def test_row_order_does_not_matter(config):
    batch = _batch(config)
    order = np.array([4, 0, 5, 2, 1, 3])
    parts, gradient = _evaluate(batch, config)
    shuffled = _evaluate({k: v[order] for k, v in batch.items()}, config)
    _assert_same((parts, jax.tree.map(lambda g: g[order], gradient)), shuffled)


@some_variants
def test_amount_of_padding_does_not_matter(config):
    def widen(value):
        pad = [(0, 0), (0, 9)]
        return np.pad(value, pad, constant_values=-7.0) if value.ndim == 2 else value

    narrow = _evaluate(_batch(config), config)
    wide = {k: widen(v) for k, v in INPUTS.items()}
    parts, gradient = _evaluate(_batch(config, **wide), config)
    _assert_same(narrow, (parts, jax.tree.map(lambda g: g[:, :7], gradient)))
    assert not any(np.any(g[:, 7:]) for g in gradient.values())


@every_variant
def test_rubbish_in_padding_reaches_nothing(config):
    """Value, metrics and gradients agree to the bit; padding's gradient is zero."""
    rubbish = np.resize([np.nan, np.inf, -np.inf, 1e30], MASK.shape)
    clean = _batch(config)
    dirty = {
        k: np.where(MASK, v, rubbish) if v.ndim == 2 else v for k, v in clean.items()
    }
    parts, gradient = _evaluate(dirty, config)
    _assert_same(_evaluate(clean, config), (parts, gradient), tolerance=0.0)
    assert not any(np.any(np.where(MASK, 0, g)) for g in gradient.values())


@some_variants
def test_filler_rows_reach_nothing(config):
    def fill(value):
        rows = np.full((2, *value.shape[1:]), np.nan)
        return np.concatenate([value, rows])

    filled = {k: fill(v) for k, v in INPUTS.items() if k != "lengths"}
    lengths = np.append(INPUTS["lengths"], [0, 0])
    parts, gradient = _evaluate(_batch(config, **filled, lengths=lengths), config)
    assert not any(np.any(g[6:]) for g in gradient.values())
    without = jax.tree.map(lambda g: g[:6], gradient)
    _assert_same(_evaluate(_batch(config), config), (parts, without))


@pytest.mark.parametrize("gap", [200.0, -200.0])
@every_variant
def test_runaway_policy_gives_finite_numbers(config, gap):
    """Ratios of exp(+-200) do not exist in float32; their clipped loss still does."""
    far = INPUTS["logprobs"] + gap
    batch = _batch(config, old_logprobs=far, ref_logprobs=far)
    leaves = jax.tree.leaves(_evaluate(batch, config))
    assert all(np.isfinite(leaf).all() for leaf in leaves)


def test_parts_are_sums_over_tokens_and_the_gap_is_the_largest():
    """One of three tokens moved, by log 2 upward: past 1.2 with A > 0."""
    batch = {
        **{k: np.zeros((2, 2)) for k in ("old_logprobs", "ref_logprobs", "entropies")},
        "logprobs": np.array([[np.log(2), 0.0], [0.0, 5.0]]),
        "advantages": np.array([1.0, 1.0]),
        "lengths": np.array([2, 1]),
    }
    config = LossConfig()
    parts = _evaluate(_batch(config, **batch), config)[0]
    expected = {
        "loss": -(1.2 + 1 + 1) / 3,
        "tokens": 3,
        "logprob_mismatch": np.log(2),
        "logprob_mismatch_max": np.log(2),
        "by_band": np.zeros((4, 4)),  # no bands were given
        "token_stats": np.zeros((5, 18, 5)),  # set by an objective
    }
    assert vars(parts).keys() == expected.keys() | {
        *("scalars", "feature_sums", "latent_sums", "external_sums")
    }
    scalars = {"ratio": 4, "clip_low": 0, "clip_high": 1, "kl": 0, "entropy": 0}
    assert {k: pytest.approx(v) for k, v in parts.scalars.items()} == scalars
    assert parts.feature_sums is parts.latent_sums is None  # there is no probe
    assert parts.external_sums is None  # and no trace
    for name, value in expected.items():
        np.testing.assert_allclose(vars(parts)[name], value, rtol=1e-6, err_msg=name)


def test_bands_cut_the_sums_and_nothing_else():
    """Two rows of two tokens: one medium, with its first token clipped, one hard."""
    inputs = {
        "logprobs": jnp.array([[jnp.log(2.0), 0.0], [0.0, 5.0]]),
        "old_logprobs": jnp.zeros((2, 2)),
        "advantages": jnp.ones(2),
        "loss_weights": jnp.ones((2, 2)),
        "lengths": jnp.array([2, 1]),
        "ref_logprobs": jnp.zeros((2, 2)),
        "entropies": jnp.array([[0.5, 0.25], [2.0, jnp.nan]]),
        "config": LossConfig(kl_coef=0.1),
    }
    loss, parts = policy_loss(**inputs, bands=jnp.array([1, 2]))
    # k3 of d = -log 2: exp(d) - d - 1 = log 2 - 1/2.
    expected = [[0] * 4, [2, 0.75, np.log(2) - 0.5, 1], [1, 2, 0, 0], [0] * 4]
    np.testing.assert_allclose(parts.by_band, expected, rtol=1e-6)
    np.testing.assert_allclose(parts.by_band[:, 0].sum(), parts.tokens)
    np.testing.assert_allclose(
        parts.by_band[:, 2].sum(), parts.scalars["kl"], rtol=1e-6
    )
    assert loss == policy_loss(**inputs)[0]
    # Rows that do not count are in no band.
    none = policy_loss(**inputs, bands=jnp.array([-1, -1]))[1]
    np.testing.assert_array_equal(none.by_band, np.zeros((4, 4)))


# ---- a plain implementation, one token at a time in float64


def _plain_loss(logprobs: np.ndarray, config: LossConfig) -> float:
    """Returns the loss of docs/method/algorithm.md, written with scalars and loops.

    CISPO's weight is a constant for the gradient, so it uses the golden point.
    """
    lengths = INPUTS["lengths"]
    low, high = 1 - config.clip_low, 1 + config.clip_high
    total = 0.0
    for i, length in enumerate(lengths):
        advantage = INPUTS["advantages"][i]
        point = INPUTS["logprobs"] if config.surrogate == "cispo" else logprobs
        change = (point - INPUTS["old_logprobs"])[i, :length]
        for t in range(length):
            exponent = {
                "token": change[t],
                "sequence": sum(change) / length,
                "trajectory": sum(change),
            }[config.importance_sampling_level]
            ratio = np.exp(exponent)
            held = min(max(ratio, low), high)
            surrogate = {
                "ppo": min(ratio * advantage, held * advantage),
                "cispo": held * advantage * logprobs[i, t],
                "reinforce": ratio * advantage,
            }[config.surrogate]
            d = INPUTS["ref_logprobs"][i, t] - logprobs[i, t]
            kl = {"k1": -d, "k2": d * d / 2, "k3": np.exp(d) - 1 - d}
            divisor = {
                "token_mean": sum(lengths),
                "seq_mean_token_mean": len(lengths) * length,
                "seq_mean_token_sum": len(lengths),
                "seq_mean_token_sum_norm": len(lengths) * MAX_LENGTH,
            }[config.aggregation]
            term = config.kl_coef * kl[config.kl_estimator] - surrogate
            term -= config.entropy_coef * INPUTS["entropies"][i, t]
            total += term / divisor
    return total


@every_variant
def test_loss_and_gradient_match_the_plain_implementation(config):
    """The gradient by central differences, whose error here is below 1e-9."""
    expected = np.zeros(MASK.shape)
    for i, t in zip(*np.nonzero(MASK), strict=True):
        step = np.zeros(MASK.shape)
        step[i, t] = 1e-5
        above, below = (
            _plain_loss(INPUTS["logprobs"] + sign * step, config) for sign in (1, -1)
        )
        expected[i, t] = (above - below) / 2e-5
    parts, gradient = _evaluate(_batch(config), config)
    np.testing.assert_allclose(
        parts.loss, _plain_loss(INPUTS["logprobs"], config), rtol=1e-5
    )
    np.testing.assert_allclose(gradient["logprobs"], expected, rtol=1e-5, atol=1e-7)


# ---- TRL, case by case as make_trl_goldens.py configures it

GRPO = LossConfig(aggregation="seq_mean_token_mean")
OURS = {
    "grpo": GRPO,
    "grpo_kl": LossConfig(aggregation="seq_mean_token_mean", kl_coef=0.04),
    "bnpo": LossConfig(aggregation="token_mean"),
    "dr_grpo": LossConfig(aggregation="seq_mean_token_sum_norm"),
    "dr_grpo_kl": LossConfig(aggregation="seq_mean_token_sum_norm", kl_coef=0.1),
    "dapo": LossConfig(clip_high=0.28),
    "dapo_entropy": LossConfig(clip_high=0.28, entropy_coef=0.01),
    "gspo": LossConfig(
        importance_sampling_level="sequence",
        clip_low=3e-4,
        clip_high=4e-4,
        aggregation="seq_mean_token_mean",
    ),
    "gspo_wide_kl": LossConfig(
        importance_sampling_level="sequence",
        clip_low=0.1,
        clip_high=0.15,
        aggregation="seq_mean_token_mean",
        kl_coef=0.04,
    ),
    "luspo": LossConfig(
        importance_sampling_level="sequence",
        clip_low=0.1,
        clip_high=0.1,
        aggregation="seq_mean_token_sum",
    ),
    # TRL's epsilon_high is the bound on the weight: 1.25 and 5.
    "cispo": LossConfig(surrogate="cispo", clip_low=1.0, clip_high=0.25),
    "cispo_kl": LossConfig(
        surrogate="cispo", clip_low=1.0, clip_high=4.0, kl_coef=0.04
    ),
    "rloo": LossConfig(
        importance_sampling_level="trajectory", aggregation="seq_mean_token_mean"
    ),
}


@pytest.mark.parametrize("case", GOLDEN["losses"])
def test_loss_and_gradient_match_trl(case):
    config = OURS[case]
    parts, gradient = _evaluate(_batch(config), config)
    golden = GOLDEN["losses"][case]
    expected = np.zeros(MASK.shape)
    expected[MASK] = golden["gradient"]
    np.testing.assert_allclose(parts.loss, golden["loss"], rtol=1e-5)
    np.testing.assert_allclose(gradient["logprobs"], expected, rtol=1e-5, atol=1e-8)


def test_goldens_cover_both_bounds_and_the_interior():
    """Each clipped case holds some tokens at a bound and leaves some free."""
    for case, config in OURS.items():
        parts = _evaluate(_batch(config), config)[0]
        held = parts.scalars["clip_low"] + parts.scalars["clip_high"]
        if case != "cispo_kl":
            assert 0 < held < parts.tokens, case
        if config.surrogate == "ppo":
            assert parts.scalars["clip_low"] > 0, case
            assert parts.scalars["clip_high"] > 0, case
