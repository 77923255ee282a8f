"""Runs side by side, with intervals."""
