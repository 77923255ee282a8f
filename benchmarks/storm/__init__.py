"""Faults on a seeded schedule, and their damage: `python -m benchmarks.storm`."""
