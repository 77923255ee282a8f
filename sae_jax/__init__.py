"""Temporal sparse autoencoders; knows nothing of RL."""
