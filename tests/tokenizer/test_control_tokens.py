"""Marks and control tokens: which are text, and which a text may write."""

import json

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from rlvr_jax.tokenizer import (
    HuggingFaceTokenizer,
    LiteralTextError,
    stop_length,
    whole_text,
    write_literal,
)
from rlvr_jax.tokenizer.control_tokens import find_role_tokens, is_tag
from tests.support.checkpoints import CHATML, SPECIAL, write_tokenizer

MARKS = ("<think>", "</think>", "<answer>", "</answer>", "<calc>", "</calc>")
# As in Qwen3's template, which itself writes and reads the marks of thinking.
THINKING = CHATML.replace(
    "{{- '<|im_start|>assistant\n' -}}",
    "{{- '<|im_start|>assistant\n<think>\n\n</think>\n\n' -}}",
)
LLAMA3 = (
    "{%- for m in messages -%}{{- '<|start_header_id|>' + m.role + '<|end_header_id|>"
    "\n\n' + m.content | trim + '<|eot_id|>' -}}{%- endfor -%}"
    "{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}"
)
GEMMA = (
    "{%- if messages[0].role == 'system' -%}{{- raise_exception('no system') -}}"
    "{%- endif -%}{%- for m in messages -%}{{- '<start_of_turn>' + m.role + '\n' + "
    "m.content | trim + '<end_of_turn>\n' -}}{%- endfor -%}"
)


def _make(directory, special=MARKS, plain=(), **settings):
    """Returns a tokenizer with more special tokens, and more that are not special."""
    write_tokenizer(directory, **settings)
    path = directory / "tokenizer.json"
    found = tokenizers.Tokenizer.from_file(str(path))
    found.add_special_tokens(list(special))
    found.add_tokens(list(plain))
    found.save(str(path))
    return HuggingFaceTokenizer(directory)


@pytest.mark.parametrize("template", [CHATML, THINKING, None])
@pytest.mark.parametrize("named", [None, [*SPECIAL[1:], *MARKS]])
def test_marks_that_are_special_tokens_survive(tmp_path, template, named):
    """additional_special_tokens may also name them next to the roles' tokens."""
    tokenizer = _make(tmp_path, chat_template=template, additional_special_tokens=named)
    text = "<think>2 + 2</think><answer>4</answer> <calc>1</calc>"
    ids = tokenizer.encode(text)
    assert {tokenizer.encode(mark)[0] for mark in MARKS} <= set(ids)
    assert tokenizer.decode(ids) == text


def test_a_stop_text_finds_a_mark_that_is_a_token(tmp_path):
    """The decoded text holds the mark; a closing tag as a stop stays in it."""
    write_tokenizer(tmp_path)
    _make(tmp_path)
    tokenizer = HuggingFaceTokenizer(tmp_path, stop=("4</answer>", "</answer>"))
    ids = tokenizer.encode("<answer>4</answer>")
    assert ids[-1] in tokenizer.eos_ids
    assert tokenizer.decode(ids) == "<answer>4</answer>"
    assert stop_length([*ids, *ids], tokenizer) == len(ids)


@pytest.mark.parametrize(
    ("template", "roles"),
    [
        (LLAMA3, ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")),
        (GEMMA, ("<start_of_turn>", "<end_of_turn>")),
        (
            "{%- for m in messages -%}{{- '<|' + m.role + '|>' + m.content -}}"
            "{%- endfor -%}",
            ("<|user|>", "<|assistant|>", "<|system|>"),
        ),
        ("[INST]{{ messages[0].content }}[/INST]", ("[INST]", "[/INST]")),
    ],
)
def test_roles_are_what_the_template_writes_around_messages(tmp_path, template, roles):
    """A tool's mark does not count, because the template writes it only for tools."""
    template += "{%- if tools -%}<|python_tag|>{%- endif -%}"
    tokenizer = _make(
        tmp_path, (*roles, "<|python_tag|>", *MARKS), chat_template=template
    )
    ids = tokenizer.encode("".join(roles) + "<|python_tag|><think>1")
    assert len(ids) == len(roles) + 3
    assert tokenizer.decode(ids) == "<|python_tag|><think>1"
    assert set(roles) <= tokenizer.control_tokens.keys()


def test_framed_roles_count_without_the_flag_and_other_plain_tokens_do_not(tmp_path):
    """DeepSeek's <|User|> is framed; a line end that is an added token is text."""
    template = (
        "{%- for m in messages -%}{{- '<|User|>' + m.content + '\n\n' -}}{%- endfor -%}"
    )
    tokenizer = _make(tmp_path, (), plain=("<|User|>", "\n\n"), chat_template=template)
    assert tokenizer.decode(tokenizer.encode("<|User|>1\n\n2")) == "1\n\n2"


def test_ends_beginnings_padding_and_unknown_tokens_have_no_text(tmp_path):
    names = ("<s>", "</s>", "<pad>", "<unk>")
    tokenizer = _make(
        tmp_path,
        names,
        chat_template=None,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
    )
    (tmp_path / "generation_config.json").write_text(
        json.dumps({"eos_token_id": tokenizer.encode("<|im_end|>")})
    )
    tokenizer = HuggingFaceTokenizer(tmp_path)
    ids = tokenizer.encode("<s>1<pad><unk></s><|im_end|>")
    assert len(ids) == 6
    assert tokenizer.decode(ids) == "1"
    # An ordinary token that ends a completion is text; here it is the line end.
    (tmp_path / "generation_config.json").write_text(
        json.dumps({"eos_token_id": tokenizer.encode("\n")})
    )
    plain = HuggingFaceTokenizer(tmp_path)
    assert plain.decode(plain.encode("1\n2</s>")) == "1\n2"
    # Without a template nothing marks <|im_start|> as a role, so it is read as written.
    assert tokenizer.decode(tokenizer.encode("<|im_start|>1")) == "<|im_start|>1"


def test_a_pair_may_be_a_token_and_a_text_of_the_template():
    added = {"<think>", "<pad>", "</s>", "<|end|>"}
    assert is_tag("<think>", added, "{{ content.split('</think>') }}")
    assert not is_tag("<think>", added, "")
    assert not is_tag("<pad>", added, "")
    assert not is_tag("<|end|>", added, "</|end|>")
    assert find_role_tokens(added, "") == set()


TEXTS = [
    "What is 2 plus 3?",
    "  two  spaces\n\n\tand lines\r\n",
    "a < b > c, [1, 2), |x|, <b>, </s>, <think> and <|im_",
    "caf\u00e9 \u65e5\u672c\u8a9e \U0001f600",
    "",
]


@pytest.mark.parametrize("text", TEXTS)
def test_ids_of_ordinary_prompts_do_not_change(tmp_path, text):
    """The encoder that reads no control token in data gives the same ids."""
    tokenizer = _make(tmp_path)
    prompt, spans = write_literal(_chat, [text])
    assert prompt == _chat([text])
    ids = tokenizer.encode(prompt)
    assert tokenizer.encode(prompt, literal=spans) == ids
    assert tokenizer._text_encoder.encode(prompt, spans) == ids


def _chat(texts):
    return f"<|im_start|>user\n{texts[0].strip()}<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize("control", SPECIAL)
def test_a_control_token_that_data_spells_out_stays_text(tmp_path, control):
    tokenizer = _make(tmp_path)
    text = f"What does {control} do? <think>"
    prompt, spans = write_literal(_chat, [f" {text} "])
    ids = tokenizer.encode_prompt(prompt, literal=spans)
    own = tokenizer.encode(control)
    frame = [SPECIAL[1], SPECIAL[2], SPECIAL[1]]
    read = [i for i in ids if i in tokenizer.control_tokens.values()]
    assert read == [tokenizer.encode(token)[0] for token in frame]
    assert tokenizer.decode(ids) == f"user\n{text}\nassistant\n"
    assert tokenizer.encode("<think>")[0] in ids  # a mark is a token in data as well
    # Without the spans the text would have been the token.
    assert tokenizer.encode(prompt).count(own[0]) == frame.count(control) + 1
    alone = tokenizer.encode(control, literal=whole_text(control))
    assert own[0] not in alone
    assert tokenizer.decode(alone) == control


def test_a_token_at_the_border_of_a_text_is_the_templates():
    """The span ends within the token, so neither side has spelled it out alone."""
    written, spans = write_literal(lambda texts: f"{texts[0]}end|>", ["a <|im_"])
    assert written[slice(*spans[0])] == "a <|im_"


def test_the_span_is_where_the_template_put_the_text_not_an_earlier_copy():
    """The text equals the template's own token, which comes earlier."""
    written, spans = write_literal(_chat, ["<|im_end|>"])
    assert spans == ((17, 27),)
    assert written[17:37] == "<|im_end|><|im_end|>"


def test_texts_of_several_messages_have_their_spans_and_plain_ones_none():
    written, spans = write_literal(" / ".join, ["<a>", "plain", "x <b> "])
    assert [written[start:end] for start, end in spans] == ["<a>", "x <b>"]
    calls = []
    assert write_literal(lambda t: calls.append(t) or t[0], ["plain"]) == ("plain", ())
    assert len(calls) == 1


@pytest.mark.parametrize(
    "write",
    [
        lambda text: "",
        lambda text: text.replace("\ue0f2", "\\ue0f2"),  # as JSON writes it
        lambda text: text[:4],
        lambda text: f"{text} has {len(text)} letters",
    ],
)
def test_a_template_that_rewrites_such_a_text_is_refused(write):
    with pytest.raises(LiteralTextError, match="rewrites the text '<a> b'"):
        write_literal(lambda texts: write(texts[0]), ["<a> b"])
    assert write_literal(lambda texts: write(texts[0]), ["a b"])[1] == ()


def test_tokens_that_the_models_own_vocabulary_holds_too_keep_their_ids(tmp_path):
    """SmolLM2 has such tokens: they are the first ids of the model itself."""
    write_tokenizer(tmp_path)
    found = tokenizers.Tokenizer(models.BPE())
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=270,
        special_tokens=[*SPECIAL, *MARKS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    found.train_from_iterator(["What is <|im_end|>?"] * 4, trainer)
    found.save(str(tmp_path / "tokenizer.json"))
    tokenizer = HuggingFaceTokenizer(tmp_path)
    assert tokenizer.encode("".join(SPECIAL)) == [0, 1, 2]
    text = "<|im_end|> <think>"
    prompt, spans = write_literal(_chat, [text])
    ids = tokenizer.encode(prompt, literal=spans)
    assert [i for i in ids if i < len(SPECIAL)] == [1, 2, 1]
    assert tokenizer.encode("<think>")[0] in ids
    assert tokenizer.decode(ids) == f"user\n{text}\nassistant\n"
