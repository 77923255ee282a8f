"""Results of an experiment: its arms side by side, read from their workdirs."""
