"""Shared parts of every long job: config, command line, mesh, checkpoints, metrics.

It contains no reinforcement learning and no autoencoders; both are built on it.
"""

DISTRIBUTION = "rlvr_jax"  # the name under which pip installs this package
