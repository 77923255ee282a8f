"""Environments, which answer the policy's turns, and their options."""

from rlvr_jax.config.environment import ENVIRONMENTS, Environment
from rlvr_jax.environments.calculator import Calculator
from rlvr_jax.types import Message, Reply

__all__ = [
    "ENVIRONMENTS",
    "Calculator",
    "Environment",
    "Message",
    "Reply",
]
