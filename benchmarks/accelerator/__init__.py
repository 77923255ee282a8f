"""One command that measures decoding, GRPO and the autoencoder on an accelerator."""
