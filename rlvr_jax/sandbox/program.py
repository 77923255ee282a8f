"""The process that holds a program: it calls its functions as it is told.

It knows inputs and never what is expected of the outputs. A program may do what it
likes to this process: all it can gain is to claim another output.
"""

import random
from typing import Any

from rlvr_jax.sandbox.messages import decode, encode, receive, send


def serve(channel: int) -> None:
    """Runs the program that arrives, then its functions, until nobody asks for more."""
    random.seed(0)  # an outcome is the same at every run
    namespace: dict[str, Any] = {"__name__": "program"}
    try:
        code = compile(receive(channel), "<program>", "exec", dont_inherit=True)
        exec(code, namespace)
        send(channel, {"value": None})
    except BaseException as error:
        send(channel, _describe(error))
        return
    while True:
        name, args, kwargs = receive(channel)
        try:
            if name not in namespace:
                raise NameError(f"the program defines no {name!r}")
            value = namespace[name](*decode(args), **decode(kwargs))
            send(channel, {"value": encode(value)})
        except BaseException as error:
            send(channel, _describe(error))


def _describe(error: BaseException) -> dict[str, Any]:
    """Returns the nearest of Python's own exceptions, and what it says."""
    kind = next(c for c in type(error).__mro__ if c.__module__ == "builtins")
    said = f"{type(error).__name__}: {error}"[:300]
    return {"error": [kind.__name__, said.rstrip(": ")]}
