"""Plans of a run without starting it: the dry run, and ahead-of-time compilation."""
