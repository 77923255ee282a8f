"""From problems to graded groups of completions."""
