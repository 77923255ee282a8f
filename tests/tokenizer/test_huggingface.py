"""Fast tokenizers from their files: ids and texts, ends, templates, stop texts."""

import json

import numpy as np
import pytest
from tokenizers import Tokenizer, processors

from job_jax.schema import ConfigError
from rlvr_jax.tasks import RecordConfig
from rlvr_jax.tasks.records.prompts import PromptFormatter
from rlvr_jax.tokenizer import (
    HuggingFaceTokenizer,
    SentencePieceTokenizer,
    WordLevelTokenizer,
    chat_template,
    has_chat_template,
    sampling_defaults,
    stop_length,
    truncate_at_stop,
)
from rlvr_jax.tokenizer.huggingface import import_transformers
from rlvr_jax.types import Prompts, Rollouts
from tests.support.checkpoints import CHATML, SPECIAL, write_tokenizer

END, START, TURN = 269, 270, 271  # SPECIAL
FIELD = "task.mine.chat_template"  # the template's name in a config


@pytest.fixture
def directory(tmp_path):
    return write_tokenizer(tmp_path / "hf")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "What is 2 plus 3?",
        " two  spaces\n\n\tand lines\r\n",
        "caf\u00e9 \u65e5\u672c\u8a9e \U0001f600 \u2028\ufeff",
    ],
)
def test_any_text_comes_back_unchanged(directory, text):
    tokenizer = HuggingFaceTokenizer(directory)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_special_tokens_are_one_id_each_and_leave_no_text(directory):
    tokenizer = HuggingFaceTokenizer(directory)
    ids = tokenizer.encode("<|im_start|>a<|im_end|>")
    assert (ids[0], ids[-1], len(ids)) == (START, TURN, 3)
    assert tokenizer.decode([*ids, END, tokenizer.vocab_size + 7]) == "a"
    assert tokenizer.vocab_size == 272


@pytest.mark.parametrize(
    ("generation", "config", "stop", "ends"),
    [
        (None, None, (), (END,)),
        ([TURN, END], None, (), (END, TURN)),
        (TURN, START, (), (END, TURN)),
        (None, START, (), (END, START)),
        (None, None, ("<|im_end|>", "\n\n"), (END, TURN)),
    ],
)
def test_what_ends_a_completion(directory, generation, config, stop, ends):
    """The tokenizer's own end comes first, because worked solutions end with it."""
    for name, ids in (("generation_config", generation), ("config", config)):
        if ids is not None:
            (directory / f"{name}.json").write_text(json.dumps({"eos_token_id": ids}))
    tokenizer = HuggingFaceTokenizer(directory, stop=stop)
    assert tokenizer.eos_ids == ends
    assert tokenizer.eos_id == END
    assert tokenizer.stop_strings == tuple(text for text in stop if text not in SPECIAL)


def test_a_tokenizer_without_an_end_is_refused(tmp_path):
    directory = write_tokenizer(tmp_path, eos_token=None)
    with pytest.raises(ConfigError, match="names no end-of-sequence token"):
        HuggingFaceTokenizer(directory)
    assert HuggingFaceTokenizer(directory, stop=("<|im_end|>",)).eos_id == TURN


@pytest.mark.parametrize("add_bos_token", [None, True, False])
@pytest.mark.parametrize("processed", [True, False])
def test_a_prompt_begins_as_the_tokenizer_has_it(tmp_path, add_bos_token, processed):
    directory = write_tokenizer(
        tmp_path,
        bos_token={"__type": "AddedToken", "content": SPECIAL[0], "lstrip": False},
        add_bos_token=add_bos_token,
    )
    if processed:
        found = Tokenizer.from_file(str(directory / "tokenizer.json"))
        found.post_processor = processors.TemplateProcessing(
            single=f"{SPECIAL[0]} $A", special_tokens=[(SPECIAL[0], END)]
        )
        found.save(str(directory / "tokenizer.json"))
    tokenizer = HuggingFaceTokenizer(directory)
    begins = processed if add_bos_token is None else add_bos_token
    text = tokenizer.encode("a")
    assert END not in text
    assert tokenizer.encode_prompt("a") == ([END] if begins else []) + text
    templated = HuggingFaceTokenizer(directory, has_chat_template=True)
    assert templated.encode_prompt("a") == text


def _written(template):
    config = RecordConfig(prompt_template="{prompt}", chat_template=template)
    return PromptFormatter(config).format_prompt("1+1?")


def test_the_tokenizers_own_template_writes_the_prompt(directory):
    user = "<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n"
    assert _written(chat_template(directory, field=FIELD)) == user
    (directory / "chat_template.jinja").write_text("{{ eos_token }}|{{ bos_token }}|")
    assert _written(chat_template(directory, field=FIELD)) == "<|endoftext|>||"


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({}, True),
        ({"chat_template": None}, False),
        ({"chat_template": ""}, False),
        ({"chat_template": [{"name": "default", "template": CHATML}]}, True),
        ({"chat_template": [{"name": "tool_use", "template": CHATML}]}, False),
    ],
)
def test_a_template_is_found_where_it_can_be_used(tmp_path, settings, found):
    directory = write_tokenizer(tmp_path / "hf", **settings)
    assert has_chat_template(directory) is found
    if found:
        assert _written(chat_template(directory, field=FIELD)).startswith("<|im_start")
    (directory / "chat_template.jinja").write_text("{{ eos_token }}")
    assert has_chat_template(directory)
    assert not has_chat_template(tmp_path / "none")


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (None, {}),
        ({"eos_token_id": 2, "do_sample": False}, {}),
        (
            {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "do_sample": True},
            {"temperature": 0.6, "top_p": 0.95, "top_k": 20},
        ),
        ({"temperature": 1, "top_k": 64}, {"temperature": 1.0, "top_k": 64}),
        ({"temperature": 0, "top_p": 0, "top_k": 0}, {}),  # greedy, and off
        ({"temperature": None, "top_p": 1.5, "top_k": 2.5}, {}),
        ({"temperature": "0.6", "top_p": True, "top_k": -1}, {}),
        ({"temperature": float("nan"), "top_p": 1.0}, {"top_p": 1.0}),
    ],
)
def test_how_a_checkpoint_is_sampled(directory, written, read):
    if written is not None:
        (directory / "generation_config.json").write_text(json.dumps(written))
    found = sampling_defaults(directory)
    assert found == read
    assert [type(value) for value in found.values()] == [*map(type, read.values())]


def test_special_tokens_are_spelled_out_for_people(directory, tmp_path):
    tokenizer = HuggingFaceTokenizer(directory)
    text = "<|im_start|>user\n caf\u00e9<|im_end|>"
    assert tokenizer.show(tokenizer.encode(text)) == text
    words = WordLevelTokenizer(["<pad>", "<eos>", "a"])
    assert words.show([2, 1, 0]) == "a <eos> <pad>"
    pieces = SentencePieceTokenizer.train(
        ["a b\n" * 9], vocab_size=263, path=tmp_path / "m.model"
    )
    ids = [*pieces.encode("a  b"), pieces.eos_id, *pieces.encode("\n"), 0]
    assert pieces.show(ids) == "a  b</s>\n<pad>"


def test_of_several_templates_the_default_counts(tmp_path):
    several = [
        {"name": "tool_use", "template": "tools"},
        {"name": "default", "template": CHATML},
    ]
    one = write_tokenizer(tmp_path / "one")
    many = write_tokenizer(tmp_path / "many", chat_template=several)
    assert chat_template(many, field=FIELD) == chat_template(one, field=FIELD)
    none = write_tokenizer(tmp_path / "none", chat_template=several[:1])
    with pytest.raises(
        ConfigError, match=r"^task.mine.chat_template=tokenizer, .*give the Jinja"
    ):
        chat_template(none, field=FIELD)


def test_a_stop_text_ends_at_the_token_that_completes_it(directory):
    tokenizer = HuggingFaceTokenizer(directory, stop=("Q:", "\n\n"))
    ids = tokenizer.encode("72\n\nWhat Q:")
    for count in range(len(ids) + 1):
        text = tokenizer.decode(ids[:count])
        expected = tokenizer.decode(ids).index("\n\n") + 2 if "\n\n" in text else None
        kept = stop_length(ids[:count], tokenizer)
        assert (kept and len(tokenizer.decode(ids[:kept]))) == expected


def test_a_completion_is_cut_behind_its_stop_text_and_no_id_changes(directory):
    tokenizer = HuggingFaceTokenizer(directory, stop=("=",))
    rows = [tokenizer.encode("1=2=3"), [*tokenizer.encode("12"), END, 0, 0]]
    tokens = np.array(rows, np.int32)
    lengths = np.array([5, 3], np.int32)
    logprobs = np.where(np.arange(5)[None] < lengths[:, None], -1.5, 0.0)
    rollouts = Rollouts(
        prompts=Prompts(
            tokens=np.ones((2, 1), np.int32),
            lengths=np.ones(2, np.int32),
            uid=np.zeros(2, np.uint32),
        ),
        tokens=tokens,
        lengths=lengths,
        logprobs=logprobs.astype(np.float32),
        finished=np.array([False, True]),
        weight_version=np.int32(3),
    )
    cut = truncate_at_stop(rollouts, tokenizer)
    assert cut.lengths.tolist() == [2, 3]
    assert cut.finish_reasons == ["stop", "stop"]
    np.testing.assert_array_equal(cut.tokens[0], [*rows[0][:2], 0, 0, 0])
    np.testing.assert_array_equal(cut.logprobs[0], [-1.5, -1.5, 0, 0, 0])
    np.testing.assert_array_equal(cut.tokens[1], rows[1])
    without = HuggingFaceTokenizer(directory)
    assert truncate_at_stop(rollouts, without) is rollouts


def test_a_sentencepiece_model_made_elsewhere_has_its_own_special_ids(tmp_path):
    import io  # noqa: PLC0415

    import sentencepiece  # noqa: PLC0415

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["one and one is two"] * 4),
        model_writer=model,
        vocab_size=20,
        model_type="bpe",
        minloglevel=2,
        unk_id=0,
        bos_id=1,
        eos_id=2,
        pad_id=-1,
    )
    path = tmp_path / "tokenizer.model"
    path.write_bytes(model.getvalue())
    tokenizer = SentencePieceTokenizer(path)
    ids = tokenizer.encode("one is two")
    assert tokenizer.encode_prompt("one is two") == [1, *ids]
    assert tokenizer.eos_ids == (2,)
    assert tokenizer.decode([1, *ids, 2]) == "one is two"
    path.write_bytes(b"nothing")
    with pytest.raises(ConfigError, match="is not a sentencepiece model"):
        SentencePieceTokenizer(path)


def test_ids_and_templates_equal_transformers(directory):
    theirs = import_transformers().AutoTokenizer.from_pretrained(directory)
    ours = HuggingFaceTokenizer(directory)
    for text in ("What is 2 plus 3?", " a\n\n<|im_start|>b  c"):
        assert ours.encode(text) == theirs(text, add_special_tokens=False)["input_ids"]
        assert ours.encode_prompt(text) == theirs(text)["input_ids"]
    messages = [{"role": "user", "content": "1+1?"}]
    rendered = theirs.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True
    )
    assert _written(chat_template(directory, field=FIELD)) == rendered
