"""The measured model shapes, with random weights."""

import dataclasses
from typing import Any

import jax
from flax import nnx

from benchmarks.job import Job
from rlvr_jax.models import SIZES, ModelSize, Transformer

_LONGEST = 2048  # tokens of prompt and completion
_0_5B = SIZES["Qwen2.5-0.5B"]
SHAPES = {
    "0.5B": _0_5B,
    "1.5B": SIZES["Qwen2.5-1.5B"],
    "small": ModelSize(
        dataclasses.replace(
            _0_5B.model,
            num_layers=2,
            hidden_size=64,
            intermediate_size=128,
            num_heads=4,
            head_dim=16,
        ),
        1024,
    ),
}


def model_size(name: str, **changes: Any) -> ModelSize:
    """Returns a shape with the best dtype for the device.

    That is bfloat16 on an accelerator, and float32 on a CPU, which may not support
    bfloat16 products.
    """
    dtype = "float32" if jax.default_backend() == "cpu" else "bfloat16"
    changes = {"compute_dtype": dtype, "param_dtype": dtype, **changes}
    model = dataclasses.replace(SHAPES[name].model, max_seq_len=_LONGEST, **changes)
    return ModelSize(model, SHAPES[name].vocab_size)


def new_policy(
    size: ModelSize, *, eos_ids: tuple[int, ...], num_real_tokens: int | None = None
) -> Transformer:
    """Returns the policy with weights from seed 0; call it in a compiled program.

    Outside of one, a separate program would draw each array.
    """
    return Transformer(
        size.model,
        size.vocab_size,
        nnx.Rngs(0),
        eos_ids=eos_ids,
        num_real_tokens=num_real_tokens,
    )


def make_job(size: ModelSize, **batch: int) -> Job:
    """Returns the job, for which `benchmarks.counts` counts FLOPs."""
    names = {field.name for field in dataclasses.fields(Job)}
    sizes = {k: v for k, v in dataclasses.asdict(size.model).items() if k in names}
    return Job(**(sizes | batch), vocab_size=size.vocab_size)
