"""Faults by a seeded schedule, and what they cost: `python -m benchmarks.storm`."""
