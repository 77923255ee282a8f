"""How RL moved the weights: the subcommand `geometry`."""
