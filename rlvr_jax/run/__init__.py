"""What every stage of a run needs: setup, command line, workdir, weights."""
