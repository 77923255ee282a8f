"""What a step, a run and a set of graded samples say in numbers."""
