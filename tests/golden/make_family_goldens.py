"""Writes a goldens file: logits and greedy tokens of every model by transformers.

    pip install -e '.[bench]'        # torch, transformers
    python -m tests.golden.make_family_goldens family_goldens.json
    python -m tests.golden.make_family_goldens variant_goldens.json

The models come from family_models.py, in float32 with plain attention. `tensors` has
the names and shapes in Hugging Face's state, so a checkpoint can be written without
torch. Only logits at POSITIONS are kept.
"""

import json
import pathlib
import sys
import tempfile

import numpy as np
import torch
import transformers

from tests.golden.family_models import (
    CONFIGS,
    LENGTHS,
    MODELS,
    NEW_TOKENS,
    POSITIONS,
    VARIANTS,
    padded,
    weight,
)

FILES = {"family_goldens.json": CONFIGS, "variant_goldens.json": VARIANTS}
_PADDING_MAKES = 3e-6  # rounding of RoPE's angles, at most
_TIE = 2e-3  # a seed with a smaller lead proves little; take the next
_VARIETY = 4  # different greedy tokens; a row that repeats one also proves little


def model(family: str, seed: int) -> transformers.PreTrainedModel:
    """Returns Hugging Face's model of a family with our weights, in float32."""
    with tempfile.TemporaryDirectory() as directory:
        config_path = pathlib.Path(directory) / "config.json"
        config_path.write_text(json.dumps(MODELS[family]))
        config = transformers.AutoConfig.from_pretrained(directory)
    built = transformers.AutoModelForCausalLM.from_config(
        config, attn_implementation="eager", dtype=torch.float32
    ).eval()
    with torch.no_grad():
        for name, tensor in tensors(built).items():
            tensor.copy_(torch.tensor(weight(name, tuple(tensor.shape), seed=seed)))
    return built


def tensors(built: transformers.PreTrainedModel) -> dict[str, torch.Tensor]:
    """Returns the tensors in a checkpoint of the model: a tied head occurs once."""
    state = built.state_dict()
    if built.config.tie_word_embeddings:
        del state["lm_head.weight"]
    return state


def logits(built: transformers.PreTrainedModel) -> list[np.ndarray]:
    """Returns each row's logits at its true tokens, with padding on any side."""
    sides = []
    for side in ("left", "right"):
        rows, mask = padded(side)
        positions = np.maximum(np.cumsum(mask, axis=1) - 1, 0)
        with torch.no_grad():
            output = built(
                torch.tensor(rows),
                attention_mask=torch.tensor(mask.astype(np.int64)),
                position_ids=torch.tensor(positions),
            ).logits.numpy()
        sides.append([row[true] for row, true in zip(output, mask, strict=True)])
    for left, right in zip(*sides, strict=True):
        gap = np.abs(left - right).max()
        if gap > _PADDING_MAKES:
            raise AssertionError(f"padding changes logits by {gap}")
    return sides[0]


def greedy(built: transformers.PreTrainedModel) -> tuple[np.ndarray, float]:
    """Returns the best tokens after each row, and their smallest lead in logits."""
    rows, mask = padded("left")
    output = built.generate(
        torch.tensor(rows),
        attention_mask=torch.tensor(mask.astype(np.int64)),
        max_new_tokens=NEW_TOKENS,
        min_new_tokens=NEW_TOKENS,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=3,
        output_logits=True,
        return_dict_in_generate=True,
    )
    scores = torch.stack(output.logits).topk(2).values
    lead = float((scores[..., 0] - scores[..., 1]).min())
    return output.sequences[:, rows.shape[1] :].numpy(), lead


def main() -> None:
    """Computes every model of the named file and writes it next to this script."""
    out = pathlib.Path(__file__).with_name(sys.argv[1])
    families = {}
    for family in FILES[out.name]:
        for seed in range(99):
            built = model(family, seed)
            chosen, lead = greedy(built)
            distinct = [len(set(row.tolist())) for row in chosen]
            if lead > _TIE and min(distinct) >= _VARIETY:
                break
        rows = logits(built)
        kept = [row[list(at)] for row, at in zip(rows, POSITIONS, strict=True)]
        families[family] = {
            "seed": seed,
            "tensors": {n: list(t.shape) for n, t in tensors(built).items()},
            "logits": [np.round(row.astype(float), 5).tolist() for row in kept],
            "greedy": chosen.tolist(),
        }
        spread = max(float(row.std()) for row in rows)
        print(
            f"{family:<14} seed {seed} lead {lead:.4f} "
            f"distinct {distinct} std {spread:.2f}"
        )
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    text = json.dumps({**versions, "families": families}, separators=(",", ":"))
    text = text.replace("],[", "],\n[").replace('],"', '],\n"')
    out.write_text(text + "\n")
    print(f"{out.name}: {out.stat().st_size} bytes, lengths {LENGTHS}")


if __name__ == "__main__":
    main()
