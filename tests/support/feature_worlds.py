"""Tables of features with known truth: some change, most do not."""

import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence

import jax
import numpy as np

import sae_jax
from rlvr_jax.probe.weight_noise import NUM_DRAWS, NoiseReadings, noise_file
from sae_jax.sae import TSAE
from sae_jax.stats.feature_statistics import FeatureStatistics, FeatureTable, RowKey

LATENTS = 60

# Cached: drawing takes a while.
_TABLES: dict[str, FeatureTable] = {}
_NOISE: dict[str, NoiseReadings] = {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class World:
    """Features that fire on random tokens, more often on some prompts.

    After checkpoint 0, `gain` multiplies a feature's level in a band, and `emerging`
    gives it a firing rate instead of the 0 that it had in all bands until then.
    """

    latents: int = LATENTS
    prompts: int = 24  # of each band, except the bands in `few`
    tokens: int = 200  # of each prompt
    bands: Sequence[str] = ("easy", "hard")
    few: Mapping[str, int] = dataclasses.field(default_factory=dict)
    gain: Mapping[str, Mapping[int, float]] = dataclasses.field(default_factory=dict)
    emerging: Mapping[str, Mapping[int, float]] = dataclasses.field(
        default_factory=dict
    )

    def table(
        self, step: int, *, seed: int = 0, chance: int | None = None
    ) -> FeatureTable:
        """Returns the table of a step; the properties of prompts are the same for all.

        `chance` seeds the draw of tokens; the default is the step.
        """
        chance = step if chance is None else chance
        key = repr((self, step, seed, chance))
        if key not in _TABLES:
            _TABLES[key] = self._draw_table(step, seed, chance)
        return _TABLES[key]

    def _draw_table(self, step, seed, chance):
        rows, parts = [], []
        for index, band in enumerate(self.bands):
            nature = np.random.default_rng((seed, index))
            drawn = np.random.default_rng((seed, index, 1, chance))
            rows += [
                RowKey("run", step, band, "reference", f"{band}{p}")
                for p in range(self._num_prompts(band))
            ]
            rate, level = self._nature(band, step, nature)
            parts.append(self._drawn(rate, level, drawn))
        statistics = {
            name: np.concatenate([part[name] for part in parts]) for name in parts[0]
        }
        return FeatureTable(
            rows=tuple(rows), statistics=FeatureStatistics(**statistics)
        )

    def _num_prompts(self, band):
        return self.few.get(band, self.prompts)

    def _nature(self, band, step, rng):
        shape = (self._num_prompts(band), self.latents)
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
            "tokens_correct": np.zeros(len(rate)),
            "tokens_incorrect": np.zeros(len(rate)),
            "sum": f.sum(axis=0),
            "sum_squares": (f**2).sum(axis=0),
            "nonzero": fires.sum(axis=0).astype(np.float64),
            "max": f.max(axis=0),
            "sum_correct": zeros,
            "sum_incorrect": zeros,
        }


def own_completions(table: FeatureTable) -> FeatureTable:
    """Returns a row for each band, like completions: half right, 60 % of sums."""
    by_band = table.sum_by("run", "step", "band")
    found = by_band.statistics
    statistics = dataclasses.replace(
        found,
        tokens_correct=found.tokens / 2,
        tokens_incorrect=found.tokens / 2,
        sum_correct=0.6 * found.sum,
        sum_incorrect=0.4 * found.sum,
    )
    rows = tuple(row._replace(split="rollout") for row in by_band.rows)
    return FeatureTable(rows=rows, statistics=statistics)


def under_noise(world: World) -> NoiseReadings:
    """Returns the world's texts under noise that moves features only by chance."""
    key = repr(dataclasses.replace(world, gain={}))
    if key not in _NOISE:
        readings = {"before": world.table(0)}
        for kind, count in NUM_DRAWS.items():
            for i in range(count):
                chance = 1_000_000 + len(readings)
                readings[f"{kind}{i}"] = world.table(0, chance=chance)
        before, draws = readings["before"], ["rl", *list(readings)[1:]]
        _NOISE[key] = NoiseReadings(
            problem_ids=tuple(row.prompt for row in before.rows),
            tokens=before.statistics.tokens,
            sums={name: table.statistics.sum for name, table in readings.items()},
            fired={name: t.statistics.nonzero for name, t in readings.items()},
            stream_rms=2.0,
            drift=dict.fromkeys(draws, 0.5),
            weight_change=dict.fromkeys(draws, 0.1),
        )
    return _NOISE[key]


def write_features(
    workdir: pathlib.Path,
    world: World,
    *,
    steps: Sequence[int] = (0, 50, 100),
    seed: int = 0,
    fve: Sequence[float] = (0.8, 0.79, 0.78),
    dictionary: int = 0,
) -> None:
    """Writes the files of a probe: features/, sae/ with two reward features, a clone.

    Runs of other seeds read the same texts. The reward features are 0, which every
    dictionary has, and 9, which the clone lacks. 9 hardly fires.
    """
    (workdir / "features").mkdir(parents=True)
    for step in steps:
        chance = step + 1000 * seed if step else 0
        fixed = world.table(step, chance=chance)
        FeatureTable.concatenate([fixed, own_completions(fixed)]).save(
            workdir / f"features/step_{step:06d}.npz"
        )
        if step:
            under_noise(world).save(noise_file(workdir, step))
    lines = [
        {
            "step": step,
            "band": band,
            "split": split,
            "fve": value + 0.1 * (split == "reference"),
            "l0": 12.0,
        }
        for step, value in zip(steps, fve, strict=False)
        for split in ("reference", "rollout")
        for band in ("", *world.bands)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (workdir / "features/sae_fidelity.jsonl").write_text(text)
    tsae = TSAE.init(jax.random.key(dictionary), width=64, latents=world.latents)
    sae_jax.save(workdir / "sae", tsae)
    without_9 = tsae.decoder.at[9].set(tsae.decoder[10])
    clone = dataclasses.replace(tsae, decoder=without_9)
    sae_jax.save(workdir / "sae_replicas/seed1", clone)
    selection = {
        "latents": [0, 9],
        "weights": [0.75, -0.25],
        "rms": [0.5, 2.0],
        "effects": [0.4, -0.2],
        "effect_errors": [0.05, 0.1],
        "q_values": [0.001, 0.04],
        "seed_cosine": [1.0, 0.0],
        "dead": [9],
        "layer": 2,
        "method": "contrast",
        "control": "none",
        "num_alive": 58,
        "num_stable": 20,
        "halves": {
            "num_problems": [40, 41],
            "num_candidates": 4,
            "num_confirmed": 2,
            "sign_agreement": 0.75,
            "correlation": 0.61,
        },
        "refusal": "",
    }
    (workdir / "sae/selection.json").write_text(json.dumps(selection))
