"""The command converts Hugging Face directories to checkpoints and back."""

import json

import ml_dtypes
import pytest
from safetensors.numpy import load_file, save_file

from rlvr_jax.convert import main
from tests.support.hub import tensors, written


def test_there_and_back_every_tensor_is_the_same(tmp_path, capsys):
    source = written(tmp_path / "in", "gemma3", shards=2)
    (source / "tokenizer.json").write_text("{}")
    assert main(["from-hf", str(source), str(tmp_path / "checkpoint")]) == 0
    assert main(["to-hf", str(tmp_path / "checkpoint"), str(tmp_path / "out")]) == 0
    found = load_file(tmp_path / "out" / "model.safetensors")
    expected = tensors("gemma3")
    assert found.keys() == expected.keys()
    assert all((found[name] == array).all() for name, array in expected.items())
    assert (tmp_path / "out" / "tokenizer.json").read_text() == "{}"
    modes = {path.stat().st_mode for path in (tmp_path / "out").iterdir()}
    assert modes == {(source / "config.json").stat().st_mode}
    assert main(["from-hf", str(source), str(tmp_path / "out")]) == 2
    assert "is not empty; give a new directory" in capsys.readouterr().err


def test_a_directory_that_is_missing_is_named(tmp_path, capsys):
    nowhere = tmp_path / "nowhere"
    assert main(["from-hf", str(nowhere), str(tmp_path / "out")]) == 2
    assert f"error: no directory {nowhere}; give a" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    nowhere.mkdir()
    assert main(["from-hf", str(nowhere), str(tmp_path / "out")]) == 2
    assert f"error: no {nowhere / 'config.json'}; give a" in capsys.readouterr().err


@pytest.mark.parametrize("narrow", ["all", "but one"])
def test_a_narrow_checkpoint_stays_narrow_and_loses_nothing(narrow, tmp_path):
    """If all weights are bfloat16, they stay so; if one is float32, all become so."""
    source = written(tmp_path / "in", "qwen2", dtype="float16")
    held = {name: a.astype(ml_dtypes.bfloat16) for name, a in tensors("qwen2").items()}
    if narrow == "but one":
        held["model.norm.weight"] = tensors("qwen2")["model.norm.weight"]
    save_file(held, source / "model.safetensors")
    assert main(["from-hf", str(source), str(tmp_path / "checkpoint")]) == 0
    assert main(["to-hf", str(tmp_path / "checkpoint"), str(tmp_path / "out")]) == 0
    found = load_file(tmp_path / "out" / "model.safetensors")
    dtype = "bfloat16" if narrow == "all" else "float32"
    assert {str(array.dtype) for array in found.values()} == {dtype}
    assert all((found[name] == array).all() for name, array in held.items())
    settings = json.loads((tmp_path / "out" / "config.json").read_text())
    assert settings["torch_dtype"] == dtype
    assert "dtype" not in settings


def test_a_file_is_no_place_for_a_model(tmp_path, capsys):
    (tmp_path / "a.txt").touch()
    for name in ("from-hf", "to-hf", "to-peft"):
        assert main([name, str(tmp_path), str(tmp_path / "a.txt")]) == 2
        said = capsys.readouterr().err
        assert said == f"error: {tmp_path}/a.txt is a file; give a new directory\n"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "COMMAND SOURCE OUT missing"),
        (["from-hf", "x"], "OUT missing"),
        (["to-gguf", "x", "y"], "no command 'to-gguf'; did you mean 'from-gguf'?"),
    ],
)
def test_bad_usage_is_told_in_one_line(argv, message, capsys):
    assert main(argv) == 2
    assert message in capsys.readouterr().err
