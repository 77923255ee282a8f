"""Files of other libraries encode here as in the libraries that wrote them.

The `ae.pt` files and their latents come from the T-SAE authors' own classes
(tests/golden/make_sae_file_goldens.py). The other two formats are written and encoded
here by their definition.
"""

import io
import json
import pathlib
import pickle
import zipfile

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from sae_jax.formats.record import FormatError
from sae_jax.formats.torch_zip import read_tensors
from sae_jax.io import load, load_record

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "sae_files"
EXPECTED = json.loads((GOLDEN / "expected.json").read_text())
MATRYOSHKA = GOLDEN / "TemporalMatryoshkaBatchTopKSAE"


@pytest.mark.parametrize("name", sorted(EXPECTED["classes"]))
def test_a_saved_dictionary_encodes_and_decodes_as_its_own_class(name):
    tsae = load(GOLDEN / name)
    f = tsae.encode(np.array(EXPECTED["x"], np.float32))
    golden = EXPECTED["classes"][name]
    np.testing.assert_allclose(f, golden["latents"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        tsae.decode(f), golden["reconstructions"], rtol=1e-5, atol=1e-6
    )
    active = np.array(golden["latents"]) > 0
    assert 0 < active.sum() < active.size
    np.testing.assert_array_equal(np.asarray(f) > 0, active)


def test_a_temporal_file_keeps_its_groups_and_k():
    record = load_record(MATRYOSHKA / "ae.pt")
    assert record.format == "dictionary_learning"
    assert record.tsae.group_sizes == (2, 4)
    assert record.metadata["k"] == 2
    assert record.metadata["dictionary_learning"]["layer"] == 1
    assert record.metadata["hook_name"] == "blocks.1.hook_resid_post"


def test_the_class_separates_top_k_from_batch_top_k():
    assert load(GOLDEN / "AutoEncoderTopK").top_k == 2
    assert load(GOLDEN / "BatchTopKSAE").top_k is None


class _Harm:
    def __reduce__(self):
        return (pathlib.Path.touch, (pathlib.Path("harm"),))


def rewritten(source: pathlib.Path, target: pathlib.Path, **parts: bytes) -> None:
    """Copies an archive and replaces the parts whose names end as given."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            new.writestr(name, parts.get(name.split("/")[-1], old.read(name)))


def test_a_pickle_that_names_any_other_function_is_refused_before_it_runs(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    bad = {"data.pkl": pickle.dumps({"W_enc": _Harm()}, protocol=2)}
    rewritten(MATRYOSHKA / "ae.pt", tmp_path / "ae.pt", **bad)
    with pytest.raises(FormatError, match="only tensors are read"):
        load(tmp_path / "ae.pt")
    assert not (tmp_path / "harm").exists()


def test_builtins_are_refused_like_everything_else(tmp_path):
    bad = {"data.pkl": b"cbuiltins\neval\n(Vprint(1)\ntR."}
    rewritten(MATRYOSHKA / "ae.pt", tmp_path / "ae.pt", **bad)
    with pytest.raises(FormatError, match=r"holds a builtins\.eval"):
        load(tmp_path / "ae.pt")


def test_a_tensor_may_not_reach_beyond_its_storage(tmp_path):
    rewritten(MATRYOSHKA / "ae.pt", tmp_path / "ae.pt", **{"2": b"\0" * 4})
    with pytest.raises(FormatError, match="reaches beyond its storage"):
        load(tmp_path / "ae.pt")


def test_a_tensor_may_not_grow_out_of_its_storage(tmp_path):
    """With stride 0, four bytes would become terabytes."""
    source = MATRYOSHKA / "ae.pt"
    with zipfile.ZipFile(source) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith("data.pkl"))
        data = archive.read(name)
    # "k" and "threshold" have shape (); give the first one shape (65535,), stride 0.
    at = data.index(b"K\x00))")
    grown = data[:at] + b"K\x00M\xff\xff\x85K\x00\x85" + data[at + 4 :]
    rewritten(source, tmp_path / "ae.pt", **{"data.pkl": grown})
    with pytest.raises(FormatError, match="beyond its storage"):
        load(tmp_path / "ae.pt")


def test_a_storage_that_is_missing_is_named(tmp_path):
    source, target = MATRYOSHKA / "ae.pt", tmp_path / "ae.pt"
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            if not name.endswith("data/0"):
                new.writestr(name, old.read(name))
    with pytest.raises(FormatError, match="its storage '0'"):
        load(tmp_path / "ae.pt")


def archive(path: pathlib.Path, compress: int, **parts: bytes) -> None:
    """Writes the golden archive again, with its entries compressed or not."""
    with (
        zipfile.ZipFile(MATRYOSHKA / "ae.pt") as old,
        zipfile.ZipFile(path, "w", compress) as new,
    ):
        for name in old.namelist():
            new.writestr(name, parts.get(name.split("/")[-1], old.read(name)))


def test_sizes_that_a_compressed_archive_claims_are_not_believed(tmp_path):
    """A few kilobytes of compressed zeros would be read as gigabytes."""
    archive(tmp_path / "ae.pt", zipfile.ZIP_STORED)
    assert load(tmp_path / "ae.pt").latents == 6
    archive(tmp_path / "ae.pt", zipfile.ZIP_DEFLATED, **{"0": bytes(1 << 24)})
    with pytest.raises(FormatError, match=r"which torch\.save never does"):
        load(tmp_path / "ae.pt")


def pickled(numbers: dict[str, int]) -> bytes:
    """Returns the pickle of a state dict: storage key -> number of floats to read."""

    def text(value: str) -> bytes:
        return b"X" + len(value).to_bytes(4, "little") + value.encode()

    body = b""
    for key, n in numbers.items():
        size = b"J" + n.to_bytes(4, "little")
        storage = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text(key)
        storage += text("cpu") + size + b"tQ"
        tensor = storage + b"K\x00" + size + b"\x85" + b"K\x01\x85" + b"\x89"
        body += text(key) + b"ctorch._utils\n_rebuild_tensor_v2\n(" + tensor
        body += b"ccollections\nOrderedDict\n)RtR"
    return b"\x80\x02}(" + body + b"u."


@pytest.mark.parametrize("nested", [False, True])
def test_entries_that_hold_one_another_are_refused(tmp_path, nested):
    """Each claims all that follows, so 8 of 4 kB are 144 kB; thousands are terabytes.

    Side by side they are as torch.save writes them.
    """
    path = tmp_path / "ae.pt"
    sizes = {str(i): 4096 * (8 - i if nested else 1) for i in range(8)}
    with zipfile.ZipFile(path, "w") as new:
        new.writestr("a/data.pkl", pickled({k: n // 4 for k, n in sizes.items()}))
        for key, size in sizes.items():
            new.writestr(f"a/data/{key}", bytes(4096))
            new.filelist[-1].file_size = new.filelist[-1].compress_size = size
    if nested:
        with pytest.raises(FormatError, match="storages are larger than the file"):
            read_tensors(path)
    else:
        assert {tensor.shape for tensor in read_tensors(path).values()} == {(1024,)}


def test_many_tensors_of_one_storage_take_the_room_of_one(tmp_path):
    path = tmp_path / "ae.pt"
    with zipfile.ZipFile(path, "w") as new:
        new.writestr("a/data.pkl", pickled({"0": 1024}))
        new.writestr("a/data/0", bytes(4096))
    (tensor,) = read_tensors(path).values()
    assert not tensor.flags.owndata


def test_a_storage_is_read_no_further_than_its_tensors_reach(tmp_path):
    """The storage "2" is k or threshold: one number, followed by a megabyte."""
    rewritten(
        MATRYOSHKA / "ae.pt",
        tmp_path / "ae.pt",
        **{"2": b"\0" * 4 + bytes(1 << 20)},
    )
    tensors = read_tensors(tmp_path / "ae.pt")
    assert all(tensor.nbytes < 1000 for tensor in tensors.values())
    assert all(bytes_held(tensor) < 1000 for tensor in tensors.values())


def bytes_held(view):
    """Returns how many bytes stay in memory because of a view."""
    while not isinstance(view, bytes):
        view = view.base
    return len(view)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not a zip", "no zip archive of torch.save"),
        (b"", "no zip archive of torch.save"),
    ],
)
def test_other_files_are_told_apart(tmp_path, content, message):
    (tmp_path / "ae.pt").write_bytes(content)
    with pytest.raises(FormatError, match=message):
        load(tmp_path)


def test_another_zip_is_not_a_torch_file(tmp_path):
    with zipfile.ZipFile(tmp_path / "ae.pt", "w") as archive:
        archive.writestr("readme", "hello")
    with pytest.raises(FormatError, match=r"not one of torch\.save"):
        load(tmp_path)


@pytest.mark.parametrize("data", [b"", b"\x80\x02", b"garbage"])
def test_a_damaged_pickle_is_one_clear_error(tmp_path, data):
    rewritten(MATRYOSHKA / "ae.pt", tmp_path / "ae.pt", **{"data.pkl": data})
    with pytest.raises(FormatError, match=r"ae\.pt: its pickle is damaged"):
        load(tmp_path / "ae.pt")


def test_strides_of_a_transposed_tensor_are_followed(tmp_path):
    """AutoEncoder keeps its encoder as the transpose of a [D Z] matrix."""
    tensors = read_tensors(GOLDEN / "AutoEncoder" / "ae.pt")
    assert tensors["encoder.weight"].shape == (6, 3)
    assert tensors["decoder.weight"].shape == (3, 6)


def parameters(width: int = 2, latents: int = 3) -> dict[str, np.ndarray]:
    """Returns small whole numbers, so every sum is exact in float32."""
    return {
        "W_enc": np.array([[1, -2, 3], [2, 1, -1]], np.float32),
        "b_enc": np.array([1, 2, 3], np.float32),
        "W_dec": np.array([[1, 0], [0, 1], [2, 2]], np.float32),
        "b_dec": np.array([1, -1], np.float32),
        "threshold": np.array([4, 4, 4], np.float32),
    }


def test_gemma_scope_encodes_x_itself(tmp_path):
    """With x = (2, 1), pre = x W_enc + b_enc = (5, -1, 8); 5 and 8 exceed 4."""
    np.savez(tmp_path / "params.npz", **parameters())
    tsae = load(tmp_path)
    f = tsae.encode(np.array([2.0, 1.0], np.float32))
    np.testing.assert_array_equal(f, [5, 0, 8])
    np.testing.assert_array_equal(tsae.decode(f), [5 + 16 + 1, 16 - 1])


def test_the_second_gemma_scope_writes_small_letters(tmp_path):
    small = {name.replace("W_", "w_"): t for name, t in parameters().items()}
    np.savez(tmp_path / "other.npz", **small)
    np.testing.assert_array_equal(load(tmp_path / "other.npz").encoder, small["w_enc"])


def sparsify(directory: pathlib.Path, **changes: object) -> None:
    p = parameters()
    tensors = {
        "encoder.weight": np.ascontiguousarray(p["W_enc"].T),
        "encoder.bias": p["b_enc"],
        "W_dec": p["W_dec"],
        "b_dec": p["b_dec"],
    }
    save_file(
        {name: t.astype(ml_dtypes.bfloat16) for name, t in tensors.items()},
        directory / "sae.safetensors",
    )
    config = {"activation": "topk", "k": 1, "d_in": 2, "transcode": False} | changes
    (directory / "cfg.json").write_text(json.dumps(config))


def test_sparsify_keeps_the_k_largest_of_each_token(tmp_path):
    """With x = (3, 0) - b_dec (2, 1), pre = (4+1, -3+2, 5+3) = (5, -1, 8)."""
    (tmp_path / "layers.5").mkdir()
    sparsify(tmp_path / "layers.5")
    record = load_record(tmp_path / "layers.5")
    assert record.format == "sparsify"
    assert record.metadata["hook_name"] == "layers.5"
    x = np.array([[3, 0], [1, -1]], np.float32)  # the second: pre = b_enc = (1, 2, 3)
    np.testing.assert_array_equal(record.tsae.encode(x), [[0, 0, 8], [0, 0, 3]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"transcode": True}, "a transcoder"),
        ({"skip_connection": True}, "a transcoder"),
        ({"activation": "groupmax"}, "'groupmax' is not read"),
        ({"k": 4}, "k=4 of 3 latents"),
    ],
)
def test_what_sparsify_can_and_a_tsae_cannot_is_refused(tmp_path, change, message):
    sparsify(tmp_path, **change)
    with pytest.raises(FormatError, match=message):
        load(tmp_path)


def saelens(directory: pathlib.Path, drop: str = "", **changes: object) -> None:
    tensors = parameters()
    if drop:
        del tensors[drop]
    save_file(tensors, directory / "sae_weights.safetensors")
    config = {"architecture": "jumprelu", "d_in": 2, "d_sae": 3} | changes
    (directory / "cfg.json").write_text(json.dumps(config))


def test_saelens_may_leave_b_dec_in_the_input(tmp_path):
    saelens(tmp_path, apply_b_dec_to_input=False)
    f = load(tmp_path).encode(np.array([2.0, 1.0], np.float32))
    np.testing.assert_array_equal(f, [5, 0, 8])


def test_a_standard_autoencoder_is_a_threshold_of_zero(tmp_path):
    """With x = (2, 1) - b_dec (1, 2), pre = (1+5, 2+0, 3+1) = (6, 2, 4)."""
    saelens(tmp_path, drop="threshold", architecture="standard")
    f = load(tmp_path).encode(np.array([2.0, 1.0], np.float32))
    np.testing.assert_array_equal(f, [6, 2, 4])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"architecture": "temporal"}, "architecture 'temporal' is not read"),
        ({"normalize_activations": "layer_norm"}, "no weights express it"),
        ({"drop": "b_dec"}, r"lacks \['b_dec'\]"),
        ({"architecture": "standard"}, r"has \['threshold'\]"),
        ({"metadata": {"group_sizes": [1, 1]}}, r"\[1, 1\] add up to 2, not to 3"),
    ],
)
def test_what_saelens_can_and_a_tsae_cannot_is_refused(tmp_path, change, message):
    saelens(tmp_path, **change)
    with pytest.raises(FormatError, match=message):
        load(tmp_path)


def test_shapes_that_do_not_fit_are_named(tmp_path):
    bad = parameters() | {"b_enc": np.zeros(4, np.float32)}
    np.savez(tmp_path / "params.npz", **bad)
    with pytest.raises(FormatError, match=r"encoder's bias has shape \[4\]"):
        load(tmp_path)


def test_damaged_files_are_one_clear_error(tmp_path):
    saelens(tmp_path)
    (tmp_path / "sae_weights.safetensors").write_bytes(b"\x08")
    with pytest.raises(FormatError, match=r"sae_weights\.safetensors"):
        load(tmp_path)
    (tmp_path / "cfg.json").write_text("{")
    with pytest.raises(FormatError, match=r"cfg\.json"):
        load(tmp_path)
    buffer = io.BytesIO(b"PK")
    (tmp_path / "params.npz").write_bytes(buffer.getvalue())
    with pytest.raises(FormatError, match=r"params\.npz"):
        load(tmp_path / "params.npz")
