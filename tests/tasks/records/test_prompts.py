"""Chat templates, compared with Qwen's as its tokenizer has it."""

import pytest

from job_jax.schema import ConfigError
from rlvr_jax.tasks import RecordConfig
from rlvr_jax.tasks.records.prompts import PromptFormatter

CHATML = """\
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
USER = "<|im_start|>user\nWhat is 1+1?\n\nBox it.<|im_end|>\n<|im_start|>assistant\n"


def _prompt(chat_template: str, **more: str) -> str:
    config = RecordConfig(
        prompt_template="{prompt}\n\nBox it.", chat_template=chat_template, **more
    )
    return PromptFormatter(config).format_prompt("What is 1+1?")


def test_without_a_chat_template_the_prompt_is_alone():
    assert _prompt("") == "What is 1+1?\n\nBox it."


def test_a_chat_template_ends_where_the_assistant_begins():
    assert _prompt(CHATML) == USER


def test_the_system_prompt_is_the_first_message():
    system = "<|im_start|>system\nBe brief.<|im_end|>\n"
    assert _prompt(CHATML, system_prompt="Be brief.") == system + USER


def test_a_question_is_never_read_as_a_template():
    config = RecordConfig(prompt_template="{prompt}", chat_template=CHATML)
    assert "{{ 7 * 7 }}" in PromptFormatter(config).format_prompt("{{ 7 * 7 }}")


@pytest.mark.parametrize(
    ("template", "complaint"),
    [
        ("{% for %}", "Expected"),
        ("{{ raise_exception('no system role') }}", "no system role"),
        ("{{ messages.__class__.__mro__ }}", "unsafe"),
        ("{{ missing.field }}", "undefined"),
        ("{{ messages.append(1) }}", "unsafe|not safely callable"),
    ],
)
def test_a_template_that_fails_is_a_config_error(template, complaint):
    with pytest.raises(
        ConfigError, match=rf"^task\.record\.chat_template: .*({complaint})"
    ):
        _prompt(template)


@pytest.mark.parametrize(
    ("record", "asked"),
    [
        ({}, "1+1?"),
        ({"verifier": "numeric"}, "1+1?"),
        ({"verifier": "exact"}, "1+1?\nReply with the answer alone."),
        (
            {"answer_format": "boxed"},
            "1+1?\nReason step by step, and put the final answer within \\boxed{}.",
        ),
        (
            {"answer_format": "tagged", "verifier": "exact"},
            "1+1?\nReason step by step, and put the final answer within <answer> and "
            "</answer>.",
        ),
    ],
)
def test_by_itself_a_chat_holds_the_problem_and_where_the_answer_goes(record, asked):
    """Without a chat, the words around the problem are a text to continue."""
    chat = RecordConfig(chat_template="{{ messages[0].content }}", **record)
    assert PromptFormatter(chat).format_prompt("1+1?") == asked
    for template in ("", "auto"):  # outside a run, the meaning of "auto" is unknown
        plain = RecordConfig(chat_template=template, **record)
        prompt = PromptFormatter(plain).format_prompt("1+1?")
        assert prompt == "Question: 1+1?\nAnswer:"
