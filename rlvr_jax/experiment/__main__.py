"""`python -m rlvr_jax.experiment`."""

import sys

from rlvr_jax.experiment.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
