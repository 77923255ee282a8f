"""Records as other trainers and tables write them."""

import csv
import gzip
import io
import json
import math

import pyarrow.parquet
import pytest

from job_jax.schema import ConfigError
from rlvr_jax.tasks import RecordConfig
from rlvr_jax.tasks.records.conversation import read_question, write_question
from rlvr_jax.tasks.records.files import load_file_source
from rlvr_jax.tasks.records.paths import ABSENT, find_value, list_paths

ASK = {"role": "user", "content": "1 + 1?"}
BRIEF = {"role": "system", "content": "Be brief."}
VERL = {
    "data_source": "sums",
    "prompt": [BRIEF, ASK],
    "reward_model": {"style": "rule", "ground_truth": "2"},
    "extra_info": {"index": 7, "split": "train"},
}
VERL_RECORD = RecordConfig(
    prompt_field="prompt",
    answer_field="reward_model.ground_truth",
    answer_prefix="",
    id_field="extra_info.index",
)
CHAT = (
    "{% for m in messages %}[{{ m.role }}: {{ m.content }}]{% endfor %}"
    "{% if add_generation_prompt %}[assistant: {% endif %}"
)


def load(tmp_path, config, *records):
    path = tmp_path / "p.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return load_file_source(config, path)


def refusal(tmp_path, config, *records):
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, config, *records)
    assert "\n" not in str(refused.value)
    return str(refused.value).partition("p.jsonl, ")[2]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("a", {"b": 1, "c.d": 2}),
        ("a.b", 1),
        ("a.c.d", ABSENT),  # only a field of the record itself may have dots
        ("e.f", 3),
        ("list.0.x", 4),
        ("list.-1.x", 5),
        ("list.2.x", ABSENT),
        ("list.-3", ABSENT),
        ("list.x", ABSENT),
        ("a.b.c", ABSENT),
        ("", ABSENT),
    ],
)
def test_a_path_leads_through_objects_and_lists(path, value):
    record = {
        "a": {"b": 1, "c.d": 2},
        "e.f": 3,
        "e": {"f": 0},
        "list": [{"x": 4}, {"x": 5}],
    }
    assert find_value(record, path) == value


def test_paths_name_the_values_within_objects():
    assert list(list_paths(VERL)) == [
        "data_source",
        "prompt",
        "reward_model.style",
        "reward_model.ground_truth",
        "extra_info.index",
        "extra_info.split",
    ]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_record_of_verl_becomes_a_problem(tmp_path, kind):
    if kind == "jsonl":
        [problem] = load(tmp_path, VERL_RECORD, VERL)
    else:
        path = tmp_path / "p.parquet"
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist([VERL]), path)
        [problem] = load_file_source(VERL_RECORD, path)
    assert problem.prompt == "Be brief.\n\nQuestion: 1 + 1?\nAnswer:"
    assert (problem.id, problem.gold) == ("7", "2")
    assert problem.fields == {k: VERL[k] for k in VERL if k != "prompt"}
    assert problem.fields.record == VERL


def test_a_field_within_an_object_is_in_the_record_even_if_no_field_is_kept(tmp_path):
    config = RecordConfig(
        prompt_field="prompt",
        answer_field="reward_model.ground_truth",
        answer_prefix="",
        extra_fields=("extra_info.split",),
    )
    [problem] = load(tmp_path, config, VERL)
    assert problem.fields == {"extra_info.split": "train"}
    assert problem.fields.record == {
        "prompt": VERL["prompt"],
        "reward_model": VERL["reward_model"],
        "extra_info.split": "train",
    }


@pytest.mark.parametrize(
    ("record", "config", "message"),
    [
        (
            VERL,
            RecordConfig(),
            "line 1: no field 'question'; set task.record.prompt_field to one of "
            "'data_source', 'prompt', 'reward_model.style', "
            "'reward_model.ground_truth', 'extra_info.index', 'extra_info.split'; did "
            "you mean 'prompt'?",
        ),
        (
            VERL,
            RecordConfig(prompt_field="prompt"),
            "did you mean 'reward_model.ground_truth'?",
        ),
        (
            VERL,
            RecordConfig(prompt_field="prompt", answer_field="reward_model.truth"),
            "did you mean 'reward_model.ground_truth'?",
        ),
        (
            {"messages": [ASK], "target": "2"},
            RecordConfig(),
            "'messages', 'target'; did you mean 'messages'?",
        ),
        (
            {"messages": [ASK], "target": "2"},
            RecordConfig(prompt_field="messages"),
            "did you mean 'target'?",
        ),
    ],
)
def test_a_missing_field_s_message_knows_usual_names(tmp_path, record, config, message):
    assert refusal(tmp_path, config, record).endswith(message)


MESSAGES = RecordConfig(
    prompt_field="messages",
    answer_field="gold",
    answer_prefix="",
    prompt_template="<{prompt}>",
    chat_template=CHAT,
    system_prompt="Think.",
)
REPLY = {"role": "assistant", "content": "It is 2."}


@pytest.mark.parametrize(
    ("messages", "prompt", "solution"),
    [
        ("1 + 1?", "[system: Think.][user: <1 + 1?>][assistant: ", None),
        ([ASK], "[system: Think.][user: <1 + 1?>][assistant: ", None),
        ([BRIEF, ASK], "[system: Be brief.][user: <1 + 1?>][assistant: ", None),
        (
            [ASK, REPLY],
            "[system: Think.][user: <1 + 1?>][assistant: ",
            "It is 2.\n#### 2",
        ),
        (
            [ASK, REPLY, ASK],
            "[system: Think.][user: 1 + 1?][assistant: It is 2.][user: <1 + 1?>]"
            "[assistant: ",
            None,
        ),
        (
            [{"from": "human", "value": "1?"}, {"from": "gpt", "value": "1."}],
            "[system: Think.][user: <1?>][assistant: ",
            "1.\n#### 2",
        ),
        (
            [
                {"role": "system", "content": ""},
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "1 +"},
                        {"type": "text", "text": "1?"},
                    ],
                },
            ],
            "[system: Think.][user: <1 +\n1?>][assistant: ",
            None,
        ),
    ],
)
def test_a_conversation_fills_the_chat_template(tmp_path, messages, prompt, solution):
    [problem] = load(tmp_path, MESSAGES, {"messages": messages, "gold": "2"})
    assert problem.prompt == prompt
    assert problem.solution == solution


def test_every_text_of_a_conversation_is_literal(tmp_path):
    spelled = [
        {"role": "system", "content": "No <|end|>."},
        {"role": "user", "content": "What is <|end|>?"},
    ]
    [problem] = load(tmp_path, MESSAGES, {"messages": spelled, "gold": "2"})
    texts = [problem.prompt[begin:end] for begin, end in problem.literal]
    assert texts == ["No <|end|>.", "What is <|end|>?"]


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "'messages' has no question: a conversation needs"),
        ([BRIEF], "'messages' has no question"),
        ([REPLY], "'messages' has no question"),
        ([ASK, BRIEF], "'messages' has no question"),
        (["1 + 1?"], "'messages.0' is '1 + 1?', not a message"),
        ([BRIEF, {"role": "user"}], "'messages.1' is {'role': 'user'}, not a message"),
        (
            [{"role": "tool", "content": "2"}],
            "'messages.0' has the role 'tool'; use one of system, user, assistant",
        ),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}],
            "'messages.0.content' has a part of type 'image_url'; only texts can be",
        ),
        ([{"role": "user", "content": {"a": 1}}], "'messages.0.content' is {'a': 1}"),
    ],
)
def test_a_conversation_that_cannot_be_read_is_refused(tmp_path, messages, message):
    told = refusal(tmp_path, MESSAGES, {"messages": messages, "gold": "2"})
    assert told.startswith(f"line 1: {message}")


def test_several_turns_need_a_chat_template(tmp_path):
    config = RecordConfig(
        prompt_field="messages", answer_field="gold", answer_prefix="", chat_template=""
    )
    told = refusal(tmp_path, config, {"messages": [ASK, REPLY, ASK], "gold": "2"})
    assert told == (
        "line 1: 'messages' has 3 turns, which only a chat template can put into one "
        "prompt; set task.record.chat_template, or name the last question alone "
        "(task.record.prompt_field=messages.-1.content)"
    )
    [problem] = load(tmp_path, config, {"messages": [BRIEF, ASK], "gold": "2"})
    assert problem.prompt.startswith("Be brief.\n\nQuestion: 1 + 1?")


@pytest.mark.parametrize("messages", [[BRIEF, ASK], [ASK, REPLY, ASK], "1 + 1?"])
def test_a_question_is_written_as_it_is_read(messages):
    read = read_question({"messages": messages}, MESSAGES)
    again = write_question(read.text, read.earlier)
    assert again == messages


GOLDS = RecordConfig(prompt_field="q", answer_field="a", answer_prefix="")


@pytest.mark.parametrize(
    ("answer", "golds"),
    [
        (7, ("7",)),
        (7.0, ("7",)),
        (0.5, ("0.5",)),
        (-1e-7, ("-0.0000001",)),
        (1e22, ("1" + "0" * 22,)),
        (["1/2", 0.5, "1/2"], ("1/2", "0.5")),
        (["7"], ("7",)),
    ],
)
def test_golds_may_be_numbers_and_lists(tmp_path, answer, golds):
    [problem] = load(tmp_path, GOLDS, {"q": "?", "a": answer})
    assert problem.golds == golds


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ([], "line 1: 'a' is an empty list; complete or remove the record"),
        ([None], "line 1: 'a' is None, which is neither a text nor a number"),
        ([["7"]], "line 1: 'a' is ['7'], which is neither"),
        (math.inf, "line 1: 'a' is inf, which is neither"),
        (math.nan, "line 1: 'a' is null; complete or remove the record"),
        (
            {"b": 7, "c": 8},
            "line 1: 'a' is an object; write it as text, or set "
            "task.record.answer_field to a field inside it: 'a.b', 'a.c'",
        ),
        ({}, "line 1: 'a' is {}, which is neither"),
        ([{"b": 7}], "line 1: 'a' is {'b': 7}, which is neither"),
    ],
)
def test_other_golds_are_refused(tmp_path, answer, message):
    assert refusal(tmp_path, GOLDS, {"q": "?", "a": answer}).startswith(message)


def test_each_of_several_golds_follows_the_prefix(tmp_path):
    config = RecordConfig(prompt_field="q", answer_field="a")
    [problem] = load(tmp_path, config, {"q": "?", "a": ["So #### 1/2", "#### 0.5"]})
    assert (problem.golds, problem.solution) == (("1/2", "0.5"), "So\n#### 1/2")
    told = refusal(tmp_path, config, {"q": "?", "a": ["#### 1", "2"]})
    assert told.startswith("line 1: 'a' has no '####' before the gold")


def test_further_golds_name_another_source(tmp_path):
    one, two, three = (
        repr(load(tmp_path, GOLDS, {"q": "?", "a": golds}))
        for golds in (["1"], ["1", "2"], ["1", "3"])
    )
    assert len({one, two, three}) == 3


ROWS = (
    ("q", "a", "level"),
    ('1, "one"\nor 2?', "0.50", ""),
    (),
    ("what?", "7", "hard"),
)


@pytest.mark.parametrize("name", ["p.csv", "p.tsv", "p.csv.gz", "p.tsv.gz"])
def test_a_table_is_read_with_its_quotes(tmp_path, name):
    text = io.StringIO()
    csv.writer(text, delimiter="\t" if ".tsv" in name else ",").writerows(ROWS)
    content = text.getvalue().encode("utf-8-sig")
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    config = RecordConfig(
        prompt_field="q",
        answer_field="a",
        answer_prefix="",
        level_field="level",
        level_order=("easy", "hard"),
        prompt_template="{prompt}",
    )
    one, two = load_file_source(config, path)
    assert one.prompt == '1, "one"\nor 2?'
    assert (one.gold, one.level, one.id) == ("0.50", 0, f"{name}:3")
    assert (two.prompt, two.gold, two.level, two.level_name) == (
        "what?",
        "7",
        2,
        "hard",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("q,a\n1,2\n1,2,3\n", "line 3: 3 cells, but the header has 2; put texts with"),
        ("q,a\n1\n", "line 2: 1 cells, but the header has 2"),
        ("q,\n1,2\n", "line 1: column 2 of the header has no name ('')"),
        ("q,a,q\n1,2,3\n", "line 1: column 3 of the header has the name of another"),
        ('q,a\n"1,2\n', "line 2: unexpected end of data; write the table again"),
        ("q,b\n1,2\n", "line 2: no field 'a'; set task.record.answer_field to one of"),
        ("q,a\n1,\n", "line 2: 'a' is null; complete or remove the record"),
        ("q,a\n", " is empty; give a file with one problem per record"),
        ("", " is empty; give a file with one problem per record"),
        (
            "q,a\n\xe9,1".encode("latin1"),
            ": not UTF-8 at byte 5; save the file as UTF-8",
        ),
        ("q,a".encode("utf-16"), ": UTF-16, and not UTF-8 at byte 1; save the file"),
    ],
)
def test_a_damaged_table_is_refused(tmp_path, text, message):
    path = tmp_path / "p.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError) as refused:
        load_file_source(GOLDS, path)
    assert (
        str(refused.value)
        .removeprefix(str(path))
        .lstrip(", ")
        .startswith(message.strip())
    )
