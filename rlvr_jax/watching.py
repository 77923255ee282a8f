"""A probe at work beside the training steps: guides in, statistics out, both on disk.

features/step_NNNNNN.npz   all latents: own rollouts by band, fixed texts by prompt
features/validity.jsonl    does the frozen dictionary still explain the policy
"""

import dataclasses
import json
import time
from pathlib import Path
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from job_jax.processes import is_primary, on_host
from job_jax.steps import StageSteps
from rlvr_jax import guidance
from rlvr_jax.experience import Experience
from rlvr_jax.latents import ROWS, Latents, Observer, table, validity
from rlvr_jax.learn import is_split
from rlvr_jax.learn.batches import micro_batches, minibatches
from rlvr_jax.learn.optimize import Optimized, Watch
from rlvr_jax.learn.update import Probing, Updater
from rlvr_jax.models.distribution import Sampling
from rlvr_jax.probes import Probe, TextReading, open_probe
from rlvr_jax.stage import Loop
from rlvr_jax.types import Batch, Guidance, Guide
from sae_jax.feature_statistics import FeatureTable, Row
from sae_jax.train import SAE_DIR

FEATURES_DIR, VALIDITY_FILE = "features", "validity.jsonl"
_TRIALS = 3


class Watcher:
    """The probe of stage `train`. What it must remember stands in `steps.host`."""

    def __init__(self, loop: Loop, probe: Probe):
        self._loop, self._probe = loop, probe
        self._config = loop.run.config
        run = loop.run
        self._key = run.key("arm")
        self._guide: Guide = run.replicate(
            probe.guide(probe.selection.sigma, proxy_strength=0.0, key=self._key)
        )
        self._fixed: TextReading | None = None
        self._last: tuple[Batch, Watch] | None = None
        self.probing = Probing(
            layer=probe.layer,
            rfgo=self._config.train.rfgo,
            shuffled=self._config.probe.features.arm == "shuffled",
            observer=Observer(),
        )

    @classmethod
    def open(cls, loop: Loop) -> Self | None:
        """Returns the watcher of a run; None where it has no probe."""
        if loop.run.config.probe.source == "off":
            return None
        directory = loop.workdir.path / SAE_DIR
        (loop.workdir.path / FEATURES_DIR).mkdir(exist_ok=True)
        return cls(loop, open_probe(directory, loop.run.mesh))

    def new_state(self) -> dict[str, Any]:
        """Returns what is remembered before the first step."""
        return guidance.new_state(self._probe.selection)

    def before(
        self, steps: StageSteps, step: int, experience: Experience, batch: Batch
    ) -> tuple[Batch, Watch]:
        """Returns the batch with what a probe must know, and what guides its update.

        Logged steps read the fixed texts as well.
        """
        state, config = steps.host["rfgo"], self._config.train.rfgo
        judged = experience.groups.judged
        split_P = np.asarray(is_split(jnp.asarray(experience.rewards)))
        strength = guidance.proxy_strength(state, step, config)
        changed = {
            "scale": np.array(guidance.scale(state), np.float32),
            "proxy_strength": np.float32(strength),
            "key": jax.random.fold_in(self._key, step),
        }
        guide = dataclasses.replace(self._guide, **self._loop.run.replicate(changed))
        logged = self._is_logged(step)
        self._fixed = self._read(steps.state.params) if logged else None
        told = Guidance(
            outcomes=guidance.outcomes(judged),
            proxied=guidance.proxied(judged, split_P, groups=config.proxy_groups),
            ref_levels=np.zeros(batch.tokens.shape, np.float32),
        )
        watch = Watch(guide=guide, dictionary=self._probe.tsae if logged else None)
        self._last = dataclasses.replace(batch, guidance=told), watch
        return self._last

    def after(
        self, steps: StageSteps, step: int, experience: Experience, result: Optimized
    ) -> dict[str, float]:
        """Returns the step's metrics; writes features/ where it is logged."""
        if result.seen is None:
            return {}
        config = self._config.train.rfgo
        strength = guidance.proxy_strength(steps.host["rfgo"], step, config)
        state = guidance.updated(steps.host["rfgo"], result.seen, step, config)
        if state["off_at"] == step:
            steps.say(
                f"step {step}: the proxy no longer follows the reward (correlation "
                f"{guidance.correlation(state['moments']):.2f} within groups, "
                f"train.rfgo.min_correlation={config.min_correlation}); it is off"
            )
        steps.host["rfgo"] = state
        found = guidance.metrics(
            state,
            result.seen,
            self._probe.selection,
            groups=len(experience.groups),
            strength=strength,
        )
        if result.latents is not None:
            found |= self._write(step, result.latents)
        return found

    def finish(self, steps: StageSteps, updater: Updater, sampling: Sampling) -> None:
        """Writes what the fixed texts say after the last step, and what all this costs.

        The overhead is a share of a step's time, of a step without a probe.
        """
        config, params = self._config, steps.state.params
        told = {"rfgo": guidance.summary(steps.host["rfgo"])}
        if config.probe.log_every and steps.total:
            self._fixed = self._read(params)
            self._write(steps.total, None)
        timed = steps.host["speed"]["steps"] > 0
        if config.probe.measure_overhead and self._last is not None and timed:
            seconds = self._seconds(updater, params, sampling)
            speed = steps.host["speed"]
            parts = {k: v for k, v in speed.items() if k.endswith("_s")}
            share = speed["update_s"] / max(
                sum(parts.values()) - speed["probe_s"], 1e-9
            )
            told["probe_overhead"] = {
                name: share * (seconds[name] / seconds["plain"] - 1.0)
                for name in ("reward_columns", "full_dictionary")
            } | {"gradient_s": seconds}
        self._loop.summarise(told)

    def _seconds(
        self, updater: Updater, params: Any, sampling: Sampling
    ) -> dict[str, float]:
        """Returns seconds of one micro-batch's gradient without and with the probe.

        Medians of alternating trials, each the second of two calls in a row: the first
        compiles, or pays for the memory of the program before it.
        """
        assert self._last is not None
        whole, watch = self._last
        train, run = self._config.train, self._loop.run
        first = next(minibatches(whole, train.minibatches))
        *_, widest = micro_batches(
            first, train.micro_batches, bucket=self._config.completion_bucket
        )
        batch = run.place(widest)
        arms: dict[str, tuple[Batch, Guide | None, Any]] = {
            "plain": (dataclasses.replace(batch, guidance=None), None, None),
            "reward_columns": (batch, watch.guide, None),
            "full_dictionary": (batch, watch.guide, self._probe.tsae),
        }
        times: dict[str, list[float]] = {name: [] for name in arms}
        for _ in range(_TRIALS):
            for name, (given, guide, dictionary) in arms.items():
                inputs = params, given, sampling, guide, dictionary
                jax.block_until_ready(updater.gradient(*inputs))
                start = time.perf_counter()
                jax.block_until_ready(updater.gradient(*inputs))
                times[name].append(time.perf_counter() - start)
        return {name: float(np.median(each)) for name, each in times.items()}

    def _is_logged(self, step: int) -> bool:
        every = self._config.probe.log_every
        return every > 0 and step % every == 0

    def _read(self, params: Any) -> TextReading:
        run = self._loop.run
        texts = run.place(self._probe.fixed)
        return on_host(self._probe.read_fixed(run.graphdef, params, texts))

    def _write(self, step: int, rollouts: Latents | None) -> dict[str, float]:
        """Writes a step's tables and returns the metrics of the dictionary's validity.

        Over what an attempt that was cut may have left.
        """
        directory, texts = self._loop.workdir.path / FEATURES_DIR, self._probe.fixed
        tables: list[FeatureTable] = []
        lines: list[dict[str, Any]] = []
        name, bands = self._config.name, np.arange(len(ROWS))
        if rollouts is not None:
            rows = [Row(name, step, band, "rollout") for band in ROWS]
            tables.append(table(rollouts, rows))
            lines += validity(rollouts, step=step, split="rollout", bands=bands)
        if (fixed := self._fixed) is not None:
            tables.append(table(fixed.latents, texts.rows(name, step)))
            lines += validity(
                fixed.latents,
                step=step,
                split="probe",
                bands=np.asarray(texts.bands),
                ce=np.asarray(fixed.ce),
            )
        if is_primary():
            FeatureTable.joined(tables).save(directory / f"step_{step:06d}.npz")
            _write_lines(directory / VALIDITY_FILE, step, lines)
        return {
            f"dictionary/{name}_{line['split']}": line[name]
            for line in lines
            if line["band"] == ""
            for name in ("fve", "l0", "ce_recovered")
            if line.get(name) is not None
        }


def _write_lines(path: Path, step: int, lines: list[dict[str, Any]]) -> None:
    """Adds a step's lines to a file of them; lines of this or later steps go."""
    old = path.read_text().splitlines() if path.exists() else []
    kept = [line for line in old if json.loads(line)["step"] < step]
    partial = path.with_suffix(".partial")
    partial.write_text("".join(f"{x}\n" for x in [*kept, *map(json.dumps, lines)]))
    partial.replace(path)
