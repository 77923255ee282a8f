"""Edits latents while a checkpoint answers, and compares with controls."""
