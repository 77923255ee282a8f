"""Which properties predict what RL on a single problem teaches: `learning_value`."""
