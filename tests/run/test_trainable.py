"""RL on adapters: only they are trained, saved and given moments, on any mesh."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from flax import nnx
from jax.sharding import PartitionSpec as Spec
from safetensors.numpy import load_file

import rlvr_jax
from job_jax.checkpoint import StageCheckpoints
from job_jax.config import CheckpointConfig
from job_jax.config_io import to_json
from rlvr_jax.config import LoRAConfig, LossConfig, OptimizerConfig
from rlvr_jax.convert import main as convert
from rlvr_jax.data import encode_prompts
from rlvr_jax.learn.batches import batch_from_rollouts, with_loss_weights
from rlvr_jax.learn.objectives import policy_objective
from rlvr_jax.learn.update import Updater
from rlvr_jax.models.distribution import SamplingParams
from rlvr_jax.run.load import load_checkpoint_params
from rlvr_jax.run.setup import open_setup
from rlvr_jax.run.trainable import split_trainable
from rlvr_jax.sampler import sample
from rlvr_jax.tokenizer.huggingface import import_transformers
from tests.support.policies import TINY_RUN, named

LORA = LoRAConfig(rank=2, alpha=8.0, target_modules=("q_proj", "down_proj"))
CONFIG = dataclasses.replace(
    TINY_RUN, train=dataclasses.replace(TINY_RUN.train, lora=LORA)
)
P, G, T = 8, 2, 6


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    return open_setup(CONFIG, tmp_path_factory.mktemp("run"), stages=("train",))


@pytest.fixture
def run(opened):
    with jax.set_mesh(opened.mesh):
        yield opened


@pytest.fixture(scope="module")
def updater_and_batch(opened):
    """Returns the starting point, one step's rollouts, and the updater for them."""
    with jax.set_mesh(opened.mesh):
        return _rollouts_of(opened)


def _rollouts_of(run):
    trained = split_trainable(run, run.initial_params)
    prompts = encode_prompts(
        run.problems("train", P), run.tokenizer, pad_multiple=CONFIG.prompt_pad_multiple
    )
    sampling = run.replicate(SamplingParams.unmodified())
    rollouts = sample(
        trained.setup.graphdef,
        trained.merge_frozen(trained.init()),
        run.shard_batch(prompts),
        sampling,
        key=run.stream_key("train"),
        weight_version=np.int32(0),
        num_samples=G,
        max_new_tokens=T,
    )
    batch = batch_from_rollouts(
        jax.device_get(rollouts),
        np.tile(np.float32([1, -1]), (P, 1)),
        bands_P=np.full(P, -1),
    )
    updater = Updater(
        trained.setup.graphdef,
        policy_objective(LossConfig()),
        optimizer=OptimizerConfig(warmup_steps=0, learning_rate=0.1),
        total_steps=9,
        logits_chunk_size=0,
        frozen=trained.frozen,
    )
    return (
        trained,
        updater,
        with_loss_weights(batch, aggregation="token_mean", max_length=T),
    )


def test_adapters_lie_on_the_mesh_as_their_weight_does(run):
    trained = split_trainable(run, run.initial_params)
    flat = {".".join(p): x[...] for p, x in nnx.to_flat_state(trained.init())}
    assert flat.keys() == {
        f"blocks.{product}.weight_lora_{x}"
        for product in ("query", "down")
        for x in "ab"
    }
    specs = {name: x.sharding.spec for name, x in flat.items()}
    assert specs["blocks.query.weight_lora_a"] == Spec(None, ("fsdp",), None)
    assert specs["blocks.query.weight_lora_b"] == Spec(None, None, ("tensor",))
    assert specs["blocks.down.weight_lora_a"] == Spec(None, ("tensor",), None)
    assert specs["blocks.down.weight_lora_b"] == Spec(None, None, ("fsdp",))


def test_every_start_is_a_copy_of_its_own(run, updater_and_batch):
    """A step takes over the memory of the parameters that it changes."""
    trained, *_ = updater_and_batch
    start = named(trained.init())
    jax.tree.map(lambda x: x.delete(), trained.init())
    jax.tree.map(np.testing.assert_array_equal, named(trained.init()), start)


def test_seeds_draw_adapters_of_their_own(opened, tmp_path):
    def drawn(seed):
        config = dataclasses.replace(CONFIG, seed=seed)
        setup = open_setup(config, tmp_path / str(seed), stages=("train",))
        with jax.set_mesh(setup.mesh):
            return named(split_trainable(setup, setup.initial_params).init())

    first, again, other = drawn(0), drawn(0), drawn(1)
    jax.tree.map(np.testing.assert_array_equal, first, again)
    same = {name for name in first if (first[name] == other[name]).all()}
    assert same == {name for name in first if name[-1] == "b"}  # these start at 0


def test_a_step_moves_adapters_and_nothing_else(run, updater_and_batch, tmp_path):
    trained, updater, batch = updater_and_batch
    sampling = run.replicate(SamplingParams.unmodified())
    frozen = jax.device_get(trained.frozen)
    before = named(trained.init())
    scores_BT, _ = updater.score(trained.init(), run.shard_batch(batch), sampling)
    inside_BT = np.arange(scores_BT.shape[1]) < batch.lengths[:, None]
    # The sampler drew with the same weights and adapters that the scorer reads.
    np.testing.assert_allclose(
        scores_BT[inside_BT], batch.old_logprobs[inside_BT], atol=1e-5, rtol=0
    )

    state = updater.init(trained.init())
    moments = [x for x in jax.tree.leaves(state.opt_state) if x.ndim]
    assert len(moments) == 2 * len(jax.tree.leaves(state.params)) == 8
    state, *_ = updater.step(state, [run.shard_batch(batch)], sampling)
    after = named(state.params)
    # d/dA contains B, which starts at 0; d/dB contains A, which does not.
    assert all((after[name] == before[name]).all() for name in after if name[-1] == "a")
    assert all((after[name] != 0).any() for name in after if name[-1] == "b")
    jax.tree.map(np.testing.assert_array_equal, frozen, jax.device_get(trained.frozen))

    directory = tmp_path / "checkpoints" / "train"
    with StageCheckpoints(directory, CheckpointConfig()) as checkpoints:
        checkpoints.save(1, state, {})
    size = sum(x.size for x in jax.tree.leaves(state))
    assert size < sum(x.size for x in jax.tree.leaves(trained.frozen)) / 3
    merged = named(load_checkpoint_params(run, directory, 1))
    drawn = named(run.initial_params())
    assert merged.keys() == drawn.keys()
    assert {name for name in drawn if (merged[name] != drawn[name]).any()} == {
        "blocks.query",
        "blocks.down",
    }
    a, b = (after[f"blocks.down.weight_lora_{x}"][0] for x in "ab")
    np.testing.assert_allclose(
        merged["blocks.down"][0], drawn["blocks.down"][0] + 4.0 * (a @ b), atol=1e-6
    )


def test_the_reference_of_adapters_is_the_policy_before_them(run, updater_and_batch):
    trained, updater, batch = updater_and_batch
    plain = Updater(
        run.graphdef,
        policy_objective(LossConfig()),
        optimizer=OptimizerConfig(),
        total_steps=9,
        logits_chunk_size=0,
    )
    sampling, placed = (
        run.replicate(SamplingParams.unmodified()),
        run.shard_batch(batch),
    )
    base_BT, _ = plain.score(run.initial_params(), placed, sampling)
    reference_BT, _ = updater.score(trained.init(), placed, sampling)
    np.testing.assert_allclose(reference_BT, base_BT, atol=1e-6, rtol=0)


def test_the_command_merges_adapters_or_hands_them_on(opened, tmp_path, capsys):
    with jax.set_mesh(opened.mesh):
        base = opened.initial_params()
        trained = split_trainable(opened, opened.initial_params)
        adapters = jax.tree.map(lambda x: x + 0.1, trained.init())
    saved = {"sft": base, "train": adapters}
    for stage, params in saved.items():
        directory = tmp_path / "checkpoints" / stage
        with StageCheckpoints(directory, CheckpointConfig()) as checkpoints:
            checkpoints.save(3, {"params": params}, {})
    (tmp_path / "config.json").write_text(json.dumps({"config": to_json(CONFIG)}))
    assert convert(["to-hf", str(tmp_path), str(tmp_path / "merged")]) == 0
    assert convert(["to-peft", str(tmp_path), str(tmp_path / "peft")]) == 0
    # The adapters belong on the policy after stage `sft`.
    settings = json.loads((tmp_path / "peft/adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] is None
    said = capsys.readouterr().err
    assert f"its base is {tmp_path}/checkpoints/sft/3; write that with to-hf" in said
    merged = load_file(tmp_path / "merged" / "model.safetensors")
    theirs = import_transformers().AutoTokenizer.from_pretrained(tmp_path / "merged")
    prompt = opened.problems("train", 1)[0].prompt
    assert theirs.encode(prompt) == opened.tokenizer.encode(prompt)
    pair = load_file(tmp_path / "peft" / "adapter_model.safetensors")
    name = "model.layers.0.mlp.down_proj"
    a, b = (pair[f"base_model.model.{name}.lora_{x}.weight"] for x in "AB")
    drawn = named(base)["blocks.down"][0].T
    np.testing.assert_allclose(
        merged[f"{name}.weight"], drawn + 4.0 * (b @ a), atol=1e-6
    )
    warm = tmp_path / "checkpoints" / "sft"
    assert convert(["to-peft", str(warm), str(tmp_path / "none")]) == 2
    assert "sft has no adapters; give" in capsys.readouterr().err


def test_a_checkpoint_opens_as_a_policy(opened, tmp_path):
    """The workdir means RL's, with adapters merged; its stage `sft` the one before."""
    with jax.set_mesh(opened.mesh):
        base = opened.initial_params()
        trained = split_trainable(opened, opened.initial_params)
        adapters = jax.tree.map(lambda x: x + 0.1, trained.init())
    for stage, params in {"sft": base, "train": adapters}.items():
        directory = tmp_path / "checkpoints" / stage
        with StageCheckpoints(directory, CheckpointConfig()) as checkpoints:
            checkpoints.save(3, {"params": params}, {})
    (tmp_path / "config.json").write_text(json.dumps({"config": to_json(CONFIG)}))
    before = rlvr_jax.load_checkpoint(tmp_path / "checkpoints" / "sft")
    after = rlvr_jax.load_checkpoint(str(tmp_path))
    drawn, first, last = named(base), named(nnx.state(before)), named(nnx.state(after))
    assert first.keys() == last.keys() == drawn.keys()
    jax.tree.map(np.testing.assert_array_equal, first, drawn)
    changed = {name for name in drawn if (last[name] != drawn[name]).any()}
    assert changed == {"blocks.query", "blocks.down"}
    logits = nnx.jit(after)(np.array([[5, 6]]), np.ones((1, 2), bool))
    assert logits.shape[:2] == (1, 2)


def _num_bytes(tree):
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def test_what_trains_and_samples_holds_the_weights_once(run):
    """There are also two pairs of adapters: the initial ones and the trained ones."""
    held = jax.live_arrays()  # held by others; the list keeps their ids in use
    others = {id(array) for array in held}
    trained = split_trainable(run, run.initial_params)
    sampled = run.sampler_layout.place_params(trained.merge_frozen(trained.init()))
    ours = [array for array in jax.live_arrays() if id(array) not in others]
    weights, adapters = run.abstract_params(), trained.abstract
    assert _num_bytes(sampled) == _num_bytes(weights) + _num_bytes(adapters)
    once = _num_bytes(weights) + 2 * _num_bytes(adapters)
    key_bytes = 64
    assert once <= sum(array.nbytes for array in ours) <= once + key_bytes
