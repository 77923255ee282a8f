"""Worker, peers' environment: TRL's GRPOTrainer, stopped between its steps.

The trainer is TRL's own; a callback waits at the end of every step until one more is
wanted, and the two methods that sample and judge are timed from outside.
"""

import itertools
import math
import os
import tempfile
import time
from collections.abc import Generator
from typing import Any

import datasets
import tokenizers
import torch
import transformers
import trl

from benchmarks.channel import Channel, peak_rss_bytes
from benchmarks.job import Job, reward
from benchmarks.qwen2 import qwen2

_TRIALS = 2


class TimedTrainer(trl.GRPOTrainer):
    """TRL's trainer with a clock at the doors of sampling and judging."""

    rollout_s = 0.0
    experience_s = 0.0
    tokens = 0

    def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        completion_ids, logprobs = super()._generate_single_turn(*args, **kwargs)
        self.rollout_s = time.perf_counter() - start
        self.tokens = sum(len(ids) for ids in completion_ids)
        return completion_ids, logprobs

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        start = time.perf_counter()
        scored = super()._generate_and_score_completions(inputs)
        self.experience_s = time.perf_counter() - start
        return scored


class Turns(transformers.TrainerCallback):
    """Trials first, then a step whenever asked, with the variant that won."""

    def __init__(self, channel: Channel):
        self.trainer: TimedTrainer
        self._channel = channel
        self._plan = self._steps()

    def train(self) -> None:
        """Takes all steps that the plan holds."""
        self._opened = time.perf_counter()
        next(self._plan)
        self.trainer.train()

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Starts the clock."""
        self._started = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stops it, and goes on with the plan."""
        step_s, trainer = time.perf_counter() - self._started, self.trainer
        parts = {
            "rollout_s": trainer.rollout_s,
            "judge_s": trainer.experience_s - trainer.rollout_s,
            "update_s": step_s - trainer.experience_s,
            "tokens": trainer.tokens,
        }
        try:
            self._plan.send(parts)
        except StopIteration:
            control.should_training_stop = True

    def _steps(self) -> Generator[None, dict[str, float], None]:
        """Yields where a step is to be taken, and is sent its parts."""
        yield
        first_step_s = time.perf_counter() - self._opened
        variants = [*itertools.product(sorted({1, _cores()}), ("dynamic", "static"))]
        trials = dict.fromkeys(variants, math.inf)
        for variant in variants * _TRIALS:
            self._turn_to(*variant)
            parts = yield
            step_s = sum(parts[part] for part in ("rollout_s", "judge_s", "update_s"))
            trials[variant] = min(trials[variant], step_s)
        threads, cache = min(trials, key=trials.__getitem__)
        self._turn_to(threads, cache)
        libraries = (torch, transformers, trl)
        self._channel.tell(
            {
                "versions": {one.__name__: one.__version__ for one in libraries},
                "chosen": {"threads": threads, "cache": cache},
                "trials": [[*variant, seconds] for variant, seconds in trials.items()],
                "first_step_s": first_step_s,
            }
        )
        while self._channel.asked():
            parts = yield
            self._channel.tell(parts)

    def _turn_to(self, threads: int, cache: str) -> None:
        torch.set_num_threads(threads)
        self.trainer.generation_config.cache_implementation = cache


def main() -> None:
    """Warms up and chooses, then takes a step whenever asked."""
    channel = Channel()
    job = channel.job(Job)
    turns = Turns(channel)
    with tempfile.TemporaryDirectory() as scratch:
        turns.trainer = TimedTrainer(
            model=qwen2(job),
            reward_funcs=_rewards,
            args=_arguments(job, scratch),
            train_dataset=datasets.Dataset.from_dict({"prompt": job.prompt_texts()}),
            processing_class=_tokenizer(job),
            callbacks=[turns],
        )
        turns.trainer.remove_callback(transformers.PrinterCallback)
        turns.train()
    channel.tell({"peak_rss_bytes": peak_rss_bytes()})


def _rewards(completions: list[str], **_: Any) -> list[float]:
    return [reward(text) for text in completions]


def _arguments(job: Job, scratch: str) -> trl.GRPOConfig:
    """Returns one optimizer step on P G completions, on policy, in float32.

    Loss, clipping and normalisation are TRL's defaults, which ours equal. Against its
    defaults, to its good: no recomputation of activations, no logs, no saves.
    """
    return trl.GRPOConfig(
        output_dir=scratch,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        per_device_train_batch_size=job.prompts * job.samples,
        num_generations=job.samples,
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


def _tokenizer(job: Job) -> transformers.PreTrainedTokenizerFast:
    """Returns a tokenizer of whole words, as ours is."""
    ids = {word: i for i, word in enumerate(job.vocabulary)}
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, unk_token="<eos>"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, eos_token="<eos>", pad_token="<eos>"
    )


def _cores() -> int:
    return len(os.sched_getaffinity(0))


if __name__ == "__main__":
    main()
