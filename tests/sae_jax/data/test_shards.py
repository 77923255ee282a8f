"""Activations on disk are read back exactly as written, or not at all."""

import contextlib
import hashlib
import json

import ml_dtypes
import numpy as np
import pytest

from job_jax.schema import ConfigError
from sae_jax.data.shards import ActivationShards, ShardWriter


def writer(path, **changes):
    asked = {
        "width": 3,
        "layer": 2,
        "hook": "blocks.2.hook_resid_post",
        "model": "toy",
        "roles": ("prompt", "response"),
        "factors": ("step",),
        "dtype": "float32",
        "shard_tokens": 4,
    }
    return ShardWriter(path, **{**asked, **changes})


def sequence(tokens, *, first=0.0):
    """Returns the arguments of `add`: rows [first + t, 0, 4], a one-token prompt."""
    rows_TD = np.zeros((tokens, 3), np.float32)
    rows_TD[:, 0] = first + np.arange(tokens)
    rows_TD[:, 2] = 4.0
    return rows_TD, {
        "token_ids": np.arange(tokens) + 100,
        "roles": np.minimum(np.arange(tokens), 1),
        "special": np.arange(tokens) == 0,
        "factors": {"step": np.arange(tokens) * 7},
    }


def add(out, tokens, *, first=0.0):
    rows_TD, columns = sequence(tokens, first=first)
    out.add(rows_TD, **columns)


@pytest.fixture
def shards(tmp_path):
    """Writes sequences of 3, 2 and 4 tokens; a shard closes at the fourth token."""
    with writer(tmp_path / "data") as out:
        for tokens, first in ((3, 0.0), (2, 10.0), (4, 20.0)):
            add(out, tokens, first=first)
    return tmp_path / "data"


def test_every_column_comes_back_over_all_shards(shards):
    data = ActivationShards(shards)
    assert [shard["tokens"] for shard in data.index.shards] == [5, 4]
    assert (data.index.tokens, data.index.sequences, data.index.context_size) == (
        9,
        3,
        4,
    )
    np.testing.assert_array_equal(data.column("sequence"), [0, 0, 0, 1, 1, 2, 2, 2, 2])
    np.testing.assert_array_equal(data.column("role"), [0, 1, 1, 0, 1, 0, 1, 1, 1])
    np.testing.assert_array_equal(data.column("special"), [1, 0, 0, 1, 0, 1, 0, 0, 0])
    np.testing.assert_array_equal(
        data.column("token_id"), [100, 101, 102, 100, 101, 100, 101, 102, 103]
    )
    np.testing.assert_array_equal(data.column("step"), [0, 7, 14, 0, 7, 0, 7, 14, 21])
    # Row 2 is [2, 0, 4], row 6 is [21, 0, 4].
    np.testing.assert_allclose(
        data.column("norm")[[2, 6]], np.sqrt([20.0, 457.0]), rtol=1e-6
    )


def test_rows_come_in_the_requested_order_with_repeats(shards):
    asked = np.array([8, 0, 5, 4, 0, 2])
    rows_BD = ActivationShards(shards).rows(asked)
    np.testing.assert_array_equal(rows_BD[:, 0], [23, 0, 20, 11, 0, 2])
    np.testing.assert_array_equal(rows_BD[:, 2], 4)
    assert rows_BD.dtype == np.float32


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        ("float32", np.float32),
        ("float16", np.float16),
        ("bfloat16", ml_dtypes.bfloat16),
    ],
)
def test_rows_are_rounded_to_the_type_of_the_data_set_and_no_further(
    tmp_path, dtype, kind
):
    rows_TD = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    with writer(tmp_path / "data", dtype=dtype) as out:
        out.add(rows_TD, **sequence(5)[1])
    data = ActivationShards(tmp_path / "data")
    stored = rows_TD.astype(kind).astype(np.float32)
    np.testing.assert_array_equal(data.rows(np.arange(5)), stored)
    np.testing.assert_allclose(
        data.column("norm"), np.sqrt((stored**2).sum(1)), rtol=1e-6
    )


def test_a_file_is_its_columns_one_after_another(shards):
    """Reads shard 1 (4 tokens: norms, ids, ...) by the offsets in the documentation."""
    raw = (shards / "shard_00001.bin").read_bytes()
    assert len(raw) == 4 * (4 + 4 + 4 + 4 + 3 * 4 + 1 + 1)
    np.testing.assert_array_equal(np.frombuffer(raw, "<i4", 4, 0), 2)
    np.testing.assert_array_equal(
        np.frombuffer(raw, "<i4", 4, 16), [100, 101, 102, 103]
    )
    np.testing.assert_array_equal(np.frombuffer(raw, "<i4", 4, 48), [0, 7, 14, 21])
    rows_TD = np.frombuffer(raw, "<f4", 12, 64).reshape(4, 3)
    np.testing.assert_array_equal(rows_TD[:, 0], [20, 21, 22, 23])
    np.testing.assert_array_equal(np.frombuffer(raw, "u1", 4, 112), [0, 1, 1, 1])
    np.testing.assert_array_equal(np.frombuffer(raw, "u1", 4, 116), [1, 0, 0, 0])


def write_problems(path, problems):
    with writer(path) as out:
        for number, problem in enumerate(problems):
            rows_TD, columns = sequence(2, first=number)
            out.add(rows_TD, **columns, problem=problem)


def test_sequences_of_a_problem_share_its_number_and_the_index_its_id(tmp_path):
    """They lie in several shards, because one closes at the fourth token."""
    write_problems(tmp_path / "data", ["b", "a", "b", "c"])
    data = ActivationShards(tmp_path / "data")
    assert data.index.problems == ("b", "a", "c")
    np.testing.assert_array_equal(data.column("problem"), [0, 0, 1, 1, 0, 0, 2, 2])
    raw = (tmp_path / "data" / "shard_00001.bin").read_bytes()
    assert len(raw) == 4 * (4 + 4 + 4 + 4 + 4 + 3 * 4 + 1 + 1)
    np.testing.assert_array_equal(np.frombuffer(raw, "<i4", 4, 16), [0, 0, 2, 2])


def test_without_ids_each_sequence_is_a_problem(shards):
    data = ActivationShards(shards)
    assert data.index.problems == ()
    np.testing.assert_array_equal(data.column("problem"), data.column("sequence"))


def test_the_first_format_is_read_as_one_that_names_no_problems(shards):
    index = json.loads((shards / "index.json").read_text())
    assert index["format"] == "sae_jax activations 2"
    del index["problems"]
    index["format"] = "sae_jax activations 1"
    (shards / "index.json").write_text(json.dumps(index))
    data = ActivationShards(shards)
    data.verify()
    np.testing.assert_array_equal(data.column("problem"), data.column("sequence"))


@pytest.mark.parametrize("problems", [("a", None), (None, "a")])
def test_problems_are_named_for_all_sequences_or_for_none(tmp_path, problems):
    with pytest.raises(
        ConfigError, match=r"sequence 1 for .* give all sequences the id"
    ):
        write_problems(tmp_path / "data", problems)


def test_equal_data_have_equal_names_and_others_another(tmp_path):
    hashes = []
    for name, first in (("a", 0.0), ("b", 0.0), ("c", 1e-3)):
        with writer(tmp_path / name) as out:
            add(out, 5, first=first)
        hashes.append(ActivationShards(tmp_path / name).data_hash)
    assert hashes[0] == hashes[1] != hashes[2]
    inner = hashlib.sha256((tmp_path / "a" / "shard_00000.bin").read_bytes())
    assert hashes[0] == hashlib.sha256(inner.hexdigest().encode()).hexdigest()


def test_a_writer_that_fails_leaves_nothing(tmp_path):
    out = writer(tmp_path / "data")
    with contextlib.suppress(RuntimeError), out:
        add(out, 6)
        assert (tmp_path / "data.partial" / "shard_00000.bin").exists()
        raise RuntimeError("the policy failed")
    assert list(tmp_path.iterdir()) == []


def test_a_killed_writer_s_remains_are_written_over(tmp_path):
    (tmp_path / "data.partial").mkdir()
    (tmp_path / "data.partial" / "shard_00007.bin").write_bytes(b"torn")
    with writer(tmp_path / "data") as out:
        add(out, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    assert not (tmp_path / "data" / "shard_00007.bin").exists()


def test_a_data_set_is_not_written_over(shards):
    with pytest.raises(ConfigError, match="exists; remove it"), writer(shards):
        pass
    ActivationShards(shards).verify()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"token_ids": np.arange(2)}, r"3 rows of activations, but token_id of shape"),
        ({"roles": np.array([0, 1, 2])}, r"has role 2; there are \[\(0, 'prompt'\)"),
        ({"roles": np.array([0, -1, 1])}, r"has role -1"),
        ({"factors": {}}, r"has the factors \[\]; the data set has \['step'\]"),
        ({"factors": {"step": np.zeros((3, 1))}}, r"but step of shape \[3, 1\]"),
    ],
)
def test_a_sequence_that_does_not_fit_is_refused(tmp_path, change, message):
    rows_TD, columns = sequence(3)
    with (
        pytest.raises(ConfigError, match=message) as caught,
        writer(tmp_path / "data") as out,
    ):
        out.add(rows_TD, **{**columns, **change})
    assert "\n" not in str(caught.value)


def test_activations_of_another_width_are_refused(tmp_path):
    rows_TD, columns = sequence(3)
    with (
        pytest.raises(ConfigError, match=r"shape \[3, 2\]; the data set is of width 3"),
        writer(tmp_path / "data") as out,
    ):
        out.add(rows_TD[:, :2], **columns)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": "int8"}, "dtype='int8'"),
        ({"roles": ()}, "name between 1 and 256"),
        ({"factors": ("norm",)}, "differ"),
        ({"factors": ("step", "step")}, "differ"),
    ],
)
def test_a_data_set_that_could_not_be_read_is_not_begun(tmp_path, change, message):
    with pytest.raises(ConfigError, match=message):
        writer(tmp_path / "data", **change)


def test_a_truncated_shard_is_refused_on_opening(shards):
    path = shards / "shard_00001.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ConfigError, match=r"00001\.bin has 119 bytes where 4 tokens"):
        ActivationShards(shards)


def test_a_missing_shard_is_refused_on_opening(shards):
    (shards / "shard_00000.bin").unlink()
    with pytest.raises(ConfigError, match=r"shard_00000\.bin is missing"):
        ActivationShards(shards)


def test_a_flipped_bit_is_found_by_verify(shards):
    path = shards / "shard_00000.bin"
    raw = bytearray(path.read_bytes())
    raw[77] ^= 1
    path.write_bytes(raw)
    data = ActivationShards(shards)
    with pytest.raises(ConfigError, match=r"shard_00000\.bin is damaged"):
        data.verify()


def test_another_data_set_s_shard_is_found_by_verify(shards):
    """Both the file and its entry are replaced, so only the joint hash can show it."""
    index = json.loads((shards / "index.json").read_text())
    path = shards / "shard_00000.bin"
    path.write_bytes(bytes(len(path.read_bytes())))
    index["shards"][0]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (shards / "index.json").write_text(json.dumps(index))
    with pytest.raises(ConfigError, match="data_hash is not that of the shards"):
        ActivationShards(shards).verify()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other 2"}, "of format 'other 2'"),
        ({"width": 4}, "tokens of width 4 in float32 take"),
        ({"layers": 3}, "is not an index"),
        ({"dtype": "float64"}, "dtype='float64'"),
    ],
)
def test_an_index_that_does_not_fit_is_refused(shards, change, message):
    index = json.loads((shards / "index.json").read_text())
    (shards / "index.json").write_text(json.dumps({**index, **change}))
    with pytest.raises(ConfigError, match=message):
        ActivationShards(shards)


def test_a_directory_without_an_index_is_no_data_set(tmp_path):
    with pytest.raises(ConfigError, match=r"no activations in .*: it has no index"):
        ActivationShards(tmp_path / "nowhere")


def test_an_unknown_column_names_those_there_are(shards):
    with pytest.raises(ConfigError, match=r"no column 'steps'; it has \['sequence'"):
        ActivationShards(shards).column("steps")
