"""Verifiers, which turn the text of a completion into a verdict."""
