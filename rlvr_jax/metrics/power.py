"""The smallest difference that a number of seeds can show. SciPy only."""

import numpy as np
from scipy import optimize, stats

from rlvr_jax.metrics.bootstrap import CONFIDENCE

POWER = 0.8  # of the test, at a difference that we call detectable


def detectable_difference(seed_sd: float, num_seeds: int) -> float:
    """Returns the smallest difference of two arms that is found 4 times out of 5.

    Found means: Student's 95 % interval of the paired differences of `num_seeds` seeds
    excludes 0. `seed_sd` is the standard deviation of these differences, and the result
    has its unit. It is infinite for one seed.
    """
    if num_seeds < 2:
        return np.inf
    if seed_sd == 0:
        return 0.0
    free = num_seeds - 1
    critical = stats.t.ppf((1 + CONFIDENCE) / 2, free)

    def missing_power(effect: float) -> float:
        """Returns POWER minus the power at an effect, in standard deviations."""
        # The square of a noncentral t is a noncentral F.
        return POWER - float(stats.ncf.sf(critical**2, 1, free, num_seeds * effect**2))

    enough = 0.5
    while missing_power(enough) > 0:
        enough *= 2
    return seed_sd * float(optimize.brentq(missing_power, 0.0, enough))
