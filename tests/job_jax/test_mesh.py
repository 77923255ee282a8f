"""Programs on a CPU of several virtual devices are waited for."""

import jax
import jax.numpy as jnp

from job_jax.mesh import await_on_cpu


def test_what_is_awaited_is_there():
    """A product that takes a while is still at work when its call returns."""
    grow = jax.jit(lambda x: jax.lax.fori_loop(0, 200, lambda _, y: jnp.tanh(y @ x), x))
    x = jnp.full((400, 400), 1e-3)
    grow(x).block_until_ready()  # compiled
    result = {"y": grow(x), "not an array": 3}
    assert await_on_cpu(result) is result
    assert result["y"].is_ready()
