"""GGUF files of each architecture, against what transformers makes of the same file."""

import hashlib
import json
import pathlib

import numpy as np
import pytest
from golden.family_models import POSITIONS, padded
from golden.gguf_models import CASES, write_gguf
from safetensors.numpy import load_file

from rlvr_jax.convert import main
from rlvr_jax.models import load_hf
from rlvr_jax.tokenizer import HuggingFaceTokenizer

_GOLDEN = json.loads(
    (pathlib.Path(__file__).parents[2] / "golden/gguf_goldens.json").read_text()
)["models"]


def _converted(folder: pathlib.Path, name: str, *flags: str, **changes) -> pathlib.Path:
    path = write_gguf(folder / "model.gguf", name, **changes)
    assert main(["from-gguf", str(path), str(folder / "out"), *flags]) == 0
    return folder / "out"


def _read(folder: pathlib.Path, name: str) -> dict:
    return json.loads((folder / name).read_text())


@pytest.mark.parametrize("name", CASES)
def test_weights_are_bit_for_bit_those_of_transformers(name, tmp_path):
    tensors = load_file(_converted(tmp_path, name) / "model.safetensors")
    assert {array.dtype for array in tensors.values()} == {np.dtype(np.float32)}
    found = {
        key: hashlib.sha256(array.tobytes()).hexdigest()[:12]
        for key, array in tensors.items()
    }
    assert found == _GOLDEN[name]["sha256"]


@pytest.mark.parametrize("name", CASES)
def test_logits_are_those_of_transformers(name, tmp_path):
    policy = load_hf(_converted(tmp_path, name))
    rows, mask = padded("right")
    logits = np.asarray(policy(rows.astype(np.int32), mask))
    for row, at, expected in zip(
        logits, POSITIONS, _GOLDEN[name]["logits"], strict=True
    ):
        entries = np.shape(expected)[1]
        np.testing.assert_allclose(row[list(at), :entries], expected, atol=1e-3)


def test_bfloat16_is_the_rounded_float32(tmp_path):
    wide = load_file(_converted(tmp_path, "llama") / "model.safetensors")
    (tmp_path / "b").mkdir()
    out = _converted(tmp_path / "b", "llama", "--dtype=bfloat16")
    narrow = load_file(out / "model.safetensors")
    assert narrow.keys() == wide.keys()
    for name, array in narrow.items():
        assert array.dtype == "bfloat16"
        assert (array == wide[name].astype(array.dtype)).all()
    assert _read(out, "config.json")["torch_dtype"] == "bfloat16"
