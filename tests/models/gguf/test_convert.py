"""GGUF files of each architecture, compared with transformers on the same file."""

import hashlib
import json
import pathlib
import stat

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file

from job_jax.schema import ConfigError
from rlvr_jax.config import Config, ModelConfig, PretrainedConfig, TokenizerConfig
from rlvr_jax.convert import main
from rlvr_jax.models import load_hf
from rlvr_jax.models.gguf import convert, weights
from rlvr_jax.models.huggingface import resolve_pretrained
from rlvr_jax.models.huggingface.config import read_model_config
from rlvr_jax.tokenizer import HuggingFaceTokenizer
from rlvr_jax.tokenizer.chat import render_chat
from rlvr_jax.tokenizer.huggingface import chat_template
from tests.golden.family_models import POSITIONS, padded
from tests.golden.gguf_models import CASES, write_gguf
from tests.golden.gguf_tokens import CHAT_TEMPLATE, GOLDEN

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
def test_weights_equal_transformers_bit_for_bit(name, tmp_path):
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


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_any_number_of_rows_at_a_time_gives_the_same_file(name, tmp_path, monkeypatch):
    whole = (_converted(tmp_path, name) / "model.safetensors").read_bytes()
    for values in (1, 5 * 64):
        monkeypatch.setattr(weights, "_BLOCK_VALUES", values)
        (tmp_path / f"{values}").mkdir()
        out = _converted(tmp_path / f"{values}", name)
        assert (out / "model.safetensors").read_bytes() == whole


@pytest.mark.parametrize("kind", ["Q2_K", "Q3_K", "Q5_K", "IQ4_NL", "IQ4_XS", "IQ3_S"])
def test_more_quantizations_are_what_gguf_reads(kind, tmp_path):
    """Random bytes cover everything that a file may hold."""
    number = gguf.GGMLQuantizationType[kind]
    values, size = gguf.GGML_QUANT_SIZES[number]
    blocks = np.random.RandomState(0).randint(0, 120, (256, 256 // values * size))
    stored = blocks.astype(np.uint8)

    def with_blocks(tensors):
        return tensors | {"blk.0.ffn_up.weight": (stored, kind)}

    out = _converted(tmp_path, "mistral", change_tensors=with_blocks)
    found = load_file(out / "model.safetensors")["model.layers.0.mlp.up_proj.weight"]
    assert found.tobytes() == gguf.dequantize(stored, number).tobytes()


def test_the_tokenizer_and_its_template_come_along(tmp_path):
    out = _converted(tmp_path, "llama")
    tokenizer = HuggingFaceTokenizer(out)
    ids = dict(zip(GOLDEN["texts"], GOLDEN["ids"]["smollm"], strict=True))
    assert {text: tokenizer.encode(text) for text in ids} == ids
    text = render_chat(
        chat_template(out, field=""), [{"role": "user", "content": "Hi"}]
    )
    assert text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert _read(out, "tokenizer_config.json")["chat_template"] == CHAT_TEMPLATE
    # The ends are eos, then the end of a turn. Padding rows of the embedding do
    # not count.
    first = 256 + len(GOLDEN["merges"])
    assert _read(out, "generation_config.json")["eos_token_id"] == [first + 2, first]
    assert tokenizer.eos_ids == (first + 2, first)
    assert tokenizer.vocab_size == first + 4 < _read(out, "config.json")["vocab_size"]
    assert tokenizer.encode_prompt("x") == tokenizer.encode("x")  # add_bos_token=False
    assert tokenizer.decode(tokenizer.encode("a<think>b<|im_end|>")) == "a<think>b"


def test_several_templates_keep_their_names(tmp_path):
    named = {"tokenizer.chat_template.tool_use": "T", "tokenizer.chat_template": "D"}
    out = _converted(tmp_path, "llama", **named)
    templates = _read(out, "tokenizer_config.json")["chat_template"]
    assert {each["name"]: each["template"] for each in templates} == {
        "default": "D",
        "tool_use": "T",
    }


@pytest.mark.parametrize(
    ("name", "changes", "adds"),
    [
        ("mistral", {"tokenizer.ggml.add_bos_token": None}, True),
        ("mistral", {"tokenizer.ggml.add_bos_token": False}, False),
        ("qwen2", {"tokenizer.ggml.add_bos_token": None}, False),
        ("llama3", {"tokenizer.ggml.add_bos_token": None}, True),
    ],
)
def test_bos_is_added_as_llama_cpp_adds_it(name, changes, adds, tmp_path):
    out = _converted(tmp_path, name, **changes)
    bos = _read(out, "config.json")["bos_token_id"]
    prompt = HuggingFaceTokenizer(out).encode_prompt("x")
    assert (prompt[0] == bos) == adds


@pytest.mark.parametrize(
    ("name", "changes", "fields"),
    [
        (
            "llama3",
            {},
            {"rope_scaling": "llama3", "rope_factor": 8.0, "tie_embeddings": True},
        ),
        ("llama", {}, {"family": "llama", "norm_eps": 1e-5, "head_dim": 16}),
        (
            "llama",
            {"llama.attention.sliding_window": 7},
            {"family": "mistral", "sliding_window": 7, "layer_types": ("sliding",)},
        ),
        (
            "qwen2",
            {"qwen2.rope.scaling.type": "linear", "qwen2.rope.scaling.factor": 4.0},
            {"rope_scaling": "linear", "rope_factor": 4.0, "qkv_bias": True},
        ),
        (
            "gemma3",
            {},
            {
                "rope_local_theta": 10_000.0,
                "layer_types": ("sliding",) * 5 + ("full",),
                "sliding_window": 5,
                "query_pre_attn_scalar": 256.0,
            },
        ),
        (
            "gemma3",
            {
                "gemma3.rope.freq_base_swa": 500.0,
                "gemma3.attention.sliding_window_pattern": 2,
            },
            {"rope_local_theta": 500.0, "layer_types": ("sliding", "full")},
        ),
    ],
)
def test_settings_are_read(name, changes, fields, tmp_path):
    out = _converted(tmp_path, name, **changes)
    config = vars(read_model_config(out, dtype="float32"))
    assert {field: config[field] for field in fields} == fields


def test_an_interrupted_conversion_leaves_nothing(tmp_path, monkeypatch):
    def interrupt(path, *_args, **_kwargs):
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(convert, "write_safetensors", interrupt)
    with pytest.raises(KeyboardInterrupt):
        _converted(tmp_path, "llama")
    assert [path.name for path in tmp_path.iterdir()] == ["model.gguf"]


def test_a_disk_without_room_is_found_before_anything_is_written(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr("job_jax.disk.free_bytes", lambda path: 1000)
    path = write_gguf(tmp_path / "model.gguf", "llama")
    assert main(["from-gguf", str(path), str(tmp_path / "out")]) == 1
    assert "has 0.0 MiB free" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["model.gguf"]


def test_files_are_readable_by_others(tmp_path):
    out = _converted(tmp_path, "llama")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in out.iterdir()}
    plain = tmp_path / "plain"
    plain.touch()
    assert modes == {stat.S_IMODE(plain.stat().st_mode)}


def test_to_a_checkpoint_and_back_nothing_changes(tmp_path):
    out = _converted(tmp_path, "qwen2")
    assert main(["from-hf", str(out), str(tmp_path / "checkpoint")]) == 0
    assert main(["to-hf", str(tmp_path / "checkpoint"), str(tmp_path / "hf")]) == 0
    before = load_file(out / "model.safetensors")
    after = load_file(tmp_path / "hf/model.safetensors")
    assert before.keys() == after.keys()
    assert all((before[name] == after[name]).all() for name in before)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        assert (tmp_path / "hf" / name).read_text() == (out / name).read_text()


def test_a_gguf_file_in_place_of_a_directory_is_refused_with_the_command(
    tmp_path, capsys
):
    path = write_gguf(tmp_path / "tiny.Q4_1.gguf", "llama")
    command = f"rlvr_jax.convert from-gguf {path} {tmp_path / 'tiny.Q4_1'}"
    assert main(["from-hf", str(path), str(tmp_path / "out")]) == 2
    assert command in capsys.readouterr().err
    for where in (path, tmp_path):  # both the file and its folder
        with pytest.raises(ConfigError, match="is a GGUF file") as error:
            resolve_pretrained(
                Config(
                    pretrained=PretrainedConfig(path=str(where)),
                    model=ModelConfig(family="pretrained"),
                    tokenizer=TokenizerConfig(kind="huggingface"),
                )
            )
        assert command in str(error.value)


def test_dtype_is_for_gguf_files_alone(tmp_path, capsys):
    assert main(["from-hf", "x", "y", "--dtype=float32"]) == 2
    assert "--dtype is for from-gguf" in capsys.readouterr().err
    assert main(["from-gguf", "x", str(tmp_path / "y"), "--dtype=float16"]) == 2
    assert "--dtype expects one of float32, bfloat16, got" in capsys.readouterr().err
