"""The parts of the report that need no analysis; each module lists its own in PARTS."""
