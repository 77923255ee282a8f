"""The task `reasoning_gym`: generators from the library reasoning-gym, by name."""
