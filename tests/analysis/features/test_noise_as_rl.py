"""Weight noise given to the command as if it were RL: it claims about nothing.

The workdirs have hand-made checkpoints; nothing is trained.
"""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sae_jax
from rlvr_jax.analysis.features.command import main
from rlvr_jax.probe import weight_noise
from rlvr_jax.run.setup import open_setup
from tests.support.moved_policies import (
    CONFIG,
    STEP,
    D,
    Z,
    move_at_random,
    write_workdir,
)


@pytest.fixture(scope="module")
def setup(tmp_path_factory):
    run = open_setup(CONFIG, tmp_path_factory.mktemp("run") / "none", stages=("eval",))
    with jax.set_mesh(run.mesh):
        yield run


def counts(path, capsys):
    """Returns the numbers of moved and of claimed features, for the run and noise."""
    assert main([str(path)]) == 0
    assert "this run" in capsys.readouterr().out
    record = json.loads((path / "features/dynamics.json").read_text())
    checks = [draw["all"] for draw in record["nulls"][0]["draws"]]
    return record["counts"]["all"], checks


def test_noise_as_if_it_were_rl_is_claimed_about_by_nobody(setup, tmp_path, capsys):
    """It moves features like other noise of its drift: no learning, no claim."""
    before = setup.initial_params()
    lengths = jax.tree.map(lambda x: 0.25 * x, weight_noise._tensor_norms(before))
    after = move_at_random(before, lengths, seed=100)
    run, checks = counts(write_workdir(setup, tmp_path, after), capsys)
    assert run["moved"] > 5
    assert np.mean([check["moved"] for check in checks]) > 5
    assert run["claimed"] == 0


def test_a_change_with_an_aim_is_claimed(setup, tmp_path, capsys):
    """Every token's embedding gains a latent's direction; noise moves less."""
    tsae = sae_jax.TSAE.init(0, width=D, latents=Z)
    after = jax.tree.map(jnp.copy, setup.initial_params())
    after["embedding"][...] += 0.2 * np.asarray(tsae.encoder)[:, 7][None]
    run, checks = counts(write_workdir(setup, tmp_path, after), capsys)
    assert run["claimed"] >= 4
    assert sum(check["claimed"] for check in checks) == 0


def test_a_step_whose_checkpoint_is_gone_names_what_is_missing(setup, tmp_path, capsys):
    write_workdir(setup, tmp_path, setup.initial_params())
    (tmp_path / "checkpoints/train" / str(STEP)).rename(tmp_path / "elsewhere")
    assert main([str(tmp_path)]) == 2
    assert "computes them from the checkpoint of step 4" in capsys.readouterr().err
