"""Known factors: the world obeys its definition, and the contrast finds what persists.

The five seeds, with intervals:

    pytest -m exhaustive -s tests/sae_jax/data/test_synthetic.py
"""

import jax.numpy as jnp
import numpy as np
import pytest

from sae_jax.calibrate import calibrate_threshold
from sae_jax.config import (
    Config,
    LossConfig,
    OptimizerConfig,
    PairsConfig,
    SAEConfig,
    TrainConfig,
)
from sae_jax.data.synthetic import (
    MOMENTARY,
    PERSISTENT,
    ground_truth_labels,
    make_synthetic_data,
)
from sae_jax.data.tokens import Documents
from sae_jax.optimize import inference_dictionaries, init_state, replicas, train_step
from sae_jax.stats.probing import assign_latents, correlation_sums
from sae_jax.stats.quality import measure_quality, quality_report
from sae_jax.types import Pairs

SEQUENCES, LENGTH, WIDTH, EVAL_SEQUENCES = 500, 64, 32, 100
T_4 = 2.776  # of a 95 % interval from five paired differences
WORLD = make_synthetic_data(
    seed=0,
    width=WIDTH,
    num_sequences=SEQUENCES,
    length=LENGTH,
    num_persistent=12,
    num_momentary=48,
)


def recipe(*, seeds: int, steps: int) -> Config:
    """Returns a dictionary of 64 latents, 5 at once, for 60 factors, 6 at once."""
    return Config(
        sae=SAEConfig(latents=64, k=5, group_fractions=(0.25, 0.75)),
        loss=LossConfig(alpha=1.0, temperature=0.3, auxk_coef=0.0),
        optimizer=OptimizerConfig(learning_rate=2e-3, warmup_steps=100),
        pairs=PairsConfig(batch_size=256),
        train=TrainConfig(
            steps=steps, num_seeds=seeds, threshold_start_step=steps // 2
        ),
    )


def recovery(config: Config) -> dict[str, np.ndarray]:
    """Returns figures by seed, [T-SAE, its baseline] each, on sequences held out."""
    x = WORLD.activations.reshape(SEQUENCES, LENGTH, WIDTH)
    rng = np.random.default_rng(1)

    def batch() -> Pairs:
        rows = config.pairs.batch_size
        s = rng.integers(EVAL_SEQUENCES, SEQUENCES, rows)
        t = rng.integers(1, LENGTH, rows)
        valid = jnp.ones(rows, bool)
        return Pairs(
            x=jnp.asarray(x[s, t]), positive=jnp.asarray(x[s, t - 1]), valid=valid
        )

    state = init_state(batch(), config=config)
    for _ in range(config.train.steps):
        state, _ = train_step(state, batch(), config=config)
    counted = np.ones((EVAL_SEQUENCES, LENGTH), bool)
    eval_documents = Documents(
        x=x[:EVAL_SEQUENCES], mask=counted, token_index=np.zeros(counted.shape)
    )
    answers = jnp.asarray(ground_truth_labels(WORLD, PERSISTENT)[: counted.size])
    rows = []
    for index, _ in enumerate(replicas(config)):
        tsae = inference_dictionaries(state).replica(index).to_host()
        tsae = calibrate_threshold(tsae, [eval_documents], k=config.sae.k)
        f = tsae.encode(x[:EVAL_SEQUENCES]).reshape(counted.size, -1)
        sums = correlation_sums(f, answers, jnp.ones(counted.size, bool))
        found = quality_report(
            measure_quality(tsae, eval_documents.x, counted), num_high=tsae.num_high
        )
        mcc = assign_latents(sums.correlation()).mean_correlation
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


@pytest.mark.exhaustive
def test_the_contrast_recovers_persistent_factors_in_five_seeds():
    found = recovery(recipe(seeds=5, steps=3000))
    gain = {}
    for name, values in found.items():
        difference = values[:, 0] - values[:, 1]
        half = T_4 * difference.std(ddof=1) / np.sqrt(len(difference))
        gain[name] = (difference.mean() - half, difference.mean() + half)
        mean, baseline = values.mean(axis=0)
        print(f"{name}: {mean:.3f} baseline {baseline:.3f} difference {gain[name]}")
        print(values.round(3).tolist())
    assert gain["mcc"][0] > 0.1
    assert gain["smoothness"][1] < -0.05


def test_factors_are_on_a_tenth_of_the_time_and_persist_as_set():
    persistent = ground_truth_labels(WORLD, PERSISTENT).reshape(SEQUENCES, LENGTH, -1)
    momentary = ground_truth_labels(WORLD, MOMENTARY).reshape(SEQUENCES, LENGTH, -1)
    assert persistent.shape[-1] == 12
    assert momentary.shape[-1] == 48
    for on in (persistent, momentary):
        np.testing.assert_allclose(on.mean(), 0.1, atol=0.01)

    def stays(on: np.ndarray) -> float:
        return (on[:, 1:] & on[:, :-1]).sum() / on[:, :-1].sum()

    np.testing.assert_allclose(stays(persistent), 1 - 1 / 20, atol=0.01)
    np.testing.assert_allclose(stays(momentary), 0.1, atol=0.01)


def test_a_world_is_a_function_of_its_arguments():
    small = {
        "width": 8,
        "num_sequences": 4,
        "length": 6,
        "num_persistent": 2,
        "num_momentary": 3,
    }
    one, same, other = (make_synthetic_data(seed=seed, **small) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.activations, same.activations)
    assert one.data_hash == same.data_hash != other.data_hash
    assert not np.array_equal(one.activations, other.activations)
    assert one.column("sequence").tolist() == sorted(6 * [0, 1, 2, 3])


def test_activations_are_sums_of_directions_and_noise():
    """Least squares on the on/off columns explains what sizes leave constant."""
    design = np.concatenate(
        [ground_truth_labels(WORLD, kind) for kind in (PERSISTENT, MOMENTARY)], axis=1
    ).astype(np.float32)
    design = np.c_[design, np.ones(len(design), np.float32)]
    x = WORLD.activations
    fit, *_ = np.linalg.lstsq(design, x, rcond=None)
    sizes = np.linalg.norm(fit[:-1], axis=1)
    np.testing.assert_allclose(sizes[:12], 1.0, atol=0.1)
    np.testing.assert_allclose(sizes[12:], 2.0, atol=0.1)
