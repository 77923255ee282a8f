"""Texts: the documents that they hold, and refusals."""

import gzip
import json

import pytest

from job_jax.schema import ConfigError
from sae_jax.capture.texts import open_texts


def texts_of(path, field="text"):
    return open_texts(str(path), field=field, subset="", split="train")


def documents(path, **options):
    return list(texts_of(path, **options).documents())


def test_paragraphs_end_at_blank_lines_with_any_line_ending(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbf\r\n one\r\ntwo\r\n \t\r\n\r\nthree\n\n\nfour")
    assert documents(path) == [(0, " one\r\ntwo"), (1, "three"), (2, "four")]
    assert texts_of(path).count == 3


def test_json_lines_are_a_document_each(tmp_path):
    rows = [{"text": "a\n\nb", "id": 1}, {"text": " "}, {"text": "é", "body": "c"}]
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress("\n\n".join(map(json.dumps, rows)).encode()))
    assert documents(path) == [(0, "a\n\nb"), (1, "é")]


def test_documents_begin_where_they_are_asked_for(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("a\n\nb\n\nc")
    assert list(texts_of(path).documents(2)) == [(2, "c")]


def test_another_byte_or_field_is_another_text(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", "body": "a"}\n')
    first = texts_of(path).fingerprint
    assert texts_of(path).fingerprint == first
    assert texts_of(path, field="body").fingerprint != first
    path.write_text('{"text": "a", "body": "b"}\n')
    assert texts_of(path).fingerprint != first


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"", "holds no document: it is empty or blank"),
        ("a.txt", b" \n\n\t\n", "holds no document"),
        ("a.txt", b"good\n\nbad \xe9 end\n", "line 3: byte 0xe9 is not UTF-8"),
        ("a.jsonl", b"", "holds no document"),
        ("a.jsonl", b'{"text": "a"}\n{"text":\n', "line 2 is not JSON"),
        ("a.jsonl", b'["a"]\n', "line 1 is no JSON object"),
        ("a.jsonl", b'{"body": "a", "n": 1}\n', "under 'text'; it has body"),
        ("a.jsonl", b'{"text": 3}\n', "under 'text'; it has none"),
        ("a.jsonl", b'{"text": "\\ud800"}\n', "half a surrogate pair"),
        ("a.txt.gz", b"plain", "Not a gzipped file"),
    ],
)
def test_what_is_no_text_is_one_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError) as raised:
        texts_of(tmp_path / name)
    assert message in str(raised.value)
    assert name in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A folder of data files, which `datasets` opens instead of a name."""
    import datasets  # noqa: PLC0415 - it takes seconds

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "hub"
    folder.mkdir()
    rows = [{"text": t} for t in ("a", "", "b", "c")]
    (folder / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return f"hub:{folder}"


def test_a_data_set_of_the_hub_is_streamed_from_any_row(hub):
    texts = texts_of(hub)
    assert list(texts.documents()) == [(0, "a"), (2, "b"), (3, "c")]
    assert list(texts.documents(2)) == [(2, "b"), (3, "c")]


def test_a_data_set_that_cannot_be_opened_is_one_line(hub):
    with pytest.raises(ConfigError, match="check its name, subset and split"):
        open_texts(hub, field="text", subset="", split="no_such_split")
    with pytest.raises(ConfigError, match="under 'body'; it has text"):
        documents(hub, field="body")
