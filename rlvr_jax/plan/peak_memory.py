"""An estimate of a device's memory in each stage, by part: from shapes alone.

Weights, optimizer and caches are counted exactly. Arrays that exist only inside a
program (activations, logits, copies of weights) depend on the compiler; their factors
were fitted to XLA's reports and to runs. docs/scale/dry_run.md has the comparison.
"""

import dataclasses
import math

import jax
import numpy as np
from jax.sharding import Mesh

from rlvr_jax.config import ModelConfig
from rlvr_jax.config.task import Stage
from rlvr_jax.learn.activation_memory import ActivationLimit, activation_bytes
from rlvr_jax.learn.logprobs import balanced_width
from rlvr_jax.plan.memory import (
    resident_bytes,
    sampling_bytes,
    shard_bytes,
    shard_size,
)
from rlvr_jax.plan.run_shapes import RunShapes
from rlvr_jax.sampler.stages import decode_stages

# Copies of the logits in memory: of all rows at one position in a decode step, and of a
# chunk of positions in an update, forward and backward.
_LOGITS_COPIES = 5
# Caches of a decode loop, in units of the whole cache.
_CACHES_ONE_LOOP, _CACHES_UNROLLED, _CACHES_SCANNED = 1.05, 1.1, 1.5
# XLA for CPU recomputes most unrolled layers so early that little memory is saved.
_UNROLLED_REMAT = 0.75

Phases = dict[str, dict[str, int]]  # phase -> part -> bytes
SAMPLING_PHASES = ("difficulty", "probe", "rollouts", "eval")


def memory_phases(run: RunShapes) -> Phases:
    """Returns the bytes of one device by phase and part, for the phases that run.

    With `sampler.devices`, SAMPLING_PHASES describe a device of the sampler, and the
    others one of the update.
    """
    return _Estimate(run).phases()


@dataclasses.dataclass(frozen=True)
class _Estimate:
    run: RunShapes

    def phases(self) -> Phases:
        """Returns the bytes of each phase."""
        config, train = self.run.config, self.run.config.train
        phases: Phases = {}
        if config.sft.steps:
            phases["sft"] = self._supervised_update()
        if samples := config.difficulty.num_samples:
            phases["difficulty"] = self._sampling(
                "train", config.eval.batch_size, samples
            )
        if config.probe.enabled:
            prompts = min(config.eval.batch_size, train.batch_size)
            phases["probe"] = self._sampling("train", prompts, train.group_size)
            phases["probe fit"] = {
                "autoencoders": config.probe.fit_bytes(config.model.hidden_size)
                // self.run.mesh.size
            }
        if train.steps:
            phases["rollouts"] = self._train_sampling()
            phases["update"] = self._train_update()
        phases["eval"] = self._sampling(
            "eval", config.eval.batch_size, config.eval.num_samples
        )
        return phases

    def _train_sampling(self) -> dict[str, int]:
        train = self.run.config.train
        sampling = self._sampling("train", train.batch_size, train.group_size)
        if self.run.layout.has_own_devices:
            return sampling
        resident = resident_bytes(self.run.config, self.run.parts, self.run.mesh)
        del resident["gradients"]  # exist only during an update
        return resident | {k: v for k, v in sampling.items() if k != "parameters"}

    def _sampling(self, stage: Stage, prompts: int, samples: int) -> dict[str, int]:
        """Returns the bytes while `prompts` x `samples` completions are sampled."""
        config, model, mesh = (
            self.run.config,
            self.run.config.model,
            self.run.layout.mesh,
        )
        sampling = (config.eval if stage == "eval" else config.train).sampling
        rows, S = prompts * samples, self.run.widths.prompts[stage]
        slots = min(config.sampler.slots or rows, rows)
        parts = sampling_bytes(
            config,
            self.run.vocab_size,
            self.run.layout,
            rows=slots,
            length=sampling.max_new_tokens,
        )
        # If rows wait for slots, each slot has a copy of its prompt.
        copies = prompts + (slots if slots < rows else 0)
        keys = (copies, S, model.num_kv_heads, model.head_dim)
        prefix = shard_size(keys, ("batch", None, "kv_heads", "head_dim"), mesh)
        itemsize = np.dtype(model.compute_dtype).itemsize
        own = self.run.layout.has_own_devices
        return {
            **({} if own else {"parameters": shard_bytes(self.run.params)}),
            "sampler weights": parts["sampler weights"] + self._layer_copy(mesh),
            "prompt cache": 2 * model.num_layers * itemsize * prefix,
            "completion cache": int(self._caches(stage) * parts["completion cache"]),
            "activations": shard_size((prompts,), ("batch",), mesh)
            * self._layer_bytes(rows=0, prompt_width=S, width=0)
            // 2,  # nothing is kept for a backward pass
            "logits": _LOGITS_COPIES * parts["logits"],
        }

    def _caches(self, stage: Stage) -> float:
        """Returns the caches that exist at once while one is replaced by a wider one.

        Unrolled layers are replaced one after the other.
        """
        config = self.run.config
        sampling = (config.eval if stage == "eval" else config.train).sampling
        if len(decode_stages(1, sampling.max_new_tokens)) == 1:
            return _CACHES_ONE_LOOP
        return _CACHES_SCANNED if config.model.scan_layers else _CACHES_UNROLLED

    def _supervised_update(self) -> dict[str, int]:
        sft = self.run.config.sft
        moments = 2 * np.dtype(sft.optimizer.moments_dtype).itemsize
        count = shard_bytes(self.run.params, itemsize=1)
        resident = {
            "parameters": shard_bytes(self.run.params),
            "optimizer": moments * count,
            "gradients": 4 * count,
        }
        return resident | self._update(
            sft.batch_size // sft.grad_accum_steps,
            rows=1,
            prompt_width=self.run.widths.prompts["sft"],
            width=self.run.widths.solution,
            trained=count,
        )

    def _train_update(self) -> dict[str, int]:
        train, prompt_width = self.run.config.train, self.run.widths.prompts["train"]
        width, rows = self.run.widths.completion, train.rows_per_group
        groups = train.groups_per_micro_batch
        if train.micro_batch_tokens:
            most = train.micro_batch_tokens // (prompt_width + rows * width)
            groups = max(_num_shards(self.run.mesh), most)
        return resident_bytes(
            self.run.config, self.run.parts, self.run.mesh
        ) | self._update(
            groups,
            rows=rows,
            prompt_width=prompt_width,
            width=width,
            trained=shard_bytes(self.run.parts.trained, itemsize=1),
        )

    def _update(
        self, groups: int, *, rows: int, prompt_width: int, width: int, trained: int
    ) -> dict[str, int]:
        """Returns the bytes that exist only during an update of a micro-batch.

        It has `groups` groups of `rows` completions; a device has `trained` numbers to
        learn.
        """
        train, model, mesh = self.run.config.train, self.run.config.model, self.run.mesh
        devices = _num_shards(mesh)
        limit = ActivationLimit(
            model=model,
            gib=train.activation_gib if self.run.on_cpu else 0.0,
            devices=devices,
        )
        groups = limit.fit(groups, rows, prompt_width, width)
        shape = {"rows": rows, "prompt_width": prompt_width, "width": width}
        stored = self._stored_bytes(**shape)
        B, V = groups * rows, self.run.vocab_size
        chunk = train.logits_chunk_size or balanced_width(
            B, width, V, on_cpu=self.run.on_cpu
        )
        logits = shard_size((B, min(chunk, width), V), ("batch", None, "vocab"), mesh)
        table = 4 * shard_size((V, model.hidden_size), ("vocab", None), mesh)
        return {
            "weights in use": self._layer_copy(mesh),
            "new gradients": 4 * trained,
            "activations": -(-groups // devices) * stored,
            "logits": 4 * _LOGITS_COPIES * logits + (table if chunk < width else 0),
        }

    def _layer_copy(self, mesh: Mesh) -> int:
        """Returns the bytes of the layers' weights once more, as a program takes them.

        Unrolled layers are cut out of the stacked arrays; scanned ones are only cast.
        """
        model, layout = self.run.config.model, self.run.layout
        is_cast = model.compute_dtype == model.param_dtype or (
            layout.reshard is not None and mesh is layout.mesh
        )
        if model.scan_layers and is_cast:
            return 0
        itemsize = np.dtype(model.compute_dtype).itemsize
        share = mesh.shape["tensor"]
        if mesh.shape == self.run.mesh.shape:
            share *= mesh.shape["fsdp"]
        return self._num_layer_weights() * itemsize // share

    def _num_layer_weights(self) -> int:
        leaves = jax.tree.leaves(self.run.params)
        whole = sum(math.prod(leaf.shape) for leaf in leaves)
        tables = 1 if self.run.config.model.tie_embeddings else 2
        return whole - tables * self.run.vocab_size * self.run.config.model.hidden_size

    def _stored_bytes(self, **shape: int) -> int:
        """Returns the bytes of one group's activations while gradients are computed."""
        model = self._sharded_model()
        if model.remat == "none":
            return activation_bytes(model, **shape)
        if self.run.on_cpu and not model.scan_layers:
            whole = dataclasses.replace(model, remat="none")
            return int(_UNROLLED_REMAT * activation_bytes(whole, **shape))
        # Also the layer that is being computed again.
        return activation_bytes(model, **shape) + self._layer_bytes(**shape)

    def _layer_bytes(self, *, rows: int, prompt_width: int, width: int) -> int:
        """Returns the bytes of one group's pass through one layer, before the next."""
        one = dataclasses.replace(self._sharded_model(), num_layers=1, remat="none")
        return activation_bytes(one, rows=rows, prompt_width=prompt_width, width=width)

    def _sharded_model(self) -> ModelConfig:
        """Returns the model as one device computes it, for `activation_bytes`.

        Kernels store no scores; chunks of queries are counted instead.
        """
        model, tensor = self.run.config.model, self.run.mesh.shape["tensor"]
        kernel = model.attention != "plain" and not self.run.on_cpu
        heads = max(1, model.num_heads // tensor)
        return dataclasses.replace(
            model,
            intermediate_size=max(1, model.intermediate_size // tensor),
            num_heads=heads,
            num_kv_heads=math.gcd(heads, max(1, model.num_kv_heads // tensor)),
            attention_chunk_size=model.attention_chunk_size or (256 if kernel else 0),
        )


def _num_shards(mesh: Mesh) -> int:
    """Returns over how many devices a batch is split."""
    return mesh.shape["data"] * mesh.shape["fsdp"]
