"""Hooks that run a probe with the training steps, before and after each update.

The hooks keep no state between calls. An `RFGOState` carries it from one step to the
next, and a `ProbeStep` from the beginning of an update to its end.
"""

import dataclasses
import time
from typing import Any, Self

import jax
import numpy as np
from flax import nnx
from jaxtyping import PyTree

from job_jax.processes import device_get
from rlvr_jax.config import RFGOConfig
from rlvr_jax.learn import has_signal
from rlvr_jax.learn.batches import split_minibatches
from rlvr_jax.learn.micro_batches import MicroBatchCut, split_micro_batches
from rlvr_jax.learn.probe_inputs import FeatureReader, ProbeInputs, ProbeSpec
from rlvr_jax.learn.run_updates import UpdateResult
from rlvr_jax.learn.update import Updater
from rlvr_jax.models.distribution import SamplingParams
from rlvr_jax.probe.protocol import PROBE_DIR, Probe
from rlvr_jax.probe.reference_texts import REFERENCE_TEXTS_FILE, ReferenceTexts
from rlvr_jax.probe.rfgo_state import (
    RFGOState,
    outcome_codes,
    proxy_eligible,
    rfgo_summary,
    step_metrics,
)
from rlvr_jax.rollouts.collect import RolloutBatch
from rlvr_jax.run.throughput import Timing
from rlvr_jax.run.trainable import TrainableParams
from rlvr_jax.stages.context import RunContext
from rlvr_jax.types import Batch, ProbeTargets

_TIMING_TRIALS = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProbeStep:
    """The probe's inputs to one training step. Made by `on_update_begin`.

    `batch` is the step's batch with RFGO's targets. `text_stats` are the probe's
    statistics of the reference texts before the update, None in steps without logging.
    """

    batch: Batch
    inputs: ProbeInputs
    proxy_strength: float
    text_stats: PyTree = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProbeCallback:
    """The probe of stage `train`, opened once. Made by `open`."""

    ctx: RunContext
    trainable: TrainableParams
    probe: Probe
    texts: ReferenceTexts
    reader: FeatureReader  # the probe's, on every device
    key: jax.Array

    @classmethod
    def open(cls, ctx: RunContext, trainable: TrainableParams) -> Self | None:
        """Returns the probe that stage `probe` fitted, None if the run has no probe."""
        setup = ctx.setup
        if not setup.config.probe.enabled:
            return None
        directory = ctx.workdir.path / PROBE_DIR
        probe = setup.config.probe.load(directory, setup.mesh)
        return cls(
            ctx=ctx,
            trainable=trainable,
            probe=probe,
            texts=ReferenceTexts.load(directory / REFERENCE_TEXTS_FILE),
            reader=setup.replicate(probe.reader),
            key=setup.stream_key("arm"),
        )

    @property
    def spec(self) -> ProbeSpec:
        """Returns how every update uses the probe."""
        return ProbeSpec(
            layer=self.probe.layer,
            rfgo=self.rfgo,
            shuffle_weights=self.ctx.setup.config.probe.shuffles_weights,
        )

    @property
    def rfgo(self) -> RFGOConfig:
        """Returns the settings of RFGO, which is off if the probe has no features."""
        config = self.ctx.setup.config.train.rfgo
        if self.probe.weights:
            return config
        return dataclasses.replace(
            config, lambda_w=0.0, lambda_p=0.0, features_of="policy"
        )

    def init_state(self) -> RFGOState:
        """Returns the state before the first step."""
        return RFGOState.init(self.probe.rms)

    def on_update_begin(
        self,
        rfgo: RFGOState,
        step: int,
        params: nnx.State,
        rollout_batch: RolloutBatch,
        batch: Batch,
    ) -> ProbeStep:
        """Returns the batch with RFGO's targets, and the features of its update.

        A logged step also reads the reference texts, under `params` before the update,
        and sums up everything that the probe observes.
        """
        config = self.rfgo
        graded = rollout_batch.groups.graded
        has_signal_P = np.asarray(
            has_signal(rollout_batch.rewards, rollout_batch.judged)
        )
        targets = ProbeTargets(
            row=np.arange(len(graded), dtype=np.int32),
            outcomes=outcome_codes(graded),
            proxy_eligible=proxy_eligible(
                graded, has_signal_P, groups=config.proxy_groups
            ),
            ref_features=None,  # read with the step's other scores
        )
        strength = rfgo.proxy_strength(step, config)
        features = self.probe.make_features(
            rfgo.scale,
            proxy_strength=strength,
            key=jax.random.fold_in(self.key, step),
        )
        logged = self._is_log_step(step)
        return ProbeStep(
            batch=dataclasses.replace(batch, probe_targets=targets),
            inputs=ProbeInputs(
                reader=self.reader,
                reasoning_features=self.ctx.setup.replicate(features),
                observer=self.probe.observer if logged else None,
            ),
            proxy_strength=strength,
            text_stats=self._read_texts(params) if logged else None,
        )

    def on_update_end(
        self, rfgo: RFGOState, step: int, probe_step: ProbeStep, result: UpdateResult
    ) -> tuple[RFGOState, dict[str, float], list[str]]:
        """Returns RFGO's state after the step, the step's metrics, and lines to log.

        A logged step's statistics are written to disk.
        """
        config = self.rfgo
        assert result.feature_sums is not None
        strength = probe_step.proxy_strength
        state = rfgo.update(result.feature_sums, config, proxy_strength=strength)
        messages = []
        is_annealed = 0 < config.anneal_steps <= step
        if not is_annealed and state.is_proxy_on(config) != rfgo.is_proxy_on(config):
            messages.append(_describe_proxy(state, step, config))
        metrics = step_metrics(
            state,
            result.feature_sums,
            self.probe,
            num_groups=len(probe_step.batch.prompt_lengths),
            proxy_strength=strength,
        )
        if self._is_log_step(step):
            metrics |= self._write_step(step, result.latent_sums, probe_step.text_stats)
        return state, metrics, messages

    def on_train_end(
        self,
        rfgo: RFGOState,
        params: nnx.State,
        *,
        last_step: ProbeStep | None,
        timing: Timing,
        num_steps: int,
        updater: Updater,
        sampling: SamplingParams,
    ) -> None:
        """Writes the probe's results after the last step, and its cost.

        The cost is a share of a step's time without a probe. It is measured on
        `last_step`; this is None, and nothing is measured, if this attempt made no
        step.
        """
        config = self.ctx.setup.config.probe
        if config.log_every and num_steps:
            self._write_step(num_steps, None, self._read_texts(params))
        summary: dict[str, Any] = {
            "rfgo": rfgo_summary(rfgo, num_features=len(self.probe.weights))
        }
        if config.measure_overhead and last_step is not None and timing.steps:
            seconds = self._time_gradients(
                last_step, updater=updater, params=params, sampling=sampling
            )
            without_probe = timing.total_seconds - timing.seconds["probe"]
            share = timing.seconds["update"] / max(without_probe, 1e-9)
            summary["probe_overhead"] = {
                name: share * (value / seconds["no_probe"] - 1.0)
                for name, value in seconds.items()
                if name != "no_probe"
            } | {"gradient_s": seconds}
        self.ctx.update_summary(summary)

    def _time_gradients(
        self,
        probe_step: ProbeStep,
        *,
        updater: Updater,
        params: nnx.State,
        sampling: SamplingParams,
    ) -> dict[str, float]:
        """Returns seconds of one micro-batch's gradient without and with the probe.

        They are the fastest of alternating trials: other work on the machine only adds
        time. A trial times the second of two calls, because the first compiles, or
        reallocates memory after another program.
        """
        config, setup = self.ctx.setup.config, self.ctx.setup
        whole = probe_step.batch
        if self.rfgo.needs_reference_policy:  # the time of reading them is not counted
            shape = (*whole.tokens.shape, len(self.probe.weights))
            assert whole.probe_targets is not None
            targets = dataclasses.replace(
                whole.probe_targets, ref_features=np.zeros(shape, np.float32)
            )
            whole = dataclasses.replace(whole, probe_targets=targets)
        first = next(split_minibatches(whole, config.train.num_minibatches))
        *_, widest = split_micro_batches(first, MicroBatchCut.from_config(config))
        batch = setup.shard_batch(widest)
        features = probe_step.inputs.without_observer()
        arms: dict[str, tuple[Batch, ProbeInputs | None]] = {
            "no_probe": (dataclasses.replace(batch, probe_targets=None), None),
            "features": (batch, features),
        }
        if self.probe.observer is not None:
            observed = dataclasses.replace(features, observer=self.probe.observer)
            arms["observer"] = (batch, observed)
        times: dict[str, list[float]] = {name: [] for name in arms}
        for _ in range(_TIMING_TRIALS):
            for name, (arm_batch, inputs) in arms.items():
                arguments = params, arm_batch, sampling, inputs
                jax.block_until_ready(updater.gradient(*arguments))
                start = time.perf_counter()
                jax.block_until_ready(updater.gradient(*arguments))
                times[name].append(time.perf_counter() - start)
        return {name: min(trials) for name, trials in times.items()}

    def _is_log_step(self, step: int) -> bool:
        every = self.ctx.setup.config.probe.log_every
        return every > 0 and step % every == 0

    def _read_texts(self, params: nnx.State) -> Any:
        setup, whole = self.trainable.setup, self.trainable.merge_frozen(params)
        texts = setup.shard_batch(self.texts)
        return device_get(self.probe.read_texts(setup.graphdef, whole, texts))

    def _write_step(
        self, step: int, rollout_sums: PyTree, text_stats: PyTree
    ) -> dict[str, float]:
        return self.probe.write_step(
            self.ctx.workdir.path,
            run=self.ctx.setup.config.name,
            step=step,
            rollout_sums=rollout_sums,
            texts=self.texts,
            text_stats=text_stats,
        )


def _describe_proxy(state: RFGOState, step: int, config: RFGOConfig) -> str:
    """Returns a line which says that the proxy was turned on or off, and why."""
    found = "unknown"
    if correlation := state.correlation:
        found = (
            f"{correlation.value:.2f} [{correlation.low:.2f}, {correlation.high:.2f}]"
        )
    switch = "on" if state.is_proxy_on(config) else "off"
    return (
        f"step {step}: the proxy is {switch}; its correlation with the outcome "
        f"within groups is {found} (train.rfgo.min_correlation="
        f"{config.min_correlation})"
    )
