"""Activations on disk and in memory: shards, tokens, pairs."""
