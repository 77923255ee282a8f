"""Chat templates are foreign programs: their output, and how they are stopped."""

import signal

import pytest

from rlvr_jax.tokenizer.chat import ChatRenderer, ChatTemplateError, render_chat

MESSAGES = [{"role": "user", "content": "1+1?"}]
ECHO = "{{ messages[0].content }}"


def test_a_template_that_needs_the_date_gets_a_fixed_one():
    template = "{{ strftime_now('%A %d %B %Y, %d %b %y, %Y-%m-%d %H:%M') }}"
    expected = "Thursday 01 January 2026, 01 Jan 26, 2026-01-01 00:00"
    assert render_chat(template, MESSAGES) == expected


@pytest.mark.parametrize(
    ("template", "complaint"),
    [
        ("{{ 'x' * (2 * 10**9) }}", "^it takes more than 1024 MiB of memory$"),
        ("{{ 'x' | center(2 * 10**9) }}", "^it takes more than 1024 MiB of memory$"),
        ("{{ 'x' * 10**8 }}", "^it writes 100,000,000 characters for one prompt$"),
        ("{{ raise_exception('x' * 10**8) }}", "^x{500}$"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "recursion"),
    ],
)
def test_a_template_that_costs_too_much_says_what(template, complaint):
    with pytest.raises(ChatTemplateError, match=complaint):
        render_chat(template, MESSAGES)
    assert render_chat(ECHO, MESSAGES) == "1+1?"


def test_a_template_that_does_not_end_is_ended():
    loop = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}"
    with ChatRenderer(limit_s=1.0) as renderer:
        with pytest.raises(ChatTemplateError, match="more than 1 s for one prompt"):
            renderer.render(loop + "{% endfor %}", MESSAGES)
        assert renderer.render(ECHO, MESSAGES) == "1+1?"


def test_a_reply_that_nobody_waited_for_is_not_the_next_prompts():
    slow = "{% for i in range(99999) %}{% for j in range(9) %}{% endfor %}{% endfor %}"

    def interrupt(*_):
        raise KeyboardInterrupt

    with ChatRenderer() as renderer:
        assert renderer.render(ECHO, MESSAGES) == "1+1?"
        former = signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        try:
            with pytest.raises(KeyboardInterrupt):
                renderer.render(100 * slow + "late", MESSAGES)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, former)
        assert renderer.render(ECHO, MESSAGES) == "1+1?"


def test_a_process_that_does_not_start_says_where_to_look(monkeypatch):
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    with (
        ChatRenderer() as renderer,
        pytest.raises(RuntimeError, match=r"does not start; see what .*transformers"),
    ):
        renderer.render(ECHO, MESSAGES)
