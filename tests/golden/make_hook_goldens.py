"""Writes hook_goldens.json: the values inside the layers of transformers.

    pip install -e '.[bench]'        # torch, transformers
    python -m tests.golden.make_hook_goldens

Models, weights and rows come from family_models.py and family_goldens.json. Forward
hooks record each layer's input and output, and the contributions of its two parts. The
streams must equal `output_hidden_states`, and the contributions must add up to the
layer's change. Every fourth coordinate is kept, at the last token of each row.
"""

import json
import pathlib

import numpy as np
import torch
import transformers

from tests.golden.family_models import LENGTHS, padded
from tests.golden.make_family_goldens import model

OUT = pathlib.Path(__file__).with_name("hook_goldens.json")
FAMILIES = ("qwen2", "llama3", "qwen3", "gemma2")
COORDINATES = slice(None, None, 4)
# If a norm follows a part, the contribution is the norm's output.
_PARTS = {
    "attn_out": ("post_attention_layernorm", "self_attn"),
    "mlp_out": ("post_feedforward_layernorm", "mlp"),
}


def values(family: str, seed: int) -> dict[str, list[np.ndarray]]:
    """Returns the values at each hook, [B, T, D] for every layer."""
    built = model(family, seed)
    found: dict[str, list[np.ndarray]] = {
        name: [] for name in ("resid_pre", "attn_out", "mlp_out", "resid_post")
    }

    def keep(name, tensor):
        tensor = tensor[0] if isinstance(tensor, tuple) else tensor
        found[name].append(tensor.detach().numpy())

    def keep_streams(_, given, kwargs, made):
        keep("resid_pre", given[0] if given else kwargs["hidden_states"])
        keep("resid_post", made)

    layers = built.model.layers
    for layer in layers:
        normed = hasattr(layer, "post_feedforward_layernorm")
        layer.register_forward_hook(keep_streams, with_kwargs=True)
        for name, (norm, part) in _PARTS.items():
            getattr(layer, norm if normed else part).register_forward_hook(
                lambda _, given, made, name=name: keep(name, made)
            )
    rows, mask = padded("right")
    with torch.no_grad():
        states = built(
            torch.tensor(rows),
            attention_mask=torch.tensor(mask.astype(np.int64)),
            output_hidden_states=True,
        ).hidden_states
    for layer in range(len(layers)):
        before, attention, mlp, after = (parts[layer] for parts in found.values())
        np.testing.assert_array_equal(before, states[layer].numpy())
        if layer + 1 < len(layers):  # the last state has gone through the last norm
            np.testing.assert_array_equal(after, states[layer + 1].numpy())
        gap = np.abs(before + attention + mlp - after)[mask].max()
        if gap > 1e-4:
            raise AssertionError(f"{family}, layer {layer}: the parts miss {gap}")
    return found


def main() -> None:
    """Reads every family and writes the file next to this script."""
    goldens = json.loads(OUT.with_name("family_goldens.json").read_text())["families"]
    families = {}
    for family in FAMILIES:
        families[family] = {
            name: [
                [
                    np.round(
                        layer[b, length - 1, COORDINATES].astype(float), 5
                    ).tolist()
                    for b, length in enumerate(LENGTHS)
                ]
                for layer in layers
            ]
            for name, layers in values(family, goldens[family]["seed"]).items()
        }
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    text = json.dumps({**versions, "families": families}, separators=(",", ":"))
    OUT.write_text(text.replace("]],", "]],\n") + "\n")
    print(f"{OUT.name}: {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
