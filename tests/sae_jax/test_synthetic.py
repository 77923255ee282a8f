"""Known factors: the world obeys its definition, and the contrast finds what persists.

The five seeds, with intervals:

    pytest -m slow -s tests/sae_jax/test_synthetic.py
"""

import jax.numpy as jnp
import numpy as np
import pytest

from sae_jax.calibrate import calibrate
from sae_jax.config import (
    Config,
    LossConfig,
    OptimizerConfig,
    PairsConfig,
    SAEConfig,
    TrainConfig,
)
from sae_jax.optimize import clones, dictionaries, init_state, step
from sae_jax.probing import assign, correlation_sums
from sae_jax.quality import measure, report
from sae_jax.synthetic import MOMENTARY, PERSISTENT, truths, world
from sae_jax.tokens import Documents
from sae_jax.types import Pairs

SEQUENCES, LENGTH, WIDTH, HELD_OUT = 500, 64, 32, 100
T_4 = 2.776  # of a 95 % interval from five paired differences
WORLD = world(
    seed=0,
    width=WIDTH,
    sequences=SEQUENCES,
    length=LENGTH,
    persistent=12,
    momentary=48,
)


def recipe(*, seeds: int, steps: int) -> Config:
    """Returns a dictionary of 64 latents, 5 at once, for 60 factors, 6 at once."""
    return Config(
        sae=SAEConfig(latents=64, k=5, groups=(0.25, 0.75)),
        loss=LossConfig(alpha=1.0, temperature=0.3, auxk_coef=0.0),
        optimizer=OptimizerConfig(learning_rate=2e-3, warmup_steps=100),
        pairs=PairsConfig(batch_size=256),
        train=TrainConfig(steps=steps, seeds=seeds, threshold_start=steps // 2),
    )


def recovery(config: Config) -> dict[str, np.ndarray]:
    """Returns figures by seed, [T-SAE, twin] each, on sequences held out."""
    x = WORLD.activations.reshape(SEQUENCES, LENGTH, WIDTH)
    rng = np.random.default_rng(1)

    def batch() -> Pairs:
        rows = config.pairs.batch_size
        s = rng.integers(HELD_OUT, SEQUENCES, rows)
        t = rng.integers(1, LENGTH, rows)
        valid = jnp.ones(rows, bool)
        return Pairs(
            x=jnp.asarray(x[s, t]), partner=jnp.asarray(x[s, t - 1]), valid=valid
        )

    state = init_state(batch(), config=config)
    for _ in range(config.train.steps):
        state, _ = step(state, batch(), config=config)
    counted = np.ones((HELD_OUT, LENGTH), bool)
    held_out = Documents(x=x[:HELD_OUT], counted=counted, token=np.zeros(counted.shape))
    answers = jnp.asarray(truths(WORLD, PERSISTENT)[: counted.size])
    rows = []
    for index, _ in enumerate(clones(config)):
        tsae = dictionaries(state).clone(index).on_host()
        tsae = calibrate(tsae, [held_out], k=config.sae.k)
        f = tsae.encode(x[:HELD_OUT]).reshape(counted.size, -1)
        sums = correlation_sums(f, answers, jnp.ones(counted.size, bool))
        found = report(measure(tsae, held_out.x, counted), high=tsae.high)
        mcc = assign(sums.correlation()).mean_correlation
        rows.append((mcc, found["smoothness"]["high"], float(found["fve"])))
    table = np.array(rows).reshape(-1, 2, 3)
    return {
        name: table[:, :, column]
        for column, name in enumerate(("mcc", "smoothness", "fve"))
    }


def test_the_contrast_recovers_persistent_factors():
    found = recovery(recipe(seeds=2, steps=700))
    assert np.all(found["mcc"][:, 0] > found["mcc"][:, 1] + 0.05)
    assert np.all(found["smoothness"][:, 0] < 0.8 * found["smoothness"][:, 1])


@pytest.mark.slow
def test_the_contrast_recovers_persistent_factors_in_five_seeds():
    found = recovery(recipe(seeds=5, steps=3000))
    gain = {}
    for name, values in found.items():
        difference = values[:, 0] - values[:, 1]
        half = T_4 * difference.std(ddof=1) / np.sqrt(len(difference))
        gain[name] = (difference.mean() - half, difference.mean() + half)
        mean, twin = values.mean(axis=0)
        print(f"{name}: {mean:.3f} twin {twin:.3f} difference {gain[name]}")
        print(values.round(3).tolist())
    assert gain["mcc"][0] > 0.1
    assert gain["smoothness"][1] < -0.05


def test_factors_are_on_a_tenth_of_the_time_and_persist_as_asked():
    persistent = truths(WORLD, PERSISTENT).reshape(SEQUENCES, LENGTH, -1)
    momentary = truths(WORLD, MOMENTARY).reshape(SEQUENCES, LENGTH, -1)
    assert persistent.shape[-1] == 12
    assert momentary.shape[-1] == 48
    for on in (persistent, momentary):
        np.testing.assert_allclose(on.mean(), 0.1, atol=0.01)

    def stays(on: np.ndarray) -> float:
        return (on[:, 1:] & on[:, :-1]).sum() / on[:, :-1].sum()

    np.testing.assert_allclose(stays(persistent), 1 - 1 / 20, atol=0.01)
    np.testing.assert_allclose(stays(momentary), 0.1, atol=0.01)


def test_a_world_is_a_function_of_its_arguments():
    small = {"width": 8, "sequences": 4, "length": 6, "persistent": 2, "momentary": 3}
    one, same, other = (world(seed=seed, **small) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.activations, same.activations)
    assert one.data_hash == same.data_hash != other.data_hash
    assert not np.array_equal(one.activations, other.activations)
    assert one.column("sequence").tolist() == sorted(6 * [0, 1, 2, 3])


def test_activations_are_sums_of_directions_and_noise():
    """Least squares on the on/off columns explains what sizes leave constant."""
    design = np.concatenate(
        [truths(WORLD, kind) for kind in (PERSISTENT, MOMENTARY)], axis=1
    ).astype(np.float32)
    design = np.c_[design, np.ones(len(design), np.float32)]
    x = WORLD.activations
    fit, *_ = np.linalg.lstsq(design, x, rcond=None)
    sizes = np.linalg.norm(fit[:-1], axis=1)
    np.testing.assert_allclose(sizes[:12], 1.0, atol=0.1)
    np.testing.assert_allclose(sizes[12:], 2.0, atol=0.1)
