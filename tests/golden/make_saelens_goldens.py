"""Writes tests/golden/saelens_files: random dictionaries of every kind SAELens opens.

    bash benchmarks/make_peer_env.sh /tmp/peers sae
    /tmp/peers/bin/python tests/golden/make_saelens_goldens.py

Each kind is written as its authors publish it. SAELens' kinds use its `save_model`.
Gemma Scope 2 and Qwen-Scope have the layouts that SAELens' hub loaders read, with this
folder instead of the hub. For each path to open, `expected.json` has the latents and
reconstructions that SAELens 6.54 computes from the file. SAELens publishes a dictionary
trained with BatchTopK as a JumpReLU, so its values are the JumpReLU's.
"""

import json
import pathlib
import tempfile
import warnings

import torch
from safetensors.torch import save_file

warnings.simplefilter("ignore")
from sae_lens import SAE, TrainingSAE  # noqa: E402
from sae_lens.loading import pretrained_sae_loaders as loaders  # noqa: E402
from sae_lens.registry import get_sae_class, get_sae_training_class  # noqa: E402

HERE = pathlib.Path(__file__).parent / "saelens_files"
WIDTH, LATENTS, K, TOKENS = 4, 10, 3, 8
SCALE = 1.75  # of the activations, if the file does not set it
GEMMA = "gemma-scope-2-1b-pt", "resid_post/layer_13_width_16k_l0_small"
QWEN = "SAE-Res-Qwen3-1.7B-Base-W32K-L0_3", "layer5.sae.pt"


def randomize(sae):
    for parameter in sae.parameters():
        parameter.data = torch.randn_like(parameter)
    if "threshold" in dict(sae.named_parameters()):
        sae.threshold.data = torch.rand_like(sae.threshold)
    return sae


def inference(architecture, **options):
    sae_class, config_class = get_sae_class(architecture)
    config = config_class(d_in=WIDTH, d_sae=LATENTS, **options)
    config.metadata.hook_name = "blocks.5.hook_resid_post"
    return randomize(sae_class(config))


def training(architecture, **options):
    sae_class, config_class = get_sae_training_class(architecture)
    sae = randomize(sae_class(config_class(d_in=WIDTH, d_sae=LATENTS, k=K, **options)))
    sae.topk_threshold = torch.tensor(0.7, dtype=torch.double)
    return sae


def saved(name, sae):
    """Writes the dictionary and returns it as SAELens opens the published form."""
    sae.save_model(HERE / name)
    if not isinstance(sae, TrainingSAE):
        return SAE.load_from_disk(str(HERE / name))
    with tempfile.TemporaryDirectory() as published:
        sae.save_inference_model(published)
        return SAE.load_from_disk(published)


def scaled(name, sae):
    """Writes it unfolded, with its factor; returns it folded by SAELens."""
    (HERE / name).mkdir(exist_ok=True)
    sae.save_model(HERE / name)
    (HERE / name / "activation_scaler.json").write_text(
        json.dumps({"scaling_factor": SCALE}) + "\n"
    )
    sae.fold_activation_norm_scaling_factor(SCALE)
    return sae


def from_hub(loader, repository, folder, **overrides):
    """Returns SAELens' dictionary from hub files in this folder."""

    def download(repo_id, filename, subfolder="", **_):
        return str(HERE / repo_id.split("/")[1] / subfolder / filename)

    loaders.hf_hub_download = download
    loaders.get_safetensors_tensor_shapes = lambda *_: {
        "w_enc": [WIDTH, LATENTS],
        "w_dec": [LATENTS, WIDTH],
    }
    config, state, _ = loader(repository, folder, cfg_overrides=overrides)
    config = loaders.handle_config_defaulting(config)
    sae_class, config_class = get_sae_class(config["architecture"])
    sae = sae_class(config_class.from_dict(config))
    sae.load_state_dict(state)
    return sae


def gemma_scope_2():
    repository, folder = GEMMA
    (HERE / repository / folder).mkdir(parents=True, exist_ok=True)
    tensors = {
        "w_enc": torch.randn(WIDTH, LATENTS),
        "b_enc": torch.randn(LATENTS),
        "w_dec": torch.randn(LATENTS, WIDTH),
        "b_dec": torch.randn(WIDTH),
        "threshold": torch.rand(LATENTS),
    }
    save_file(tensors, HERE / repository / folder / "params.safetensors")
    config = {
        "hf_hook_point_in": "model.layers.13.output",
        "hf_hook_point_out": "model.layers.13.output",
        "width": LATENTS,
        "model_name": "google/gemma-3-1b-pt",
        "architecture": "jump_relu",
        "l0": K,
        "affine_connection": False,
        "type": "sae",
    }
    path = HERE / repository / folder / "config.json"
    path.write_text(json.dumps(config) + "\n")
    return from_hub(
        loaders.gemma_3_sae_huggingface_loader, f"google/{repository}", folder
    )


def qwen_scope():
    repository, file = QWEN
    (HERE / repository).mkdir(exist_ok=True)
    tensors = {
        "W_enc": torch.randn(LATENTS, WIDTH),
        "W_dec": torch.randn(WIDTH, LATENTS),
        "b_enc": torch.randn(LATENTS),
        "b_dec": torch.randn(WIDTH),
    }
    torch.save(tensors, HERE / repository / file)
    return from_hub(
        loaders.qwen_scope_sae_huggingface_loader,
        f"Qwen/{repository}",
        file,
        d_in=WIDTH,
        d_sae=LATENTS,
    )


def dictionaries():
    """Yields each path to open below this folder, and SAELens' dictionary for it."""
    average = {"normalize_activations": "expected_average_only_in"}
    plain = {
        "jumprelu": inference("jumprelu"),
        "jumprelu_x_itself": inference("jumprelu", apply_b_dec_to_input=False),
        "standard": inference("standard"),
        "gated": inference("gated"),
        "gated_x_itself": inference("gated", apply_b_dec_to_input=False),
        "topk": inference("topk", k=K),
        "topk_rescaled": inference("topk", k=K, rescale_acts_by_decoder_norm=True),
        "batchtopk": training("batchtopk", rescale_acts_by_decoder_norm=False),
        "batchtopk_rescaled": training("batchtopk"),
        "matryoshka_batchtopk": training(
            "matryoshka_batchtopk", matryoshka_widths=[2, 5, LATENTS]
        ),
    }
    for name, sae in plain.items():
        yield name, saved(name, sae)
    yield "jumprelu_scaled", scaled("jumprelu_scaled", inference("jumprelu", **average))
    yield "gated_scaled", scaled("gated_scaled", inference("gated", **average))
    rescaled = {"k": K, "rescale_acts_by_decoder_norm": True}
    yield (
        "topk_rescaled_scaled",
        scaled("topk_rescaled_scaled", inference("topk", **rescaled, **average)),
    )
    yield "/".join(GEMMA), gemma_scope_2()
    yield "/".join(QWEN), qwen_scope()


def digits(rows):
    """Returns the rows as numbers that convert back to the same float32."""
    return [[float(f"{value:.9g}") for value in row] for row in rows.tolist()]


def main():
    torch.manual_seed(0)
    x = torch.randn(TOKENS, WIDTH)
    expected = {"x": digits(x), "dictionaries": {}}
    for path, sae in dictionaries():
        with torch.no_grad():
            f = sae.encode(x)
            reconstruction = sae.decode(f)
        expected["dictionaries"][path] = {
            "latents": digits(f),
            "reconstructions": digits(reconstruction),
        }
    (HERE / "expected.json").write_text(json.dumps(expected) + "\n")


if __name__ == "__main__":
    main()
