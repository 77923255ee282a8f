"""Backward problems: the answer is given, and one of the numbers is unknown."""
