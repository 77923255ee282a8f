"""Writes tests/golden/sae_files: small dictionaries, saved by their authors' classes.

    git clone https://github.com/AI4LIFE-GROUP/temporal-saes
    pip install torch einops
    python tests/golden/make_sae_file_goldens.py temporal-saes/dictionary_learning

For each class it writes `CLASS/ae.pt` with torch.save, `CLASS/config.json` with the
fields that their trainers write, and in `expected.json` inputs, latents and
reconstructions of the class. For the temporal class it adds the results of their
evaluation with the inputs as one sequence. The package's `__init__` files are
skipped. nnsight is left out, because no function here calls it.
"""

import importlib
import json
import pathlib
import sys
import types

import torch

HERE = pathlib.Path(__file__).parent / "sae_files"
WIDTH, LATENTS, GROUPS, K = 3, 6, [2, 4], 2


def authors_module(root, name):
    for package in ("dictionary_learning", "dictionary_learning.trainers"):
        module = types.ModuleType(package)
        module.__path__ = [str(root / package.replace(".", "/"))]
        sys.modules.setdefault(package, module)
    return importlib.import_module(f"dictionary_learning.{name}")


def smoothness(root, dictionary, x):
    """Returns smoothness and variation of one sequence by the authors' evaluation."""
    trainers = authors_module(root, "trainers.temporal_sequence_top_k")
    package = sys.modules["dictionary_learning.trainers"]
    package.TemporalBatchTopKSAE = trainers.TemporalBatchTopKSAE
    package.TemporalMatryoshkaBatchTopKSAE = trainers.TemporalMatryoshkaBatchTopKSAE
    plain = authors_module(root, "trainers.matryoshka_batch_top_k")
    package.MatryoshkaBatchTopKSAE = plain.MatryoshkaBatchTopKSAE
    sys.modules["nnsight"] = types.SimpleNamespace(LanguageModel=None)
    evaluation = authors_module(root, "evaluation")
    f = dictionary.encode(x)
    slopes = evaluation.lipschitz_cont(x, f, dictionary)
    variation = evaluation.smoothness_tv(f, dictionary)
    names = ("all", "high", "low")
    return {
        "smoothness": dict(zip(names, map(float, slopes), strict=True)),
        "variation": dict(zip(names[1:], map(float, variation), strict=True)),
    }


def dictionaries(root):
    temporal = authors_module(root, "trainers.temporal_sequence_top_k")
    plain = authors_module(root, "dictionary")
    top_k = authors_module(root, "trainers.top_k")
    batch_top_k = authors_module(root, "trainers.batch_top_k")
    sizes = (WIDTH, LATENTS)
    yield temporal.TemporalMatryoshkaBatchTopKSAE(*sizes, K, GROUPS, False)
    yield batch_top_k.BatchTopKSAE(*sizes, K)
    yield top_k.AutoEncoderTopK(*sizes, K)
    yield plain.JumpReluAutoEncoder(*sizes)
    yield plain.AutoEncoder(*sizes)
    yield plain.AutoEncoderNew(*sizes)


def main():
    torch.manual_seed(0)
    x = torch.randn(8, WIDTH)
    expected = {"x": x.tolist(), "classes": {}}
    root = pathlib.Path(sys.argv[1])
    for dictionary in dictionaries(root):
        name = type(dictionary).__name__
        for parameter in dictionary.parameters():
            parameter.data = torch.randn_like(parameter)
        state = dictionary.state_dict()
        if "threshold" in state:
            state["threshold"].copy_(torch.rand_like(state["threshold"]))
        folder = HERE / name
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(state, folder / "ae.pt")
        config = {"trainer": {"dict_class": name, "k": K, "layer": 1}}
        (folder / "config.json").write_text(json.dumps(config) + "\n")
        with torch.no_grad():
            f = dictionary.encode(x)
            reconstruction = dictionary.decode(f)
        expected["classes"][name] = {
            "latents": f.tolist(),
            "reconstructions": reconstruction.tolist(),
        }
        if name == "TemporalMatryoshkaBatchTopKSAE":
            with torch.no_grad():
                expected["temporal"] = smoothness(root, dictionary, x)
    (HERE / "expected.json").write_text(json.dumps(expected) + "\n")


if __name__ == "__main__":
    main()
