"""cuDNN's attention on a GPU: plain attention's logits and gradients, in bfloat16.

pip install -e '.[gpu,test]' && JAX_PLATFORMS=cuda pytest -m gpu tests/models
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from rlvr_jax.config import ModelConfig
from tests.support.policies import filled, random_tokens

pytestmark = pytest.mark.gpu
SIZES = {
    "num_layers": 2,
    "hidden_size": 128,
    "intermediate_size": 128,
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_dim": 64,
    "max_seq_len": 256,
}


def _loss_and_gradient(kernel: str, window: int):
    """Returns next-token loss and its gradient, prompts read once for their group."""
    kinds = ("full", "sliding") if window else ("full",)
    config = ModelConfig(
        attention=kernel,
        compute_dtype="float32" if kernel == "plain" else "bfloat16",
        layer_types=kinds,
        sliding_window=window,
        **SIZES,
    )

    def weight(path: str, shape: tuple[int, ...]) -> np.ndarray:
        noise = np.random.RandomState(len(path)).standard_normal(shape)
        return 1 + 0.2 * noise if "norm" in path else noise * config.hidden_size**-0.5

    graphdef, params = nnx.split(filled(config, 23, weight))
    prompts, completions = random_tokens(2, 37), random_tokens(4, 51, seed=1)
    mask = jnp.arange(37)[None] < jnp.array([[37], [20]])

    def loss(params):
        policy = nnx.merge(graphdef, params)
        _, prefix = policy.prefill(prompts, mask)
        hidden = policy.extend(completions, prefix).hidden
        logprobs = jax.nn.log_softmax(policy.logits(hidden[:, :-1]))
        return -jnp.take_along_axis(logprobs, completions[:, 1:, None], axis=-1).mean()

    return jax.device_get(jax.jit(jax.value_and_grad(loss))(params))


@pytest.mark.skipif(jax.default_backend() != "gpu", reason="needs a GPU")
@pytest.mark.parametrize("window", [0, 9])
def test_cudnn_is_plain_attention(window):
    """The difference is bfloat16's rounding, 2^-8 of a number, compounded."""
    value, gradient = _loss_and_gradient("cudnn", window)
    expected, reference = _loss_and_gradient("plain", window)
    np.testing.assert_allclose(value, expected, rtol=2e-2)
    for ours, theirs in zip(
        jax.tree.leaves(gradient), jax.tree.leaves(reference), strict=True
    ):
        gap = np.linalg.norm(ours - theirs) / np.linalg.norm(theirs)
        assert gap < 0.1
