"""Peaks of devices, and the bytes that decoding must read; only arithmetic."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from rlvr_jax.config import ModelConfig
from rlvr_jax.plan.topology import parse_topology
from rlvr_jax.run.throughput import num_matmul_weights


@dataclasses.dataclass(frozen=True, kw_only=True)
class Peaks:
    """A device's peaks per second: dense bfloat16 FLOPs, and bytes of memory."""

    flops: float
    bytes_per_s: float


# By a part of JAX's `device_kind` in lower case; the first match counts. From the
# makers' data sheets, without sparsity. A T4 has no bfloat16, so it has float16's.
_GPUS = {
    "b200": Peaks(flops=2250e12, bytes_per_s=8000e9),
    "h100 pcie": Peaks(flops=756e12, bytes_per_s=2000e9),
    "h100 nvl": Peaks(flops=835e12, bytes_per_s=3900e9),
    "h100": Peaks(flops=989e12, bytes_per_s=3350e9),
    "a100 80gb pcie": Peaks(flops=312e12, bytes_per_s=1935e9),
    "a100": Peaks(flops=312e12, bytes_per_s=1555e9),
    "l40s": Peaks(flops=362e12, bytes_per_s=864e9),
    "nvidia l4": Peaks(flops=121e12, bytes_per_s=300e9),
    "a10g": Peaks(flops=70e12, bytes_per_s=600e9),
    "tesla t4": Peaks(flops=65e12, bytes_per_s=320e9),
}
# JAX's names, and one such device in `plan.topology`.
_PLANNED = {
    "h200": "h200:1",
    "h100 80gb": "h100:1",
    "a100-sxm4-80gb": "a100:1",
    "tpu v4": "v4:1x1",
    "tpu v5 lite": "v5e:1x1",
    "tpu v5e": "v5e:1x1",
    "tpu v5p": "v5p:1x1",
    "tpu v5": "v5p:1x1",
    "tpu v6": "v6e:1x1",
}


def published_peaks(device_kind: str) -> Peaks | None:
    """Returns the data sheet's peaks of a device, or None if it is not in the table.

    Example:
        >>> published_peaks("NVIDIA H100 80GB HBM3").bytes_per_s
        3350000000000.0
    """
    kind = device_kind.lower()
    for name, device in _PLANNED.items():
        if name in kind:
            chip = parse_topology(device).chip
            return Peaks(flops=chip.bfloat16_flops, bytes_per_s=chip.hbm_bytes_per_s)
    return next((peaks for name, peaks in _GPUS.items() if name in kind), None)


def decode_bytes(
    model: ModelConfig,
    vocab_size: int,
    *,
    prompt_lengths: Sequence[int],
    new_tokens: Sequence[int],
    slots: int,
) -> float:
    """Returns the bytes that decoding these completions must read.

    A step reads all weights once. A token also reads the keys and values of its prompt
    and of the earlier completion. The first token of a completion comes from the pass
    over the prompts and only needs the output head. `slots` completions are decoded at
    a time. So the number of steps is at least the length of the longest, and at least
    all tokens divided by `slots`. Logits and activations are not counted.
    """
    itemsize = np.dtype(model.compute_dtype).itemsize
    prompts, tokens = np.asarray(prompt_lengths), np.asarray(new_tokens)
    steps = max(tokens.max() - 1, -(-int((tokens - 1).sum()) // slots))
    weights = steps * num_matmul_weights(model, vocab_size)
    rounds = -(-len(tokens) // slots)
    first = rounds * vocab_size * model.hidden_size
    positions = ((tokens - 1) * prompts + tokens * (tokens - 1) // 2).sum()
    position = 2 * model.num_layers * model.num_kv_heads * model.head_dim
    return float(itemsize) * float(weights + first + position * positions)
