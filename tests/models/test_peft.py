"""Adapters as in PEFT: its names, its shapes, its logits (tests/golden)."""

import json
import pathlib

import jax
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import load_file

from job_jax.schema import ConfigError
from rlvr_jax.config import LoRAConfig
from rlvr_jax.models import Transformer, load_hf, lora, save_peft
from tests.golden.family_models import POSITIONS, padded, weight
from tests.support.hub import written
from tests.support.policies import forward

GOLDEN = json.loads(
    (pathlib.Path(__file__).parents[1] / "golden" / "peft_goldens.json").read_text()
)
CONFIG = LoRAConfig(rank=GOLDEN["rank"], alpha=GOLDEN["alpha"])


def with_goldens_adapters(directory: pathlib.Path, family: str) -> Transformer:
    """Returns the family's policy with the adapters of the golden file."""
    graphdef, base = nnx.split(load_hf(written(directory, family)))
    shapes = GOLDEN["families"][family]["tensors"]

    def adapt(base):
        return lora.add_adapters(nnx.merge(graphdef, base), CONFIG, jax.random.key(0))

    policy = nnx.eval_shape(adapt, base)
    nnx.update(policy, jax.jit(lambda base: nnx.state(adapt(base)))(base))
    ours = {"q": "query", "k": "key", "v": "value", "o": "out"}
    for letter in "AB":
        stacks = {}
        for name, shape in shapes.items():
            if f"lora_{letter}" in name:
                product = name.split(".")[-3].removesuffix("_proj")
                theirs = weight(name, tuple(shape), seed=GOLDEN["seed"])
                stacks.setdefault(ours.get(product, product), []).append(theirs.T)
        for product, layers in stacks.items():
            param = vars(vars(policy.blocks)[product])[f"weight_lora_{letter.lower()}"]
            param[...] = np.stack(layers)
    return policy


@pytest.mark.parametrize(
    "family", ["qwen2", pytest.param("llama3", marks=pytest.mark.slow)]
)
def test_logits_and_tensors_equal_pefts(family, tmp_path):
    policy = with_goldens_adapters(tmp_path / "base", family)
    golden = GOLDEN["families"][family]
    tokens_BT, mask_BT = padded("left")
    logits_BTV = np.asarray(forward(*nnx.split(policy), tokens_BT, mask_BT))
    for row, mask, at, expected in zip(
        logits_BTV, mask_BT, POSITIONS, golden["logits"], strict=True
    ):
        np.testing.assert_allclose(row[mask][list(at)], expected, rtol=0, atol=1e-4)

    save_peft(policy, tmp_path / "out", config=CONFIG, base="somewhere")
    found = load_file(tmp_path / "out" / "adapter_model.safetensors")
    assert {name: list(x.shape) for name, x in found.items()} == golden["tensors"]
    for name, array in found.items():
        np.testing.assert_array_equal(array, weight(name, array.shape, seed=1))
    told = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    assert told["target_modules"] == sorted(CONFIG.target_modules)
    assert (told["r"], told["lora_alpha"], told["peft_type"]) == (3, 1, "LORA")
    assert told["base_model_name_or_path"] == "somewhere"
    with pytest.raises(ConfigError, match="holds adapters already"):
        save_peft(policy, tmp_path / "out", config=CONFIG)


@pytest.mark.live
@pytest.mark.filterwarnings("ignore")  # theirs
@pytest.mark.parametrize("family", GOLDEN["families"])
def test_peft_loads_what_is_written(family, tmp_path):
    peft = pytest.importorskip("peft")
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415

    policy = with_goldens_adapters(tmp_path / "base", family)
    save_peft(policy, tmp_path / "out", config=CONFIG)
    base = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "base", attn_implementation="eager", dtype=torch.float32
    )
    adapted = peft.PeftModel.from_pretrained(base, tmp_path / "out").eval()
    tokens_BT, mask_BT = padded("right")
    with torch.no_grad():
        theirs_BTV = adapted(
            torch.tensor(tokens_BT), attention_mask=torch.tensor(mask_BT.astype(int))
        ).logits.numpy()
    ours_BTV = np.asarray(forward(*nnx.split(policy), tokens_BT, mask_BT))
    np.testing.assert_allclose(
        ours_BTV[mask_BT], theirs_BTV[mask_BT], rtol=0, atol=1e-4
    )
