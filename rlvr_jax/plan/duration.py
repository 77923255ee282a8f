"""A rough estimate of how long each stage takes, from its FLOPs and bytes.

Every completion counts with its maximal length, because nobody knows the lengths
before. Work outside the devices is not counted: judges, environments, programs that
run, downloads.
"""

import dataclasses
import math

import numpy as np

from rlvr_jax.config.task import Stage
from rlvr_jax.plan.run_shapes import RunShapes
from rlvr_jax.plan.speed import Speed
from rlvr_jax.run.throughput import num_matmul_weights

# Shares of the measured or published rates that programs reach. Fitted on CPU; the
# update's share is typical of accelerators, too.
_UPDATE, _SAMPLING, _FIT, _MEMORY = 0.4, 0.3, 0.5, 0.6
# Times that a decode step reads or writes an array as large as its logits.
_LOGITS_PASSES = 10
# Seconds to compile a program: a part, and more for each layer that is not scanned.
_COMPILE_S, _COMPILE_LAYER_S = 3.0, 1.5
# Programs that a stage compiles, at least: its sampler, and shapes of the update.
_PROGRAMS = {"sft": 2, "difficulty": 1, "probe": 4, "train": 4, "eval": 1}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Duration:
    """Seconds of a stage: its steps, and the compilation of its programs."""

    work: float
    compilation: float

    @property
    def total(self) -> float:
        """Returns the seconds of both."""
        return self.work + self.compilation


def stage_durations(
    run: RunShapes, speed: Speed, *, num_train_problems: int
) -> dict[str, Duration]:
    """Returns the estimate of each stage that the recipe runs.

    `num_train_problems` are in the pool of the curriculum, 0 if unknown.
    """
    return _Estimate(run, speed, num_train_problems).stages()


@dataclasses.dataclass(frozen=True)
class _Estimate:
    run: RunShapes
    speed: Speed
    num_train_problems: int

    def stages(self) -> dict[str, Duration]:
        """Returns each stage's seconds."""
        seconds = {
            "sft": self._sft(),
            "difficulty": self._difficulty(),
            "probe": self._probe(),
            "train": self._train(),
            "eval": self._eval(),
        }
        compilation = self._compile_seconds()
        return {
            stage: Duration(work=work, compilation=_PROGRAMS[stage] * compilation)
            for stage, work in seconds.items()
            if work
        }

    def _compile_seconds(self) -> float:
        model = self.run.config.model
        layers = 1 if model.scan_layers else model.num_layers
        return _COMPILE_S + _COMPILE_LAYER_S * layers

    @property
    def _weights(self) -> int:
        return num_matmul_weights(self.run.config.model, self.run.vocab_size)

    def _sft(self) -> float:
        sft = self.run.config.sft
        tokens = sft.batch_size * (
            self.run.widths.prompts["sft"] + self.run.widths.solution
        )
        return sft.steps * 6 * tokens * self._weights / (_UPDATE * self.speed.flops)

    def _difficulty(self) -> float:
        difficulty, batch = self.run.config.difficulty, self.run.config.eval.batch_size
        if not difficulty.num_samples:
            return 0.0
        problems = self.num_train_problems or difficulty.pool_size
        return self._sample("train", problems, difficulty.num_samples, batch=batch)

    def _probe(self) -> float:
        config, train = self.run.config, self.run.config.train
        if not config.probe.enabled:
            return 0.0
        batch = min(config.eval.batch_size, train.batch_size)
        number, samples = config.probe.num_problems, train.group_size
        fit = config.probe.fit_flops(config.model.hidden_size)
        return (
            self._sample("train", number, samples, batch=batch)
            + self._sample("eval", number, samples, batch=batch)
            + fit / (_FIT * self.speed.flops)
        )

    def _train(self) -> float:
        train, widths = self.run.config.train, self.run.widths
        rollouts = self._sample(
            "train", train.batch_size, train.group_size, batch=train.batch_size
        )
        tokens = train.batch_size * (
            widths.prompts["train"] + train.rows_per_group * widths.completion
        )
        backward = 2 if train.lora.rank else 4
        passes = train.num_epochs * (2 + backward)
        passes += 2 * (train.scores_own_policy + (train.loss.kl_coef > 0))
        update = passes * tokens * self._weights / (_UPDATE * self.speed.flops)
        return train.steps * (rollouts + update)

    def _eval(self) -> float:
        config = self.run.config
        every, steps = config.eval.every, config.train.steps
        times = 1 + bool(steps) + (steps // every if every else 0)
        return times * self._sample(
            "eval",
            config.eval.num_problems,
            config.eval.num_samples,
            batch=config.eval.batch_size,
        )

    def _sample(
        self, stage: Stage, problems: int, samples: int, *, batch: int
    ) -> float:
        """Returns the seconds in which `problems` x `samples` completions are drawn.

        Batches are always full. A step of the decode loop takes the longer of its
        products and its memory traffic: weights, cache and logits.
        """
        config, model = self.run.config, self.run.config.model
        sampling = (config.eval if stage == "eval" else config.train).sampling
        num_batches, rows = -(-problems // batch), batch * samples
        slots = min(config.sampler.slots or rows, rows)
        steps = sampling.max_new_tokens * -(-rows // slots)
        S, itemsize = (
            self.run.widths.prompts[stage],
            np.dtype(model.compute_dtype).itemsize,
        )
        cached = 2 * model.num_layers * model.num_kv_heads * model.head_dim * itemsize
        moved = (
            self._weights * itemsize * self._copies_of_weights()
            + cached * (slots * sampling.max_new_tokens / 2 + batch * S)
            + 4 * _LOGITS_PASSES * slots * self.run.vocab_size
        )
        step = max(
            2 * slots * self._weights / (_SAMPLING * self.speed.flops),
            moved / (_MEMORY * self.speed.bytes_per_s),
        )
        read = 2 * batch * S * self._weights / (_UPDATE * self.speed.flops)
        return num_batches * (steps * step + read)

    def _copies_of_weights(self) -> int:
        """Returns how often all devices together read the weights in a decode step."""
        mesh = self.run.layout.mesh
        return mesh.size // mesh.shape["tensor"]


def describe_seconds(seconds: float) -> str:
    """Returns a coarse duration: "under a minute", "about 4 minutes", "3 hours".

    From ten minutes on only one digit is given.
    """
    minutes = seconds / 60
    if minutes < 1:
        return "under a minute"
    if minutes < 10:
        count, unit = round(minutes), "minute"
    elif minutes < 95:
        count, unit = _one_digit(minutes), "minute"
    elif minutes < 36 * 60:
        count, unit = _one_digit(minutes / 60), "hour"
    else:
        count, unit = _one_digit(minutes / 60 / 24), "day"
    return f"about {count:,} {unit}{'' if count == 1 else 's'}"


def _one_digit(number: float) -> int:
    power = 10 ** int(math.log10(max(1.0, number)))
    return round(number / power) * power
