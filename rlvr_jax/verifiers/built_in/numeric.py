"""The verifier `numeric`: equality of single numbers."""

from typing import ClassVar

from rlvr_jax.verifiers.built_in.math import Math


class Numeric(Math):
    """Grades final answers that are one number, with or without a unit."""

    _name: ClassVar[str] = "numeric"
