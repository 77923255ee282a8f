"""Arithmetic in plain English, graded by difficulty, for pretrained models."""
