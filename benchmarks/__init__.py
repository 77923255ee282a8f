"""Our side and the peers on the same work; `python -m benchmarks.run --help`."""
