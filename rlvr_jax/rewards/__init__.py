"""The parts of a reward, one file each, and the functions that users bring."""
