"""Data read block by block: the pairs of `ShuffledPairs`, in bounded memory."""

import jax
import numpy as np
import pytest

from job_jax.config import MeshConfig
from job_jax.mesh import make_mesh
from job_jax.schema import ConfigError
from sae_jax.config import PairsConfig
from sae_jax.data import buffered
from sae_jax.data.blocks import index_blocks, streamed_median
from sae_jax.data.buffered import BufferedPairs
from sae_jax.data.pairs import ShuffledPairs
from sae_jax.data.shards import ActivationShards, ShardWriter
from sae_jax.data.views import JoinedShards

DOCUMENTS, BATCH = 150, 16
LANES = 16  # a power of two that divides the batch


def write(path, *, dtype="float32", scale=1.0, problems=True):
    """Writes documents of 3 to 20 tokens; x[:, 0] is the token's number in the data.

    Each tenth document copies the one before, each ninth token is special, and each
    eleventh is far too long; some are not finite. Prompts precede responses.
    """
    rng = np.random.default_rng(0)
    first, ids = 0, np.arange(0)
    with ShardWriter(
        path,
        width=2,
        layer=2,
        hook="blocks.2.hook_resid_post",
        model="toy",
        roles=("prompt", "response", "unused"),
        dtype=dtype,
        shard_tokens=100,  # documents lie in many files
    ) as out:
        for document in range(DOCUMENTS):
            if document % 10 != 9:
                ids = rng.integers(0, 1000, rng.integers(3, 21))
            number_T = first + np.arange(len(ids))
            rows_TD = np.stack([scale * number_T, np.full(len(ids), 4e3)], axis=1)
            rows_TD[number_T % 11 == 3, 1] = 4e6
            rows_TD[number_T % 53 == 5, 1] = np.nan
            out.add(
                rows_TD.astype(np.float32),
                token_ids=ids,
                roles=(np.arange(len(ids)) >= 2).astype(int),
                special=number_T % 9 == 0,
                problem=f"problem {document // 4}" if problems else None,
            )
            first += len(ids)


def config(**changes):
    defaults = {"batch_size": BATCH, "buffer_tokens": 256, "eval_fraction": 0.2}
    return PairsConfig(path="data", **(defaults | changes))


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    path = tmp_path_factory.mktemp("activations") / "data"
    write(path)
    return ActivationShards(path)


def meshes(data=1):
    return make_mesh(MeshConfig(), devices=jax.devices()[:data])


def open_pairs(data, settings, *, devices=1, seed=0):
    return BufferedPairs(data, settings, seed=seed, mesh=meshes(devices))


def read(pairs, first, total, *, devices=1, rows=slice(None)):
    """Returns the (token, positive) numbers of these steps' batches, [steps, B, 2].

    It can also return only some rows: lanes of other processes may hold anything.
    """
    with jax.set_mesh(meshes(devices)):
        return np.stack(
            [
                np.stack([batch.x[rows, 0], batch.positive[rows, 0]], axis=1)
                for batch in map(jax.device_get, pairs.iter_batches(first, total))
                if batch.valid.all()
            ]
        ).astype(int)


def every_pair(whole):
    """Returns every (token, positive) that `ShuffledPairs` can draw."""
    found = whole._partners
    return {
        (int(anchor), int(found.candidates[first + i]))
        for anchor, first, choices in zip(
            found.anchors, found.candidate_start, found.num_candidates, strict=True
        )
        for i in range(choices)
    }


@pytest.mark.parametrize("positive", ["previous", "random"])
def test_the_pairs_equal_those_of_all_data_shuffled(shards, positive):
    settings = config(positive=positive)
    pairs = open_pairs(shards, settings)
    whole = ShuffledPairs(shards, settings, seed=0)
    assert pairs.num_pairs == whole.num_pairs
    assert pairs.skipped == whole.skipped
    assert min(pairs.skipped.values()) > 0
    assert pairs.roles == whole.roles == ("response",)
    drawn = {tuple(pair) for pair in read(pairs, 0, 300).reshape(-1, 2).tolist()}
    every = every_pair(whole)
    assert drawn <= every
    assert {token for token, _ in drawn} == {token for token, _ in every}


def test_an_epoch_has_no_pair_twice_and_leaves_few_out(shards):
    settings = config()
    pairs = open_pairs(shards, settings)
    size = len(index_blocks(shards, settings, seed=0, block_pairs=2).blocks.start)
    whole_buffers = size // (LANES * pairs._blocks_per_lane)
    steps = sum(plan.num_batches for plan in pairs._plan(1000)[:whole_buffers])
    anchors = read(pairs, 0, steps)[..., 0].ravel()
    assert len(np.unique(anchors)) == len(anchors)
    assert len(anchors) > 0.6 * pairs.num_pairs  # of blocks of two or three pairs
    # The order differs from the data's, and from the next epoch's.
    assert np.corrcoef(anchors, np.arange(len(anchors)))[0, 1] < 0.2
    later = read(pairs, steps, 2 * steps)[..., 0].ravel()
    assert (anchors != later).mean() > 0.9


@pytest.mark.parametrize("problems", [True, False])
def test_what_is_held_out_is_the_same(shards, tmp_path, problems):
    if not problems:
        write(tmp_path / "data", problems=False)
        shards = ActivationShards(tmp_path / "data")
    whole = ShuffledPairs(shards, config(), seed=3)
    pairs = open_pairs(shards, config(), seed=3)
    for name in ("calibration_documents", "eval_documents"):
        ours, theirs = (list(getattr(each, name)()) for each in (pairs, whole))
        assert len(ours) == len(theirs) > 0
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a.token_index, b.token_index)
            np.testing.assert_array_equal(a.mask, b.mask)
            np.testing.assert_array_equal(a.x[a.mask], b.x[b.mask])
    held = {
        int(token)
        for each in (pairs.calibration_documents(), pairs.eval_documents())
        for block in each
        for token in block.token_index[block.mask]
    }
    assert held.isdisjoint(read(pairs, 0, 100).ravel().tolist())


def test_batches_are_the_same_on_any_devices_and_from_any_step(shards):
    batches = read(open_pairs(shards, config()), 0, 60)
    assert len(batches) == 60
    on_eight = read(open_pairs(shards, config(), devices=8), 0, 60, devices=8)
    np.testing.assert_array_equal(on_eight, batches)
    for first in (0, 1, 13, 59):
        np.testing.assert_array_equal(
            read(open_pairs(shards, config()), first, 60), batches[first:]
        )
    assert (read(open_pairs(shards, config(), seed=1), 0, 60) != batches).mean() > 0.9


def test_a_process_reads_its_own_lanes_and_columns_in_spans_alone(shards, monkeypatch):
    """One process of two reads half of the activations."""
    spans = []
    original = ActivationShards.read_column

    def read_column(self, name, start, stop):
        assert stop - start < shards.starts[-1] // 5, "most of a column at once"
        if name == "activations":
            spans.append((start, stop))
        return original(self, name, start, stop)

    monkeypatch.setattr(ActivationShards, "read_column", read_column)
    monkeypatch.setattr(ActivationShards, "column", None)
    monkeypatch.setattr(ActivationShards, "rows", None)
    whole = read(open_pairs(shards, config()), 0, 4)
    all_spans = set(spans)
    spans.clear()
    monkeypatch.setattr(
        BufferedPairs, "_own_lanes", lambda self: list(range(LANES // 2))
    )
    own = slice(BATCH // 2)
    half = read(open_pairs(shards, config()), 0, 4, rows=own)
    np.testing.assert_array_equal(half, whole[:, own])
    assert set(spans) < all_spans
    assert len(set(spans)) < 0.6 * len(all_spans)


def test_bfloat16_stays_bfloat16_up_to_the_step(tmp_path):
    write(tmp_path / "data", dtype="bfloat16", scale=0.0)
    pairs = open_pairs(ActivationShards(tmp_path / "data"), config())
    with jax.set_mesh(meshes()):
        (batch,) = pairs.iter_batches(0, 1)
    assert batch.x.dtype == batch.positive.dtype == "bfloat16"
    assert set(np.unique(jax.device_get(batch.x[:, 1]))) == {4e3}


def test_checkpoints_side_by_side_are_read_together(shards, tmp_path):
    write(tmp_path / "later", scale=2.0)
    joined = JoinedShards([shards._directory, tmp_path / "later"])
    pairs = open_pairs(joined, config())
    with jax.set_mesh(meshes()):
        (batch,) = pairs.iter_batches(0, 1)
    x = np.asarray(batch.x)
    assert x.shape == (BATCH, 4)
    np.testing.assert_array_equal(x[:, 2], 2 * x[:, 0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"buffer_tokens": 127},
            "is below 8 batches of pairs.batch_size=16; make it 128",
        ),
        ({"roles": ("unused",)}, "no token has the role 'unused'"),
        ({"buffer_tokens": 50_000}, "fewer than the 16 lanes of a batch"),
    ],
)
def test_what_does_not_go_together_is_refused(shards, changes, message):
    with pytest.raises(ConfigError, match=message):
        open_pairs(shards, config(**changes))


def test_devices_that_do_not_divide_the_lanes_are_refused(shards):
    settings = config(batch_size=12, buffer_tokens=256)
    open_pairs(shards, settings, devices=4)
    with pytest.raises(ConfigError, match=r"in 4 lanes, which the mesh's 8 data"):
        open_pairs(shards, settings, devices=8)


def test_a_buffer_without_a_path_is_refused():
    with pytest.raises(ConfigError, match=r"without a pairs\.path"):
        PairsConfig(buffer_tokens=100_000)


@pytest.mark.parametrize("count", [1, 2, 9, 500])
def test_the_median_is_numpys(count):
    values = np.random.default_rng(count).lognormal(size=count).astype(np.float32)
    values[: count // 3] = values[0]
    parts = np.array_split(values, 3)
    assert streamed_median(lambda: parts) == np.median(values)
    assert streamed_median(list) == 0


def test_a_long_document_is_a_block(tmp_path, monkeypatch):
    """If it is longer than all others together, it fills a lane and nothing is lost."""
    monkeypatch.setattr(buffered, "_BLOCK_PAIRS", 4)
    with ShardWriter(
        tmp_path / "data", width=1, layer=0, hook="h", model="m", roles=("text",)
    ) as out:
        for number, length in enumerate([5] * 60 + [400] + [5] * 60):
            out.add(
                np.full((length, 1), number),
                token_ids=1000 * number + np.arange(length),
                roles=np.zeros(length, int),
            )
    settings = config(buffer_tokens=512)
    pairs = open_pairs(ActivationShards(tmp_path / "data"), settings)
    with jax.set_mesh(meshes()):
        seen = [np.asarray(b.x[:, 0]).astype(int) for b in pairs.iter_batches(0, 80)]
    assert {60} < set(np.concatenate(seen).tolist())
