"""`python -m sae_jax.collect`: its output, how it resumes, and its refusals.

The model is custom (`tests.support.readers`), so its activations are known without it.
"""

import json
import pathlib
import re

import numpy as np
import pytest

from job_jax.command import StoppedError
from job_jax.steps import StopSignal
from sae_jax.capture import collection as collection_module
from sae_jax.capture.source import CaptureSource
from sae_jax.collect import collect, main, open_collection
from sae_jax.config import CaptureConfig, PairsConfig
from sae_jax.data.pairs import ShuffledPairs
from sae_jax.data.shards import ActivationShards
from tests.support.command import Ended
from tests.support.readers import BOS, CONTEXT, ODD, WordSums, values

READER = "tests.support.readers:WordSums"
WORDS = 30  # documents of 1 to 97 words: some take three windows of 39
DOCUMENTS = [
    " ".join(f"w{(7 * d + 3 * i * i) % 101}" for i in range(1 + (d * d * 13) % 97))
    for d in range(WORDS)
]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n\n".join(DOCUMENTS))
    return path


def config(text, **changes):
    return CaptureConfig(
        **{"model": "toy", "text": str(text), "reader": READER, "batch_size": 3}
        | changes
    )


def run(out, text, *, layers=(1, 3), part_tokens=200, stop=None, **changes):
    """Collects as the command does, and returns the reader."""
    source = CaptureSource.open(config(text, **changes), layers, prefix="--")
    collection = open_collection(source, out, dtype="float32", shard_tokens=part_tokens)
    collect(
        source,
        collection,
        dtype="float32",
        part_tokens=part_tokens,
        stop=stop or StopSignal(),
    )
    return source.reader


@pytest.fixture(scope="module")
def whole(text, tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "out"
    run(path, text)
    return path


def files(path):
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }


def test_each_layer_holds_what_the_model_computes_of_each_window_alone(whole):
    """Windows contain tokens of one document only, and each starts from nothing."""
    reader = WordSums("toy", dtype="float32")
    for layer in (1, 3):
        shards = ActivationShards(whole / f"layer_{layer}")
        shards.verify()
        columns = {
            name: shards.column(name)
            for name in ("sequence", "problem", "token_id", "role", "special")
        }
        expected = []
        for document, text in enumerate(DOCUMENTS):
            ids = reader.encode(text)
            for start in range(0, len(ids), CONTEXT - 1):
                expected.append((document, [BOS, *ids[start : start + CONTEXT - 1]]))
        assert shards.index.sequences == len(expected) > WORDS
        for number, (document, ids) in enumerate(expected):
            at = np.flatnonzero(columns["sequence"] == number)
            assert columns["token_id"][at].tolist() == ids
            assert set(columns["problem"][at]) == {document}
            assert columns["special"][at].tolist() == [1] + [0] * (len(ids) - 1)
            np.testing.assert_allclose(
                shards.rows(at), values(np.array(ids), "resid_post", layer), atol=1e-5
            )
        assert len(shards.index.shards) > 3
        assert shards.index.hook == f"blocks.{layer}.hook_resid_post"
        assert shards.index.layer == layer
        assert shards.index.model == "toy"
        assert shards.index.vocabulary == reader.vocabulary
        assert shards.index.context_size == CONTEXT
        norms = np.linalg.norm(shards.rows(np.arange(50)), axis=1)
        np.testing.assert_allclose(shards.column("norm")[:50], norms, rtol=1e-5)


def test_the_requested_hook_is_read(text, tmp_path):
    run(tmp_path / "out", text, hook="mlp_out", layers=(0,), max_documents=4)
    shards = ActivationShards(tmp_path / "out" / "layer_0")
    ids = shards.column("token_id")[shards.column("sequence") == 0]
    np.testing.assert_allclose(
        shards.rows(np.arange(len(ids))), values(ids, "mlp_out", 0), atol=1e-5
    )
    assert shards.index.hook == "blocks.0.hook_mlp_out"
    assert set(shards.column("problem")) == {0, 1, 2, 3}


def test_training_reads_it_by_default_and_pairs_within_documents(whole):
    """Without a role for it, the text is trained on."""
    shards = ActivationShards(whole / "layer_1")
    pairs = ShuffledPairs(shards, PairsConfig(batch_size=64), seed=0)
    assert pairs.roles == ("text",)
    partners = pairs._partners
    sequence, special = shards.column("sequence"), shards.column("special")
    ends = np.concatenate([partners.anchors, partners.candidates])
    assert not special[ends].any()
    assert (sequence[partners.anchors] == sequence[partners.candidates]).all()
    # No window of a held-out document is trained on.
    held_out = {*pairs._calibration_Q, *pairs._eval_Q}
    assert held_out
    assert not held_out & set(shards.column("problem")[ends])


class StopAfter(StopSignal):
    """A signal that comes after `passes` passes."""

    def __init__(self, passes):
        super().__init__()
        self._left = passes

    def requested(self):
        self._left -= 1
        return self._left < 0


@pytest.mark.parametrize("passes", [0, 1, 2, 5])
def test_a_collection_stopped_again_and_again_ends_as_one_never_stopped(
    text, whole, tmp_path, passes
):
    stops = 0
    for _ in range(60):
        try:
            run(tmp_path / "out", text, stop=StopAfter(passes + stops // 3))
        except StoppedError:
            stops += 1
        else:
            break
    assert stops > 1
    assert files(tmp_path / "out") == files(whole)


class Killed(BaseException):
    """An exception that no handler of the program catches."""


def test_a_collection_killed_at_any_write_ends_as_one_never_killed(
    text, whole, tmp_path, monkeypatch
):
    """It dies before and after each shard, commit and rename, as in a power cut."""
    left = 0

    def dying(function, *, before):
        def call(*args, **options):
            nonlocal left
            left -= 1
            if before and left == 0:
                raise Killed
            result = function(*args, **options)
            if not before and left == 0:
                raise Killed
            return result

        return call

    kills = 0
    for before in (True, False):
        for at in range(1, 100):
            out = tmp_path / f"out_{before}_{at}"
            left = at
            with monkeypatch.context() as patched:
                for name in ("write_shard", "write_json"):
                    function = getattr(collection_module, name)
                    patched.setattr(
                        collection_module, name, dying(function, before=before)
                    )
                patched.setattr(
                    pathlib.Path, "rename", dying(pathlib.Path.rename, before=before)
                )
                try:
                    run(out, text, part_tokens=450)
                except Killed:
                    kills += 1
                else:
                    break
            run(out, text, part_tokens=450)
            if at == 1 and before:
                reference = files(out)
            assert files(out) == reference, (before, at)
    assert kills > 20


def test_what_a_collection_killed_at_once_has_left_is_its_own(text, whole, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "collection.json.partial").write_text("{")
    run(tmp_path / "out", text)
    assert files(tmp_path / "out") == files(whole)


def test_complete_data_are_not_read_again(text, whole, tmp_path):
    with pytest.raises(StoppedError):
        run(tmp_path / "out", text, stop=StopAfter(10))
    rest = run(tmp_path / "out", text).asked
    everything = run(tmp_path / "other", text).asked
    assert 0 < rest < 0.7 * everything
    assert run(tmp_path / "out", text).asked == 0


def test_special_tokens_within_a_text_are_marked(tmp_path):
    (tmp_path / "text.txt").write_text("a b odd c")
    run(tmp_path / "out", tmp_path / "text.txt", layers=(0,))
    shards = ActivationShards(tmp_path / "out" / "layer_0")
    assert shards.column("special").tolist() == [1, 0, 0, 1, 0]
    assert shards.column("token_id")[3] == ODD


@pytest.fixture
def command(text, tmp_path, restored_signals, capfd):
    """Runs the command in this process, and returns its exit code and output."""

    def call(*changes):
        capfd.readouterr()
        flags = {
            "model": "toy",
            "text": text,
            "layers": "1,3",
            "out": tmp_path / "out",
            "reader": READER,
        }
        flags |= dict(change.split("=", 1) for change in changes)
        code = main([f"--{name}={value}" for name, value in flags.items() if value])
        return Ended(code, *capfd.readouterr())

    return call


def test_the_command_says_where_it_wrote_and_how_far_it_is(command, tmp_path):
    ended = command("shard_tokens=300")
    assert ended.code == 0, ended.err
    said = json.loads(ended.out)
    assert said["documents"] == WORDS
    folders = [tmp_path / "out" / f"layer_{n}" for n in (1, 3)]
    assert said["activations"] == list(map(str, folders))
    assert ActivationShards(folders[0]).index.tokens == said["tokens"]
    assert ActivationShards(folders[0]).index.dtype == "bfloat16"
    assert f"collect  {WORDS}/{WORDS}" in ended.err
    assert "ETA" in ended.err


def test_a_finished_collection_is_left_alone(command, tmp_path):
    first = command()
    before = files(tmp_path / "out")
    again = command()
    assert (again.code, again.out, again.err) == (0, first.out, "")
    assert files(tmp_path / "out") == before


def refused(ended, *parts, code=2):
    assert ended.code == code, ended.err
    (line,) = ended.err.splitlines()
    assert line.startswith("error: ")
    for part in parts:
        assert part in line, line


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ("layers=1,4", ["--layers=1,4", "no layer 4", "0..3"]),
        ("layers=9", ["--layers=9", "no layer 9"]),
        ("layers=-1", ["no layer -1", "0..3"]),
        ("layers=a", ["--layers expects a tuple of int, got ('a',)"]),
        ("layers=2,2", ["names a layer twice"]),
        ("layers=", ["--layers is missing"]),
        ("layers=,", ["--layers is missing"]),
        ("hook=resid_mid", ["resid_mid", "resid_post", "attn_out"]),
        ("context_size=41", ["--context_size=41", "3 to 40 tokens"]),
        ("context_size=2", ["--context_size=2", "3 to 40 tokens"]),
        ("reader=tests.support.readers:Wrong", ["no 'Wrong'"]),
        ("reader=tests.support.readers:Narrow", ["shape [8, 40, 7]", "[8, 40, 8]"]),
        ("text=nowhere.txt", ["nowhere.txt does not exist"]),
        ("text=tests", ["tests is a directory"]),
        ("batch_size=0", ["batch_size=0", "at least 1"]),
    ],
)
def test_what_cannot_be_collected_is_one_line(command, change, parts):
    refused(command(change), *parts)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("model=other", "other model: toy, not other"),
        ("hook=mlp_out", "other hook: resid_post, not mlp_out"),
        ("layers=1,2", "other layers: [1, 3], not [1, 2]"),
        ("context_size=20", "other context_size"),
        ("dtype=float32", "other dtype: bfloat16"),
    ],
)
def test_a_directory_of_another_collection_is_left_alone(
    command, tmp_path, change, what
):
    assert command("max_documents=3").code == 0
    before = files(tmp_path / "out")
    ended = command("max_documents=3", change)
    refused(ended, str(tmp_path / "out"), what)
    assert files(tmp_path / "out") == before


def test_other_weights_under_the_same_name_are_another_model(
    command, tmp_path, monkeypatch
):
    assert command("max_documents=3").code == 0
    old = WordSums.__init__

    def trained_on(self, path, *, dtype):
        old(self, path, dtype=dtype)
        self.fingerprint = "others"

    monkeypatch.setattr(WordSums, "__init__", trained_on)
    refused(command("max_documents=3"), "other weights")


def test_a_directory_of_other_files_is_left_alone(command, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes").write_text("mine")
    refused(command(), "holds other files")
    assert files(tmp_path / "out") == {"notes": b"mine"}


def test_a_shard_that_was_cut_short_is_one_line(text, command, tmp_path):
    with pytest.raises(StoppedError):
        run(tmp_path / "out", text, stop=StopAfter(10))
    shard = tmp_path / "out" / "layer_3.partial" / "shard_00000.bin"
    shard.write_bytes(shard.read_bytes()[:-1])
    refused(
        command("shard_tokens=200", "batch_size=3", "dtype=float32"),
        "shard_00000.bin is missing or cut short",
    )


def test_the_reader_of_the_page_is_one(tmp_path, text, monkeypatch, capsys):
    page = (pathlib.Path(__file__).parents[3] / "docs/method/collect.md").read_text()
    (source,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    (tmp_path / "bytes_model.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    out = tmp_path / "out"
    flags = ["--model=any", f"--text={text}", "--layers=0,1", f"--out={out}"]
    assert main([*flags, "--reader=bytes_model:ByteReader"]) == 0
    capsys.readouterr()
    first, second = (ActivationShards(out / f"layer_{n}") for n in (0, 1))
    some = np.arange(100)
    np.testing.assert_allclose(2 * first.rows(some), second.rows(some), rtol=1e-2)
    ids = first.column("token_id")[first.column("problem") == 0]
    read = "".join(first.index.vocabulary[i] for i in ids)
    assert read.replace("\0", "") == DOCUMENTS[0]
