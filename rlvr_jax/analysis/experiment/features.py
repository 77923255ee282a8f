"""How many features each arm gained that no other arm of its seed did."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rlvr_jax.analysis.compare.run_metrics import (
    OWN_FEATURES,
    Metric,
    Score,
    feature_metric,
)
from rlvr_jax.analysis.features.dynamics import (
    FeatureDynamics,
    compare_seed_groups,
    compute_dynamics,
    write_dynamics,
)
from rlvr_jax.analysis.features.log import (
    FEATURES_DIR,
    check_same_sae,
    read_feature_log,
)
from rlvr_jax.analysis.workdir import read_run
from sae_jax.stats.dynamics import Thresholds


def any_probed(workdirs: Sequence[Path]) -> bool:
    """Returns whether a probe has logged features in any of the runs."""
    return any((workdir / FEATURES_DIR).is_dir() for workdir in workdirs)


def count_own_features(workdirs: Sequence[Path]) -> list[dict[Metric, Score]]:
    """Returns the counts of each of the arms' runs of one seed, by band of the texts.

    Gained: strengthened or emerging, as `analysis features` claims it, whose file each
    run gets as well. Raises NoFeaturesError where they cannot be compared.
    """
    thresholds = Thresholds()
    logs = [read_feature_log(read_run(str(workdir))) for workdir in workdirs]
    check_same_sae(logs)
    dynamics = [compute_dynamics(log, thresholds) for log in logs]
    groups = compare_seed_groups(dynamics, thresholds)
    for run in dynamics:
        write_dynamics(run, groups)
    return [
        _count_own(run, [other for other in dynamics if other is not run])
        for run in dynamics
    ]


def _count_own(
    run: FeatureDynamics, others: Sequence[FeatureDynamics]
) -> dict[Metric, Score]:
    """Returns the counts of the bands that all runs have enough texts of."""
    counts = {}
    for band, found in run.findings.items():
        if all(band in other.findings for other in others):
            elsewhere = [other.findings[band].gained for other in others]
            own = found.gained & ~np.any(elsewhere, axis=0)
            counts[feature_metric(OWN_FEATURES, band)] = Score(mean=float(own.sum()))
    return counts
