"""Tables of features whose truth is known: some change, most do not."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from sae_jax.feature_statistics import FeatureStatistics, FeatureTable, Row

LATENTS = 60


@dataclasses.dataclass(frozen=True, kw_only=True)
class World:
    """Features that fire on tokens at random, more or less so by prompt.

    After checkpoint 0, `gain` multiplies a feature's level in a band, and `emerging`
    gives it a firing rate in place of the 0 that it has until then in all.
    """

    latents: int = LATENTS
    prompts: int = 24  # of each band
    tokens: int = 50  # of each prompt
    bands: Sequence[str] = ("easy", "hard")
    gain: Mapping[str, Mapping[int, float]] = dataclasses.field(default_factory=dict)
    emerging: Mapping[str, Mapping[int, float]] = dataclasses.field(
        default_factory=dict
    )

    def table(self, step: int, *, run: str = "run", seed: int = 0) -> FeatureTable:
        """Returns the table of a step; what a prompt is like does not depend on it."""
        rows, parts = [], []
        for index, band in enumerate(self.bands):
            nature = np.random.default_rng((seed, index))
            chance = np.random.default_rng((seed, index, 1 + step))
            rows += [
                Row(run, step, band, "probe", f"{band}{p}") for p in range(self.prompts)
            ]
            rate, level = self._nature(band, step, nature)
            parts.append(self._drawn(rate, level, chance))
        statistics = {
            name: np.concatenate([part[name] for part in parts]) for name in parts[0]
        }
        return FeatureTable(
            rows=tuple(rows), statistics=FeatureStatistics(**statistics)
        )

    def _nature(self, band, step, rng):
        shape = (self.prompts, self.latents)
        rate = np.clip(0.2 * np.exp(0.5 * rng.normal(size=shape)), 0, 1)
        level = np.exp(0.3 * rng.normal(size=shape))
        every = {z for of_band in self.emerging.values() for z in of_band}
        rate[:, sorted(every)] = 0.0
        if step > 0:
            for z, factor in self.gain.get(band, {}).items():
                level[:, z] *= factor
            for z, new in self.emerging.get(band, {}).items():
                rate[:, z] = new
        return rate, level

    def _drawn(self, rate, level, rng):
        shape = (self.tokens, *rate.shape)
        fires = rng.random(shape) < rate
        f = np.where(fires, level * rng.gamma(4.0, 0.25, size=shape), 0.0)
        zeros = np.zeros(rate.shape)
        return {
            "tokens": np.full(len(rate), float(self.tokens)),
            "tokens_right": np.zeros(len(rate)),
            "tokens_wrong": np.zeros(len(rate)),
            "sum": f.sum(axis=0),
            "sum_squares": (f**2).sum(axis=0),
            "nonzero": fires.sum(axis=0).astype(np.float64),
            "max": f.max(axis=0),
            "sum_right": zeros,
            "sum_wrong": zeros,
        }
