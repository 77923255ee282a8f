"""RL-PLUS's external traces, against float64 NumPy: gain, advantage, rows, refusals.

The references are the formulas of https://arxiv.org/abs/2508.00222 as in its authors'
code; gradients are central differences.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from job_jax.schema import ConfigError
from rlvr_jax.algorithms.advantages.groups import external_advantages, group_advantages
from rlvr_jax.config import Config, LossConfig, SamplingConfig, TrainConfig
from rlvr_jax.learn.batches import (
    batch_from_rollouts,
    make_batch,
    split_minibatches,
    with_loss_weights,
)
from rlvr_jax.learn.logprobs import TokenScores
from rlvr_jax.learn.micro_batches import (
    MicroBatchCut,
    abstract_micro_batch,
    split_micro_batches,
)
from rlvr_jax.learn.objectives import policy_objective
from rlvr_jax.learn.presets import dr_grpo, rl_plus
from rlvr_jax.probe import SAEProbeConfig
from rlvr_jax.types import ExternalTraces, Prompts, Rollouts
from tests.support.user_extensions import Sigmoid

P, G, T = 2, 2, 5
B = P * (G + 1)
LENGTHS = np.array([5, 1, 3, 5, 2, 4], np.int32)
EXTERNAL = np.arange(B) % (G + 1) == G
OWN = ~EXTERNAL[:, None]
MASK = np.arange(T) < LENGTHS[:, None]
WEIGHTS = MASK / MASK.sum()
ADVANTAGES = np.array([1.5, -0.7, 1.2, 0.4, -0.3, -0.9])
RANDOM = np.random.RandomState(3)
LOGPROBS = -RANDOM.uniform(0.01, 4.0, (B, T))
# Ratios from e^-2.5 to e^2.5 (with probabilities below 1): beyond every bound.
OLD = np.minimum(LOGPROBS - RANDOM.uniform(-2.5, 2.5, (B, T)), -0.02)
SAMPLER = OLD - RANDOM.uniform(-1.5, 1.5, (B, T))
ON = LossConfig(external_traces="rl_plus")
PROMPTS = Prompts(
    tokens=np.ones((P, 1), np.int32),
    lengths=np.ones(P, np.int32),
    uid=np.arange(P, dtype=np.uint32),
)


def _batch(**changed):
    """Returns the batch; padding is NaN, and so are values without a sample."""
    arrays = {
        "loss_weights": WEIGHTS,
        "old_logprobs": OLD,
        "sampler_logprobs": np.where(OWN, SAMPLER, np.nan),
    } | changed
    return make_batch(
        PROMPTS,
        np.ones((B, T), np.int32),
        LENGTHS,
        advantages=np.float32(ADVANTAGES),
        external=EXTERNAL,
        **{
            name: np.where(MASK, np.float32(values), np.nan)
            if np.ndim(values) == 2
            else values
            for name, values in arrays.items()
        },
    )


def _ours(config, batch=None):
    """Returns loss, diagnostics and the gradient by the log-probabilities."""
    objective = policy_objective(config)
    on_device = jax.tree.map(jnp.asarray, _batch() if batch is None else batch)

    def loss(logprobs):
        scores = TokenScores(logprobs=logprobs, entropies=jnp.ones((B, T)))
        return objective(scores, on_device)

    start = jnp.where(MASK, jnp.asarray(LOGPROBS, jnp.float32), jnp.nan)
    (value, aux), gradient = jax.value_and_grad(loss, has_aux=True)(start)
    return value, aux, gradient


def _slopes(function):
    slopes = np.zeros((B, T))
    for place in np.ndindex(B, T):
        step = np.zeros((B, T))
        step[place] = 1e-6
        slopes[place] = (function(LOGPROBS + step) - function(LOGPROBS - step)) / 2e-6
    return slopes


def _clipped(logprobs, old):
    ratio, advantage = np.exp(logprobs - old), ADVANTAGES[:, None]
    return np.minimum(ratio * advantage, np.clip(ratio, 0.8, 1.2) * advantage)


def _rl_plus(logprobs, old, *, frozen=LOGPROBS, bounds=(0.0, np.inf)):
    """Returns the authors' gain; `frozen` is the policy without a gradient."""
    pi, pi_old = np.exp(logprobs), np.exp(old)
    ratio = np.clip(2 * pi / (pi_old + 0.5 * (pi_old + 1)), *bounds)
    return ratio * ADVANTAGES[:, None] * (1 - np.exp(frozen)) ** 0.5


def _loss(logprobs, *, old=OLD, weight=1.0, external=_rl_plus):
    gain = np.where(OWN, weight * _clipped(logprobs, old), external(logprobs, old))
    return -(WEIGHTS * gain).sum()


def test_an_external_row_gains_by_rl_plus_and_the_others_as_ever():
    value, aux, gradient = _ours(ON)
    assert value == aux.loss == pytest.approx(_loss(LOGPROBS), rel=1e-5)
    np.testing.assert_allclose(gradient, _slopes(_loss), atol=2e-6)
    for near_miss in (
        _clipped,  # external rows among the clipped
        lambda x, old: _rl_plus(x, old, bounds=(0.8, 1.2)),
        lambda x, old: _rl_plus(x, old, frozen=-np.inf),  # without exploration
        lambda x, old: np.exp(x) * ADVANTAGES[:, None],  # another denominator
    ):
        wrong = _loss(LOGPROBS, external=near_miss)
        assert value != pytest.approx(wrong, rel=1e-2)

    def moving(x):
        return _loss(x, external=lambda x, old: _rl_plus(x, old, frozen=x))

    # A gradient through the root would differ.
    assert np.abs(_slopes(moving) - gradient).max() > 1e-2


def test_no_ratio_of_an_external_row_is_clipped():
    """Its gradient is its gain: every token with room to become likelier is pushed."""
    _, _, gradient = _ours(ON)
    gain = WEIGHTS * _rl_plus(LOGPROBS, OLD)
    np.testing.assert_allclose(gradient[EXTERNAL], -gain[EXTERNAL], rtol=1e-4)
    ratio = np.exp(LOGPROBS - OLD)
    clipped = MASK & OWN & np.where(ADVANTAGES[:, None] > 0, ratio > 1.2, ratio < 0.8)
    assert clipped.any()
    assert not np.asarray(gradient)[clipped].any()


@pytest.mark.parametrize("external", ["off", "rl_plus"])
def test_a_certain_token_gains_nothing_and_divides_by_nothing(external):
    sure = np.where(EXTERNAL[:, None], 0.0, OLD)
    batch = _batch(old_logprobs=sure)
    scores = TokenScores(logprobs=jnp.zeros((B, T)), entropies=jnp.zeros((B, T)))
    objective = policy_objective(LossConfig(external_traces=external))
    batch = jax.tree.map(jnp.asarray, dataclasses.replace(batch, sampler_logprobs=None))
    gradient = jax.grad(
        lambda x: objective(dataclasses.replace(scores, logprobs=x), batch)[0]
    )(scores.logprobs)
    assert np.isfinite(gradient).all()
    assert not np.asarray(gradient)[EXTERNAL].any()


def test_the_first_step_of_a_batch_reads_no_old_log_probability():
    """Every row is on-policy: an external row divides by the current policy."""
    unknown = _batch(
        on_policy=np.ones(B, bool), old_logprobs=np.where(OWN, OLD, np.inf)
    )
    value, _, gradient = _ours(ON, unknown)

    def reference(x):
        return _loss(x, old=LOGPROBS)

    assert value == pytest.approx(reference(LOGPROBS), rel=1e-5)
    np.testing.assert_allclose(gradient, _slopes(reference), atol=2e-6)


def test_nothing_else_that_is_reported_is_of_external_rows():
    """Ratios, entropy, mismatch, bands, token statistics count only own rows."""
    config = dataclasses.replace(ON, tis_cap=2.0)
    bands = np.arange(B, dtype=np.int32) % 3
    value, aux, _ = _ours(config, _batch(bands=bands))
    emptied = dataclasses.replace(
        _batch(bands=bands), lengths=np.where(EXTERNAL, 0, LENGTHS), external=None
    )
    own_value, own, _ = _ours(config, emptied)
    reported = dataclasses.replace(aux, loss=own.loss, external_sums=own.external_sums)
    jax.tree.map(np.testing.assert_array_equal, reported, own)
    assert int(aux.tokens) == MASK[~EXTERNAL].sum()
    mismatch = np.abs(LOGPROBS - SAMPLER)[MASK & OWN].sum()
    assert aux.logprob_mismatch == pytest.approx(mismatch, rel=1e-5)
    weight = np.minimum(np.exp(OLD - SAMPLER), 2.0)
    assert value == pytest.approx(_loss(LOGPROBS, weight=weight), rel=1e-5)
    theirs = [LOGPROBS[MASK & ~OWN].sum(), (MASK & ~OWN).sum()]
    np.testing.assert_allclose(aux.external_sums, theirs, rtol=1e-5)
    np.testing.assert_array_equal(own.external_sums, [0.0, 0.0])
    gain = (WEIGHTS * _rl_plus(LOGPROBS, OLD))[EXTERNAL].sum()
    assert value == pytest.approx(float(own_value) - gain, rel=1e-5)


def test_kl_and_entropy_terms_are_of_own_rows():
    config = dataclasses.replace(ON, kl_coef=0.5, entropy_coef=0.25)
    value, _, _ = _ours(config, _batch(ref_logprobs=OLD))
    d = OLD - LOGPROBS
    terms = 0.5 * (np.expm1(d) - d) - 0.25
    expected = _loss(LOGPROBS) + (WEIGHTS * terms)[~EXTERNAL].sum()
    assert value == pytest.approx(expected, rel=1e-5)


def test_external_rows_work_with_a_custom_objective():
    theirs = dataclasses.replace(Sigmoid(), external_traces="rl_plus")
    value, _, _ = _ours(theirs)
    gate = 4.0 / (1.0 + np.exp(1.0 - np.exp(LOGPROBS - OLD))) * ADVANTAGES[:, None]
    gain = np.where(OWN, gate, _rl_plus(LOGPROBS, OLD))
    assert value == pytest.approx(-(WEIGHTS * gain).sum(), rel=1e-5)


OWN_REWARDS = np.array(
    [[1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1], [1, 1, 1, 0], [0.7, 0.7, 0.7, 0.7]]
)
JUDGED = np.ones(OWN_REWARDS.shape, bool)
JUDGED[3, :2] = False  # 1 and 0 are left
JUDGED[1] = False


@pytest.mark.parametrize("normalize", ["group", "batch", "none"])
@pytest.mark.parametrize("judged", [None, JUDGED])
def test_only_the_policys_own_rows_set_a_traces_scale(normalize, judged):
    trace = np.array([1.0, 1.0, 1.0, 0.25, 0.7])
    mask = np.ones(OWN_REWARDS.shape, bool) if judged is None else judged
    expected = []
    for reward, rewards, told in zip(trace, OWN_REWARDS, mask, strict=True):
        if not told.any():
            expected.append(0.0)
            continue
        group = rewards[told]
        unit = {"group": group.std(), "batch": OWN_REWARDS[mask].std(), "none": 1.0}
        scale = unit[normalize] if unit[normalize] > 1e-6 else 1.0
        expected.append((reward - group.mean()) / scale)
    found = external_advantages(trace, OWN_REWARDS, judged, normalize=normalize)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert found[2] == 0.0  # all right: nothing to gain
    assert found[4] == pytest.approx(0.0, abs=1e-6)  # rounding is not scaled up


def test_one_right_trace_among_wrong_completions_gains_the_whole_difference():
    for size in (2, 8):
        own = np.zeros((1, size))
        assert external_advantages([1.0], own).tolist() == [1.0]
        assert not np.any(group_advantages(own))


def _extended():
    """Returns four groups of two, each with a trace except the third."""
    lengths = np.array([4, 1, 2, 3, 4, 4, 1, 2], np.int32)
    mask = np.arange(4) < lengths[:, None]
    rollouts = Rollouts(
        prompts=Prompts(
            tokens=np.ones((4, 2), np.int32),
            lengths=np.full(4, 2, np.int32),
            uid=np.arange(4, dtype=np.uint32),
        ),
        tokens=np.where(mask, 5, 0).astype(np.int32),
        lengths=lengths,
        logprobs=np.where(mask, np.float32(-1), np.float32(0)),
        finished=np.ones(8, bool),
        weight_version=np.int32(0),
    )
    traces = ExternalTraces(
        tokens=np.array([[7] * 3 + [0], [7] * 4, [0] * 4, [7] + [0] * 3], np.int32),
        lengths=np.array([3, 4, 0, 1], np.int32),
        advantages=np.array([10, 11, 0, 13], np.float32),
    )
    advantages = np.arange(1, 9, dtype=np.float32).reshape(4, 2)
    bands = np.array([0, 1, 2, -1])
    return rollouts, advantages, bands, traces


def test_a_trace_is_the_last_row_of_its_group_however_the_batch_is_cut():
    rollouts, advantages, bands, traces = _extended()
    batch = batch_from_rollouts(rollouts, advantages, bands_P=bands, external=traces)
    plain = batch_from_rollouts(rollouts, advantages, bands_P=bands)
    own = ~batch.external
    assert own.tolist() == [True, True, False] * 4
    for name in ("tokens", "lengths", "advantages", "old_logprobs", "bands"):
        np.testing.assert_array_equal(getattr(batch, name)[own], getattr(plain, name))
    np.testing.assert_array_equal(batch.tokens[~own], traces.tokens)
    assert batch.lengths[~own].tolist() == [3, 4, 0, 1]
    assert batch.advantages[~own].tolist() == [10, 11, 0, 13]
    assert not batch.old_logprobs[~own].any()
    assert plain.external is None
    # 21 tokens of 8 completions and 8 of 3 traces; the row of length 0 is filler.
    for aggregation, weight in (("token_mean", 1 / 29), ("seq_mean_token_sum", 1 / 11)):
        whole = with_loss_weights(batch, aggregation=aggregation, max_length=4)
        np.testing.assert_allclose(whole.loss_weights[whole.mask], weight, rtol=1e-6)
    whole = with_loss_weights(batch, aggregation="token_mean", max_length=4)
    single = MicroBatchCut(num_groups=1, pad_multiple=1)
    for half in split_minibatches(whole, 2):
        for part in split_micro_batches(half, single):
            assert part.external.tolist() == [False, False, True]
            first, second, trace = part.advantages
            assert second == first + 1
            assert trace in (0, 9.5 + first / 2)


def test_a_group_whose_trace_alone_has_an_advantage_is_not_of_zero_variance():
    rollouts, advantages, _, traces = _extended()
    batch = batch_from_rollouts(rollouts, 0 * advantages, external=traces)
    weights = with_loss_weights(
        batch, aggregation="token_mean", max_length=4, exclude_zero_variance=True
    ).loss_weights.reshape(4, 3, 4)
    assert weights.any(axis=(1, 2)).tolist() == [True, True, False, True]


def test_programs_are_sized_for_one_row_more_a_group():
    shapes = {}
    for loss in (LossConfig(), ON):
        train = TrainConfig(
            batch_size=8,
            grad_accum_steps=2,
            group_size=4,
            loss=loss,
            sampling=SamplingConfig(max_new_tokens=8),
        )
        batch = abstract_micro_batch(Config(train=train), prompt_width=32)
        shapes[loss.external_traces] = batch.tokens.shape, batch.external is not None
    assert shapes == {"off": ((4 * 4, 16), False), "rl_plus": ((4 * 5, 16), True)}


def test_the_preset_is_dr_grpo_but_for_the_clip_the_bonus_and_the_traces():
    ours, theirs = rl_plus(), dr_grpo()
    assert ours["advantage"] == theirs["advantage"]
    changed = {
        name: value
        for name, value in vars(ours["loss"]).items()
        if value != vars(theirs["loss"])[name]
    }
    assert changed == {
        "surrogate": "reinforce",
        "entropy_coef": 0.001,
        "external_traces": "rl_plus",
    }


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: TrainConfig(loss=ON, num_epochs=2),
            r"loss.external_traces=rl_plus needs .*num_epochs=2 x num_minibatches=1",
        ),
        (
            lambda: TrainConfig(loss=ON, num_minibatches=2, batch_size=4),
            "set old_logprobs=trainer",
        ),
        (
            lambda: LossConfig(external_traces="rl_plus", top_entropy_quantile=0.5),
            "top_entropy_quantile=0.5 chooses among tokens that the policy sampled",
        ),
        (
            lambda: Config(train=TrainConfig(loss=ON), probe=SAEProbeConfig()),
            "external_traces updates on tokens that the policy did not write",
        ),
    ],
)
def test_settings_that_traces_do_not_go_with_are_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_one_step_a_batch_or_a_scoring_pass_is_enough():
    for train in ({}, {"old_logprobs": "trainer", "num_epochs": 2}):
        TrainConfig(loss=ON, **train)
