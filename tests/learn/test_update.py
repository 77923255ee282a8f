"""Optimizer steps: the same gradient for every cut of the minibatch, and AdamW."""

import dataclasses
import functools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from rlvr_jax.algorithms.losses import policy_loss
from rlvr_jax.config import LossConfig, OptimizerConfig
from rlvr_jax.learn.batches import take_groups, with_loss_weights
from rlvr_jax.learn.logprobs import TokenScores
from rlvr_jax.learn.micro_batches import MicroBatchCut, split_micro_batches
from rlvr_jax.learn.objectives import policy_objective, supervised_objective
from rlvr_jax.learn.optimizer import (
    DivergedError,
    OptimizerMetrics,
    check_not_diverged,
    make_optimizer,
    make_schedule,
)
from rlvr_jax.learn.update import Updater
from rlvr_jax.models import Transformer
from rlvr_jax.models.distribution import SamplingParams
from rlvr_jax.types import Batch, LossAux
from tests.support.policies import EOS, TINY, named, random_tokens, tiny_policy

# Two prompt and three completion columns beyond the longest rows.
P, G, S, T = 4, 2, 7, 11
LENGTHS = np.array([3, 2, 8, 1, 4, 4, 7, 5], np.int32)
PROMPT_LENGTHS = np.array([5, 2, 1, 3], np.int32)
MASK = np.arange(T) < LENGTHS[:, None]
LOSS = LossConfig(
    clip_low=0.1, clip_high=0.15, kl_coef=0.3, kl_estimator="k3", entropy_coef=0.2
)
# A clip that never acts, so the first moment shows the gradient.
OPTIMIZER = OptimizerConfig(clip_norm=1e9, warmup_steps=3)
POLICY = tiny_policy(num_layers=1)


def _batch() -> Batch:
    """Returns a weighted minibatch; its padding would show if it were read."""
    random = np.random.RandomState(0)
    logprobs = -3 + random.standard_normal((2, P * G, T)).astype(np.float32)
    batch = Batch(
        prompt_tokens=random_tokens(P, S, seed=1),
        prompt_lengths=PROMPT_LENGTHS,
        tokens=random_tokens(P * G, T, seed=2),
        lengths=LENGTHS,
        loss_weights=np.zeros((P * G, T), np.float32),
        advantages=np.float32([1.5, -0.8, 0.0, 0.6, -1.2, 0.9, 2.0, -0.3]),
        old_logprobs=np.where(MASK, logprobs[0], np.float32(np.nan)),
        ref_logprobs=np.where(MASK, logprobs[1], np.float32(np.inf)),
        bands=np.int32([0, 0, 1, 1, 2, 2, -1, -1]),
    )
    return with_loss_weights(batch, aggregation="seq_mean_token_mean", max_length=T)


@functools.cache
def _updater() -> Updater:
    return Updater(
        nnx.graphdef(POLICY),
        policy_objective(LOSS),
        optimizer=OPTIMIZER,
        total_steps=10,
        logits_chunk_size=3,
    )


def _params(policy: Transformer = POLICY):
    """Returns a copy, because an update consumes its state."""
    return jax.tree.map(jnp.copy, nnx.state(policy))


def _gradient(parts: list[Batch]) -> tuple[LossAux, dict[str, np.ndarray]]:
    """Returns one step's loss parts and gradient: Adam's first moment is 0.1 of it."""
    updater = _updater()
    state, losses, report = updater.step(
        updater.init(_params()), parts, SamplingParams.unmodified()
    )
    assert not report.consecutive_nonfinite
    moment = optax.tree.get(state.opt_state, "mu")
    gradient = {k: v / (1 - OPTIMIZER.b1) for k, v in named(moment).items()}
    norm = math.sqrt(sum((g**2).sum() for g in gradient.values()))
    assert float(report.grad_norm) == pytest.approx(norm, rel=1e-5)
    return jax.device_get(losses), gradient


@functools.cache
def _expected() -> tuple[float, dict[str, np.ndarray]]:
    """Returns loss and gradient of the whole, prompts and completions joined."""
    batch = _batch()
    starts = PROMPT_LENGTHS.repeat(G)
    longest = (starts + LENGTHS).max()
    joined = np.zeros((P * G, longest), np.int32)
    for row, (start, length) in enumerate(zip(starts, LENGTHS, strict=True)):
        joined[row, :start] = batch.prompt_tokens[row // G, :start]
        joined[row, start : start + length] = batch.tokens[row, :length]
    mask = np.arange(longest) < (starts + LENGTHS)[:, None]
    before = np.minimum(starts[:, None] - 1 + np.arange(T), longest - 1)
    graphdef, params = nnx.split(POLICY)

    def loss(params):
        logits_BSV = nnx.merge(graphdef, params)(joined, mask)
        logprobs_BTV = jax.nn.log_softmax(logits_BSV)[np.arange(P * G)[:, None], before]
        chosen = jnp.take_along_axis(logprobs_BTV, batch.tokens[..., None], axis=-1)
        return policy_loss(
            chosen[..., 0],
            jnp.asarray(batch.old_logprobs),
            jnp.asarray(batch.advantages),
            jnp.asarray(batch.loss_weights),
            lengths=jnp.asarray(batch.lengths),
            config=LOSS,
            ref_logprobs=jnp.asarray(batch.ref_logprobs),
            entropies=-(jnp.exp(logprobs_BTV) * logprobs_BTV).sum(axis=-1),
        )[0]

    value, gradient = jax.jit(jax.value_and_grad(loss))(params)
    return float(value), named(gradient)


def _cuts() -> dict[str, list[Batch]]:
    """Returns the minibatch whole, in another order, and cut to its completions."""
    batch = _batch()
    cuts = {
        "whole": [batch],
        "other order": [take_groups(batch, np.array([2, 0, 3, 1]))],
        "two widths": list(
            split_micro_batches(batch, MicroBatchCut(num_groups=P // 2, pad_multiple=4))
        ),
    }
    assert [part.tokens.shape[1] for part in cuts["two widths"]] == [4, 8]
    # By tokens: a prompt of 7 columns and one or two rows of 11, with filler twice.
    cut = MicroBatchCut(
        num_groups=P, pad_multiple=T, max_tokens=90, group_multiple=3, packing=True
    )
    cuts["packed, by tokens"] = list(split_micro_batches(batch, cut))
    short, long = cuts["packed, by tokens"]
    assert short.lengths.tolist() == [3, 2, 0, 0, 0, 0]
    assert short.packing.source.shape == (3, T)
    assert long.packing is None
    return cuts


@pytest.mark.parametrize(
    "name", ["whole", "other order", "two widths", "packed, by tokens"]
)
def test_no_cut_order_or_padding_changes_loss_or_gradient(name):
    parts, gradient = _gradient(_cuts()[name])
    loss, expected = _expected()
    assert parts.loss == pytest.approx(loss, rel=1e-5)
    assert parts.tokens == LENGTHS.sum()
    for path, array in expected.items():
        scale = np.abs(array).max()
        assert scale > 0, path
        np.testing.assert_allclose(
            gradient[path], array, rtol=0, atol=1e-5 * scale, err_msg=path
        )


def test_what_is_reported_adds_up_over_micro_batches():
    cuts = _cuts()
    (whole, _), (cut, _) = _gradient(cuts["whole"]), _gradient(cuts["two widths"])
    assert whole.feature_sums is cut.feature_sums is None
    assert whole.scalars.keys() == {
        *("ratio", "clip_low", "clip_high", "mismatch_clipped"),
        *("kl", "entropy"),
    }
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), cut, whole
    )
    scored = _updater().score(_params(), _batch(), SamplingParams.unmodified())[0]
    gaps = np.abs(scored - _batch().old_logprobs)[MASK]
    assert whole.logprob_mismatch == pytest.approx(gaps.sum(), rel=1e-5)
    assert whole.logprob_mismatch_max == pytest.approx(gaps.max(), rel=1e-5)


def test_scores_are_zero_beyond_each_length():
    logprobs, entropies = _updater().score(
        _params(), _batch(), SamplingParams.unmodified(), with_entropies=True
    )
    assert (logprobs[MASK] < 0).all()
    assert (entropies[MASK] > 0).all()
    assert not logprobs[~MASK].any()
    assert not entropies[~MASK].any()


def test_a_gradient_that_is_not_finite_changes_nothing_and_is_counted():
    """The rate waits too: 1/4 of the peak, then 2/4 until a step is taken."""
    updater, plain = _updater(), SamplingParams.unmodified()
    good = _batch()
    bad = dataclasses.replace(good, advantages=np.full(P * G, np.nan, np.float32))
    state, _, report = updater.step(updater.init(_params()), [good], plain)
    assert report.learning_rate == pytest.approx(OPTIMIZER.learning_rate / 4)
    before = jax.device_get(state)
    for count in (1, 2):
        state, _, report = updater.step(state, [bad], plain)
        assert not np.isfinite(report.grad_norm)
        assert report.consecutive_nonfinite == state.consecutive_nonfinite == count
        assert report.to_metrics()["optimizer/skipped"] == 1
        assert report.learning_rate == pytest.approx(OPTIMIZER.learning_rate / 2)
    after = jax.device_get(state)
    jax.tree.map(np.testing.assert_array_equal, after.params, before.params)
    jax.tree.map(np.testing.assert_array_equal, after.opt_state, before.opt_state)
    assert after.step == before.step + 2
    state, _, report = updater.step(state, [good], plain)
    assert report.consecutive_nonfinite == state.consecutive_nonfinite == 0
    assert report.to_metrics()["optimizer/skipped"] == 0
    assert report.learning_rate == pytest.approx(OPTIMIZER.learning_rate / 2)
    moved = jax.tree.map(
        lambda a, b: not np.array_equal(a, b),
        jax.device_get(state.params),
        after.params,
    )
    assert all(jax.tree.leaves(moved))


def test_too_many_skipped_steps_in_a_row_end_the_run():
    report = OptimizerMetrics(
        grad_norm=np.nan, learning_rate=1e-3, consecutive_nonfinite=5
    )
    check_not_diverged(report, max_consecutive_nonfinite=5)
    with pytest.raises(
        DivergedError, match=r"5 optimizer steps .*max_consecutive_nonfinite=4"
    ):
        check_not_diverged(report, max_consecutive_nonfinite=4)


def test_stopping_is_learned():
    """Rewarding a completion of only its end moves the policy toward ending."""
    updater, plain = _updater(), SamplingParams.unmodified()
    row = int(LENGTHS.argmin())
    assert LENGTHS[row] == 1
    batch = _batch()
    tokens, weights = batch.tokens.copy(), np.zeros_like(batch.loss_weights)
    tokens[row, 0], weights[row, 0] = EOS, 1.0
    batch = dataclasses.replace(
        batch,
        tokens=tokens,
        loss_weights=weights,
        advantages=np.full(P * G, 3.0, np.float32),
    )
    before = updater.score(_params(), batch, plain)[0]
    batch = dataclasses.replace(batch, old_logprobs=before, ref_logprobs=before)
    state, _, report = updater.step(updater.init(_params()), [batch], plain)
    assert report.grad_norm > 0.1
    after = updater.score(state.params, batch, plain)[0]
    assert after[row, 0] > before[row, 0]


def test_supervised_loss_is_the_likelihood_of_only_the_completions():
    inside = np.array([[True, True, False], [True, False, False]])
    scores = TokenScores(
        logprobs=jnp.float32([[-1.0, -2.0, jnp.nan], [-3.0, -jnp.inf, 5.0]]),
        entropies=jnp.float32([[0.5, 0.25, jnp.nan], [1.0, jnp.inf, 5.0]]),
    )
    batch = dataclasses.replace(
        take_groups(_batch(), np.array([0])), loss_weights=np.float32(inside) / 3
    )

    def loss(logprobs):
        return supervised_objective(
            dataclasses.replace(scores, logprobs=logprobs), batch
        )

    gradient, parts = jax.grad(loss, has_aux=True)(scores.logprobs)
    assert float(parts.loss) == pytest.approx(2.0)
    assert float(parts.tokens) == 3
    assert float(parts.scalars["entropy"]) == pytest.approx(1.75)
    np.testing.assert_allclose(gradient, -np.float32(inside) / 3)


def test_the_optimizer_is_the_plain_chain():
    """Clipping, Adam, decay of all but norms, the rate: against its chained parts."""
    config = OptimizerConfig(
        learning_rate=0.1, warmup_steps=2, weight_decay=0.3, clip_norm=0.5, eps=1e-6
    )
    params = {"norm": {"scale": jnp.ones(3)}, "query": jnp.full((2, 2), 2.0)}
    chain = optax.chain(
        optax.clip_by_global_norm(0.5),
        optax.scale_by_adam(b1=0.9, b2=0.95, eps=1e-6),
        optax.add_decayed_weights(0.3, mask={"norm": {"scale": False}, "query": True}),
        optax.scale_by_learning_rate(
            lambda step: 0.1 * jnp.minimum(1.0, (step + 1) / 3)
        ),
    )
    ours = make_optimizer(config, 10)
    states = ours.init(params), chain.init(params)
    updates = jax.jit(ours.update), jax.jit(chain.update)
    random = np.random.RandomState(0)
    with jax.numpy_dtype_promotion("standard"):
        for _ in range(4):
            grads = jax.tree.map(
                lambda p: jnp.float32(random.standard_normal(p.shape)), params
            )
            found, mine = updates[0](grads, states[0], params)
            expected, theirs = updates[1](grads, states[1], params)
            states = mine, theirs
            for a, b in zip(
                jax.tree.leaves(found), jax.tree.leaves(expected), strict=True
            ):
                np.testing.assert_allclose(a, b, rtol=1e-6)


def test_matrices_alone_are_decayed():
    """Without a gradient a step is the decay: -rate * 0.1 * parameter, or nothing."""
    biases = {"qkv_bias": True, "out_bias": True, "mlp_bias": True}
    policy = tiny_policy(
        qk_norm=True, use_post_norms=True, tie_embeddings=False, **biases
    )
    params = nnx.state(policy)
    optimizer = make_optimizer(OptimizerConfig(weight_decay=0.1), 10)
    zeros = jax.tree.map(jnp.zeros_like, params)
    with jax.numpy_dtype_promotion("standard"):
        updates, _ = optimizer.update(zeros, optimizer.init(params), params)
    moved = {name for name, update in named(updates).items() if update.any()}
    matrices = {"query", "key", "value", "out", "gate", "up", "down"}
    expected = {f"blocks.{name}" for name in matrices} | {"embedding", "lm_head"}
    assert moved == expected
    others = {"query_bias", "out_bias", "down_bias", "key_norm.scale"}
    assert {f"blocks.{name}" for name in others} <= named(params).keys()


def test_the_first_step_of_adam_is_the_rate_times_the_gradients_sign():
    updater = _updater()
    state, _, report = updater.step(
        updater.init(_params()), [_batch()], SamplingParams.unmodified()
    )
    _, gradient = _expected()
    before, after = named(nnx.state(POLICY)), named(state.params)
    for name, array in gradient.items():
        clear = np.abs(array) > 1e-3 * np.abs(array).max()
        step = -float(report.learning_rate) * np.sign(array)
        np.testing.assert_allclose(
            (after[name] - before[name])[clear], step[clear], rtol=0.01
        )


def test_the_schedule_ramps_and_then_holds_or_falls():
    config = OptimizerConfig(learning_rate=1.0, warmup_steps=3, end_lr_fraction=0.2)
    constant = make_schedule(config, 11)
    np.testing.assert_allclose(
        [constant(n) for n in range(6)], [0.25, 0.5, 0.75, 1, 1, 1], rtol=1e-6
    )
    cosine = make_schedule(dataclasses.replace(config, schedule="cosine"), 11)
    # 8 steps from 1 to 0.2: halfway it is their mean.
    np.testing.assert_allclose(
        [cosine(n) for n in (0, 3, 7, 11, 50)], [0.25, 1, 0.6, 0.2, 0.2], rtol=1e-6
    )
    none = make_schedule(dataclasses.replace(config, warmup_steps=0), 11)
    np.testing.assert_allclose([none(0), none(1)], [1, 1])


def test_bfloat16_parameters_have_a_float32_optimizer():
    """No type changes in a step; that would compile the next step again."""
    policy = tiny_policy(num_layers=1, param_dtype="bfloat16")
    updater = Updater(
        nnx.graphdef(policy),
        supervised_objective,
        optimizer=OptimizerConfig(weight_decay=0.1),
        total_steps=10,
        logits_chunk_size=0,
    )
    state = updater.init(nnx.state(policy))
    grads = jax.tree.map(lambda p: jnp.ones(p.shape), state.params)
    stepped, _ = jax.eval_shape(updater._apply_gradients, state, grads)

    def kinds(tree):
        return jax.tree.map(lambda x: x.dtype, tree)

    assert kinds(stepped) == kinds(state)
    assert set(jax.tree.leaves(kinds(stepped.params))) == {np.dtype(jnp.bfloat16)}
    for moment in ("mu", "nu"):
        found = jax.tree.leaves(kinds(optax.tree.get(stepped.opt_state, moment)))
        assert set(found) == {np.dtype(np.float32)}


def test_the_compiled_update_has_no_room_for_all_logits():
    """B T V float32 are 134 MB; the program's temporaries stay below that."""
    B, T, V = 16, 64, 2**15
    config = dataclasses.replace(
        TINY, num_layers=1, hidden_size=16, num_heads=2, num_kv_heads=1
    )
    graphdef, params = nnx.split(
        nnx.eval_shape(lambda: Transformer(config, V, nnx.Rngs(0)))
    )

    def shape(*sizes, dtype=jnp.float32):
        return jax.ShapeDtypeStruct(sizes, dtype)

    batch = Batch(
        prompt_tokens=shape(B // 4, S, dtype=jnp.int32),
        prompt_lengths=shape(B // 4, dtype=jnp.int32),
        tokens=shape(B, T, dtype=jnp.int32),
        lengths=shape(B, dtype=jnp.int32),
        loss_weights=shape(B, T),
        advantages=shape(B),
        old_logprobs=shape(B, T),
        ref_logprobs=shape(B, T),
        bands=shape(B, dtype=jnp.int32),
    )

    updater = Updater(
        graphdef,
        policy_objective(LOSS),
        optimizer=OPTIMIZER,
        total_steps=10,
        logits_chunk_size=4,
    )
    total = jax.eval_shape(updater._zero_grads, params)
    program = updater._accumulate.lower(
        total, params, (), batch, SamplingParams.unmodified()
    ).compile()
    shapes = re.findall(r"\w+\[([\d,]+)\]", program.as_text())
    largest = max(math.prod(map(int, sizes.split(","))) for sizes in shapes)
    assert 4 * B * V <= largest < B * T * V
    assert program.memory_analysis().temp_size_in_bytes < 4 * B * T * V
