"""A jail that runs unreviewed programs against their tests.

Uses only the standard library, because its processes must start without JAX.
"""
