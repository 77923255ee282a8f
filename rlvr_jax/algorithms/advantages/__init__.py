"""Advantages: what each completion is worth compared with its group."""
