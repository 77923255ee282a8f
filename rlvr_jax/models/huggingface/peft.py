"""Adapters -> a directory that PEFT loads on top of the base policy."""

import json
import os
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors.numpy import save_file

from job_jax.files import write_atomically
from job_jax.schema import ConfigError
from rlvr_jax.config import LoRAConfig
from rlvr_jax.models import lora
from rlvr_jax.models.transformer import Transformer

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def save_peft(
    policy: Transformer,
    path: str | os.PathLike[str],
    *,
    config: LoRAConfig,
    base: str | None = None,
) -> None:
    """Writes the adapters of a policy into a new directory, in float32.

    `base` is where PEFT finds the policy without adapters, such as a directory that
    `save_hf` wrote. Raises ConfigError if `path` already holds adapters.
    """
    directory = Path(path)
    if (directory / _WEIGHTS).exists():
        raise ConfigError(f"{directory} holds adapters already; give a new directory")
    directory.mkdir(parents=True, exist_ok=True)
    with write_atomically(directory / _WEIGHTS) as partial:
        save_file(_peft_tensors(policy, config), partial, metadata={"format": "pt"})
    settings: dict[str, Any] = {
        "base_model_name_or_path": base,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "lora_alpha": config.alpha,
        "lora_dropout": 0.0,
        "peft_type": "LORA",
        "r": config.rank,
        "target_modules": sorted(config.target_modules),
        "task_type": "CAUSAL_LM",
    }
    (directory / _CONFIG).write_text(json.dumps(settings, indent=2) + "\n")


def _peft_tensors(policy: Transformer, config: LoRAConfig) -> dict[str, np.ndarray]:
    """Returns every adapter under PEFT's name: A [rank, in] and B [out, rank]."""
    tensors = {}
    for module, pair in lora.named_adapters(policy, config).items():
        for letter, stack in zip("AB", pair, strict=True):
            for layer, matrix_IO in enumerate(np.asarray(jax.device_get(stack))):
                name = f"base_model.model.{module.format(layer)}.lora_{letter}.weight"
                tensors[name] = np.ascontiguousarray(matrix_IO.T)
    return tensors
