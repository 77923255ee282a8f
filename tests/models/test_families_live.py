"""Checkpoints that transformers writes and we read, and the reverse, checked live."""

import importlib
import pathlib

import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import save_file

from rlvr_jax.models import load_hf, save_hf
from tests.golden.family_models import MODELS, padded
from tests.support.hub import GOLDEN, tensors, written
from tests.support.policies import forward

pytestmark = [
    pytest.mark.live,
    pytest.mark.filterwarnings("ignore"),  # theirs
]


def _theirs(model) -> np.ndarray:
    """Returns the logits of Hugging Face's model, with left padding."""
    import torch  # noqa: PLC0415

    tokens_BT, mask_BT = padded("left")
    positions_BT = np.maximum(np.cumsum(mask_BT, axis=1) - 1, 0)
    with torch.no_grad():
        return model(
            torch.tensor(tokens_BT),
            attention_mask=torch.tensor(mask_BT.astype(np.int64)),
            position_ids=torch.tensor(positions_BT),
        ).logits.numpy()


@pytest.mark.parametrize("family", MODELS)
def test_transformers_and_we_read_each_others_checkpoints(
    family, tmp_path, monkeypatch
):
    transformers = pytest.importorskip("transformers")
    monkeypatch.syspath_prepend(pathlib.Path(__file__).parents[1] / "golden")
    make_family_goldens = importlib.import_module("make_family_goldens")
    model = make_family_goldens.model(family, GOLDEN[family]["seed"])
    model.save_pretrained(tmp_path / "theirs", max_shard_size="30KB")
    policy = load_hf(tmp_path / "theirs")
    tokens_BT, mask_BT = padded("left")
    ours_BTV = np.asarray(forward(*nnx.split(policy), tokens_BT, mask_BT))
    expected_BTV = _theirs(model)
    np.testing.assert_allclose(
        ours_BTV[mask_BT], expected_BTV[mask_BT], rtol=0, atol=1e-4
    )
    save_hf(policy, tmp_path / "ours")
    again, told = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "ours", attn_implementation="eager", output_loading_info=True
    )
    assert not told["missing_keys"]
    assert not told["unexpected_keys"]
    np.testing.assert_array_equal(_theirs(again)[mask_BT], expected_BTV[mask_BT])


def test_a_head_next_to_a_tied_embedding_is_read_as_in_transformers(tmp_path):
    transformers = pytest.importorskip("transformers")
    source = written(tmp_path / "in", "qwen2")
    held = tensors("qwen2")
    head = np.flip(held["model.embed_tokens.weight"], axis=0).copy()
    save_file(held | {"lm_head.weight": head}, source / "model.safetensors")
    save_hf(load_hf(source), tmp_path / "out")
    tokens_BT, mask_BT = padded("left")
    ours_BTV = np.asarray(forward(*nnx.split(load_hf(source)), tokens_BT, mask_BT))
    for directory in (source, tmp_path / "out"):
        model = transformers.AutoModelForCausalLM.from_pretrained(
            directory, attn_implementation="eager"
        )
        np.testing.assert_allclose(
            ours_BTV[mask_BT], _theirs(model)[mask_BT], rtol=0, atol=1e-4
        )
