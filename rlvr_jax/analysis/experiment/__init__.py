"""What came of an experiment: arms beside each other, from their workdirs alone."""
