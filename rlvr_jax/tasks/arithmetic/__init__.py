"""Graded arithmetic in plain English, for models that were pretrained."""
