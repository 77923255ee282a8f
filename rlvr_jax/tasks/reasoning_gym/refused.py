"""Generators that are refused, and why: docs/reasoning_gym.md has the measurements."""

# Not even measured.
NOT_RUN: dict[str, str] = {
    "codeio": "it runs programs that a language model wrote to make a problem",
    "composite": "it mixes other generators; name these in task.generators",
}
REFUSED: dict[str, str] = {
    **NOT_RUN,
}
