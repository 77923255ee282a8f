"""Reinforcement learning with verifiable rewards in JAX; see the README."""
