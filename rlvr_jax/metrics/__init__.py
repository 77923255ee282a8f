"""Metrics of training steps, of whole runs and of sets of graded samples."""
