"""Latents that RL added, kept and lost, by a crosscoder: subcommand `crosscoder`."""
