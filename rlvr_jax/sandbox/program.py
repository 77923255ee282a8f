"""The process that holds a program: it calls its functions as it is told.

It knows inputs and never what is expected of the outputs. A program may do what it
likes to this process: all it can gain is to claim another output.
"""

import random
from typing import Any

from rlvr_jax.sandbox.messages import decode, encode, receive, send


def serve(channel: int) -> None:
    """Runs the program that arrives, then does as it is asked, until nobody asks."""
    random.seed(0)  # an outcome is the same at every run
    namespace: dict[str, Any] = {"__name__": "program"}
    objects: list[Any] = []  # that the tests have a number of

    def keep(value: Any) -> int:
        objects.append(value)
        return len(objects) - 1

    try:
        code = compile(receive(channel), "<program>", "exec", dont_inherit=True)
        exec(code, namespace)
        send(channel, {"value": None})
    except BaseException as error:
        send(channel, _describe(error))
        return
    while True:
        request = receive(channel)
        try:
            value = _answer(request, namespace, objects)
            send(channel, {"value": encode(value, keep)})
        except BaseException as error:
            send(channel, _describe(error))


def _answer(request: Any, namespace: dict[str, Any], objects: list[Any]) -> Any:
    """Returns the result of a call, or an attribute; or sets one.

    What is meant is named, or is an object by its number.
    """
    what, target, *told = request
    if isinstance(target, str) and target not in namespace:
        raise NameError(f"the program defines no {target!r}")
    meant = namespace[target] if isinstance(target, str) else objects[target]
    match what:
        case "call":
            args, kwargs = (decode(part, objects.__getitem__) for part in told)
            return meant(*args, **kwargs)
        case "get":
            return getattr(meant, told[0])
        case "set":
            setattr(meant, told[0], decode(told[1], objects.__getitem__))
    return None


def _describe(error: BaseException) -> dict[str, Any]:
    """Returns the nearest of Python's own exceptions, and what it says."""
    kind = next(c for c in type(error).__mro__ if c.__module__ == "builtins")
    said = f"{type(error).__name__}: {error}"[:300]
    return {"error": [kind.__name__, said.rstrip(": ")]}
