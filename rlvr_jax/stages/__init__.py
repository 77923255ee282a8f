"""The stages of a run, one file each, and what they share."""
