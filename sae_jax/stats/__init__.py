"""Statistics of latents: quality, labels, changes over training, significance."""
