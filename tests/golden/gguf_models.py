"""Tiny GGUF files, stored as llama.cpp's converter stores them.

Imported both with torch and with JAX. Weights come from family_models.py, under Hugging
Face's names. This module converts them to GGUF, and the program converts them back.
Sizes are the ones that transformers assumes: heads of 128 in Qwen3 and 256 in Gemma 3,
whose sixth layer is the first without a window.
"""

import pathlib

import gguf
import numpy as np

from tests.golden.family_models import weight
from tests.golden.gguf_tokens import ROWS, add_byte_level, add_sentencepiece

_KINDS = gguf.GGMLQuantizationType
_LLAMA = {
    "num_layers": 2,
    "hidden": 64,
    "mlp": 96,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 16,
}
# architecture, sizes, quantization of each part of a layer, and settings
CASES = {
    "llama": {
        "arch": "llama",
        **_LLAMA,
        "theta": 1000.0,
        "tied": False,
        "pre": "smollm",
        "kinds": {"token_embd": "Q8_0", "attn": "Q4_1", "ffn": "Q4_0", "output": "F16"},
    },
    "llama3": {
        "arch": "llama",
        **_LLAMA,
        "theta": 10000.0,
        "tied": True,
        "pre": "llama-bpe",
        "kinds": {"attn": "Q5_0", "ffn": "Q5_1"},
        "llama3_factor": 8.0,
    },
    "mistral": {
        "arch": "llama",
        **_LLAMA,
        "theta": 10000.0,
        "tied": False,
        "pre": "",
        "kinds": {"attn": "BF16", "ffn": "TQ2_0"},
        "mlp": 256,
        "hidden": 256,
        "head_dim": 64,
    },
    "qwen2": {
        "arch": "qwen2",
        **_LLAMA,
        "theta": 1000000.0,
        "tied": True,
        "pre": "qwen2",
        "kinds": {"attn": "Q8_0", "ffn": "F16"},
    },
    "qwen3": {
        "arch": "qwen3",
        **_LLAMA,
        "heads": 2,
        "kv_heads": 1,
        "head_dim": 128,
        "theta": 1000000.0,
        "tied": False,
        "pre": "qwen2",
        "kinds": {"ffn": "Q4_1"},
    },
    "gemma3": {
        "arch": "gemma3",
        **_LLAMA,
        "num_layers": 7,
        "heads": 1,
        "kv_heads": 1,
        "head_dim": 256,
        "mlp": 256,
        "theta": 1000000.0,
        "tied": True,
        "pre": "",
        "kinds": {"token_embd": "Q8_0", "attn_output": "Q6_K", "ffn_down": "Q4_K"},
        "window": 5,
    },
}
EPS = 1e-5
CONTEXT = 256
VOCAB = ROWS


def layer_names(arch: str) -> dict[str, str]:
    """Returns Hugging Face's name of each part of a layer, by llama.cpp's name."""
    names = {
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
    if arch in ("qwen3", "gemma3"):
        names |= {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
    if arch == "gemma3":
        names |= {
            "post_attention_norm": "post_attention_layernorm",
            "ffn_norm": "pre_feedforward_layernorm",
            "post_ffw_norm": "post_feedforward_layernorm",
        }
    return names


def shape_of(part: str, case: dict) -> tuple[int, ...]:
    """Returns the shape of a layer part's weight."""
    hidden, mlp = case["hidden"], case["mlp"]
    queries = case["heads"] * case["head_dim"]
    keys = case["kv_heads"] * case["head_dim"]
    if part in ("attn_q_norm", "attn_k_norm"):
        return (case["head_dim"],)
    if "norm" in part:
        return (hidden,)
    return {
        "attn_q": (queries, hidden),
        "attn_k": (keys, hidden),
        "attn_v": (keys, hidden),
        "attn_output": (hidden, queries),
        "ffn_gate": (mlp, hidden),
        "ffn_up": (mlp, hidden),
        "ffn_down": (hidden, mlp),
    }[part]


def stored_tensors(case: dict) -> dict[str, tuple[np.ndarray, str]]:
    """Returns each tensor as llama.cpp stores it unquantized, and its kind."""
    hidden = case["hidden"]
    names = {
        ("token_embd.weight", "model.embed_tokens.weight"): (VOCAB, hidden),
        ("output_norm.weight", "model.norm.weight"): (hidden,),
    }
    if not case["tied"]:
        names["output.weight", "lm_head.weight"] = (VOCAB, hidden)
    for layer in range(case["num_layers"]):
        for part, hf in layer_names(case["arch"]).items():
            shape = shape_of(part, case)
            kinds = ["weight"]
            if case["arch"] == "qwen2" and part in ("attn_q", "attn_k", "attn_v"):
                kinds.append("bias")
            for kind in kinds:
                name = f"blk.{layer}.{part}.{kind}"
                hf_name = f"model.layers.{layer}.{hf}.{kind}"
                names[name, hf_name] = shape if kind == "weight" else shape[:1]
    tensors = {}
    for (name, hf_name), shape in names.items():
        array = weight(hf_name, shape, seed=0)
        if case["arch"] == "llama" and ".attn_q." in name:
            array = _interleaved(array, case["heads"])
        if case["arch"] == "llama" and ".attn_k." in name:
            array = _interleaved(array, case["kv_heads"])
        if case["arch"] == "gemma3" and "norm" in name:
            array = array + np.float32(1)
        tensors[name] = array, _kind(name, array, case)
    return tensors


def _interleaved(array: np.ndarray, heads: int) -> np.ndarray:
    """Returns rows of queries or keys in llama.cpp's order: the halves alternate."""
    rows, columns = array.shape
    halves = array.reshape(heads, 2, rows // heads // 2, columns)
    return halves.swapaxes(1, 2).reshape(rows, columns)


def _kind(name: str, array: np.ndarray, case: dict) -> str:
    part = name.removeprefix("blk.").split(".")[-2]
    if array.ndim == 1:
        return "F32"
    fits = [k for prefix, k in case["kinds"].items() if part.startswith(prefix)]
    return fits[0] if fits else "F32"


def _quantized(name: str, array: np.ndarray, kind: str) -> np.ndarray:
    """Returns a tensor's bytes; K-quants are random, because gguf cannot write them."""
    if array.dtype == np.uint8:
        return array
    if kind not in ("Q4_K", "Q6_K"):
        return gguf.quantize(array, _KINDS[kind])
    values, size = gguf.GGML_QUANT_SIZES[_KINDS[kind]]
    random = np.random.RandomState(len(name))
    blocks = random.randint(0, 256, (len(array), array.shape[1] // values, size))
    blocks = blocks.astype(np.uint8)
    scale = np.array([0.002, 0.002], np.float16).view(np.uint8)
    at = slice(0, 4) if kind == "Q4_K" else slice(size - 2, size)
    blocks[..., at] = scale[: at.stop - at.start]
    return blocks.reshape(len(array), -1)


def llama3_factors(case: dict) -> np.ndarray:
    """Returns the divisors of Llama 3's RoPE frequencies.

    Fast frequencies stay, slow ones are divided by the factor, others in between.
    """
    factors = []
    for i in range(0, case["head_dim"], 2):
        wavelength = 2 * np.pi * case["theta"] ** (i / case["head_dim"])
        if wavelength < 8192 / 4:
            factors.append(1.0)
        elif wavelength > 8192 / 1:
            factors.append(case["llama3_factor"])
        else:
            smooth = (8192 / wavelength - 1) / (4 - 1)
            factors.append(1 / ((1 - smooth) / case["llama3_factor"] + smooth))
    return np.array(factors, np.float32)


def write_gguf(
    path: pathlib.Path,
    name: str,
    *,
    tokens: dict | None = None,
    change_tensors=lambda tensors: tensors,
    **changes,
) -> pathlib.Path:
    """Writes the tiny model of this name and returns the path.

    `tokens` are the settings of another tokenizer. `changes` are settings to add or
    replace, by full key; None drops one. `change_tensors` changes the tensors, by name,
    before they are quantized.
    """
    case = CASES[name]
    arch = case["arch"]
    writer = gguf.GGUFWriter(path, arch)
    settings = {
        "general.name": f"tiny {name}",
        f"{arch}.block_count": case["num_layers"],
        f"{arch}.context_length": CONTEXT,
        f"{arch}.embedding_length": case["hidden"],
        f"{arch}.feed_forward_length": case["mlp"],
        f"{arch}.attention.head_count": case["heads"],
        f"{arch}.attention.head_count_kv": case["kv_heads"],
        f"{arch}.attention.layer_norm_rms_epsilon": EPS,
        f"{arch}.rope.freq_base": case["theta"],
        f"{arch}.vocab_size": VOCAB,
        "general.file_type": 3,
    }
    if arch == "llama":
        settings["llama.rope.dimension_count"] = case["head_dim"]
    if arch in ("qwen3", "gemma3"):
        settings[f"{arch}.attention.key_length"] = case["head_dim"]
        settings[f"{arch}.attention.value_length"] = case["head_dim"]
    if arch == "gemma3":
        settings["gemma3.attention.sliding_window"] = case["window"]
    if tokens is None:
        tokens = add_byte_level(case["pre"]) if case["pre"] else add_sentencepiece()
    settings |= tokens | changes
    for key, value in settings.items():
        if value is not None and key != "general.architecture":
            _add_setting(writer, key, value)
    for tensor, (array, kind) in change_tensors(stored_tensors(case)).items():
        data = _quantized(tensor, array, kind)
        raw = None if kind in ("F32", "F16") else _KINDS[kind]
        writer.add_tensor(tensor, data, raw_dtype=raw)
    if "llama3_factor" in case:
        writer.add_tensor("rope_freqs.weight", llama3_factors(case))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_setting(writer: gguf.GGUFWriter, key: str, value) -> None:
    kinds = {
        bool: "bool",
        int: "uint32",
        float: "float32",
        str: "string",
        list: "array",
    }
    getattr(writer, f"add_{kinds[type(value)]}")(key, value)
