"""A Hugging Face directory as `sae_jax.collect` reads it by default."""

import json
import shutil

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from rlvr_jax.models import load_hf
from rlvr_jax.models.hooks import read_hook
from rlvr_jax.models.reader import HuggingFaceReader
from sae_jax.collect import main
from sae_jax.data.shards import ActivationShards
from tests.support.checkpoints import SPECIAL, write_checkpoint, write_tokenizer

TEXTS = ["What is 2 plus 3?", "caf\u00e9<|im_end|> and 1", "a" * 50]
END, TURN = 269, 271


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("hf") / "tiny", num_layers=2)


def test_the_command_writes_what_the_model_computes(directory, tmp_path, capsys):
    (tmp_path / "text.jsonl").write_text(
        "\n".join(json.dumps({"text": text}) for text in TEXTS)
    )
    flags = {
        "model": directory,
        "text": tmp_path / "text.jsonl",
        "layers": "0,1",
        "hook": "attn_out",
        "out": tmp_path / "out",
        "dtype": "float32",
    }
    assert main([f"--{name}={value}" for name, value in flags.items()]) == 0
    assert json.loads(capsys.readouterr().out)["documents"] == len(TEXTS)
    reader, policy = HuggingFaceReader(str(directory), dtype="float32"), None
    policy = load_hf(directory)
    for layer in (0, 1):
        shards = ActivationShards(tmp_path / "out" / f"layer_{layer}")
        vocabulary = shards.index.vocabulary
        for number, text in enumerate(TEXTS):
            at = np.flatnonzero(shards.column("sequence") == number)
            ids = shards.column("token_id")[at]
            assert ids.tolist() == reader.encode(text)
            tokens, mask = ids[None], np.ones((1, len(ids)), bool)
            (alone,) = read_hook(policy, tokens, mask, hook="attn_out", layers=(layer,))
            np.testing.assert_allclose(shards.rows(at), alone[0], atol=1e-5)
            if text.isascii():  # otherwise a token is a byte without text
                assert "".join(vocabulary[i] for i in ids) == text
            assert (shards.column("special")[at] == np.isin(ids, [TURN])).all()


def test_weights_and_tokenizer_identify_a_model(directory, tmp_path):
    first = HuggingFaceReader(str(directory), dtype="float32").fingerprint
    copy = tmp_path / "copy"
    shutil.copytree(directory, copy)
    assert HuggingFaceReader(str(copy), dtype="float32").fingerprint == first
    weights = copy / "model.safetensors"
    raw = bytearray(weights.read_bytes())
    raw[-1] ^= 1
    weights.write_bytes(raw)
    assert HuggingFaceReader(str(copy), dtype="float32").fingerprint != first
    shutil.copy(directory / "model.safetensors", weights)
    write_tokenizer(copy, eos_token=SPECIAL[2])
    path = copy / "tokenizer.json"
    path.write_text(path.read_text() + "\n")
    assert HuggingFaceReader(str(copy), dtype="float32").fingerprint != first


def test_weights_are_not_read_to_say_what_a_model_is(directory, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(directory, copy)
    (copy / "model.safetensors").unlink()
    reader = HuggingFaceReader(str(copy), dtype="float32")
    assert (reader.width, reader.num_layers, reader.max_tokens) == (16, 2, 512)
    assert reader.prefix_ids == ()
    assert reader.special_ids == {END, END + 1, TURN}


def test_bfloat16_is_used_if_requested(directory):
    tokens, lengths = np.arange(8, dtype=np.int32)[None], np.array([8])
    rows = [
        HuggingFaceReader(str(directory), dtype=dtype).read(
            tokens, lengths, hook="resid_post", layers=(1,)
        )[0]
        for dtype in ("float32", "bfloat16")
    ]
    assert [row.dtype for row in rows] == ["float32", "bfloat16"]
    gap = np.abs(rows[0] - rows[1].astype("float32")).max()
    assert 0 < gap < 0.1 * np.abs(rows[0]).max()


def test_every_row_begins_as_the_tokenizer_has_texts_begin(directory, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(directory, copy)
    write_tokenizer(copy, bos_token=SPECIAL[1], add_bos_token=True)
    assert HuggingFaceReader(str(copy), dtype="float32").prefix_ids == (END + 1,)


def test_a_token_keeps_the_space_that_decoders_drop_at_the_beginning(
    directory, tmp_path
):
    """In Llama 2's tokenizer words begin with a mark that becomes a space in a text."""
    copy = tmp_path / "copy"
    shutil.copytree(directory, copy)
    words = {"\u2581a": 0, "a": 1, "\u2581dog": 2, "s": 3, "<unk>": 4, "\u2581": 5}
    tokenizer = Tokenizer(models.BPE(vocab=words, merges=[], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = processors.ByteLevel()
    tokenizer.add_special_tokens(["</s>"])
    tokenizer.save(str(copy / "tokenizer.json"))
    (copy / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>"}))
    vocabulary = HuggingFaceReader(str(copy), dtype="float32").vocabulary
    assert vocabulary == (" a", "a", " dog", "s", "<unk>", " ", "</s>")


@pytest.mark.parametrize(
    ("model", "part"),
    [("nowhere/model", "no directory nowhere/model; give"), ("{copy}", "no ")],
)
def test_a_directory_without_a_model_is_one_line(
    directory, tmp_path, capsys, model, part
):
    copy = tmp_path / "copy"
    shutil.copytree(directory, copy)
    (copy / "tokenizer.json").unlink()
    (tmp_path / "text.txt").write_text("a")
    code = main(
        [
            f"--model={model.format(copy=copy)}",
            f"--text={tmp_path / 'text.txt'}",
            "--layers=0",
            f"--out={tmp_path / 'out'}",
        ]
    )
    assert code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {part}")
    assert not (tmp_path / "out").exists()
