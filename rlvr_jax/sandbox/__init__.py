"""Programs that nobody has read, run against their tests: a jail, and who serves it.

The standard library alone: its processes must start without JAX.
"""
