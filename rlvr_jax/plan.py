"""What a run would be, without starting it: config, parameters, mesh, memory."""

import json
import math
import tempfile
from pathlib import Path

import jax
import numpy as np

from job_jax.config_io import to_json
from job_jax.mesh import device_name
from rlvr_jax.config import Config
from rlvr_jax.given import check_asked
from rlvr_jax.run import Run, open_run

_MIB = 1 << 20


def text(config: Config) -> str:
    """Returns the plan of a run as text. Raises ConfigError where it could not run."""
    with tempfile.TemporaryDirectory() as scratch:
        run = open_run(config, Path(scratch) / "tokenizer.model")
        check_asked(config, run.tokenizer.encode)
        return _describe(run)


def _describe(run: Run) -> str:
    config, mesh = run.config, run.mesh
    params = run.abstract_params()
    count = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))
    axes = " x ".join(f"{name} {size}" for name, size in mesh.shape.items())
    lines = [
        json.dumps(to_json(config), indent=2),
        f"parameters  {count:,}",
        f"vocabulary  {run.tokenizer.vocab_size:,}",
        f"devices     {device_name()}",
        f"mesh        {axes}",
        "memory over all devices, by part:",
    ]
    lines += [
        f"  {part:<22}{size / _MIB:10.1f} MiB"
        for part, size in memory_by_part(run).items()
    ]
    lines += [f"whole on each device: {one}" for one in run.held_whole()]
    return "\n".join([*lines, *run.left_out()])


def memory_by_part(run: Run) -> dict[str, float]:
    """Returns the bytes of what lives through a step, summed over devices.

    Activations of the backward pass are not counted; `logits` are those that exist at
    once in the sampler, `dictionary` is that of a probe that the run itself trains.
    """
    config = run.config
    model, train = config.model, config.train
    leaves = jax.tree.leaves(run.abstract_params())
    weights = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)
    numbers = sum(math.prod(leaf.shape) for leaf in leaves)
    rows = train.prompts_per_step * train.samples_per_prompt
    wide = 4 if model.compute_dtype == "float32" else 2
    has_reference = train.loss.kl_coef > 0 or train.rfgo.reads_reference
    dictionary = 0
    if config.probe.source == "stage":
        dictionary = 2 * 4 * model.width * config.probe.dictionary.sae.latents
    per_token = 2 * model.layers * model.kv_heads * model.head_width * wide
    return {
        "parameters": weights,
        "gradients": 4 * numbers,
        "optimizer": 2 * numbers * np.dtype(train.optimizer.moments).itemsize,
        "reference": weights if has_reference else 0,
        "dictionary": dictionary,
        "sampler's weights": run.layout.held * run.mesh.size,
        "completion cache": rows * train.sampling.max_new_tokens * per_token,
        "logits": 4.0 * rows * run.tokenizer.vocab_size,
    }
