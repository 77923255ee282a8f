"""What a run would be: the dry run, and the recipe compiled ahead of time."""
