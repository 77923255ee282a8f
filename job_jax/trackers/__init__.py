"""Trackers show a run outside metrics.jsonl: TensorBoard, wandb, trackio, custom.

`base` has the protocol. `background` keeps a tracker up to date with metrics.jsonl
without delaying the run, and `state` stores its position in the workdir. The libraries
are extras; only the chosen tracker imports its own.
"""
