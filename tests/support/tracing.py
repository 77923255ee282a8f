"""Records every call between the parts of whole runs in this process.

The oracles in test_trace.py read the calls of a run to its sampler, its judge and its
optimizer. Values are copied to the host; weights are identified by digest.
"""

import contextlib
import dataclasses
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
import pytest
from jaxtyping import PyTree

from job_jax.checkpoint import params_sha256
from job_jax.metrics import MetricsWriter
from rlvr_jax.data import Pool
from rlvr_jax.learn.update import Updater
from rlvr_jax.metrics import doctor
from rlvr_jax.run.setup import RunSetup
from rlvr_jax.stages import probe
from rlvr_jax.types import Problem, Verdict
from rlvr_jax.verifiers.grader import Grader


@dataclasses.dataclass(frozen=True)
class Event:
    """One call: its name, its inputs and its output."""

    name: str
    values: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.values[name]
        except KeyError as error:
            raise AttributeError(name) from error


@dataclasses.dataclass
class Trace:
    """The events of a run in order, and the objects that it opened."""

    events: list[Event] = dataclasses.field(default_factory=list)
    setup: Any = None
    last_update: Any = None  # the updater with its inputs, on the devices

    def add(self, name: str, **values: object) -> None:
        self.events.append(Event(name, values))

    def of(self, name: str) -> list[Event]:
        return [event for event in self.events if event.name == name]

    def stage(self, stage: str) -> list[list[Event]]:
        """Returns the events of each of a stage's steps, up to its metrics."""
        steps, current = [], []
        for event in self.events:
            current.append(event)
            if event.name == "metrics":
                if event.stage == stage:
                    steps.append(current)
                current = []
        return steps


def on_host(tree: PyTree) -> Any:
    """Returns a copy of the arrays in NumPy, random keys as their data."""

    def host(x: object) -> np.ndarray:
        if isinstance(x, jax.Array) and jax.dtypes.issubdtype(
            x.dtype, jax.dtypes.prng_key
        ):
            x = jax.random.key_data(x)
        return np.array(jax.device_get(x))

    return jax.tree.map(host, tree)


def verdict_by_hash(problem: Problem, text: str) -> Verdict:
    """Returns a verdict independent of the truth; every kind occurs."""
    number = zlib.crc32(f"{problem.id}:{text}".encode())
    status = ("correct", "incorrect", "incorrect", "correct", "unverified")[number % 5]
    return Verdict(status=status, answer=str(number % 3))


@contextlib.contextmanager
def traced(
    judge: Callable[[Problem, str], Verdict] = verdict_by_hash,
) -> Iterator[Trace]:
    """Yields the traces of runs within the block, with another judge."""
    trace = Trace()
    with pytest.MonkeyPatch.context() as patch:
        _trace_samples(trace, patch)
        _trace_updates(trace, patch)
        write, check_step = MetricsWriter.write, doctor.check_step
        add, next_batch = probe.add_sequences, Pool.next_batch

        def judged(
            self: Grader, problems: Sequence[Problem], texts: Sequence[str]
        ) -> list[Verdict]:
            pairs = list(zip(problems, texts, strict=True))
            verdicts = [judge(*pair) for pair in pairs]
            trace.add("judge", pairs=pairs, verdicts=verdicts)
            return verdicts

        def written(self, stage, step, metrics, **more):
            trace.add("metrics", stage=stage, step=step, metrics=dict(metrics))
            write(self, stage, step, metrics, **more)

        def traced_check_step(state, *args, **settings):
            trace.add("doctor", state=state, args=args)
            return check_step(state, *args, **settings)

        def encoded(*args, params, **settings):
            trace.add("encode", params=params_sha256(params))
            return add(*args, params=params, **settings)

        def asked(self, difficulty, step, *args, **settings):
            batch = next_batch(self, difficulty, step, *args, **settings)
            trace.add(
                "ask",
                step=step,
                round=difficulty.num_batches,
                difficulty=difficulty,
                source_index=batch.source_index.tolist(),
            )
            return batch

        patch.setattr(Pool, "next_batch", asked)
        patch.setattr(Grader, "__call__", judged)
        patch.setattr(MetricsWriter, "write", written)
        patch.setattr(doctor, "check_step", traced_check_step)
        patch.setattr(probe, "add_sequences", encoded)
        yield trace


def _trace_samples(trace: Trace, patch: pytest.MonkeyPatch) -> None:
    sample = RunSetup.sample

    def sampled(self, weights, prompts, sampling, *, key, weight_version, **settings):
        trace.setup = self
        rollouts = sample(
            self,
            weights,
            prompts,
            sampling,
            key=key,
            weight_version=weight_version,
            **settings,
        )
        trace.add(
            "sample",
            params=params_sha256(weights),
            key=tuple(np.ravel(on_host(key)).tolist()),
            version=int(weight_version),
            sampling=on_host(sampling),
            max_new_tokens=settings["max_new_tokens"],
            rollouts=on_host(rollouts),
            group_size=settings["num_samples"],
        )
        return rollouts

    patch.setattr(RunSetup, "sample", sampled)


def _trace_updates(trace: Trace, patch: pytest.MonkeyPatch) -> None:
    score, step = Updater.score, Updater.step

    def scored(self, params, batch, sampling, **settings):
        found = score(self, params, batch, sampling, **settings)
        trace.add(
            "score",
            params=params_sha256(params),
            batch=on_host(batch),
            sampling=on_host(sampling),
            found=on_host(found),
        )
        return found

    def stepped(self, state, micro_batches, sampling, *, probe=None):
        parts = list(micro_batches)
        before = {
            "params": params_sha256(state.params),
            "state": on_host(state),
            "batches": on_host(parts),
            "sampling": on_host(sampling),
            "features": on_host(probe.reasoning_features) if probe else None,
            "logged": probe is not None and probe.observer is not None,
        }
        new, losses, report = step(self, state, parts, sampling, probe=probe)
        trace.last_update = self, parts, sampling, probe
        trace.add(
            "step", **before, after=params_sha256(new.params), losses=on_host(losses)
        )
        return new, losses, report

    patch.setattr(Updater, "score", scored)
    patch.setattr(Updater, "step", stepped)
