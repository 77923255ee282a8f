"""Advantages: the worth of each completion compared with its group."""
