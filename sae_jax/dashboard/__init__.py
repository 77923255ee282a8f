"""Latents to look at: contexts, what they write, what became of them, on one page."""
