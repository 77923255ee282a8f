"""A page of latents: their contexts, the tokens they write, their changes by RL."""
