"""Thinking, the text up to the last </think>; verifiers and rewards never read it."""

THINK_OPEN, THINK_CLOSE = "<think>", "</think>"
NOT_FINISHED = "thinking not finished"


def writes_thinking(template: str) -> bool:
    """Returns whether a chat template writes or mentions <think> or </think>."""
    return THINK_OPEN in template or THINK_CLOSE in template


def opens_thinking(prompt: str) -> bool:
    r"""Returns whether a prompt ends in <think>, so that the policy begins inside it.

    >>> opens_thinking("Assistant: <think>\n"), opens_thinking("<think></think>")
    (True, False)
    """
    return prompt.rstrip().endswith(THINK_OPEN)


def is_thinking(completion: str, *, opened: bool) -> bool:
    """Returns whether a completion ends inside its thinking.

    It does if a <think> has no </think> after it. If the prompt `opened` the thinking,
    it does unless the completion has a </think>.

    >>> is_thinking("2 + 2 = 4", opened=True), is_thinking("4", opened=False)
    (True, False)
    """
    _, closed, rest = completion.rpartition(THINK_CLOSE)
    return THINK_OPEN in rest or (opened and not closed)


def strip_thinking(completion: str) -> str:
    """Returns the text after the last </think>, or the whole text without one.

    >>> strip_thinking("<think>2 or 3?</think> The answer is 3.")
    ' The answer is 3.'
    """
    return completion.rpartition(THINK_CLOSE)[2]
