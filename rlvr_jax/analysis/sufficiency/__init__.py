"""Does what RL amplified suffice? The subcommand `sufficiency`."""
