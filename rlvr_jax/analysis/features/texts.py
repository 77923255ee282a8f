"""The reference texts of a run at two steps, equally many in each band."""

import dataclasses
from typing import NamedTuple

import numpy as np

from rlvr_jax.analysis.features.log import REFERENCE, FeatureLog, NoFeaturesError
from rlvr_jax.types import BANDS
from sae_jax.stats.dynamics import PairedSums, Thresholds, pair_tables
from sae_jax.stats.feature_statistics import FeatureTable

ALL_BANDS = "all"  # the band of all bands

_SEED = 0


class BandTexts(NamedTuple):
    """A band's texts, identified by their problems, with their sums at both steps."""

    prompts: tuple[str, ...]
    sums: PairedSums


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairedTexts:
    """The texts by band, easy to hard, then all of them as ALL_BANDS.

    All bands have equally many. `omitted` has the bands with too few texts, and their
    numbers of texts.
    """

    bands: dict[str, BandTexts]
    omitted: dict[str, int]


def pair_reference_texts(
    log: FeatureLog, before: FeatureTable, after: FeatureTable, thresholds: Thresholds
) -> PairedTexts:
    """Returns the reference texts of two steps side by side.

    Each band gets as many texts as the smallest band has, so that a change found in one
    band could have been found in the others. A band with fewer than
    `thresholds.min_prompts` texts is left out, because nothing can be found in it.
    """
    old, new = (table.select(split=REFERENCE) for table in (before, after))
    if not old.rows:
        raise NoFeaturesError(
            f"{log.run.path} has no reference texts logged (split {REFERENCE!r}): "
            "claims need the same prompts at both steps; set "
            "probe.num_reference_texts above 0"
        )
    try:
        sums = pair_tables(old, new)
    except ValueError as error:
        raise NoFeaturesError(f"{log.run.path}: {error}") from error
    band_of_row = np.array([row.band for row in old.rows])
    sizes = {band: int((band_of_row == band).sum()) for band in BANDS}
    large = {b: size for b, size in sizes.items() if size >= thresholds.min_prompts}
    rng = np.random.default_rng(_SEED)
    rows: dict[str, np.ndarray] = {
        band: np.sort(
            rng.permutation(np.flatnonzero(band_of_row == band))[: min(large.values())]
        )
        for band in large
    }
    rows[ALL_BANDS] = np.arange(len(old.rows))
    return PairedTexts(
        bands={
            band: BandTexts(
                tuple(old.rows[i].prompt for i in chosen), sums.select_prompts(chosen)
            )
            for band, chosen in rows.items()
        },
        omitted={b: n for b, n in sizes.items() if n and b not in large},
    )
