"""The task `reasoning_gym`: generators of the library reasoning-gym, by name."""
