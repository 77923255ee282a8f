"""Dictionaries of every published kind encode as SAELens encodes them.

The files and their latents were made by SAELens 6.54 and torch
(tests/golden/make_saelens_goldens.py). `python tests/sae_jax/test_saelens_kinds.py`
prints the largest differences that docs/method/sae.md gives.
"""

import json
import pathlib
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from sae_jax.formats.record import FormatError
from sae_jax.io import load, load_record, save

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "saelens_files"
EXPECTED = json.loads((GOLDEN / "expected.json").read_text())
X = np.array(EXPECTED["x"], np.float32)
GEMMA, QWEN = (
    next(GOLDEN / path for path in EXPECTED["dictionaries"] if part in path)
    for part in ("gemma-scope-2", "SAE-Res")
)


def differences(path: str) -> tuple[float, float]:
    """Returns the largest difference of the latents and of the reconstructions."""
    tsae = load(GOLDEN / path)
    golden = EXPECTED["dictionaries"][path]
    f = np.asarray(tsae.encode(X))
    xhat = np.asarray(tsae.decode(f))
    return (
        float(np.abs(f - np.array(golden["latents"])).max()),
        float(np.abs(xhat - np.array(golden["reconstructions"])).max()),
    )


@pytest.mark.parametrize("path", sorted(EXPECTED["dictionaries"]))
def test_latents_and_reconstructions_equal_saelens(path):
    latents = np.array(EXPECTED["dictionaries"][path]["latents"])
    active = latents > 0
    assert 0.1 < active.mean() < 0.9
    f = np.asarray(load(GOLDEN / path).encode(X))
    np.testing.assert_array_equal(f > 0, active)
    of_latents, of_reconstructions = differences(path)
    assert of_latents < 1e-6 * latents.max()
    assert of_reconstructions < 1e-6 * latents.max() * 4


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        ("gated", {"r_mag": 0}),
        ("gated", {"b_gate": 0}),
        ("gated", {"b_mag": 0}),
        ("topk_rescaled", {"rescale_acts_by_decoder_norm": False}),
        ("batchtopk_rescaled", {"rescale_acts_by_decoder_norm": False}),
        ("batchtopk", {"topk_threshold": 0}),
        ("jumprelu_x_itself", {"apply_b_dec_to_input": True}),
        ("jumprelu", {"apply_b_dec_to_input": False}),
        ("jumprelu_scaled", {"normalize_activations": "none"}),
        ("topk", {"k": 4}),
    ],
)
def test_every_option_and_tensor_counts(tmp_path, path, wrong):
    """If a reader skipped one, the test above would fail."""
    shutil.copytree(GOLDEN / path, tmp_path, dirs_exist_ok=True)
    tensors = load_file(tmp_path / "sae_weights.safetensors")
    for name in set(wrong) & set(tensors):
        tensors[name] = np.zeros_like(tensors[name])
    save_file(tensors, tmp_path / "sae_weights.safetensors")
    config = json.loads((tmp_path / "cfg.json").read_text())
    options = {name: value for name, value in wrong.items() if name not in tensors}
    (tmp_path / "cfg.json").write_text(json.dumps(config | options))
    f = np.asarray(load(tmp_path).encode(X))
    latents = np.array(EXPECTED["dictionaries"][path]["latents"])
    assert np.abs(f - latents).max() > 0.01


def test_matryoshka_groups_are_the_steps_of_its_widths():
    assert load(GOLDEN / "matryoshka_batchtopk").group_sizes == (2, 3, 5)
    assert load(GOLDEN / "batchtopk").group_sizes == (10,)


@pytest.mark.parametrize("path", ["gated", "topk_rescaled_scaled", "batchtopk"])
def test_folded_dictionaries_are_saved_and_read_again(tmp_path, path):
    tsae = load(GOLDEN / path)
    save(tmp_path / "sae", tsae)
    again = load(tmp_path / "sae")
    np.testing.assert_array_equal(again.encode(X), tsae.encode(X))
    assert (again.top_k, again.group_sizes) == (tsae.top_k, tsae.group_sizes)


def changed(directory: pathlib.Path, name: str, **options: object) -> pathlib.Path:
    shutil.copytree(GOLDEN / name, directory)
    path = directory / "cfg.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | options))
    return directory


@pytest.mark.parametrize("place", ["config", "metadata"])
def test_the_factor_may_be_in_the_config(tmp_path, place):
    factor = {"norm_scaling_factor": 1.75}
    options = factor if place == "config" else {"metadata": factor}
    path = changed(tmp_path / "sae", "jumprelu_scaled", **options)
    (path / "activation_scaler.json").unlink()
    f = np.asarray(load(path).encode(X))
    latents = np.array(EXPECTED["dictionaries"]["jumprelu_scaled"]["latents"])
    np.testing.assert_allclose(f, latents, atol=1e-6 * latents.max())


@pytest.mark.parametrize("factor", [None, 0, -1.0, "1.5", float("inf")])
def test_an_unknown_factor_is_refused_with_the_fix(tmp_path, factor):
    options = {} if factor is None else {"norm_scaling_factor": factor}
    path = changed(tmp_path / "sae", "jumprelu_scaled", **options)
    (path / "activation_scaler.json").unlink()
    with pytest.raises(FormatError, match=r"state it as norm_scaling_factor in cfg"):
        load(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"normalize_activations": "layer_norm"}, "is not linear in the activations"),
        ({"normalize_activations": "constant_norm_rescale"}, "is not linear in the"),
        ({"normalize_activations": "covariance_whitening"}, "use a dictionary trained"),
        ({"reshape_activations": "hook_z"}, "reads attention heads, not a stream"),
        ({"architecture": "matching_pursuit"}, "'matching_pursuit' is not read"),
        ({"architecture": "topk", "k": 2.5}, r"has \['threshold'\]"),
    ],
)
def test_what_no_weights_express_is_refused(tmp_path, options, message):
    with pytest.raises(FormatError, match=message):
        load(changed(tmp_path / "sae", "jumprelu", **options))


@pytest.mark.parametrize("k", [None, 2.5, "3"])
def test_a_topk_says_a_whole_k(tmp_path, k):
    with pytest.raises(FormatError, match=rf"k={k!r} of a topk"):
        load(changed(tmp_path / "sae", "topk", k=k))


def test_widths_that_do_not_rise_are_refused(tmp_path):
    path = changed(
        tmp_path / "sae", "matryoshka_batchtopk", matryoshka_widths=[5, 5, 10]
    )
    with pytest.raises(FormatError, match=r"\[5, 5, 10\] do not rise"):
        load(path)


def test_before_version_6_a_topk_was_an_activation_function(tmp_path):
    path = changed(
        tmp_path / "sae",
        "topk",
        architecture="standard",
        activation_fn_str="topk",
        activation_fn_kwargs={"k": 3},
    )
    latents = np.array(EXPECTED["dictionaries"]["topk"]["latents"])
    assert load(path).top_k == 3
    np.testing.assert_allclose(load(path).encode(X), latents, atol=1e-5)


@pytest.mark.parametrize(("factor", "read"), [(1.0, True), (1.5, False)])
def test_an_old_scaling_factor_of_ones_is_none(tmp_path, factor, read):
    path = changed(tmp_path / "sae", "jumprelu")
    tensors = load_file(path / "sae_weights.safetensors")
    tensors["scaling_factor"] = np.full(10, factor, np.float32)
    save_file(tensors, path / "sae_weights.safetensors")
    if read:
        assert load(path).latents == 10
    else:
        with pytest.raises(FormatError, match=r"has \['scaling_factor'\]"):
            load(path)


@pytest.mark.parametrize("shape", [(), (1,)])
def test_one_threshold_holds_for_every_latent(tmp_path, shape):
    path = changed(tmp_path / "sae", "jumprelu")
    tensors = load_file(path / "sae_weights.safetensors")
    tensors["threshold"] = np.full(shape, 0.5, np.float32)
    save_file(tensors, path / "sae_weights.safetensors")
    np.testing.assert_array_equal(load(path).threshold, np.full(10, 0.5))


def test_gemma_scope_2_says_what_it_reads():
    record = load_record(GEMMA)
    assert record.format == "gemma_scope"
    assert record.metadata == {
        "hook_name": "blocks.13.hook_resid_post",
        "model_name": "google/gemma-3-1b-pt",
        "l0": 3,
    }
    assert load_record(GEMMA / "params.safetensors").metadata == record.metadata


@pytest.mark.parametrize(
    ("folder", "hook"),
    [
        ("resid_post/layer_9_width_16k_l0_big", "blocks.9.hook_resid_post"),
        ("resid_post_all/layer_9_width_16k_l0_big", "blocks.9.hook_resid_post"),
        ("mlp_out_all/layer_9_width_16k_l0_big", "blocks.9.hook_mlp_out"),
        ("attn_out/layer_9_width_16k_l0_big", "blocks.9.attn.hook_z"),
    ],
)
def test_without_a_config_its_folders_say_it(tmp_path, folder, hook):
    shutil.copytree(GEMMA, tmp_path / folder)
    (tmp_path / folder / "config.json").unlink()
    assert load_record(tmp_path / folder).metadata == {"hook_name": hook}


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (
            {"hf_hook_point_in": "model.layers.3.self_attn.o_proj.input"},
            {"hook_name": "blocks.3.attn.hook_z"},
        ),
        (
            {"hf_hook_point_in": "model.embed.output"},
            {"hook_name": "model.embed.output"},
        ),
        ({"model_name": "gemma-v3-1b-pt"}, {"model_name": "google/gemma-3-1b-pt"}),
    ],
)
def test_its_config_goes_before_its_folders(tmp_path, options, found):
    path = tmp_path / "layer_13_x"
    shutil.copytree(GEMMA, path)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | options))
    assert load_record(path).metadata.items() >= found.items()


@pytest.mark.parametrize(
    ("folder", "options", "message"),
    [
        ("x", {"type": "transcoder"}, "a transcoder, not an autoencoder"),
        ("x", {"type": "crosscoder"}, "a crosscoder, not an autoencoder"),
        ("transcoder_all", {}, "a transcoder, not an autoencoder"),
        ("x", {"affine_connection": True}, "not an autoencoder"),
        ("x", {"architecture": "topk"}, "'topk' is not read; jump_relu is"),
    ],
)
def test_other_models_of_the_release_are_refused(tmp_path, folder, options, message):
    path = tmp_path / folder
    shutil.copytree(GEMMA, path)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | options))
    with pytest.raises(FormatError, match=message):
        load(path)


def test_qwen_scope_says_k_layer_and_model_by_its_name():
    record = load_record(QWEN)
    assert record.format == "qwen_scope"
    assert record.tsae.top_k == 3
    assert record.metadata == {
        "k": 3,
        "hook_name": "blocks.5.hook_resid_post",
        "model_name": "Qwen/Qwen3-1.7B-Base",
    }
    assert load_record(QWEN.parent).metadata == record.metadata


def test_the_hubs_cache_is_read_through_its_links(tmp_path):
    """There a file is a link, and its target's name lacks layer and repository."""
    repository = tmp_path / "models--Qwen--SAE-Res-Qwen3-8B-Base-W64K-L0_7"
    (repository / "blobs").mkdir(parents=True)
    (repository / "snapshots" / "ab12").mkdir(parents=True)
    shutil.copy(QWEN, repository / "blobs" / "c0ffee")
    link = repository / "snapshots" / "ab12" / "layer31.sae.pt"
    link.symlink_to(repository / "blobs" / "c0ffee")
    record = load_record(link)
    assert record.tsae.top_k == 7
    assert record.metadata["hook_name"] == "blocks.31.hook_resid_post"
    assert record.metadata["model_name"] == "Qwen/Qwen3-8B-Base"


def test_a_qwen_file_without_its_repository_is_refused_with_the_fix(tmp_path):
    shutil.copy(QWEN, tmp_path / "layer5.sae.pt")
    with pytest.raises(FormatError, match="a directory of that name, such as SAE-Res"):
        load(tmp_path / "layer5.sae.pt")


def test_of_several_layers_one_is_to_be_named(tmp_path):
    for layer in (3, 5):
        shutil.copy(QWEN, tmp_path / f"layer{layer}.sae.pt")
    with pytest.raises(FormatError, match=r"holds 2 layers; name the file of one, .*3"):
        load(tmp_path)


def main() -> None:
    for path in EXPECTED["dictionaries"]:
        of_latents, of_reconstructions = differences(path)
        largest = np.array(EXPECTED["dictionaries"][path]["latents"]).max()
        print(f"{path:70} {of_latents:.1e} {of_reconstructions:.1e} of {largest:.1f}")


if __name__ == "__main__":
    main()
