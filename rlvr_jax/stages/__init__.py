"""The stages of a run, one file each, and their shared context."""
