"""Logs of other trainers, read for the run doctor."""
