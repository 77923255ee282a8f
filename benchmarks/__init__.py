"""Benchmarks of our code and peers on the same work; see `benchmarks.run --help`."""
