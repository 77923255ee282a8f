"""Captures activations of any model on any text, to disk or straight into training."""
