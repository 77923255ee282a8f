"""Reads JSON and safetensors files, with errors that name the file."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from sae_jax.formats.record import FormatError


def read_json(path: Path) -> dict[str, Any]:
    """Returns the object in a JSON file. Raises FormatError if there is none."""
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise FormatError(f"{path}: {error}") from error
    if not isinstance(value, dict):
        raise FormatError(f"{path} holds no JSON object")
    return value


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """Returns the tensors of a file. Raises FormatError if it is damaged."""
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise FormatError(f"{path}: {error}") from error
