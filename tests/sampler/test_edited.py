"""Edited decoding: where the stream changes, and that caches hold the right values."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import AxisType, Mesh

from job_jax.mesh import AXES, batch_sharding, replicated_sharding
from rlvr_jax.models import param_shardings
from rlvr_jax.models.distribution import SamplingParams
from rlvr_jax.sampler import ScopedIntervention, generate, pad_prompts, sample
from tests.support.policies import TINY, random_tokens, tiny_policy

T, G = 6, 2
LENGTHS = (8, 3, 1, 5)
PROMPTS = [random_tokens(1, n, seed=n)[0].tolist() for n in LENGTHS]
WHERE = ("completion", "predicting", "everywhere")
PUSH = np.random.default_rng(0).normal(size=TINY.hidden_size).astype(np.float32)

each_loop = pytest.mark.parametrize("scan_layers", [False, True])


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Bend:
    """An edit that no constant shift or scale can imitate."""

    push: jax.Array
    layer: int = dataclasses.field(metadata={"static": True})

    def __call__(self, x, /):
        push_11D = self.push[None, None].astype(x.dtype)
        return x + push_11D * jnp.tanh(x).mean(axis=-1, keepdims=True)


@dataclasses.dataclass(frozen=True)
class At:
    """An edit of the true tokens that a mask marks, for the full forward pass."""

    edit: Bend
    mask: np.ndarray

    @property
    def layer(self):
        return self.edit.layer

    def __call__(self, x, /):
        return jnp.where(self.mask[:, :, None], self.edit(x), x)


def bend(layer=0, size=3.0):
    return Bend(jnp.asarray(size * PUSH), layer)


@functools.cache
def sampled(scan_layers, where=None, layer=0, size=3.0):
    edited = (
        None
        if where is None
        else ScopedIntervention(edits=(bend(layer, size),), scope=where)
    )
    policy = tiny_policy(scan_layers=scan_layers, eos_ids=())
    return jax.device_get(
        generate(policy, PROMPTS, max_new_tokens=T, num_samples=G, intervention=edited)
    )


@each_loop
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("layer", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_cached_decoding_is_the_edited_forward_pass(scan_layers, where, layer):
    """The logprobs equal an uncached pass's over prompt and completion."""
    rollouts = sampled(scan_layers, where, layer)
    rows = len(LENGTHS) * G
    tokens = np.zeros((rows, max(LENGTHS) + T), np.int32)
    at = np.arange(tokens.shape[1])[None]
    starts = np.repeat(LENGTHS, G)[:, None]
    for row, (start,) in enumerate(starts):
        tokens[row, :start] = PROMPTS[row // G]
        tokens[row, start : start + T] = rollouts.tokens[row]
    first = {"completion": starts, "predicting": starts - 1, "everywhere": 0 * starts}
    policy = tiny_policy(scan_layers=scan_layers, eos_ids=())
    activations, _ = jax.jit(
        lambda: policy.prefill(
            jnp.asarray(tokens),
            jnp.asarray(at < starts + T),
            interventions=(At(bend(layer), at >= first[where]),),
        )
    )()
    logprobs = np.asarray(jax.nn.log_softmax(policy.logits(activations.hidden)))
    for row, (start,) in enumerate(starts):
        drawn = logprobs[row, np.arange(start - 1, start + T - 1), rollouts.tokens[row]]
        np.testing.assert_allclose(rollouts.logprobs[row], drawn, atol=2e-5)


@each_loop
def test_positions_are_those_that_are_named(scan_layers):
    """Token 0 depends on an edit of the prompt's last token, but not on later edits."""
    clean = sampled(scan_layers).logprobs
    completion, drawn, everywhere = (
        sampled(scan_layers, where).logprobs for where in WHERE
    )
    np.testing.assert_array_equal(completion[:, 0], clean[:, 0])
    assert (completion[:, 1] != clean[:, 1]).any()
    assert (drawn[:, 0] != clean[:, 0]).any()
    assert (everywhere[:, 0] != drawn[:, 0]).any()
    # With a one-token prompt, both edits are the same.
    alone = slice(2 * G, 3 * G)
    np.testing.assert_allclose(everywhere[alone], drawn[alone], atol=1e-6)


@each_loop
def test_an_edit_that_changes_nothing_gives_the_clean_tokens(scan_layers):
    clean = sampled(scan_layers)
    for where in WHERE:
        sham = sampled(scan_layers, where, 0, 0.0)
        np.testing.assert_array_equal(sham.tokens, clean.tokens)
        np.testing.assert_allclose(sham.logprobs, clean.logprobs, atol=1e-6)


@each_loop
def test_no_edit_leaves_no_trace_in_the_program(scan_layers):
    policy = tiny_policy(scan_layers=scan_layers)
    tokens, mask = jnp.asarray(random_tokens(2, 4)), jnp.ones((2, 4), bool)

    def program(**edit):
        return str(jax.make_jaxpr(lambda t: policy.prefill(t, mask, **edit))(tokens))

    assert program() == program(interventions=())
    assert "tanh" not in program()
    assert program(interventions=(bend(),)).count("tanh") == 1


@each_loop
def test_taps_read_the_edited_stream_and_layers_below_do_not(scan_layers):
    policy = tiny_policy(scan_layers=scan_layers)
    tokens, mask = jnp.asarray(random_tokens(2, 4)), jnp.ones((2, 4), bool)

    @jax.jit
    def taps(*edits):
        found, _ = policy.prefill(
            tokens, mask, capture_layers=(0, 1), interventions=edits
        )
        return found.captured

    clean, edited = taps(), taps(bend(1))
    np.testing.assert_allclose(edited[0], clean[0], atol=1e-6)
    np.testing.assert_allclose(edited[1], bend(1)(clean[1]), atol=1e-5)
    # Each tap sees the stream after the edits that precede it in its layer.
    first, *rest = taps(bend(1, 2.0), bend(0), bend(1))
    np.testing.assert_allclose(first, bend(0)(clean[0]), atol=1e-5)
    (below,) = taps(bend(0))[1:]
    np.testing.assert_allclose(rest[0], bend(1)(bend(1, 2.0)(below)), atol=1e-5)


@pytest.mark.parametrize("layer", [-1, 2])
def test_an_edit_behind_no_layer_is_refused(layer):
    with pytest.raises(
        ValueError, match=rf"intervention after layer {layer}: it must be in 0\.\.1"
    ):
        generate(
            tiny_policy(),
            PROMPTS,
            max_new_tokens=T,
            intervention=ScopedIntervention(edits=(bend(layer),)),
        )


def test_edits_of_one_shape_share_a_program():
    policy = tiny_policy()
    before = sample._cache_size()
    for size in (1.0, 2.0, 5.0):
        generate(
            policy,
            PROMPTS,
            max_new_tokens=T + 1,
            intervention=ScopedIntervention(edits=(bend(0, size),)),
        )
    assert sample._cache_size() == before + 1


@pytest.mark.parametrize(
    "where", ["completion", pytest.param("predicting", marks=pytest.mark.slow)]
)
def test_eight_devices_draw_the_tokens_of_one(where):
    prompts = pad_prompts(PROMPTS * 2, uids=range(8), pad_multiple=16)
    edited = ScopedIntervention(edits=(bend(),), scope=where)
    policy = tiny_policy(scan_layers=True)

    def tokens(shape):
        devices = np.array(jax.devices()[: int(np.prod(shape))]).reshape(shape)
        mesh = Mesh(devices, AXES, axis_types=(AxisType.Auto,) * len(AXES))
        with jax.set_mesh(mesh):
            graphdef, params = nnx.split(policy)
            return jax.device_get(
                sample(
                    graphdef,
                    jax.device_put(params, param_shardings(policy, mesh)),
                    jax.device_put(prompts, batch_sharding(mesh)),
                    jax.device_put(
                        SamplingParams.unmodified(), replicated_sharding(mesh)
                    ),
                    key=jax.random.key(0),
                    weight_version=np.int32(0),
                    num_samples=G,
                    max_new_tokens=T,
                    intervention=jax.device_put(edited, replicated_sharding(mesh)),
                )
            ).tokens

    expected = tokens((1, 1, 1))
    np.testing.assert_array_equal(tokens((8, 1, 1)), expected)
    np.testing.assert_array_equal(tokens((2, 4, 1)), expected)
