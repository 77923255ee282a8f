"""The registry of rewards, and the check of a custom reward's signature."""

import inspect
from collections.abc import Callable
from typing import Any

from job_jax.registry import Registry, find_places
from job_jax.schema import ConfigError, did_you_mean

ADAPTERS = Registry(
    "reward adapter",
    {
        "trl": "rlvr_jax.rewards.adapters:adapt_trl",
        "verl": "rlvr_jax.rewards.adapters:adapt_verl",
    },
)


class RewardRegistry(Registry):
    """Finds rewards, also functions of other libraries: "trl:package.module:name"."""

    def load(self, name: str) -> Any:
        """Returns the function of this name, through the adapter it names, if any."""
        adapter, _, place = name.partition(":")
        if ":" not in place:
            if adapter in ADAPTERS.names:
                raise ConfigError(
                    f"reward {name!r} names no function; write "
                    f"{adapter}:{place or 'module'}:function"
                )
            return super().load(name)
        if adapter not in ADAPTERS.names:
            raise ConfigError(
                f"reward {name!r}: unknown adapter {adapter!r}"
                f"{did_you_mean(adapter, ADAPTERS.names)} A function of another "
                "library is trl:package.module:name or verl:package.module:name"
            )
        return ADAPTERS.load(adapter)(super().load(place), name)


_VERIFIERS = ("math", "numeric", "exact", "code")
REWARDS = RewardRegistry(
    "reward",
    find_places("rlvr_jax.rewards.built_in"),
    {
        **dict.fromkeys(
            ("accuracy", "acc", "correct", "verifier", "verdict"),
            "did you mean 'correctness', the verdict of the problem's verifier?",
        ),
        **{
            name: f"{name} is a verifier; reward correctness is its verdict, and "
            f"task.record.verifier={name} chooses it for your own records"
            for name in _VERIFIERS
        },
    },
)
EXPECTED_CALL = (
    "write f(problem, completion), which returns a number, or f(problems, "
    "completions), which returns a list of numbers, or derive a class from "
    "rlvr_jax.algorithms.reward.Reward"
)


def check_custom_reward(name: str) -> None:
    """Raises ConfigError if a reward is missing, or cannot be called as one."""
    function = REWARDS.load(name)
    if isinstance(function, type) and _is_reward(function):
        return
    if isinstance(function, type) or not callable(function):
        kind = "class" if isinstance(function, type) else type(function).__name__
        raise ConfigError(
            f"reward {name!r} is not a function (a {kind}); {EXPECTED_CALL}"
        )
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # some functions written in C do not have one; the trial call decides
    if _can_be_called(signature):
        return
    raise ConfigError(
        f"reward {name!r} is {getattr(function, '__name__', 'f')}{signature}; "
        f"{EXPECTED_CALL}{_suggest_adapter(name, signature)}"
    )


def _is_reward(kind: type) -> bool:
    # Imported here, because it needs JAX and a config does not.
    from rlvr_jax.algorithms.reward import Reward  # noqa: PLC0415

    return issubclass(kind, Reward)


def takes_one_item(function: Callable[..., Any]) -> bool:
    """Returns whether a reward's first parameter is called `problem`.

    Example:
        >>> takes_one_item(lambda problem, completion: 1.0)
        True
        >>> takes_one_item(lambda problems, completions: [1.0])
        False
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return False
    return next(iter(signature.parameters), None) == "problem"


def _suggest_adapter(name: str, signature: inspect.Signature) -> str:
    """Returns how to name a function that looks written for TRL or verl, else ""."""
    if "solution_str" in signature.parameters:
        return f"; a function for verl is named verl:{name}"
    if "completions" in signature.parameters:
        return f"; a function for TRL is named trl:{name}"
    return ""


def _can_be_called(signature: inspect.Signature) -> bool:
    """Returns whether two positional arguments fit, and in this order.

    (prompts, completions, **columns) fits, but is a function written for TRL.
    """
    try:
        signature.bind(None, None)
    except TypeError:
        return False
    first, *others = signature.parameters.values()
    is_for_trl = first.name == "prompts" and any(
        other.kind is inspect.Parameter.VAR_KEYWORD for other in others
    )
    is_swapped = first.name in ("completion", "completions") or any(
        other.name in ("problem", "problems") for other in others
    )
    return not (is_for_trl or is_swapped)
