"""Published data sets: their layouts, where they are, and how their files are read."""
