"""What RL added, kept and lost by a crosscoder: the subcommand `crosscoder`."""
