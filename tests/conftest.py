"""Strict JAX for every test: 8 virtual CPU devices, no implicit promotion."""

import signal
from collections.abc import Iterator

import jax
import pytest

jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")


@pytest.fixture
def restored_signals() -> Iterator[None]:
    """Gives back the signals that a command run in this process takes over."""
    handlers = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)
