"""Counts XLA compilations: a run compiles early, or something is wrong."""

import jax

_EVENT = "/jax/core/compile/backend_compile_duration"


class CompileCounter:
    """Counts compilations of this process from its creation on."""

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        jax.monitoring.register_event_duration_secs_listener(self._listen)

    def _listen(self, event: str, duration_secs: float, **_: str | int) -> None:
        if event == _EVENT:
            self.count += 1
            self.seconds += duration_secs
