"""Latents edited while a checkpoint answers, beside controls."""
