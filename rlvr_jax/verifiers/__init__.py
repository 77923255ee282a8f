"""Verifiers: from the text of a completion to a verdict on it."""
