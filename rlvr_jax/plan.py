"""What a run would be, without starting it: config, parameters, mesh, memory."""

import json
import math
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from job_jax.config_io import to_json
from job_jax.mesh import device_name, make_mesh
from rlvr_jax.adapters import Parts, abstract_parts
from rlvr_jax.config import Config
from rlvr_jax.given import check_asked
from rlvr_jax.models import Transformer, held_whole, laid_out_shapes
from rlvr_jax.models.huggingface import embedding_rows
from rlvr_jax.run import open_run
from rlvr_jax.sampler import SamplerLayout

_MIB = 1 << 20


def text(config: Config) -> str:
    """Returns the plan of a run as text. Raises ConfigError where it could not run.

    Where the checkpoint to start from is not at hand, the plan is of shapes alone, and
    says so: neither tokenizer nor problems are looked at then.
    """
    start = config.pretrained.path
    if start and not Path(start).is_dir():
        return _of_shapes(config)
    with tempfile.TemporaryDirectory() as scratch:
        run = open_run(config, Path(scratch) / "tokenizer.model")
        check_asked(config, run.tokenizer.encode)
        policy = nnx.merge(run.graphdef, run.abstract_params())
        return _describe(config, run.mesh, policy, run.vocab_size, lines=run.left_out())


def _of_shapes(config: Config) -> str:
    mesh, rows = make_mesh(config.mesh), embedding_rows(config.pretrained)
    policy = nnx.eval_shape(lambda: Transformer(config.model, rows, nnx.Rngs(0)))
    line = f"there is no {config.pretrained.path}: neither tokenizer nor data checked"
    return _describe(config, mesh, policy, rows, lines=[line])


def _describe(
    config: Config,
    mesh: Mesh,
    policy: Transformer,
    vocab_size: int,
    *,
    lines: list[str],
) -> str:
    graphdef, params = nnx.graphdef(policy), laid_out_shapes(policy, mesh)
    split = abstract_parts(graphdef, params, mesh, config.train.lora)
    count = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))
    held = SamplerLayout.of(config, policy, mesh).held * mesh.size
    axes = " x ".join(f"{name} {size}" for name, size in mesh.shape.items())
    parts = [
        f"  {part:<22}{size / _MIB:10.1f} MiB"
        for part, size in memory_by_part(config, split, vocab_size, held=held).items()
    ]
    return "\n".join(
        [
            json.dumps(to_json(config), indent=2),
            f"parameters  {count:,}",
            f"vocabulary  {vocab_size:,}",
            f"devices     {device_name()}",
            f"mesh        {axes}",
            "memory over all devices, by part:",
            *parts,
            *(f"whole on each device: {one}" for one in held_whole(policy, mesh)),
            *lines,
        ]
    )


def memory_by_part(
    config: Config, params: Parts, vocab_size: int, *, held: int
) -> dict[str, float]:
    """Returns the bytes of what lives through a step, summed over devices.

    `held` are those of the sampler's own weights.

    Activations of the backward pass are not counted; `logits` are those that exist at
    once in the sampler, `dictionary` is that of a probe that the run itself trains.
    """
    model, train = config.model, config.train
    weights, left_alone = _bytes(params.trained), _bytes(params.frozen)
    numbers = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params.trained))
    rows = train.prompts_per_step * train.samples_per_prompt
    wide = 4 if model.compute_dtype == "float32" else 2
    has_reference = train.loss.kl_coef > 0 or train.rfgo.reads_reference
    dictionary = 0
    if config.probe.source == "stage":
        dictionary = 2 * 4 * model.width * config.probe.dictionary.sae.latents
    per_token = 2 * model.layers * model.kv_heads * model.head_width * wide
    return {
        "parameters": weights + left_alone,
        "gradients": 4 * numbers,
        "optimizer": 2 * numbers * np.dtype(train.optimizer.moments).itemsize,
        "reference": weights if has_reference else 0,
        "dictionary": dictionary,
        "sampler's weights": held,
        "completion cache": rows * train.sampling.max_new_tokens * per_token,
        "logits": 4.0 * rows * vocab_size,
    }


def _bytes(tree: Any) -> int:
    leaves = jax.tree.leaves(tree)
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)
