"""How many groups fit in a micro-batch, given the memory of its backward pass.

On a CPU, activations take most of a step's memory, and four micro-batches take about as
long as one, because each has large enough matrix products. There the size of a
micro-batch is chosen by memory first. Recomputation (`model.remat`) would cost time.
"""

import dataclasses
from typing import Self

import numpy as np

from job_jax.mesh import mesh_platform, num_batch_devices
from rlvr_jax.config import Config, ModelConfig

_SCORE_BYTES = 4  # attention's scores are float32


def activation_bytes(
    model: ModelConfig, *, rows: int, prompt_width: int, width: int
) -> int:
    """Returns about how many bytes one group's backward pass stores over all layers.

    The group has one prompt and `rows` completions. XLA's actual storage was measured
    on CPU (LoRA and full updates, scanned and unrolled): 0.75 to 1.1 times this
    estimate.
    """
    D, F = model.hidden_size, model.intermediate_size
    heads = (model.num_heads + 2 * model.num_kv_heads) * model.head_dim
    tokens = prompt_width + rows * width
    pairs = prompt_width**2 + rows * width * (prompt_width + width)
    by_token = {
        "none": 12 * D + 6 * F,  # the stream, its norms, heads, and the MLP's factors
        "dots": 3 * D + heads + 2 * F,  # the stream and the products with weights
        "block": D,  # the stream
    }[model.remat]
    # Keys and values of the prompt, shared by its completions, and their gradients.
    shared = prompt_width * 4 * model.num_kv_heads * model.head_dim
    itemsize = np.dtype(model.compute_dtype).itemsize
    stored = (tokens * by_token + shared) * itemsize
    if model.remat != "block" and not model.attention_chunk_size:
        stored += 3 * pairs * model.num_heads * _SCORE_BYTES
    return model.num_layers * stored


@dataclasses.dataclass(frozen=True, kw_only=True)
class ActivationLimit:
    """How much memory a micro-batch's activations may take on each device.

    There is no limit without a model or with `gib` 0.
    """

    model: ModelConfig | None = None
    gib: float = 0.0
    devices: int = 1

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Returns the limit of `train.activation_gib` on CPU devices, else no limit.

        Reads the current mesh.
        """
        if mesh_platform() != "cpu":
            return cls()
        return cls(
            model=config.model,
            gib=config.train.activation_gib,
            devices=num_batch_devices(),
        )

    def fit(self, groups: int, rows: int, prompt_width: int, width: int) -> int:
        """Returns the most groups that fit: a divisor of `groups`.

        A group has a prompt and `rows` completions of these widths. Every device gets
        at least one group, even if it does not fit.

        Example:
            >>> model = ModelConfig()  # 4 layers of width 128
            >>> ActivationLimit(model=model, gib=0.25).fit(16, 8, 64, 64)
            4
            >>> ActivationLimit(model=model).fit(16, 8, 64, 64)
            16
        """
        if self.model is None or not self.gib:
            return groups
        needed = activation_bytes(
            self.model, rows=rows, prompt_width=prompt_width, width=width
        )
        capacity = max(1, int(self.gib * 2**30 / needed)) * self.devices
        sizes = range(self.devices, groups + 1, self.devices)
        return max(
            (n for n in sizes if n <= capacity and not groups % n), default=groups
        )
