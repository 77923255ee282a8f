"""The process that holds a program and calls its functions on request.

It knows the inputs, but never the expected outputs. A program can do anything to this
process, but can only gain by returning another output.
"""

import random
from typing import Any

from rlvr_jax.sandbox.messages import decode, encode, receive, send


def serve(channel: int) -> None:
    """Runs the program that arrives, then serves requests until the channel closes."""
    random.seed(0)  # so that outcomes repeat
    namespace: dict[str, Any] = {"__name__": "program"}
    objects: list[Any] = []  # the tests refer to them by number

    def keep(value: object) -> int:
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
    """Returns the result of a call or an attribute, or sets an attribute.

    The target is a name in the program or the number of an object.
    """
    what, target, *told = request
    if isinstance(target, str) and target not in namespace:
        raise NameError(f"the program does not define {target!r}")
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
    """Returns the nearest built-in exception class, and the error's message."""
    kind = next(c for c in type(error).__mro__ if c.__module__ == "builtins")
    said = f"{type(error).__name__}: {error}"[:300]
    return {"error": [kind.__name__, said.rstrip(": ")]}
