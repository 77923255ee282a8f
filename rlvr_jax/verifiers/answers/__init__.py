"""Finds the answer that a completion gives, and reads it as a number; no mathematics.

Uses only the standard library, because a grading worker must start without JAX.
"""
