"""Writes gguf_goldens.json: weights and logits of tiny GGUF files, by transformers.

    pip install torch transformers gguf
    python -m tests.golden.make_gguf_goldens

Weights are read by transformers' loader and stored as the SHA-256 of each tensor in
float32. That loader leaves out Llama 3's RoPE, so it is set in the config before the
logits are computed. Only logits of the first ENTRIES tokens are kept.
"""

import hashlib
import json
import pathlib
import tempfile

import numpy as np
import torch
import transformers

from tests.golden.family_models import POSITIONS, padded
from tests.golden.gguf_models import CASES, EPS, write_gguf

OUT = pathlib.Path(__file__).with_name("gguf_goldens.json")
ENTRIES = 8


def load(folder: str, name: str) -> transformers.PreTrainedModel:
    """Returns the model of a GGUF file, in float32."""
    case, options = CASES[name], {}
    if "llama3_factor" in case:
        config = transformers.AutoConfig.from_pretrained(folder, gguf_file="m.gguf")
        config.rope_parameters = {
            "rope_type": "llama3",
            "rope_theta": case["theta"],
            "factor": case["llama3_factor"],
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        }
        options["config"] = config
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder,
        gguf_file="m.gguf",
        dtype=torch.float32,
        attn_implementation="eager",
        **options,
    ).eval()


def check_config(model: transformers.PreTrainedModel, name: str) -> None:
    """Raises AssertionError if transformers reads another config from the file."""
    case, config = CASES[name], model.config
    assert config.num_hidden_layers == case["num_layers"]
    assert name == "qwen2" or config.head_dim == case["head_dim"]
    assert abs(config.rms_norm_eps - EPS) < 1e-9
    rope = config.rope_parameters
    assert rope.get("full_attention", rope)["rope_theta"] == case["theta"]
    assert name != "gemma3" or config.sliding_window == case["window"]


def main() -> None:
    """Computes every case and writes the file next to this script."""
    models = {}
    for name in CASES:
        with tempfile.TemporaryDirectory() as folder:
            write_gguf(pathlib.Path(folder) / "m.gguf", name)
            model = load(folder, name)
        check_config(model, name)
        state = model.state_dict()
        if model.config.tie_word_embeddings:
            del state["lm_head.weight"]
        rows, mask = padded("right")
        with torch.no_grad():
            logits = model(
                torch.tensor(rows), attention_mask=torch.tensor(mask.astype(np.int64))
            ).logits.numpy()
        kept = [
            row[list(at), :ENTRIES] for row, at in zip(logits, POSITIONS, strict=True)
        ]
        models[name] = {
            "sha256": {
                key: hashlib.sha256(value.numpy().tobytes()).hexdigest()[:12]
                for key, value in state.items()
            },
            "logits": [np.round(row.astype(float), 5).tolist() for row in kept],
        }
        print(f"{name:<8} std of logits {logits.std():.2f}")
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    text = json.dumps({**versions, "models": models}, separators=(",", ":"))
    OUT.write_text(text.replace('],"', '],\n"').replace('","', '",\n"') + "\n")
    print(f"{OUT.name}: {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
