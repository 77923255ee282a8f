"""Changes that reinforcement learning made in the model, feature by feature."""
