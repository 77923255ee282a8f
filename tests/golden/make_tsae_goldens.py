"""Writes tsae_reference.json: the T-SAE authors' trainer on fixed numbers.

    git clone https://github.com/AI4LIFE-GROUP/temporal-saes
    pip install torch==2.13.0 einops
    python -m tests.golden.make_tsae_goldens temporal-saes

Real TemporalMatryoshkaBatchTopKTrainer objects of commit 8daecb2 compute everything, in
float32 on the CPU: loss terms before each of 10 updates, the first gradient, and the
final parameters. The initial weights and the batches come from `tsae_inputs`.
"""

import copy
import importlib
import json
import pathlib
import sys
import types

import numpy as np
import torch

from tests.golden.tsae_inputs import (
    BATCH,
    CASES,
    DECAY_SHARE,
    GROUPS,
    LATENTS,
    LEARNING_RATE,
    STEPS,
    THRESHOLD_DECAY,
    THRESHOLD_START,
    WARMUP,
    WIDTH,
    K,
    batches,
    tokens_since_fired,
    weights,
)

OUT = pathlib.Path(__file__).with_name("tsae_reference.json")
NAMES = {
    "encoder": "W_enc",
    "encoder_bias": "b_enc",
    "decoder": "W_dec",
    "decoder_bias": "b_dec",
}


def trainer_class(checkout: str) -> type:
    """Returns the authors' trainer without the other imports of their packages."""
    root = pathlib.Path(checkout) / "dictionary_learning" / "dictionary_learning"
    for name, path in (("theirs", root), ("theirs.trainers", root / "trainers")):
        package = types.ModuleType(name)
        package.__path__ = [str(path)]
        sys.modules[name] = package
    module = importlib.import_module("theirs.trainers.temporal_sequence_top_k")
    return module.TemporalMatryoshkaBatchTopKTrainer


def trainer(kind: type, *, contrastive: bool, silent: tuple[int, ...], dead_after: int):
    """Returns a trainer that starts from the fixed weights."""
    built = kind(
        steps=STEPS,
        activation_dim=WIDTH,
        dict_size=LATENTS,
        k=K,
        temporal=True,
        contrastive=contrastive,
        layer=0,
        lm_name="none",
        group_fractions=list(GROUPS),
        group_weights=list(GROUPS),
        lr=LEARNING_RATE,
        warmup_steps=WARMUP,
        decay_start=STEPS - round(DECAY_SHARE * STEPS),
        threshold_beta=THRESHOLD_DECAY,
        threshold_start_step=THRESHOLD_START,
        device="cpu",
    )
    built.dead_feature_threshold = dead_after
    built.num_tokens_since_fired = torch.from_numpy(tokens_since_fired(silent)).long()
    with torch.no_grad():
        for name, array in weights().items():
            vars_of(built)[name].copy_(torch.from_numpy(array))
    return built


def vars_of(built) -> dict[str, torch.Tensor]:
    """Returns the trainer's parameters by our names."""
    parameters = dict(built.ae.named_parameters())
    return {ours: parameters[theirs] for ours, theirs in NAMES.items()}


def numbers(values) -> list:
    """Returns float32 values, flat, with enough digits to be exact."""
    flat = np.asarray(values, np.float32).ravel()
    return [float(f"{value:.9g}") for value in flat]


def run(kind: type, case: dict) -> dict:
    """Returns all values that the tests compare for one case."""
    built = trainer(kind, **case)
    terms, dead, gradient, start = [], [], {}, []
    for step, x in enumerate(map(torch.from_numpy, batches())):
        if step == 0:
            start = built.geometric_median(x[:, 0])
            built.ae.b_dec.data = start.clone()
            probe = copy.deepcopy(built)
            probe.loss(x, step=step).backward()
            gradient = {n: numbers(p.grad) for n, p in vars_of(probe).items()}
        built.pre_norm_auxk_loss = -1  # logged only; its graph could not be copied
        log = copy.deepcopy(built).loss(x, step=step, logging=True).losses
        terms.append([log[n] for n in ("loss", "l2_loss", "auxk_loss", "temp_loss")])
        built.update(step, x)
        dead.append(built.dead_features)
    return {
        "terms": [numbers(row) for row in terms],
        "dead": dead,
        "median": numbers(start),
        "gradient": gradient,
        "parameters": {n: numbers(p.detach()) for n, p in vars_of(built).items()},
        "threshold": float(built.ae.threshold),
        "silence": built.num_tokens_since_fired.tolist(),
    }


def main() -> None:
    """Computes every case and writes the file next to this script."""
    kind = trainer_class(sys.argv[1])
    golden = {name: run(kind, case) for name, case in CASES.items()}
    text = json.dumps(golden, separators=(",", ":"))
    OUT.write_text(text.replace('},"', '},\n"').replace('],"', '],\n"') + "\n")
    print(f"{OUT.name}: {OUT.stat().st_size} bytes; batches of {BATCH}; dead latents:")
    for name, case in golden.items():
        print(name, case["dead"])


if __name__ == "__main__":
    main()
