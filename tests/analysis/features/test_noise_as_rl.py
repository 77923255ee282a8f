"""Weight noise given to the command as if it were RL: it claims about nothing.

The workdirs have hand-made checkpoints; nothing is trained.
"""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sae_jax
from job_jax.checkpoint import StageCheckpoints
from job_jax.config import CheckpointConfig, MeshConfig
from job_jax.config_io import to_json
from rlvr_jax.analysis.features.command import main
from rlvr_jax.config import Config, EvalConfig, ModelConfig, SFTConfig, TrainConfig
from rlvr_jax.data import encode_prompts
from rlvr_jax.probe import FeatureSelectionConfig, SAEProbeConfig, weight_noise
from rlvr_jax.probe.reference_texts import ReferenceTexts
from rlvr_jax.probe.selection import FeatureSelection
from rlvr_jax.run.setup import open_setup
from rlvr_jax.tasks import ChainMix, FiniteFieldTask

F, T, D, Z, STEP = 24, 16, 16, 48, 4
CHAINS = ChainMix(chain_lengths=(1, 2))
CONFIG = Config(
    name="noise",
    task=FiniteFieldTask(modulus=5, sft=CHAINS, train=CHAINS, eval=CHAINS),
    model=ModelConfig(
        num_layers=1,
        hidden_size=D,
        intermediate_size=16,
        num_heads=2,
        num_kv_heads=1,
        head_dim=8,
    ),
    mesh=MeshConfig(cpu_devices=8),
    sft=SFTConfig(steps=1, batch_size=8),
    train=TrainConfig(batch_size=8, steps=STEP),
    eval=EvalConfig(num_problems=8, batch_size=8),
    probe=SAEProbeConfig(
        layer=0,
        num_problems=F,
        num_reference_texts=F,
        log_every=STEP,
        features=FeatureSelectionConfig(method="list", latents=(0,)),
    ),
)


@pytest.fixture(scope="module")
def setup(tmp_path_factory):
    run = open_setup(CONFIG, tmp_path_factory.mktemp("run") / "none", stages=("eval",))
    with jax.set_mesh(run.mesh):
        yield run


def make_texts(setup):
    prompts = encode_prompts(setup.problems("eval", F), setup.tokenizer, pad_multiple=8)
    rng = np.random.default_rng(0)
    return ReferenceTexts(
        problem_ids=tuple(problem.id for problem in setup.problems("eval", F)),
        prompt_tokens=prompts.tokens,
        prompt_lengths=prompts.lengths,
        tokens=rng.integers(2, setup.vocab_size, (F, T)).astype(np.int32),
        lengths=np.full(F, T, np.int32),
        bands=np.arange(F, dtype=np.int32) % 2,  # easy, medium
        outcomes=np.zeros(F, np.int32),
    )


def write_workdir(setup, path, after):
    """Writes the workdir of a run that took the policy from its start to `after`."""
    texts = make_texts(setup)
    tsae = sae_jax.TSAE.init(0, width=D, latents=Z)
    sae_jax.save(path / "sae", tsae)
    selection = FeatureSelection(
        latents=(0,),
        weights=(1.0,),
        rms=(1.0,),
        scores=(1.0,),
        effects=(0.0,),
        effect_errors=(0.0,),
        q_values=None,
        seed_cosine=None,
        method="list",
        control="none",
        layer=0,
        dead=(),
        num_alive=Z,
        num_stable=None,
        num_completions=F,
        halves=None,
    )
    selection.save(path / "sae/selection.json")
    (path / "probe").mkdir()
    texts.save(path / "probe/reference_texts.npz")
    probe = CONFIG.probe.load(path / "probe", setup.mesh)
    before = setup.initial_params()
    for step, params in ((0, before), (STEP, after)):
        found = probe.read_texts(setup.graphdef, params, setup.shard_batch(texts))
        probe.write_step(
            path,
            run="noise",
            step=step,
            rollout_sums=None,
            texts=texts,
            text_stats=jax.device_get(found),
        )
    for stage, step, params in (("sft", 1, before), ("train", STEP, after)):
        directory = path / "checkpoints" / stage
        with StageCheckpoints(directory, CheckpointConfig()) as checkpoints:
            checkpoints.save(step, {"params": params}, {})
    record = {"config": to_json(CONFIG), "seed": 0, "device": "8 x cpu"}
    (path / "config.json").write_text(json.dumps(record))
    return path


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
    after = weight_noise._move(before, lengths, jax.random.key(100))
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
