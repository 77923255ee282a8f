"""A damaged or hostile dictionary gives one error; a file that is read is correct."""

import json
import pathlib
import random
import shutil
import zipfile

import jax
import numpy as np
import pytest
from safetensors.numpy import save_file

from job_jax.files import DamagedFileError
from sae_jax import io
from sae_jax.formats import gemma_scope, saelens, sparsify
from sae_jax.formats.record import FormatError
from sae_jax.sae import TSAE

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"
FOREIGN = sorted(
    path
    for folder in ("sae_files", "saelens_files")
    for path in (GOLDEN / folder).rglob("*")
    if path.suffix in (".pt", ".npz", ".safetensors")
)
MUTATIONS = 60  # of each file


def _mutated(content: bytes, rng: random.Random) -> bytes:
    """Returns a file with a flipped bit, a missing end, or an overwritten part."""
    place = rng.randrange(len(content))
    kind = rng.choice(("flip", "flip", "cut", "zeros", "noise", "twice"))
    size = rng.randrange(1, 64)
    if kind == "flip":
        flipped = bytes([content[place] ^ 1 << rng.randrange(8)])
        return content[:place] + flipped + content[place + 1 :]
    if kind == "cut":
        return content[:place]
    if kind == "twice":
        return content[:place] + content[max(0, place - size) :]
    noise = bytes(size) if kind == "zeros" else rng.randbytes(size)
    return content[:place] + noise + content[place + size :]


def _load_or_refuse(path: pathlib.Path) -> str:
    try:
        tsae = io.load(path)
    except FormatError:
        return "refused"
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(tsae))
    return "read"


@pytest.mark.parametrize("path", FOREIGN, ids=lambda path: path.parent.name)
def test_a_damaged_foreign_file_is_read_or_refused_in_a_line(path, tmp_path):
    copy = tmp_path / path.parent.name
    shutil.copytree(path.parent, copy)
    assert _load_or_refuse(copy) == "read"
    rng, content = random.Random(0), path.read_bytes()
    ends = []
    for _ in range(MUTATIONS):
        (copy / path.name).write_bytes(_mutated(content, rng))
        ends.append(_load_or_refuse(copy))
    assert ends.count("refused") > MUTATIONS / 4


@pytest.mark.parametrize(
    "text",
    [
        *("[" * 100_000, "{", "[]", "null", '{"metadata": 5}', '{"architecture": []}'),
        *('{"trainer": 5}', "\0", '{"architecture": "jumprelu", "metadata": [1]}'),
    ],
)
@pytest.mark.parametrize("path", FOREIGN, ids=lambda path: path.parent.name)
def test_a_config_of_anything_is_read_or_refused_in_a_line(path, text, tmp_path):
    copy = tmp_path / path.parent.name
    shutil.copytree(path.parent, copy)
    for name in (saelens.CONFIG_FILE, gemma_scope.CONFIG_FILE):
        (copy / name).write_text(text)
    _load_or_refuse(copy)


def test_200_flipped_bits_of_our_own_weights_are_200_found(tmp_path):
    io.save(tmp_path, TSAE.init(0, width=4, latents=8), metadata={"k": 2})
    weights = tmp_path / saelens.WEIGHTS_FILE
    content = weights.read_bytes()
    for bit in random.Random(0).sample(range(8 * len(content)), 200):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        weights.write_bytes(flipped)
        with pytest.raises(DamagedFileError, match=weights.name):
            io.load(tmp_path)
    weights.write_bytes(content)
    io.load(tmp_path)


def _gemma(directory: pathlib.Path, **changes: np.ndarray) -> pathlib.Path:
    rng = np.random.default_rng(0)
    arrays = {
        "W_enc": rng.normal(size=(4, 8)),
        "b_enc": np.zeros(8),
        "W_dec": rng.normal(size=(8, 4)),
        "b_dec": np.zeros(4),
        "threshold": np.ones(8),
    }
    np.savez_compressed(directory / gemma_scope.NPZ_FILE, **(arrays | changes))
    return directory / gemma_scope.NPZ_FILE


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("name", "shape", "said"),
    [
        ("W_enc", (4, 8), "the encoder"),
        ("b_enc", (8,), "the encoder's bias"),
        ("W_dec", (8, 4), "the decoder"),
        ("b_dec", (4,), "the decoder's bias"),
        ("threshold", (8,), "the threshold"),
    ],
)
def test_numbers_that_are_not_finite_are_refused_by_name(
    tmp_path, name, shape, said, bad
):
    array = np.ones(shape)
    array.flat[-1] = bad
    path = _gemma(tmp_path, **{name: array})
    if name == "threshold" and bad == np.inf:  # a latent that never fires
        assert io.load(path).threshold[-1] == np.inf
        return
    with pytest.raises(FormatError, match=f"{said} holds numbers that are not finite"):
        io.load(path)


def test_an_archive_that_unpacks_to_a_thousandfold_is_refused_unread(
    tmp_path, monkeypatch
):
    path = _gemma(tmp_path, W_enc=np.zeros((1000, 8000)))
    monkeypatch.setattr(np, "load", None)
    with pytest.raises(FormatError, match="would unpack to 64"):
        io.load(path)


def test_a_type_that_numpy_lacks_is_refused_in_a_line(tmp_path):
    """float8, in the form that safetensors writes."""
    config = {"k": 1, "activation": "topk"}
    (tmp_path / sparsify.CONFIG_FILE).write_text(json.dumps(config))
    tensors = {
        "encoder.weight": np.ones((8, 4), np.uint8),
        "encoder.bias": np.ones(8, np.uint8),
        "W_dec": np.ones((8, 4), np.uint8),
        "b_dec": np.ones(4, np.uint8),
    }
    file = tmp_path / sparsify.WEIGHTS_FILE
    save_file(tensors, file)
    content = file.read_bytes()
    assert content.count(b'"U8"') == 4
    size = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + size].replace(b'"U8"', b'"F8_E4M3"')
    file.write_bytes(len(header).to_bytes(8, "little") + header + content[8 + size :])
    assert _load_or_refuse(tmp_path) == "refused"


def test_a_zip_that_is_none_is_refused(tmp_path):
    path = tmp_path / gemma_scope.NPZ_FILE
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("W_enc.npy", b"no array")
    assert _load_or_refuse(path) == "refused"
