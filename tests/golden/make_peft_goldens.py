"""Writes peft_goldens.json: the logits of PEFT's adapters on two families' models.

    pip install -e '.[bench]'        # torch, transformers, peft
    python -m tests.golden.make_peft_goldens

The models come from family_models.py. Adapters get weights of the same kind, by their
PEFT names. Only logits at POSITIONS are kept.
"""

import json
import pathlib

import numpy as np
import peft
import torch

from tests.golden.family_models import POSITIONS, weight
from tests.golden.make_family_goldens import logits, model

OUT = pathlib.Path(__file__).with_name("peft_goldens.json")
FAMILIES = ("qwen2", "llama3")
RANK, ALPHA, SEED = 3, 1, 1
MODULES = [f"{name}_proj" for name in ("q", "k", "v", "o", "gate", "up", "down")]


def main() -> None:
    """Computes both families and writes the file next to this script."""
    families = {}
    for family in FAMILIES:
        config = peft.LoraConfig(
            r=RANK, lora_alpha=ALPHA, target_modules=MODULES, task_type="CAUSAL_LM"
        )
        adapted = peft.get_peft_model(model(family, 0), config).eval()
        shapes = {
            name: list(tensor.shape)
            for name, tensor in peft.get_peft_model_state_dict(adapted).items()
        }
        values = {
            name: torch.tensor(weight(name, tuple(shape), seed=SEED))
            for name, shape in shapes.items()
        }
        peft.set_peft_model_state_dict(adapted, values)
        rows = logits(adapted)
        kept = [row[list(at)] for row, at in zip(rows, POSITIONS, strict=True)]
        families[family] = {
            "tensors": shapes,
            "logits": [np.round(row.astype(float), 5).tolist() for row in kept],
        }
        print(f"{family:<8} {len(shapes)} tensors, std {rows[0].std():.2f}")
    told = {"peft": peft.__version__, "rank": RANK, "alpha": ALPHA, "seed": SEED}
    text = json.dumps({**told, "families": families}, separators=(",", ":"))
    OUT.write_text(text.replace("],[", "],\n[").replace('],"', '],\n"') + "\n")


if __name__ == "__main__":
    main()
