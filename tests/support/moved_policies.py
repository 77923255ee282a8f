"""Workdirs of runs that moved the policy from its start to weights made by hand."""

import json

import jax
import numpy as np

import sae_jax
from job_jax.checkpoint import StageCheckpoints
from job_jax.config import CheckpointConfig, MeshConfig
from job_jax.config_io import to_json
from rlvr_jax.config import (
    Config,
    EvalConfig,
    ModelConfig,
    SamplingConfig,
    SFTConfig,
    TrainConfig,
)
from rlvr_jax.config.probe import ProbeSAEConfig
from rlvr_jax.data import encode_prompts
from rlvr_jax.probe import FeatureSelectionConfig, SAEProbeConfig, weight_noise
from rlvr_jax.probe.reference_texts import ReferenceTexts
from rlvr_jax.probe.selection import FeatureSelection
from rlvr_jax.tasks import ChainMix, FiniteFieldTask
from sae_jax import config as autoencoder
from sae_jax.config import OptimizerConfig, SAEConfig

F, T, D, Z, STEP = 24, 16, 16, 48, 4
CHAINS = ChainMix(chain_lengths=(1, 2))
CONFIG = Config(
    name="noise",
    task=FiniteFieldTask(modulus=5, sft=CHAINS, train=CHAINS, eval=CHAINS),
    model=ModelConfig(
        num_layers=2,
        hidden_size=D,
        intermediate_size=16,
        num_heads=2,
        num_kv_heads=1,
        head_dim=8,
    ),
    mesh=MeshConfig(cpu_devices=8),
    sft=SFTConfig(steps=1, batch_size=8),
    train=TrainConfig(
        batch_size=8,
        group_size=4,
        steps=STEP,
        sampling=SamplingConfig(max_new_tokens=8),
    ),
    eval=EvalConfig(num_problems=8, batch_size=8),
    probe=SAEProbeConfig(
        layer=0,
        num_problems=F,
        num_reference_texts=F,
        log_every=STEP,
        sae=ProbeSAEConfig(
            architecture=SAEConfig(latents=Z, k=4),
            batch_size=32,
            optimizer=OptimizerConfig(learning_rate=1e-2, warmup_steps=2),
            train=autoencoder.TrainConfig(
                steps=100, threshold_start_step=10, threshold_decay=0.9
            ),
        ),
        features=FeatureSelectionConfig(method="list", latents=(0,)),
    ),
)


def move_at_random(params, lengths, *, seed):
    """Returns the parameters, each tensor moved by its length in a random direction."""
    directions = weight_noise._draw_directions(params, jax.random.key(seed))
    return weight_noise._move(params, lengths, directions)


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
