"""Memory of one device, by part, and a run's disk space: from shapes alone."""

import math
from collections.abc import Sequence

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import PyTree

from job_jax.buckets import JointMirror, mirror_of
from job_jax.disk import describe_lack, used_bytes
from job_jax.mesh import partition_spec
from job_jax.workdir import WorkdirError
from rlvr_jax.config import Config
from rlvr_jax.run.lineage import Lineage
from rlvr_jax.run.setup import RunSetup
from rlvr_jax.run.trainable import PolicyParts, abstract_trainable
from rlvr_jax.run.workdir import Workdir
from rlvr_jax.sampler import SamplerLayout

_TOKEN_BYTES = 4  # of text; fewer when compressed


def resident_bytes(config: Config, params: PolicyParts, mesh: Mesh) -> dict[str, int]:
    """Returns the bytes that stay on one device through a training step, by part.

    `params` are shapes with shardings. The part `probe` counts the arrays of a probe
    that the run trains itself.
    """
    train, itemsize = config.train, np.dtype(config.train.optimizer.moments_dtype)
    trained = shard_bytes(params.trained)
    num_trained = shard_bytes(params.trained, itemsize=1)
    parts = {
        "parameters": trained + shard_bytes(params.frozen),
        "optimizer": 2 * num_trained * itemsize.itemsize,
        "gradients": 4 * num_trained,
    }
    if train.loss.kl_coef > 0 or train.rfgo.needs_reference_policy:
        parts["reference"] = trained
    if probe_bytes := config.probe.memory_bytes(config.model.hidden_size):
        parts["probe"] = probe_bytes // mesh.shape["tensor"]
    return parts


def sampling_bytes(
    config: Config, vocab_size: int, layout: SamplerLayout, *, rows: int, length: int
) -> dict[str, int]:
    """Returns the bytes that sampling adds on one device, by part.

    The cache counts all `rows` that are decoded at a time, with `length` tokens each.
    `logits` counts one position of all rows, in float32.
    """
    model = config.model
    itemsize = np.dtype(model.compute_dtype).itemsize
    cache = (rows, length, model.num_kv_heads, model.head_dim)
    cache_axes = ("batch", None, "kv_heads", "head_dim")
    per_layer = shard_size(cache, cache_axes, layout.mesh) * itemsize
    logits = shard_size((rows, vocab_size), ("batch", "vocab"), layout.mesh)
    return {
        "sampler weights": layout.bytes_held,
        "completion cache": 2 * model.num_layers * per_layer,
        "logits": 4 * logits,
    }


def disk_bytes(
    config: Config, policy: PyTree, params: PolicyParts, *, lineage: Lineage | None
) -> dict[str, int]:
    """Returns the most bytes that a run writes, by folder of its workdir.

      - `checkpoints`: the trained parameters and both moments; a new one is written
        before the oldest is removed;
      - `checkpoints/start`: the parameters of `policy` that a run starts from, with
        moments if it takes them from another run;
      - `activations`: the data that a probe is trained on, in bfloat16;
      - `rollouts`: saved completions of maximal length, at `_TOKEN_BYTES` a token.

    Other files are small compared with these.
    """
    moments = 2 * np.dtype(config.train.optimizer.moments_dtype).itemsize
    num_stages = bool(config.sft.steps) + bool(config.train.steps)
    kept = num_stages * config.checkpoint.max_to_keep + bool(num_stages)
    disk = {"checkpoints": kept * _saved_bytes(params.trained, moments=moments)}
    if lineage is not None:
        disk["checkpoints/start"] = _saved_bytes(
            policy, moments=moments if lineage.has_optimizer else 0
        )
    if config.probe.enabled:
        completions = config.probe.num_problems * config.train.group_size
        tokens = completions * config.model.max_seq_len
        disk["activations"] = 2 * tokens * config.model.hidden_size
    disk["rollouts"] = _TOKEN_BYTES * _saved_tokens(config)
    return disk


def _saved_tokens(config: Config) -> int:
    """Returns the most tokens of prompts and completions in rollouts/."""
    train, evaluation = config.train, config.eval
    group = train.batch_size * train.group_size
    saved_steps = -(-train.steps // config.log.rollouts_every) + bool(train.steps)
    completions = group * saved_steps
    completions += 2 * evaluation.num_problems * evaluation.num_samples
    if config.difficulty.num_samples:
        completions += config.log.difficulty_rollouts
    if config.probe.enabled:
        completions += config.probe.num_problems * train.group_size
    return completions * config.model.max_seq_len


def check_room(setup: RunSetup, workdir: Workdir, lineage: Lineage | None) -> None:
    """Raises WorkdirError if the disk cannot hold the checkpoints still to come."""
    if isinstance(mirror_of(workdir.path), JointMirror):
        return  # checkpoints go straight to the bucket, not to this disk
    sizes = disk_bytes(
        setup.config,
        setup.abstract_params(),
        abstract_trainable(setup),
        lineage=lineage,
    )
    whole = sum(size for name, size in sizes.items() if name.startswith("checkpoints"))
    needed = whole - used_bytes(workdir.checkpoints)
    if lack := describe_lack(workdir.path, needed):
        raise WorkdirError(
            f"{lack} for checkpoints; make room, choose another --workdir, or lower "
            f"checkpoint.max_to_keep={setup.config.checkpoint.max_to_keep}"
        )


def _saved_bytes(tree: PyTree, *, moments: int) -> int:
    """Returns the bytes of arrays on disk, with `moments` more bytes per element."""
    return sum(
        math.prod(leaf.shape) * (leaf.dtype.itemsize + moments)
        for leaf in jax.tree.leaves(tree)
    )


def shard_bytes(tree: PyTree, *, itemsize: int | None = None) -> int:
    """Returns the bytes that one device holds of shapes with shardings.

    With `itemsize`, each element counts as that many bytes, for any dtype.
    """
    return sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape))
        * (itemsize or np.dtype(leaf.dtype).itemsize)
        for leaf in jax.tree.leaves(tree)
    )


def shard_size(
    shape: Sequence[int], logical_axes: Sequence[str | None], mesh: Mesh
) -> int:
    """Returns how many elements one device holds of an array with these axes."""
    spec = partition_spec(shape, logical_axes, mesh)
    sharding = jax.sharding.NamedSharding(mesh, spec)
    return math.prod(sharding.shard_shape(tuple(shape)))
