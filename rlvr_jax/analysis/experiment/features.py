"""Counts the features that an arm gained and no other arm with the same seed did."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from rlvr_jax.analysis.compare.metric import OWN_FEATURES, Metric, Score, feature_metric
from rlvr_jax.analysis.features.dynamics import (
    FeatureDynamics,
    compare_seed_groups,
    compute_dynamics,
    write_dynamics,
)
from rlvr_jax.analysis.features.log import (
    FEATURES_DIR,
    NoFeaturesError,
    check_same_sae,
    read_feature_log,
)
from rlvr_jax.report.run_files import read_run
from sae_jax.stats.dynamics import Thresholds


def any_probed(workdirs: Sequence[Path]) -> bool:
    """Returns whether a probe has logged features in any of the runs."""
    return any((workdir / FEATURES_DIR).is_dir() for workdir in workdirs)


def count_own_features(
    workdirs: Mapping[str, Path], feature_arms: Sequence[str], *, write: bool
) -> dict[str, dict[Metric, Score]]:
    """Returns one seed's counts for each of the `feature_arms`, by band of texts.

    A feature is gained if `analysis features` claims that it is strengthened or
    emerging. With `write`, every run gets the file of that command. Arms outside
    `feature_arms` are analyzed separately, because they may have another T-SAE; one
    without features is left alone. Raises NoFeaturesError if the `feature_arms` cannot
    be compared.
    """
    thresholds = Thresholds()
    logs = {}
    for arm, path in workdirs.items():
        try:
            logs[arm] = read_feature_log(read_run(str(path)))
        except NoFeaturesError:
            if arm in feature_arms:
                raise
    check_same_sae([log for arm, log in logs.items() if arm in feature_arms])
    dynamics = {arm: compute_dynamics(log, thresholds) for arm, log in logs.items()}
    compared = [run for arm, run in dynamics.items() if arm in feature_arms]
    groups = compare_seed_groups(compared, thresholds)
    for arm, run in dynamics.items() if write else ():
        alone = arm not in feature_arms
        write_dynamics(run, compare_seed_groups([run], thresholds) if alone else groups)
    return {
        arm: _count_own(run, [other for other in compared if other is not run])
        for arm, run in dynamics.items()
        if arm in feature_arms
    }


def _count_own(
    run: FeatureDynamics, others: Sequence[FeatureDynamics]
) -> dict[Metric, Score]:
    """Returns the counts for the bands in which all runs have enough texts."""
    counts = {}
    for band, found in run.findings.items():
        if all(band in other.findings for other in others):
            elsewhere = [other.findings[band].gained for other in others]
            own = found.gained & ~np.any(elsewhere, axis=0)
            counts[feature_metric(OWN_FEATURES, band)] = Score(mean=float(own.sum()))
    return counts
