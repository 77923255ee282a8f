"""Conversions that are refused before anything is written, each with a clear line."""

import struct
import sys

import gguf
import numpy as np
import pytest

from job_jax.schema import ConfigError
from rlvr_jax.convert import main
from rlvr_jax.models.gguf import convert_gguf, quantization
from rlvr_jax.models.gguf.reader import read_gguf
from tests.golden.gguf_models import write_gguf
from tests.golden.gguf_tokens import add_byte_level, add_sentencepiece


def _refusal(path, folder) -> str:
    """Returns the refusal's only line, and checks that nothing was written."""
    with pytest.raises(ConfigError) as error:
        convert_gguf(path, folder / "out")
    assert [p.name for p in folder.iterdir()] == [path.name]
    assert "\n" not in str(error.value)
    return str(error.value)


def _without(name):
    return lambda tensors: {n: t for n, t in tensors.items() if n != name}


def _with(name, array, kind="F32"):
    return lambda tensors: tensors | {name: (array, kind)}


_ROW = np.ones(64, np.float32)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("llama", {"llama.expert_count": 8}, "llama.expert_count=8 is not supported"),
        ("llama", {"llama.rope.scaling.type": "yarn"}, "rope.scaling.type='yarn' is"),
        ("qwen2", {"qwen2.rope.scaling.type": "longrope"}, "'longrope' is not supp"),
        ("llama", {"llama.attention.scale": 0.5}, "llama.attention.scale=0.5 is not"),
        ("qwen3", {"qwen3.attention.sliding_window": 9}, "sliding_window=9 is not"),
        ("qwen3", {"qwen3.rope.dimension_count": 64}, "RoPE over 64 of 128 dimensio"),
        ("qwen3", {"qwen3.attention.value_length": 64}, "values of 64, is not supp"),
        ("qwen2", {"qwen2.rope.freq_base": None}, "lacks the setting qwen2.rope.freq"),
        ("llama", {"llama.block_count": None}, "lacks the setting llama.block_count"),
        ("llama", {"llama.feed_forward_length": [96, 96]}, "length=[96, 96] is not"),
        ("llama", {"llama.block_count": 3}, "lacks the tensors of 'model.layers.2."),
        ("llama", {"llama.embedding_length": 128}, "has shape (640, 64), and its"),
        ("llama", {"split.count": 3, "split.no": 1}, "is part 2 of 3; join them"),
        ("llama", {"general.type": "adapter"}, "general.type='adapter' is not a"),
        ("llama", {"tokenizer.ggml.model": "bert"}, "ggml.model='bert' is not supp"),
        ("llama", {"tokenizer.ggml.pre": "viking"}, "ggml.pre='viking' is not supp"),
        ("llama", {"tokenizer.ggml.pre": None}, "tokenizer.ggml.pre=None is not supp"),
        ("llama", {"tokenizer.ggml.merges": ["a zz"]}, "merge 'a zz' is not made of"),
        ("llama", {"tokenizer.ggml.eos_token_id": None}, "lacks the setting tokenizer"),
        ("llama", {"tokenizer.ggml.bos_token_id": 9999}, "bos_token_id=9999 is not"),
        (
            "llama",
            {"tokenizer.ggml.token_type": [1, 1]},
            "640 tokens, but 2 token types",
        ),
        (
            "mistral",
            {"tokenizer.ggml.remove_extra_whitespaces": True},
            "remove_extra_whitespaces is on",
        ),
        ("mistral", {"tokenizer.ggml.scores": None}, "lacks a score for each"),
    ],
)
def test_a_setting(name, changes, message, tmp_path):
    path = write_gguf(tmp_path / "m.gguf", name, **changes)
    assert message in _refusal(path, tmp_path)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("llama", _without("blk.1.ffn_up.weight"), "'model.layers.1.mlp.up_proj.wei"),
        ("llama", _without("token_embd.weight"), "lacks the tensor 'token_embd.wei"),
        ("qwen2", _without("blk.0.attn_q.bias"), "'model.layers.0.self_attn.q_proj.b"),
        ("llama", _with("blk.0.attn_q.bias", _ROW), "holds 'blk.0.attn_q.bias', which"),
        ("llama", _with("v.blk.0.ln1.weight", _ROW), "holds 'v.blk.0.ln1.weight'"),
        ("llama", _with("output_norm.weight", _ROW[:8]), "has shape (8,), and its"),
        (
            "llama",
            _with("rope_freqs.weight", np.linspace(1, 2, 8, dtype=np.float32)),
            "rope_freqs.weight does not hold the factors of Llama 3's RoPE",
        ),
    ],
)
def test_a_tensor(name, change, message, tmp_path):
    path = write_gguf(tmp_path / "m.gguf", name, change_tensors=change)
    assert message in _refusal(path, tmp_path)


def test_an_architecture(tmp_path):
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert "architecture 'mamba' is not supported" in _refusal(path, tmp_path)


@pytest.mark.parametrize("twice", ["a", "<|im_end|>"])
def test_a_token_that_is_there_twice(twice, tmp_path):
    tokens = add_byte_level("smollm")
    tokens["tokenizer.ggml.tokens"][-1] = twice
    path = write_gguf(tmp_path / "m.gguf", "llama", tokens=tokens)
    assert f"token {twice!r} occurs twice" in _refusal(path, tmp_path)


def test_more_tokens_than_rows(tmp_path):
    tokens = add_sentencepiece()
    for key, more in (("tokens", "x"), ("scores", 0.0), ("token_type", 1)):
        values = tokens[f"tokenizer.ggml.{key}"]
        values += [f"x{i}" if more == "x" else more for i in range(641 - len(values))]
    path = write_gguf(tmp_path / "m.gguf", "mistral", tokens=tokens)
    assert "641 tokens do not fit an embedding of 640 rows" in _refusal(path, tmp_path)


def test_a_file_that_is_cut_off_anywhere(tmp_path):
    """It ends one byte early, in its last tensor, its tensor table, or its settings."""
    whole = write_gguf(tmp_path / "whole.gguf", "llama").read_bytes()
    file = read_gguf(tmp_path / "whole.gguf")
    last = max(file.tensors.values(), key=lambda tensor: tensor.start)
    end = last.start + last.nbytes  # the writer pads after this byte
    (tmp_path / "whole.gguf").unlink()
    path = tmp_path / "m.gguf"
    for kept, message in (
        (end - 1, f"1 of its {end:,} bytes are missing, from tensor {last.name!r} on"),
        (last.start, f"{last.nbytes:,} of its {end:,} bytes are missing"),
        (whole.index(b"blk.1.attn_q") + 4, "within its header at 'blk.1.ffn_norm"),
        (whole.index(b"llama.rope.freq_base") + 22, "header at 'llama.rope.freq_base'"),
        (20, "it ends after 20 bytes, within its header; download it again"),
    ):
        path.write_bytes(whole[:kept])
        assert message in _refusal(path, tmp_path)
    path.write_bytes(whole[:end])
    assert read_gguf(path).tensors == file.tensors


def test_a_file_that_is_not_gguf_of_today(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"PK\x03\x04 a zip")
    assert "is not a GGUF file: it does not begin with GGUF" in _refusal(path, tmp_path)
    for version, message in (
        (1, "version 1 is"),
        (3 << 24, "in big-endian byte order"),
    ):
        path.write_bytes(b"GGUF" + struct.pack("<IQQ", version, 0, 0))
        assert message in _refusal(path, tmp_path)
    path.unlink()
    assert main(["from-gguf", str(path), str(tmp_path / "out")]) == 2


def test_each_quantization_that_gguf_cannot_read(tmp_path, monkeypatch):
    """Integers, float64 and activation formats cannot be weights."""
    kinds = gguf.GGMLQuantizationType
    refused = {
        kind.name for kind in kinds if not quantization.can_dequantize(kind.name)
    }
    assert {"Q8_1", "Q8_K", "I8", "I16", "I32", "I64", "F64"} <= refused
    read = {"F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K"}
    read |= {"Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "IQ2_XXS", "IQ1_S"}
    assert not refused & read
    path = write_gguf(tmp_path / "m.gguf", "llama")
    monkeypatch.setattr(
        "rlvr_jax.models.gguf.weights.can_dequantize", lambda kind: kind != "Q4_1"
    )
    assert "quantization Q4_1, of 'blk.0.attn_" in _refusal(path, tmp_path)


def test_without_the_package_gguf(tmp_path, monkeypatch):
    path = write_gguf(tmp_path / "m.gguf", "llama")
    monkeypatch.setitem(sys.modules, "gguf", None)
    quantization._gguf.cache_clear()
    assert "pip install 'rlvr_jax[gguf]'" in _refusal(path, tmp_path)
    quantization._gguf.cache_clear()
