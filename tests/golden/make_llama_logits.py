"""Writes llama_logits.json: Hugging Face's Llama on fixed weights and tokens.

Llama without biases is the policy's architecture. Run it where torch is installed:

    pip install -e '.[bench]'
    python -m tests.golden.make_llama_logits
"""

import json
import pathlib

import numpy as np
import torch
import transformers

from tests.golden.llama_weights import SIZES, TOKENS, VOCAB_SIZE, llama_weights

OUT = pathlib.Path(__file__).with_name("llama_logits.json")


def model(*, tied: bool) -> transformers.LlamaForCausalLM:
    """Returns Hugging Face's model with our weights in its layout, in float64."""
    config = transformers.LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=SIZES["hidden_size"],
        intermediate_size=SIZES["intermediate_size"],
        num_hidden_layers=SIZES["num_layers"],
        num_attention_heads=SIZES["num_heads"],
        num_key_value_heads=SIZES["num_kv_heads"],
        head_dim=SIZES["head_dim"],
        rms_norm_eps=SIZES["norm_eps"],
        rope_parameters={"rope_type": "default", "rope_theta": SIZES["rope_theta"]},
        tie_word_embeddings=tied,
        attention_bias=False,
        mlp_bias=False,
    )
    built = transformers.LlamaForCausalLM(config).double().eval()
    built.load_state_dict(state_dict(tied=tied), strict=not tied)
    if tied and built.lm_head.weight is not built.model.embed_tokens.weight:
        raise AssertionError("the head is not tied")
    return built


def state_dict(*, tied: bool) -> dict[str, torch.Tensor]:
    """Returns our weights under Hugging Face's names: matrices as [out, in]."""
    ours = llama_weights(tied=tied)
    theirs = {
        "model.embed_tokens.weight": ours["embedding"],
        "model.norm.weight": ours["final_norm.scale"],
    }
    if not tied:
        theirs["lm_head.weight"] = ours["lm_head"]
    D = SIZES["hidden_size"]
    for layer in range(SIZES["num_layers"]):
        part = {
            name.removeprefix("blocks."): array[layer]
            for name, array in ours.items()
            if name.startswith("blocks.")
        }
        own = {
            "input_layernorm": part["attention_norm.scale"],
            "self_attn.q_proj": part["query"].reshape(D, -1).T,
            "self_attn.k_proj": part["key"].reshape(D, -1).T,
            "self_attn.v_proj": part["value"].reshape(D, -1).T,
            "self_attn.o_proj": part["out"].reshape(-1, D).T,
            "post_attention_layernorm": part["mlp_norm.scale"],
            "mlp.gate_proj": part["gate"].T,
            "mlp.up_proj": part["up"].T,
            "mlp.down_proj": part["down"].T,
        }
        theirs |= {f"model.layers.{layer}.{n}.weight": a for n, a in own.items()}
    return {name: torch.tensor(np.ascontiguousarray(a)) for name, a in theirs.items()}


def main() -> None:
    """Computes both models' logits and writes the file next to this script."""
    logits = {}
    for name, tied in (("tied", True), ("untied", False)):
        with torch.no_grad():
            output = model(tied=tied)(torch.tensor(TOKENS)).logits
        logits[name] = output.numpy().round(6).tolist()
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    text = json.dumps({**versions, "logits": logits}, separators=(",", ":"))
    OUT.write_text(text.replace("],[", "],\n[") + "\n")
    print(f"{OUT.name}: {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
