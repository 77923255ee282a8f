"""The recipe tsae_reference equals the T-SAE authors' trainer, number by number."""

import dataclasses
import functools
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from job_jax.command import load_config
from sae_jax.config import Config, TrainConfig
from sae_jax.losses import tsae_loss
from sae_jax.optimize import TrainState, init_state, train_step
from sae_jax.types import Pairs
from tests.golden import tsae_inputs as inputs

GOLDEN = json.loads(
    (pathlib.Path(inputs.__file__).parent / "tsae_reference.json").read_text()
)
RECIPE = pathlib.Path(__file__).parents[2] / "configs/tsae_reference.py"
NAMES = ("encoder", "encoder_bias", "decoder", "decoder_bias")


def recipe(*, contrastive: bool, dead_after: int) -> Config:
    config = load_config(RECIPE, Config)
    loss = dataclasses.replace(config.loss, dead_after_tokens=dead_after)
    if not contrastive:
        loss = dataclasses.replace(loss, contrast="l1_cosine", alpha=0.02)
    return dataclasses.replace(
        config,
        loss=loss,
        sae=dataclasses.replace(
            config.sae,
            latents=inputs.LATENTS,
            k=inputs.K,
            group_fractions=inputs.GROUPS,
        ),
        pairs=dataclasses.replace(config.pairs, batch_size=inputs.BATCH),
        optimizer=dataclasses.replace(
            config.optimizer,
            learning_rate=inputs.LEARNING_RATE,
            warmup_steps=inputs.WARMUP,
            lr_decay_fraction=inputs.DECAY_SHARE,
        ),
        train=TrainConfig(
            steps=inputs.STEPS,
            no_contrast_baseline=False,
            threshold_start_step=inputs.THRESHOLD_START,
            threshold_decay=inputs.THRESHOLD_DECAY,
        ),
    )


def pairs(batch: np.ndarray) -> Pairs:
    x, positive = jnp.asarray(batch[:, 0]), jnp.asarray(batch[:, 1])
    return Pairs(x=x, positive=positive, valid=jnp.ones(len(batch), bool))


def start(case: dict) -> tuple[Config, TrainState]:
    chosen = recipe(contrastive=case["contrastive"], dead_after=case["dead_after"])
    state = init_state(pairs(inputs.batches()[0]), config=chosen)
    weights = {name: jnp.asarray(w)[None] for name, w in inputs.weights().items()}
    return chosen, dataclasses.replace(
        state,
        tsae=dataclasses.replace(state.tsae, **weights),
        tokens_since_fired=jnp.asarray(inputs.tokens_since_fired(case["silent"]))[None],
    )


def close(ours, theirs) -> None:
    """Asserts equality to 1e-5 of the largest entry; small ones are differences."""
    theirs = np.asarray(theirs)
    ours = np.asarray(ours).reshape(theirs.shape)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5 * abs(theirs).max())


@functools.partial(jax.jit, static_argnames="config")
def gradient_and_parts(state: TrainState, batch: Pairs, *, config: Config):
    def loss(tsae):
        return tsae_loss(
            tsae,
            batch,
            state.tokens_since_fired[0],
            sae=config.sae,
            config=config.loss,
            alpha=config.loss.alpha,
        )

    return jax.grad(loss, has_aux=True)(state.tsae.replica(0))


@pytest.mark.parametrize("name", GOLDEN)
def test_reference_equals_the_authors_code(name):
    golden, case = GOLDEN[name], inputs.CASES[name]
    chosen, state = start(case)
    close(state.tsae.decoder_bias, golden["median"])

    weights = jnp.asarray(chosen.loss.group_weights)
    for number, batch in enumerate(map(pairs, inputs.batches())):
        gradient, parts = gradient_and_parts(state, batch, config=chosen)
        total, squared, auxk, contrast = golden["terms"][number]
        close(parts.loss, total)
        close((weights * parts.reconstruction).sum(), squared)
        close(parts.auxk, auxk)
        assert parts.num_dead == golden["dead"][number]
        # Their value includes the first group's weight, 0.2; ours is a plain mean.
        close(parts.contrast * (1.0 if case["contrastive"] else 0.2), contrast)
        if number == 0:
            for field in NAMES:
                close(vars(gradient)[field], golden["gradient"][field])
        state, _ = train_step(state, batch, config=chosen)
    for field in NAMES:
        close(vars(state.tsae)[field], golden["parameters"][field])
    close(state.tsae.threshold[0], np.full(inputs.LATENTS, golden["threshold"]))
    assert state.tokens_since_fired[0].tolist() == golden["silence"]


def test_the_goldens_know_every_kind_of_auxk():
    """Each row takes D/2 = 3 dead latents; the cases have none, few and many."""
    dead = {n for golden in GOLDEN.values() for n in golden["dead"]}
    assert 0 in dead
    assert dead & {1, 2, 3}
    assert max(dead) >= 5
    assert all(golden["threshold"] > 0 for golden in GOLDEN.values())
