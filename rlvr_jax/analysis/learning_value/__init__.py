"""What RL on a single problem taught, by what was known: `analysis learning_value`."""
