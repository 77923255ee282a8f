"""The dispatch of `python -m rlvr_jax.analysis`."""

import contextlib

import pytest

from rlvr_jax.analysis.__main__ import COMMANDS, main


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "a command is missing"),
        (["repot"], "did you mean 'report'?"),
        (["report"], "WORKDIR missing"),
        (["report", "--quietly"], "unknown flag '--quietly'"),
        (["compare", "w", "--basline=x"], "did you mean '--baseline'?"),
        (["compare", "w", "--base=x"], "did you mean '--baseline'?"),
        (["compare"], "WORKDIR"),
        (["features", "w", "--setp=3"], "did you mean '--step'?"),
        (["features", "w", "--step=x"], "--step expects an int, got 'x'"),
    ],
)
def test_bad_usage_exits_2_with_one_line(arguments, said, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert said in error
    assert error.count("\n") == 1


def test_help_lists_the_subcommands(capsys):
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(command in shown for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_subcommand_explains_itself(command, capsys):
    with contextlib.suppress(SystemExit):
        assert main([command, "--help"]) == 0
    assert f"rlvr_jax.analysis {command}" in capsys.readouterr().out
