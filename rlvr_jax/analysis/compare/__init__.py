"""Compares runs side by side, with intervals."""
