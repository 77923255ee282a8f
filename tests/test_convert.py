"""Hugging Face directories to checkpoints and back, by the command."""

import pytest
from models.hub import tensors, written
from safetensors.numpy import load_file

from rlvr_jax.convert import main


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
    assert main(["from-hf", str(source), str(tmp_path / "out")]) == 2
    assert "is not empty; give a new directory" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [[], ["from-hf", "x"], ["to-gguf", "x", "y"]])
def test_bad_usage_is_told_in_one_line(argv, capsys):
    assert main(argv) == 2
    told = capsys.readouterr().err
    assert "give from-hf DIR OUT or to-hf CHECKPOINT OUT or to-peft" in told
