"""Published data sets: their layouts, places and files."""
