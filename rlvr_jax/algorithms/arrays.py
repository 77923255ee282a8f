"""Conversion and checks of arguments: lists, NumPy arrays and JAX arrays.

Shapes and dtypes are static and always checked, because broadcasting could otherwise
give a number that looks right. Values are checked only outside tracing.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from job_jax.schema import did_you_mean

ArrayLike = jax.typing.ArrayLike | Sequence[Any]
Choice = TypeVar("Choice")


def as_array(
    name: str,
    values: ArrayLike,
    axes: str,
    *,
    dtype: Any = jnp.float32,
    sizes: Mapping[str, int] | None = None,
    hint: str = "",
) -> jax.Array:
    """Returns the values as an array of `dtype` whose axes are `axes`, such as "B T".

    `sizes` holds the known sizes of axes. Raises ValueError, ending in `hint`, on
    another shape, and on fractions if `dtype` is an integer type.
    """
    found, names = jnp.asarray(values), axes.split()
    wanted = [(sizes or {}).get(axis) for axis in names]
    if found.ndim != len(names) or any(
        size not in (None, actual)
        for size, actual in zip(wanted, found.shape, strict=True)
    ):
        known = ", ".join(
            axis if size is None else f"{axis}={size}"
            for axis, size in zip(names, wanted, strict=True)
        )
        raise ValueError(f"{name} has shape {found.shape}; it must be [{known}]{hint}")
    if jnp.issubdtype(dtype, jnp.integer) and not jnp.issubdtype(
        found.dtype, jnp.integer
    ):
        raise ValueError(f"{name} holds {found.dtype}; it must hold whole numbers")
    return found.astype(dtype)


def check_finite(name: str, values: jax.Array) -> None:
    """Raises ValueError if a value is NaN or infinite; does nothing while tracing."""
    if isinstance(values, jax.core.Tracer):
        return
    bad = np.argwhere(~np.isfinite(jax.device_get(values)))
    if len(bad):
        raise ValueError(
            f"{name}{bad[0].tolist()} is {values[tuple(bad[0])]}; {name} must be finite"
        )


def choose(name: str, value: str, choices: Mapping[str, Choice]) -> Choice:
    """Returns the choice of that name. Raises ValueError, which lists all choices."""
    if value not in choices:
        raise ValueError(
            f"{name}={value!r}; it must be one of {', '.join(choices)}"
            f"{did_you_mean(str(value), choices)}"
        )
    return choices[value]
