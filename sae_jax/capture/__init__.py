"""Activations of any model on any text: onto a disk, or straight into training."""
