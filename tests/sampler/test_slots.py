"""Slots: with any number of them, rows draw the same as they would alone."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import AxisType, Mesh

from job_jax.mesh import AXES, batch_sharding, replicated_sharding
from job_jax.schema import ConfigError
from rlvr_jax.config import SamplingConfig
from rlvr_jax.models import param_shardings
from rlvr_jax.models.distribution import (
    SamplingParams,
    is_eos,
    sample_tokens,
    sampling_logits,
)
from rlvr_jax.plan.program_costs import program_costs
from rlvr_jax.sampler import ScopedIntervention, pad_prompts, sample
from rlvr_jax.sampler.generate import row_keys, token_keys
from rlvr_jax.sampler.stages import decode_stages
from rlvr_jax.types import Rollouts
from tests.support.policies import forward, random_tokens, tiny_policy

# Long enough for two widths of the cache and, at 32 slots, for all halvings of them.
# With few slots the clock wraps around several times.
P, G, T, S = 8, 4, 70, 8
B = P * G
PROMPTS = [random_tokens(1, 1 + p, seed=p)[0].tolist() for p in range(P)]
UIDS = [3, 2**32 - 1, 0, 11, 5, 8, 9, 70]
SETTINGS = {
    "plain": {},
    "all": {"temperature": 0.7, "top_p": 0.9, "top_k": 5, "min_new_tokens": 3},
    "greedy": {"temperature": 0.0, "min_new_tokens": 1},
}
VARIANTS = {
    "full": {"num_layers": 1},
    "sliding": {
        "layer_types": ("sliding", "full"),
        "sliding_window": 5,
        "scan_layers": True,
    },
}


def _policy(variant: str = "full"):
    return tiny_policy(vocab_size=24, eos_ids=(1,), **VARIANTS[variant])


def _sampling(settings: dict) -> SamplingParams:
    return SamplingParams.from_config(SamplingConfig(max_new_tokens=T, **settings))


@functools.cache
def _drawn(
    num_slots: int,
    name: str = "plain",
    *,
    variant: str = "full",
    shape: tuple[int, int, int] = (1, 1, 1),
) -> Rollouts:
    """Returns the sampler's rollouts in NumPy."""
    return jax.device_get(_call(num_slots, name, variant=variant, shape=shape))


def _call(num_slots, name="plain", *, variant="full", shape=(1, 1, 1), run=sample):
    devices = np.array(jax.devices()[: int(np.prod(shape))]).reshape(shape)
    mesh = Mesh(devices, AXES, axis_types=(AxisType.Auto,) * len(AXES))
    policy = _policy(variant)
    with jax.set_mesh(mesh):
        graphdef, params = nnx.split(policy)
        prompts = pad_prompts(PROMPTS, uids=UIDS, pad_multiple=S)
        return run(
            graphdef,
            jax.device_put(params, param_shardings(policy, mesh)),
            jax.device_put(prompts, batch_sharding(mesh)),
            jax.device_put(_sampling(SETTINGS[name]), replicated_sharding(mesh)),
            key=jax.random.key(0),
            weight_version=np.int32(0),
            num_samples=G,
            max_new_tokens=T,
            num_slots=num_slots,
        )


@functools.cache
def _reference(name: str, variant: str = "full") -> dict[str, np.ndarray]:
    """Returns the draws of one uncached pass over prompt and completion per token.

    All rows continue to the last column; tokens after an end are removed later.
    """
    policy, sampling = _policy(variant), _sampling(SETTINGS[name])
    keys_B = row_keys(jax.random.key(0), jnp.array(UIDS, jnp.uint32), G)
    every, starts = np.arange(B), np.repeat([len(p) for p in PROMPTS], G)
    rows = np.zeros((B, S + T), np.int32)
    for row, start in enumerate(starts):
        rows[row, :start] = PROMPTS[row // G]

    @jax.jit
    def draw(logits_BV, index_B):
        kept = sampling_logits(logits_BV, index_B, sampling, eos_ids=policy.eos_ids)
        return sample_tokens(kept, token_keys(keys_B, index_B))

    tokens, logprobs = np.zeros((B, T), np.int32), np.zeros((B, T), np.float32)
    for index in range(T):
        mask = np.arange(S + T) < (starts + index)[:, None]
        logits = forward(*nnx.split(policy), rows, mask)
        drawn = draw(logits[every, starts + index - 1], np.full(B, index, np.int32))
        tokens[:, index], logprobs[:, index] = drawn
        rows[every, starts + index] = tokens[:, index]
    ends = np.asarray(is_eos(jnp.asarray(tokens), policy.eos_ids))
    finished = ends.any(axis=1)
    lengths = np.where(finished, ends.argmax(axis=1) + 1, T)
    own = np.arange(T) < lengths[:, None]
    return {
        "tokens": np.where(own, tokens, 0),
        "logprobs": np.where(own, logprobs, 0),
        "lengths": lengths,
        "finished": finished,
    }


def _assert_same(found: Rollouts, expected: dict[str, np.ndarray]) -> None:
    for name in ("tokens", "lengths", "finished"):
        np.testing.assert_array_equal(getattr(found, name), expected[name])
    np.testing.assert_allclose(found.logprobs, expected["logprobs"], rtol=0, atol=2e-5)


@pytest.mark.parametrize("num_slots", [1, 3, 16, 0])
@pytest.mark.parametrize("name", SETTINGS)
def test_rollouts_are_those_of_whole_passes(name, num_slots):
    _assert_same(_drawn(num_slots, name), _reference(name))


def test_rows_end_early_late_and_at_the_limit():
    lengths = _reference("plain")["lengths"]
    assert lengths.min() < T / 8 < np.median(lengths) < T / 2 < lengths.max() == T
    assert 0 < _reference("plain")["finished"].sum() < B


@pytest.mark.parametrize("num_slots", [3, pytest.param(0, marks=pytest.mark.slow)])
def test_windows_slide_over_prompt_and_ring(num_slots):
    _assert_same(
        _drawn(num_slots, variant="sliding"), _reference("plain", variant="sliding")
    )


@pytest.mark.parametrize(
    ("shape", "num_slots"),
    [
        ((8, 1, 1), 16),
        pytest.param((8, 1, 1), 0, marks=pytest.mark.slow),
        pytest.param((2, 1, 4), 16, marks=pytest.mark.slow),
        pytest.param((2, 2, 2), 0, marks=pytest.mark.slow),
        pytest.param((1, 4, 2), 4, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_every_mesh_draws_the_tokens_of_one_device(shape, num_slots):
    _assert_same(_drawn(num_slots, shape=shape), _reference("plain"))


def test_shards_exchange_only_whether_to_continue():
    """No keys, values or tokens cross devices: only one truth value does."""
    text = _call(16, shape=(8, 1, 1), run=sample.lower).compile().as_text()
    crossing = re.findall(
        r"= (.+?) (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)"
        r"(?:-start)?\(",
        text,
    )
    assert crossing
    assert set(crossing) <= {
        ("pred[]", "all-reduce"),
        ("(pred[], pred[])", "all-reduce"),
    }


@pytest.mark.parametrize(
    "scope",
    [
        "predicting",
        pytest.param("completion", marks=pytest.mark.slow),
        pytest.param("everywhere", marks=pytest.mark.slow),
    ],
)
def test_edits_equal_those_of_all_rows_at_once(scope):
    edited = ScopedIntervention(edits=(Bend(),), scope=scope)

    def run(*args, **given):
        return sample(*args, **{**given, "max_new_tokens": 12, "intervention": edited})

    few, all_rows = (jax.device_get(_call(slots, run=run)) for slots in (5, 0))
    np.testing.assert_array_equal(few.tokens, all_rows.tokens)
    np.testing.assert_allclose(few.logprobs, all_rows.logprobs, atol=2e-5)
    clean = _drawn(1).tokens[:, :12]
    assert (few.tokens != clean).any()


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Bend:
    """An edit that no constant shift or scale can imitate."""

    layer: int = dataclasses.field(default=0, metadata={"static": True})

    def __call__(self, x, /):
        return x + 2 * jnp.tanh(x).mean(axis=-1, keepdims=True)


def test_one_slot_wastes_nothing():
    rollouts = _drawn(1)
    assert rollouts.slot_steps == rollouts.lengths.sum()


def test_all_rows_cost_those_that_are_left():
    """There are 32 slots while more than 16 rows are active, then 16, 8 and 4."""
    rollouts = _drawn(0)
    left_T = (rollouts.lengths[:, None] > np.arange(T)).sum(axis=0)
    slots_T = np.array([32, 16, 8, 4])[(left_T[:, None] <= [16, 8, 4]).sum(axis=1)]
    assert rollouts.slot_steps == slots_T[left_T > 0].sum()
    assert rollouts.slot_steps < 0.6 * B * T


def test_waiting_rows_come_in_their_order_whenever_a_slot_is_free():
    """Each of three slots is free at once for the next row: a list schedule."""
    rollouts = _drawn(3)
    ends = [0, 0, 0]
    for length in rollouts.lengths:
        ends[ends.index(min(ends))] += int(length)
    assert rollouts.slot_steps == 3 * max(ends)


@pytest.mark.parametrize(
    ("slots", "length", "stages"),
    [
        (32, 256, [(32, 64), (32, 128), (32, 256), (16, 256), (8, 256), (4, 256)]),
        (512, 64, [(512, 32), (512, 64), (256, 64), (128, 64), (64, 64)]),
        (9, 100, [(9, 50), (9, 100), (5, 100)]),
        (7, 63, [(7, 63)]),
        (512, 63, [(512, 63)]),
    ],
)
def test_stages(slots, length, stages):
    assert decode_stages(slots, length) == stages


def test_a_scanned_cache_is_never_copied():
    """Two copies of it in every layer once made sampling 3.4 times slower.

    XLA makes them in programs of this size, but not in the smaller ones above.
    """
    policy = tiny_policy(
        hidden_size=16, num_heads=9, num_kv_heads=3, head_dim=32, scan_layers=True
    )
    graphdef, params = nnx.split(policy)
    prompts = pad_prompts([[2, 3, 4]] * 64, uids=range(64), pad_multiple=S)
    program = sample.lower(
        graphdef,
        params,
        prompts,
        _sampling({}),
        key=jax.random.key(0),
        weight_version=np.int32(0),
        num_samples=8,
        max_new_tokens=48,
    )
    cache = ",".join(map(str, policy.init_cache(512, 48).keys.shape))
    loops = program.compile().as_text().partition("\nENTRY ")[0]
    assert re.search(rf"= f32\[{cache}\]\S* dynamic-update-slice\(", loops)
    assert not re.search(rf"= f32\[{cache}\]\S* copy\(", loops)


@pytest.mark.parametrize(("num_slots", "steps"), [(0, T), (8, 4 * T)])
def test_a_plan_counts_rows_of_full_length(num_slots, steps):
    """Every step multiplies each slot's stream by the head, with V = 24 and D = 32."""
    compiled = _call(num_slots, run=sample.lower).compile().as_text()
    flops = program_costs(compiled).flops
    policy, slots = _policy(), num_slots or B
    weights = sum(x.size for x in jax.tree.leaves(nnx.state(policy)) if x.ndim > 1)
    per_step = 2 * weights * slots
    attention = 2 * 2 * slots * (S + T) * 4 * 8
    assert steps * per_step < flops < steps * (per_step + attention) * 1.1


def test_slots_that_the_mesh_does_not_divide_are_refused():
    with pytest.raises(ConfigError, match="num_slots=12 is not divisible by the 8"):
        _call(12, shape=(8, 1, 1))


def test_more_slots_than_rows_are_as_many_as_rows():
    _assert_same(_drawn(B), _reference("plain"))
    np.testing.assert_array_equal(_drawn(B).slot_steps, _drawn(0).slot_steps)
