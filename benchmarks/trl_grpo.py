"""Worker in the peers' environment: TRL's GRPOTrainer, stopped between steps.

The trainer is TRL's own. A callback waits at the end of every step until another one is
requested. The two methods that sample and grade are timed from outside.
"""

import itertools
import math
import os
import tempfile
import time
from collections.abc import Generator
from typing import Any

import datasets
import peft
import tokenizers
import torch
import transformers
import trl

from benchmarks.channel import Channel, peak_rss_bytes
from benchmarks.job import Job, reward, seconds_per_1k_tokens
from benchmarks.qwen2 import make_qwen2

_TRIALS = 2


class TimedTrainer(trl.GRPOTrainer):
    """TRL's trainer with timers around sampling and grading."""

    rollout_s = 0.0
    rollout_and_grade_s = 0.0
    lengths: tuple[int, ...] = ()

    def _generate_single_turn(self, *args: object, **kwargs: object) -> Any:
        start = time.perf_counter()
        completion_ids, logprobs = super()._generate_single_turn(*args, **kwargs)
        self.rollout_s = time.perf_counter() - start
        self.lengths = tuple(len(ids) for ids in completion_ids)
        return completion_ids, logprobs

    def _generate_and_score_completions(self, inputs: object) -> Any:
        start = time.perf_counter()
        scored = super()._generate_and_score_completions(inputs)
        self.rollout_and_grade_s = time.perf_counter() - start
        return scored


class StepTurns(transformers.TrainerCallback):
    """Runs the trials, then steps on request with the fastest variant."""

    def __init__(self, channel: Channel):
        self.trainer: TimedTrainer
        self._channel = channel
        self._plan = self._steps()

    def train(self) -> None:
        """Takes all steps of the plan."""
        self._opened = time.perf_counter()
        next(self._plan)
        self.trainer.train()

    def on_step_begin(
        self, args: object, state: object, control: object, **_: object
    ) -> None:
        """Starts the clock."""
        self._started = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stops the clock, and continues the plan."""
        step_s, trainer = time.perf_counter() - self._started, self.trainer
        parts = {
            "rollout_s": trainer.rollout_s,
            "verify_s": trainer.rollout_and_grade_s - trainer.rollout_s,
            "update_s": step_s - trainer.rollout_and_grade_s,
            "tokens": sum(trainer.lengths),
            "lengths": trainer.lengths,
        }
        try:
            self._plan.send(parts)
        except StopIteration:
            control.should_training_stop = True

    def _steps(self) -> Generator[None, dict[str, Any], None]:
        """Yields whenever the trainer must take a step, and receives its parts."""
        yield
        first_step_s = time.perf_counter() - self._opened
        variants = [
            *itertools.product(sorted({1, _num_cores()}), ("dynamic", "static"))
        ]
        trials = dict.fromkeys(variants, math.inf)
        for variant in variants * _TRIALS:
            self._use_variant(*variant)
            parts = yield
            trials[variant] = min(trials[variant], seconds_per_1k_tokens(parts))
        threads, cache = min(trials, key=trials.__getitem__)
        self._use_variant(threads, cache)
        libraries = (torch, transformers, trl)
        self._channel.send(
            {
                "versions": {one.__name__: one.__version__ for one in libraries},
                "chosen": {"threads": threads, "cache": cache},
                "trials": [[*variant, seconds] for variant, seconds in trials.items()],
                "first_step_s": first_step_s,
            }
        )
        while self._channel.wants_step():
            parts = yield
            self._channel.send(parts)

    def _use_variant(self, threads: int, cache: str) -> None:
        torch.set_num_threads(threads)
        self.trainer.generation_config.cache_implementation = cache


def main() -> None:
    """Warms up, chooses a variant, then takes steps on request."""
    channel = Channel()
    job = channel.receive_job(Job)
    turns = StepTurns(channel)
    with tempfile.TemporaryDirectory() as scratch:
        turns.trainer = TimedTrainer(
            model=make_qwen2(job),
            reward_funcs=_compute_rewards,
            args=_make_config(job, scratch),
            train_dataset=datasets.Dataset.from_dict({"prompt": job.prompt_texts()}),
            processing_class=_make_tokenizer(job),
            callbacks=[turns],
            peft_config=_make_adapters(job),
        )
        turns.trainer.remove_callback(transformers.PrinterCallback)
        turns.train()
    channel.send({"peak_rss_bytes": peak_rss_bytes()})


def _compute_rewards(completions: list[str], **_: object) -> list[float]:
    return [reward(text) for text in completions]


def _make_config(job: Job, scratch: str) -> trl.GRPOConfig:
    """Returns the config: one on-policy optimizer step on P G completions, float32.

    Loss, clipping and normalization are TRL's defaults, which equal ours. Three changes
    are in TRL's favor: no recomputation of activations, no logs, no saves.
    """
    return trl.GRPOConfig(
        output_dir=scratch,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        per_device_train_batch_size=job.num_prompts * job.group_size,
        num_generations=job.group_size,
        max_completion_length=job.new_tokens,
        max_steps=1_000_000,
        learning_rate=1e-6,
        lr_scheduler_type="constant",
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )


def _make_adapters(job: Job) -> peft.LoraConfig | None:
    """Returns adapters for all seven matrices of a layer, like ours; None: no LoRA."""
    if not job.lora_rank:
        return None
    return peft.LoraConfig(
        r=job.lora_rank,
        lora_alpha=2 * job.lora_rank,
        lora_dropout=0.0,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )


def _make_tokenizer(job: Job) -> transformers.PreTrainedTokenizerFast:
    """Returns a tokenizer of whole words, like ours."""
    ids = {word: i for i, word in enumerate(job.vocabulary)}
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, unk_token="<eos>"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    end = job.vocabulary[job.eos_ids[0]]  # it also pads finished rows
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, eos_token=end, pad_token=end
    )


def _num_cores() -> int:
    return len(os.sched_getaffinity(0))


if __name__ == "__main__":
    main()
