"""A run's own tokenizer as files of transformers, opened by AutoTokenizer."""

import json
from pathlib import Path

import pytest
import sentencepiece

from rlvr_jax.models.huggingface.tokenizer import save_tokenizer
from rlvr_jax.tokenizer import (
    HuggingFaceTokenizer,
    SentencePieceTokenizer,
    WordLevelTokenizer,
)
from rlvr_jax.tokenizer.huggingface import import_transformers
from tests.support.checkpoints import CHATML, write_tokenizer

GSM8K = Path(__file__).parents[1] / "problems" / "gsm8k.jsonl"
RECORDS = [json.loads(line) for line in GSM8K.read_text(encoding="utf-8").splitlines()]
TEXTS = [record["question"] + "\n" + record["answer"] for record in RECORDS]
ODD = [
    "",
    " ",
    "a  b\n\n\tc",
    "  lead",
    "tail  ",
    "\n",
    "<0x41>",
    "na\u00efve \U0001f642",
]


def opened(directory):
    return import_transformers().AutoTokenizer.from_pretrained(directory)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("trained") / "tokenizer.model"
    return SentencePieceTokenizer.train(TEXTS[:25], vocab_size=512, path=path)


@pytest.mark.parametrize("text", [*ODD, *TEXTS[20:30]])
def test_a_trained_model_keeps_its_ids_and_texts(trained, tmp_path, text):
    new = tmp_path / "new" / "folder"
    assert save_tokenizer(trained, new) == ["tokenizer.json", "tokenizer_config.json"]
    theirs = opened(new)
    assert theirs.encode(text) == trained.encode(text)
    assert theirs.decode(trained.encode(text)) == text


def test_a_trained_model_keeps_its_roles(trained, tmp_path):
    save_tokenizer(trained, tmp_path, chat_template=CHATML)
    theirs = opened(tmp_path)
    assert (theirs.eos_token_id, theirs.pad_token_id) == (trained.eos_id, 0)
    assert theirs.vocab_size == trained.vocab_size
    assert theirs.chat_template == CHATML
    assert theirs.decode(
        [*trained.encode("2 + 2"), 1, 0], skip_special_tokens=True
    ) == ("2 + 2")


def test_a_model_from_elsewhere_is_copied(tmp_path):
    """Like Llama's, this model puts a space before each text."""
    prefix = tmp_path / "theirs"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_prefix=str(prefix),
        vocab_size=400,
        minloglevel=2,
    )
    model = prefix.with_suffix(".model")
    assert save_tokenizer(SentencePieceTokenizer(model), tmp_path / "out") == [
        "tokenizer.model"
    ]
    assert (tmp_path / "out" / "tokenizer.model").read_bytes() == model.read_bytes()


def test_a_closed_vocabulary_keeps_its_ids(tmp_path):
    ours = WordLevelTokenizer(["<pad>", "<eos>", "e0", "+", "=", "e1"])
    save_tokenizer(ours, tmp_path)
    theirs = opened(tmp_path)
    text = "e0 + e1 = e1"
    assert theirs.encode(text) == ours.encode(text) == [2, 3, 5, 4, 5]
    assert theirs.decode([2, 3, 5, 1, 0], skip_special_tokens=True) == "e0 + e1"
    assert (theirs.eos_token_id, theirs.pad_token_id) == (1, 0)
    with pytest.raises(Exception, match="Missing"):
        theirs.encode("e0 + e9")


@pytest.mark.parametrize("template", ["", "{{ messages[0].content }}!"])
def test_a_hugging_face_tokenizer_is_copied_with_the_run_s_template(tmp_path, template):
    source = write_tokenizer(tmp_path / "hf", chat_template=CHATML)
    ours = HuggingFaceTokenizer(source)
    save_tokenizer(ours, tmp_path / "out", chat_template=template)
    theirs = opened(tmp_path / "out")
    assert theirs.encode(TEXTS[0]) == ours.encode(TEXTS[0])
    messages = [{"role": "user", "content": "Hi"}]
    shown = theirs.apply_chat_template(messages, tokenize=False)
    assert shown == ("Hi!" if template else "<|im_start|>user\nHi<|im_end|>\n")
