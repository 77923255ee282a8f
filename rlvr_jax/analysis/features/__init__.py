"""What reinforcement learning changed in the model, feature by feature."""
