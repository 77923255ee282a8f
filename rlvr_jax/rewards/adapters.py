"""Rewards written for other libraries, called as those libraries call them.

    --config.train.reward.names=correctness,trl:my_rewards:format_reward
    --config.train.reward.names=verl:my_rewards:compute_score

An adapter gets a user's function and returns one that `rewards.function` can call.
What the function raises or returns is checked and counted as for any custom reward.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from job_jax.calls import is_coroutine_function
from job_jax.schema import ConfigError
from rlvr_jax.types import Problem

Function = Callable[..., Any]

# Arguments that TRL's trainer passes and a run here does not have.
_ONLY_IN_TRL = ("completion_ids", "trainer_state", "log_extra", "log_metric")


def adapt_trl(function: Function, name: str) -> Function:
    """Returns a reward for whole steps from TRL's f(completions, **columns).

    The columns are the record's, a list for each, with None for a record that lacks
    it. If the record's prompt is a
    list of messages, prompts and completions are lists of messages, as in TRL. A
    function without **kwargs gets the arguments that it names. Raises ConfigError if it
    needs an argument that only TRL's trainer has. The reward's `check_records` raises
    it for problems whose records all lack a column that the function needs.
    """
    parameters = _read_parameters(function, name)
    missing = [p for p in _ONLY_IN_TRL if p in _find_required(parameters)]
    if "completions" not in parameters and not _takes_any(parameters):
        raise ConfigError(
            f"reward {name!r} has no parameter `completions`; write it as TRL does: "
            "f(completions, **columns) -> a list of numbers"
        )
    if missing:
        raise ConfigError(
            f"reward {name!r} needs {missing[0]}, which only TRL's trainer has; "
            "give it a default"
        )

    required = _find_required(parameters)

    def check_records(problems: Sequence[Problem]) -> None:
        columns = _trl_columns(problems, [""] * len(problems))
        _choose(columns, parameters, name)

    def arguments(
        problems: Sequence[Problem], completions: Sequence[str]
    ) -> dict[str, Any]:
        absent = {column: [None] * len(problems) for column in required}
        columns = absent | _trl_columns(problems, completions)
        return _choose(columns, parameters, name)

    if is_coroutine_function(function):

        @functools.wraps(function)
        async def score_async(problems: Any, completions: Any) -> Any:
            return await function(**arguments(problems, completions))

        score_async.check_records = check_records  # type: ignore[attr-defined]
        return _without_signature(score_async)

    @functools.wraps(function)
    def score(problems: Any, completions: Any) -> Any:
        return function(**arguments(problems, completions))

    score.check_records = check_records  # type: ignore[attr-defined]
    return _without_signature(score)


def adapt_verl(function: Function, name: str) -> Function:
    """Returns a reward for one item from verl's compute_score.

    It is called with data_source, solution_str, ground_truth and extra_info by name.
    The result is a number, or a dict with the number under "score".
    """
    parameters = _read_parameters(function, name)
    if "solution_str" not in parameters and not _takes_any(parameters):
        raise ConfigError(
            f"reward {name!r} has no parameter `solution_str`; write it as verl does: "
            "compute_score(data_source, solution_str, ground_truth, extra_info)"
        )
    if is_coroutine_function(function):

        @functools.wraps(function)
        async def score_async(problem: Any, completion: Any) -> Any:
            given = _choose(_verl_arguments(problem, completion), parameters, name)
            return _read_verl_score(await function(**given))

        return _without_signature(score_async)

    @functools.wraps(function)
    def score(problem: Any, completion: Any) -> Any:
        given = _choose(_verl_arguments(problem, completion), parameters, name)
        return _read_verl_score(function(**given))

    return _without_signature(score)


def _trl_columns(
    problems: Sequence[Problem], completions: Sequence[str]
) -> dict[str, list[Any]]:
    """Returns prompts, completions, and a list for each column of the records.

    A record that lacks a column has None there.
    """
    records = [problem.fields.record for problem in problems]
    prompts = [
        record.pop("prompt", None) or problem.prompt
        for record, problem in zip(records, problems, strict=True)
    ]
    written = [
        [{"role": "assistant", "content": text}] if isinstance(prompt, list) else text
        for prompt, text in zip(prompts, completions, strict=True)
    ]
    names = dict.fromkeys(name for record in records for name in record)
    columns = {name: [record.get(name) for record in records] for name in names}
    return columns | {"prompts": prompts, "completions": written}


def _verl_arguments(problem: Problem, completion: str) -> dict[str, Any]:
    record = problem.fields.record
    model, extra = record.get("reward_model"), record.get("extra_info")
    golds = list(problem.golds)
    truth: dict[str, Any] = {"ground_truth": golds if len(golds) > 1 else golds[0]}
    if isinstance(model, Mapping):
        truth |= model
    return {
        "data_source": record.get("data_source", problem.source),
        "solution_str": completion,
        "ground_truth": truth["ground_truth"],
        "extra_info": extra if isinstance(extra, Mapping) else dict(problem.fields),
    }


def _read_verl_score(value: object) -> Any:
    """Returns the number under "score" of a dict; other values as they are."""
    if not isinstance(value, Mapping):
        return value
    if "score" not in value:
        has = ", ".join(map(repr, value)) or "nothing"
        raise ValueError(f"the dict it returned has no 'score', but {has}")
    return value["score"]


def _read_parameters(function: Function, name: str) -> Mapping[str, inspect.Parameter]:
    if isinstance(function, type) or not callable(function):
        raise ConfigError(f"reward {name!r} is not a function; name one")
    return inspect.signature(function).parameters


def _takes_any(parameters: Mapping[str, inspect.Parameter]) -> bool:
    return any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())


def _find_required(parameters: Mapping[str, inspect.Parameter]) -> list[str]:
    """Returns the parameters without a default."""
    variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return [
        name
        for name, parameter in parameters.items()
        if parameter.default is inspect.Parameter.empty
        and parameter.kind not in variable
    ]


def _choose(
    given: Mapping[str, object], parameters: Mapping[str, inspect.Parameter], name: str
) -> dict[str, Any]:
    """Returns the arguments that a function takes. Raises ConfigError if one lacks."""
    for needed in _find_required(parameters):
        if needed not in given:
            raise ConfigError(
                f"reward {name!r} needs the column {needed!r}, but gets only "
                f"{', '.join(given)}; name the column in task.record.extra_fields, "
                "or give the parameter a default"
            )
    if _takes_any(parameters):
        return dict(given)
    return {key: value for key, value in given.items() if key in parameters}


def _without_signature(function: Function) -> Function:
    """Returns a wrapper that shows its own signature, not the wrapped function's."""
    wrapped = function.__wrapped__  # type: ignore[attr-defined]
    del function.__wrapped__  # type: ignore[attr-defined]
    function.adapts = wrapped  # type: ignore[attr-defined]
    return function
