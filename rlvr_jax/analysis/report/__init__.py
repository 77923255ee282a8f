"""The command that writes the report, `python -m rlvr_jax.analysis report`."""
