"""The calculator: calls and results, ends of episodes, and demonstrations."""

import pytest

from rlvr_jax.environments import Calculator, Message
from rlvr_jax.types import Problem

PROBLEM = Problem(id="p", prompt="?", gold="11", verifier="exact", source="test")


def _said(text, role="policy"):
    return Message(role=role, text=text)


def _reply(text, **settings):
    return Calculator(**settings).respond(PROBLEM, [_said(text)])


@pytest.mark.parametrize(
    ("turn", "reply", "calls"),
    [
        ("<calc> 48 + 7 </calc>", "<result> 55 </result>", 1),
        ("<calc>5/2</calc>", "<result> 2.5 </result>", 1),
        ("so <calc> 1 / 0 </calc>", "<result> error </result>", 1),
        ("<calc> </calc>", "<result> error </result>", 1),
        (
            "<calc> 1 + 1 </calc> <calc> 2 * 3 </calc>",
            "<result> 2 </result> <result> 6 </result>",
            2,
        ),
        ("<calc> <calc> 4 - 1 </calc>", "<result> 3 </result>", 1),
    ],
)
def test_every_call_has_its_result(turn, reply, calls):
    found = _reply(turn)
    assert (found.text, found.tool_calls, found.done) == (reply, calls, False)


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("90 + 9", "99"),
        ("90 + 10", "error"),
        ("3 - 3", "0"),
        ("3 - 4", "error"),
        ("1 / 2", "error"),
    ],
)
def test_results_may_be_bounded_by_a_vocabulary(expression, result):
    reply = _reply(f"<calc> {expression} </calc>", largest_result=99)
    assert reply.text == f"<result> {result} </result>"


@pytest.mark.parametrize(
    "turn", ["", "<answer> 11 </answer>", "<calc> 1 + 1", "1 + 1 </calc>", "calc 1"]
)
def test_a_turn_without_a_whole_call_ends_the_episode(turn):
    found = _reply(turn)
    assert found.done
    assert found.tool_calls == 0
    assert found.verdict is None  # the problem's verifier judges


def test_the_last_turn_alone_is_answered_and_only_so_many_calls():
    messages = [
        _said("<calc> 1 + 1 </calc>"),
        _said("<result> 2 </result>", "environment"),
        _said(" ".join(f"<calc> {n} + 0 </calc>" for n in range(5))),
    ]
    found = Calculator(max_calls_per_turn=2).respond(PROBLEM, messages)
    assert found.text == "<result> 0 </result> <result> 1 </result>"
    assert found.tool_calls == 2


def test_a_worked_solution_is_cut_into_turns_at_the_tools_results():
    solution = (
        "<calc> 48 + 7 </calc> <result> 55 </result> so "
        "<calc> 55 / 5 </calc> <result> 11 </result> <answer> 11 </answer>"
    )
    problem = Problem(**(vars(PROBLEM) | {"solution": solution}))
    environment = Calculator()
    messages = environment.demonstrate(problem)
    assert [(m.role, m.text) for m in messages] == [
        ("policy", "<calc> 48 + 7 </calc>"),
        ("environment", "<result> 55 </result>"),
        ("policy", "so <calc> 55 / 5 </calc>"),
        ("environment", "<result> 11 </result>"),
        ("policy", "<answer> 11 </answer>"),
    ]
    for at in (0, 2):  # a demonstration equals the real episode
        reply = environment.respond(problem, messages[: at + 1])
        assert reply.text == messages[at + 1].text
    assert environment.respond(problem, messages).done
    # The graded text contains no output of the tool.
    assert "result" not in environment.completion(problem, messages)
    assert Calculator().demonstrate(PROBLEM) == ()


@pytest.mark.parametrize(
    ("solution", "turns"),
    [
        (
            "<calc>1/2</calc> <result> .5 </result> .5",
            ["<calc>1/2</calc>", "0.5", ".5"],
        ),
        (
            "<calc>6/2</calc> <result> 3.00 </result> ok",
            ["<calc>6/2</calc>", "3", "ok"],
        ),
        ("10/3 = <calc>10/3</calc> <result> 3.33 </result> 3.33", ["10/3 = 3.33"]),
        ("<calc>2 pens</calc> <result> 2 </result> so 2", [" so 2"]),
        ("<calc>1+1</calc> <result> 3 </result> so 3", [" so 3"]),
        ("so <result> 3 </result> 3", ["so 3"]),
        (
            "<calc>1+1</calc> <result> 3 </result> 3, <calc>2+2</calc> "
            "<result> 4 </result> 4",
            [" 3, <calc>2+2</calc>", "4", "4"],
        ),
        (
            "<calc>1+1</calc> <calc>2+2</calc> <result> 2 </result> "
            "<result> 4 </result>.",
            ["<calc>1+1</calc> <calc>2+2</calc>", "2 </result> <result> 4", "."],
        ),
        (
            "<calc>1+1</calc> <calc>2+2</calc> <result> 2 </result> so 2",
            [" so 2"],
        ),
    ],
)
def test_a_demonstration_has_only_replies_that_the_tool_gives(solution, turns):
    problem = Problem(**(vars(PROBLEM) | {"solution": solution}))
    environment = Calculator()
    messages = environment.demonstrate(problem)
    assert [message.text for message in messages] == [
        f"<result> {text} </result>" if n % 2 else text for n, text in enumerate(turns)
    ]
    assert environment.respond(problem, messages).done
    for n in range(1, len(messages), 2):
        assert environment.respond(problem, messages[:n]).text == messages[n].text
