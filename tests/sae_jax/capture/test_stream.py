"""Pairs straight from a model: each within one document, none from held-out text."""

import dataclasses

import numpy as np
import pytest

from job_jax.schema import ConfigError
from sae_jax.capture.stream import StreamedPairs
from sae_jax.config import Config, PairsConfig, StreamConfig
from tests.support.readers import BOS, CONTEXT, WordSums, values

BATCH = 16
READER = WordSums("toy", dtype="float32")
WORDS = 24
DOCUMENTS = [
    " ".join(f"v{(11 * d + 5 * i * i) % 89}" for i in range(2 + (d * 17) % 60))
    for d in range(WORDS)
]
DOCUMENTS[9] = DOCUMENTS[0]  # copies of documents that calibrate or measure
DOCUMENTS[10] = DOCUMENTS[1]
PERIOD = 8  # documents 0, 8, 16 calibrate, and the ones after them measure


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n\n".join(DOCUMENTS))
    return path


def stream(text, *, seed=0, positive="previous", **changes):
    config = StreamConfig(
        **{
            "model": "toy",
            "text": str(text),
            "reader": "tests.support.readers:WordSums",
            "layer": 2,
            "batch_size": 4,
            "buffer_tokens": 150,
        }
        | changes
    )
    pairs = PairsConfig(batch_size=BATCH, positive=positive, eval_fraction=2 / PERIOD)
    return StreamedPairs(config, pairs, seed)


def windows_of(numbers):
    """Returns the activations of each window of these documents, after BOS."""
    found = []
    for number in numbers:
        ids = READER.encode(DOCUMENTS[number])
        for start in range(0, len(ids), CONTEXT - 1):
            row = np.array([BOS, *ids[start : start + CONTEXT - 1]])
            found.append(values(row, "resid_post", 2)[1:])
    return found


TRAINED = [d for d in range(WORDS) if d % PERIOD > 1 and d not in (9, 10)]
PAIRS = np.concatenate(  # every pair of an epoch, [M, 2 D]
    [np.hstack([w[1:], w[:-1]]) for w in windows_of(TRAINED)]
)


def rows_of(batches):
    return np.concatenate([np.hstack([b.x, b.positive]) for b in batches])


def numbers_of(rows):
    """Returns the pair of an epoch that each row is."""
    distance = np.abs(rows[:, None] - PAIRS[None]).max(axis=2)
    assert distance.min(axis=1).max() < 1e-4  # each row is one pair
    return distance.argmin(axis=1)


def test_an_epoch_has_each_pair_of_training_documents_once(text):
    """A buffer's last pairs are dropped if they do not fill a batch."""
    source = stream(text)
    batches = list(source.iter_batches(0, 60))
    assert all(batch.valid.all() for batch in batches)
    numbers = numbers_of(rows_of(batches))
    epoch = next(n for n in range(1, len(numbers)) if numbers[n] in numbers[:n])
    buffers = 1 + sum(len(w) + 1 for w in windows_of(TRAINED)) // 150
    assert len(PAIRS) - BATCH * buffers <= epoch <= len(PAIRS)
    assert (np.diff(numbers[:BATCH]) != 1).any()  # in no order


def test_the_next_epoch_is_in_another_order(text):
    count = len(PAIRS) // BATCH
    batches = list(stream(text, buffer_tokens=10_000).iter_batches(0, 2 * count))
    first, second = (numbers_of(rows_of(b)) for b in (batches[:count], batches[count:]))
    assert len(set(first)) == len(set(second)) == BATCH * count
    assert first.tolist() != second.tolist()


def test_any_earlier_token_is_a_positive_if_configured(text):
    rows = rows_of(stream(text, positive="random").iter_batches(0, 10))
    windows = windows_of(TRAINED)
    width = rows.shape[1] // 2
    distances = []
    for row in rows:
        places = [
            (w, t)
            for w, window in enumerate(windows)
            for t in np.flatnonzero(np.abs(window - row[:width]).max(axis=1) < 1e-4)
        ]
        distances += [
            t - before
            for w, t in places
            for before in np.flatnonzero(
                np.abs(windows[w] - row[width:]).max(axis=1) < 1e-4
            )
        ]
    assert min(distances) >= 1
    assert max(distances) > 5


def test_held_out_documents_and_their_copies_are_not_trained_on(text):
    source = stream(text)
    calibration, measured = (
        np.concatenate([d.x[d.mask] for d in documents])
        for documents in (source.calibration_documents(), source.eval_documents())
    )
    np.testing.assert_allclose(
        calibration, np.concatenate(windows_of([0, 8, 16])), atol=1e-5
    )
    np.testing.assert_allclose(
        measured, np.concatenate(windows_of([1, 17])), atol=1e-5
    )  # document 9 calibrates


def test_a_run_that_goes_on_reads_what_one_would_have_read_that_was_never_cut(text):
    total = 25  # more than an epoch
    expected = list(stream(text).iter_batches(0, total))
    for first in range(total):
        rest = list(stream(text).iter_batches(first, total))
        assert len(rest) == total - first
        for one, other in zip(expected[first:], rest, strict=True):
            np.testing.assert_array_equal(one.x, other.x)
            np.testing.assert_array_equal(one.positive, other.positive)


def test_finished_work_is_skipped_without_the_model(text):
    source = stream(text)
    list(source.iter_batches(0, 60))
    read = source._source.reader.asked
    later = stream(text)
    list(later.iter_batches(59, 60))
    assert later._source.reader.asked < read / 2


def test_another_seed_is_another_order(text):
    first, second = (
        rows_of(stream(text, seed=seed).iter_batches(0, 1)) for seed in (0, 1)
    )
    assert not np.array_equal(first, second)


def test_tokens_that_are_not_finite_are_marked_and_reach_nothing(tmp_path):
    words = [f"u{(3 * d + i * i) % 97}" for d in range(6) for i in range(20)]
    words[5::7] = ["nan"] * len(words[5::7])
    chunks = [" ".join(words[n : n + 20]) for n in range(0, len(words), 20)]
    (tmp_path / "text.txt").write_text("\n\n".join(chunks))
    source = stream(tmp_path / "text.txt")
    batches = list(source.iter_batches(0, 4))
    valid = np.concatenate([batch.valid for batch in batches])
    assert 0.5 < valid.mean() < 0.9
    rows = rows_of(batches)
    assert np.isfinite(rows).all()
    assert (rows[valid] != 0).any(axis=1).all()
    assert (rows[~valid] == 0).all()


def test_another_model_text_or_place_is_other_data(text, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text(text.read_text() + "!")
    hashes = [
        stream(text).data_hash,
        stream(text, layer=1).data_hash,
        stream(text, hook="attn_out").data_hash,
        stream(text, model="another").data_hash,
        stream(other).data_hash,
    ]
    assert len(set(hashes)) == len(hashes)
    assert stream(text).data_hash == hashes[0]


@pytest.mark.parametrize(
    ("content", "changes", "message"),
    [
        ("a b c", {}, "too few different documents"),
        ("a b c\n\na b c\n\na b c", {}, "too few different documents"),
        ("a b\n\nc d\n\ne f", {}, "fills no batch of pairs.batch_size=16"),
        ("a b\n\nc d\n\ne f", {"layer": 4}, "stream.layer=4: toy has no layer 4"),
        ("a b\n\nc d\n\ne f", {"context_size": 50}, "stream.context_size=50"),
    ],
)
def test_what_cannot_be_trained_on_is_one_line(tmp_path, content, changes, message):
    (tmp_path / "text.txt").write_text(content)
    with pytest.raises(ConfigError) as raised:
        next(stream(tmp_path / "text.txt", **changes).iter_batches(0, 1))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_text_has_one_role(text):
    config = StreamConfig(
        model="m", text=str(text), reader="tests.support.readers:WordSums"
    )
    with pytest.raises(ConfigError, match="leave roles empty"):
        StreamedPairs(config, PairsConfig(roles=("response",)), 0)
    assert StreamedPairs(config, PairsConfig(roles=("text",)), 0).roles == ("text",)


def test_contradictions_are_refused_when_the_config_is_made(text):
    there = {"model": "m", "text": str(text)}
    for name, value in there.items():
        with pytest.raises(ConfigError, match="give both, or neither"):
            StreamConfig(**{name: value})
    with pytest.raises(ConfigError, match="leave one empty"):
        Config(stream=StreamConfig(**there), pairs=PairsConfig(path="shards"))
    small = dataclasses.replace(StreamConfig(**there), buffer_tokens=4096)
    with pytest.raises(ConfigError, match="buffer_tokens=4096 holds no batch"):
        Config(stream=small)
    Config(stream=dataclasses.replace(small, buffer_tokens=4097))
