"""Which checkpoint has a latent: by least squares, and in worlds with known truth."""

import dataclasses
import json

import jax.numpy as jnp
import numpy as np
import pytest

from job_jax.config import MeshConfig
from job_jax.config_io import to_json
from sae_jax import io
from sae_jax.config import (
    Config,
    LossConfig,
    OptimizerConfig,
    PairsConfig,
    SAEConfig,
    TrainConfig,
)
from sae_jax.data.corpus import open_corpus
from sae_jax.data.shards import ShardWriter
from sae_jax.evaluate import main as evaluate
from sae_jax.sae import TSAE, normalize_rows
from sae_jax.stats.crosscoder import (
    CrosscoderSums,
    decoder_blocks,
    latent_scaling,
    measure_changes,
    sum_by_problem,
)
from sae_jax.stats.quality import match_decoders
from sae_jax.train import main

PROBLEMS, TOKENS, D, FACTORS = 40, 24, 16, 12
# How strongly the first and the last checkpoint hold each factor.
FIRST = np.array([1.0, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1.0, 0.5])
LAST = np.array([1.0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0.0, 1.0])


def write_world(directory, *, noise=0.02):
    """Writes two checkpoints' activations of factors in random directions."""
    rng = np.random.default_rng(0)
    direction_FD = np.asarray(normalize_rows(rng.standard_normal((FACTORS, D))))
    f_PTF = rng.random((PROBLEMS, TOKENS, FACTORS)) * (
        rng.random((PROBLEMS, TOKENS, FACTORS)) < 0.15
    )
    paths = []
    for name, strength_F in (("first", FIRST), ("last", LAST)):
        paths.append(directory / name)
        with ShardWriter(
            paths[-1],
            width=D,
            layer=0,
            hook="h",
            model=name,
            roles=("response",),
            dtype="float32",
        ) as out:
            for problem in range(PROBLEMS):
                x_TD = 3 * (f_PTF[problem] * strength_F) @ direction_FD
                x_TD = x_TD + noise * rng.standard_normal((TOKENS, D))
                out.add(
                    x_TD.astype(np.float32),
                    token_ids=TOKENS * problem + np.arange(TOKENS),
                    roles=np.zeros(TOKENS, int),
                    problem=str(problem),
                )
    return paths, direction_FD


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return write_world(tmp_path_factory.mktemp("world"))


def some_dictionary() -> TSAE:
    tsae = TSAE.init(3, width=2 * D, latents=20)
    return dataclasses.replace(tsae, threshold=jnp.full(20, 0.3, jnp.float32))


def test_scaling_is_the_least_squares_fit_of_what_the_others_leave(world):
    tsae = some_dictionary()
    corpus = open_corpus(world[0][0], tsae, beside=world[0][1:])
    sums = sum_by_problem(tsae, corpus, 2)
    decoder_ZKD = decoder_blocks(tsae, 2).astype(np.float64)
    found_KZ = latent_scaling(sums, decoder_ZKD)[0]
    x_NX = corpus.shards.rows(np.arange(PROBLEMS * TOKENS)).astype(np.float64)
    f_NZ = np.asarray(tsae.encode(x_NX), np.float64)
    error_NX = x_NX - np.asarray(tsae.decode(f_NZ.astype(np.float32)), np.float64)
    for z in (0, 7, 19):
        common_D = decoder_ZKD[z].sum(axis=0)
        common_D /= np.linalg.norm(common_D)
        regressor = np.outer(f_NZ[:, z], common_D).reshape(-1, 1)
        for k in range(2):
            own_ND = np.outer(f_NZ[:, z], decoder_ZKD[z, k])
            left_ND = error_NX[:, k * D : (k + 1) * D] + own_ND
            (beta,) = np.linalg.lstsq(regressor, left_ND.reshape(-1), rcond=None)[0]
            assert found_KZ[k, z] == pytest.approx(beta, rel=1e-4, abs=1e-5)
    np.testing.assert_allclose(
        sums.error,
        [np.sum(error_NX[:, :D] ** 2), np.sum(error_NX[:, D:] ** 2)],
        rtol=1e-4,
    )
    spread_NX = x_NX - x_NX.mean(axis=0)
    np.testing.assert_allclose(
        sums.scatter,
        [np.sum(spread_NX[:, :D] ** 2), np.sum(spread_NX[:, D:] ** 2)],
        rtol=1e-4,
    )
    np.testing.assert_array_equal(sums.fired.sum(axis=0), (f_NZ > 0).sum(axis=0))


def true_crosscoder(direction_FD, *, lie=1.0) -> TSAE:
    """Returns the world's own crosscoder; `lie` scales the last checkpoint's norms."""
    both_FX = np.concatenate(
        [FIRST[:, None] * direction_FD, lie * LAST[:, None] * direction_FD], axis=1
    )
    inverse_XF = np.linalg.pinv(
        np.concatenate(
            [FIRST[:, None] * direction_FD, LAST[:, None] * direction_FD], axis=1
        )
    )
    return TSAE(
        encoder=jnp.asarray(inverse_XF, jnp.float32),
        encoder_bias=jnp.zeros(FACTORS),
        decoder=jnp.asarray(both_FX, jnp.float32),
        decoder_bias=jnp.zeros(2 * D),
        threshold=jnp.full(FACTORS, 0.2, jnp.float32),
        group_sizes=(FACTORS,),
    )


KINDS = ["kept"] * 8 + ["added", "added", "lost", "grown"]


@pytest.mark.parametrize("lie", [1.0, 0.6])
def test_activations_say_whose_a_latent_is_whatever_the_norms_do(world, lie):
    tsae = true_crosscoder(world[1], lie=lie)
    corpus = open_corpus(world[0][0], tsae, beside=world[0][1:])
    decoder_ZKD = decoder_blocks(tsae, 2)
    changes = measure_changes(sum_by_problem(tsae, corpus, 2), decoder_ZKD)
    assert changes.kind == KINDS
    assert changes.confirmed.tolist() == [kind != "kept" for kind in KINDS]
    assert changes.alive.all()
    truth = LAST / (FIRST + LAST)
    np.testing.assert_allclose(changes.scaling_share.value, truth, atol=0.02)
    told = lie * LAST / (FIRST + lie * LAST)
    np.testing.assert_allclose(changes.norm_share, told, atol=1e-6)
    shared = (FIRST > 0) & (LAST > 0)
    np.testing.assert_allclose(changes.cosine[shared], 1.0, atol=1e-5)


def test_the_command_says_whose_each_latent_is(world, tmp_path, capsys):
    paths, direction_FD = world
    io.save(tmp_path / "sae", true_crosscoder(direction_FD))
    argv = [f"--sae={tmp_path / 'sae'}", f"--activations={paths[0]}"]
    assert evaluate([*argv, f"--beside={paths[1]}"]) == 0
    found = json.loads(capsys.readouterr().out)["crosscoder"]
    assert found["counts"] == {kind: KINDS.count(kind) for kind in found["counts"]}
    assert found["confirmed"] == [8, 9, 10, 11]
    assert [row[0] for row in found["scaling_share"][:8]] == pytest.approx(
        [0.5] * 8, abs=0.02
    )
    assert min(found["fve"]) > 0.9
    assert evaluate(argv) == 2
    assert "a crosscoder, which reads the other" in capsys.readouterr().err


def test_a_latent_of_later_checkpoints_is_confirmed_however_many_there_are():
    """It is absent in the first of six checkpoints, equal in the rest; unit rows."""
    rng = np.random.default_rng(4)
    row_KD = np.zeros((6, 3))
    row_KD[1:, 0] = 5**-0.5
    square_PZ = rng.random((30, 1)) + 0.5
    sums = CrosscoderSums(
        problems=np.arange(30),
        tokens=np.full(30, 9),
        fired=np.full((30, 1), 3),
        square=square_PZ,
        along=np.zeros((30, 6, 1)),  # the decoded vectors are the true ones
        error=np.zeros(6),
        scatter=np.ones(6),
    )
    changes = measure_changes(sums, row_KD[None])
    assert changes.kind == ["added"]
    assert changes.confirmed.tolist() == [True]
    faint = dataclasses.replace(
        sums, along=-0.9 * row_KD.sum() / 5 * square_PZ[:, None]
    )
    assert not measure_changes(faint, row_KD[None]).confirmed.any()


def test_sums_of_some_problems_are_theirs(world):
    tsae = true_crosscoder(world[1])
    corpus = open_corpus(world[0][0], tsae, beside=world[0][1:])
    sums = sum_by_problem(tsae, corpus, 2)
    first = dataclasses.replace(corpus, document_ids=np.arange(10))
    part = sum_by_problem(tsae, first, 2)
    chosen = sums.select(np.arange(10))
    np.testing.assert_array_equal(part.problems, chosen.problems)
    np.testing.assert_allclose(part.along, chosen.along, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(part.tokens, np.full(10, TOKENS))
    assert sums.tokens.sum() == PROBLEMS * TOKENS


def test_the_trainer_finds_what_a_checkpoint_added_and_lost(world, tmp_path):
    """The command that trains every dictionary starts from random directions."""
    paths, direction_FD = world
    config = Config(
        sae=SAEConfig(latents=24, k=2, group_fractions=(1.0,)),
        loss=LossConfig(alpha=0.0, group_weights=(1.0,), dead_after_tokens=2000),
        optimizer=OptimizerConfig(learning_rate=1e-2, warmup_steps=5),
        pairs=PairsConfig(path=str(paths[0]), beside=(str(paths[1]),), batch_size=128),
        train=TrainConfig(steps=400, threshold_start_step=40, threshold_decay=0.9),
        mesh=MeshConfig(cpu_devices=8),
    )
    record = tmp_path / "config.json"
    record.write_text(json.dumps({"config": to_json(config)}))
    assert main([f"--config={record}", f"--workdir={tmp_path / 'run'}"]) == 0
    tsae = io.load(tmp_path / "run" / "sae")
    corpus = open_corpus(paths[0], tsae, beside=paths[1:])
    decoder_ZKD = decoder_blocks(tsae, 2)
    changes = measure_changes(sum_by_problem(tsae, corpus, 2), decoder_ZKD)
    truth = true_crosscoder(direction_FD)
    match = match_decoders(truth.decoder, tsae.decoder)
    found = np.flatnonzero(match.cosine > 0.9)
    assert len(found) >= 9
    assert {"added", "lost"} < {KINDS[factor] for factor in found}
    assert [changes.kind[match.nearest[f]] for f in found] == [KINDS[f] for f in found]
