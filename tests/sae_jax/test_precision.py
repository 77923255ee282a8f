"""Code that says float32 multiplies in float32 on every device, not in a fast mode.

By default a TPU rounds the operands of a float32 product to bfloat16, and a GPU to
TF32. The lowered program shows the precision that is requested.
"""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlvr_jax.probe.sae_probe import LatentReader, TopKReader
from sae_jax.config import Config, LossConfig, SAEConfig, TrainConfig
from sae_jax.edits import make_latent_edit
from sae_jax.losses import tsae_loss
from sae_jax.optimize import init_state, train_step
from sae_jax.sae import TSAE
from sae_jax.stats.probing import correlation_sums
from sae_jax.stats.quality import match_decoders, measure_quality
from sae_jax.types import Pairs

D, Z, B = 8, 32, 16
SAE = SAEConfig(latents=Z, k=3)
TSAE_ = TSAE.init(0, width=D, latents=Z, group_sizes=SAE.group_sizes)
X = jax.random.normal(jax.random.key(1), (B, D))
PAIRS = Pairs(x=X, positive=X[::-1], valid=jnp.ones(B, bool))
MASK = jnp.ones((2, B // 2), bool)


def loss(tsae, *, dtype="float32"):
    return tsae_loss(
        tsae,
        PAIRS,
        jnp.zeros(Z, jnp.int32),
        sae=SAE,
        config=LossConfig(dead_after_tokens=1),
        alpha=0.1,
        compute_dtype=dtype,
    )[0]


def edit(tsae):
    made = make_latent_edit(
        tsae, [1, 3], layer=0, mode="add", strength=1.0, mean_when_active=np.ones(Z)
    )
    return made(X)


def read(tsae):
    reader = LatentReader(
        center=tsae.decoder_bias,
        encoder=tsae.encoder[:, :3],
        bias=tsae.encoder_bias[:3],
        threshold=jnp.zeros(3),
    )
    return reader.features(X[None])


def read_top_k(tsae):
    reader = TopKReader.of_latents(dataclasses.replace(tsae, top_k=2), (0, 1, 3))
    return reader.features(X[None])


PROGRAMS = {
    "encode": lambda tsae: tsae.encode(X),
    "decode": lambda tsae: tsae.decode(jnp.ones((B, Z))),
    "edit": edit,
    "reasoning features": read,
    "reasoning features among the k largest": read_top_k,
    "loss": loss,
    "its gradient": jax.grad(loss),
    "quality": lambda tsae: measure_quality(tsae, X.reshape(2, -1, D), MASK),
    "correlation": lambda tsae: correlation_sums(
        tsae.encode(X), X > 0, jnp.ones(B, bool)
    ),
}


def products(program: str) -> list[str]:
    return re.findall(r".*stablehlo\.dot_general.*", program)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_product_asks_for_full_float32(name):
    found = products(jax.jit(PROGRAMS[name]).lower(TSAE_).as_text())
    assert found
    assert [p for p in found if "precision = [HIGHEST, HIGHEST]" not in p] == []


def test_a_training_step_asks_for_full_float32():
    config = Config(sae=SAE, train=TrainConfig(num_seeds=2))
    state = init_state(PAIRS, config=config)
    found = products(train_step.lower(state, PAIRS, config=config).as_text())
    assert len(found) > 6
    assert [p for p in found if "precision = [HIGHEST, HIGHEST]" not in p] == []
    begun = products(init_state.lower(PAIRS, config=config).as_text())
    assert [p for p in begun if "precision = [HIGHEST, HIGHEST]" not in p] == []


def test_bfloat16_is_what_it_says_too():
    program = jax.jit(lambda tsae: loss(tsae, dtype="bfloat16")).lower(TSAE_)
    found = products(program.as_text())
    assert found
    assert [p for p in found if not re.search(r"xbf16>, tensor<.*xbf16>\)", p)] == []


def test_latents_are_matched_between_dictionaries_in_full_float32(monkeypatch):
    seen, matmul = [], jnp.matmul

    def recorded(*args, **options):
        seen.append(options.get("precision"))
        return matmul(*args, **options)

    monkeypatch.setattr(jnp, "matmul", recorded)
    match_decoders(TSAE_.decoder, TSAE_.decoder)
    assert set(seen) == {jax.lax.Precision.HIGHEST}
