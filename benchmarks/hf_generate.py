"""Worker in the peers' environment: Hugging Face `generate`, same model and prompts.

The first argument is the dtype. Trials find the fastest combination of cache (dynamic
or static) and threads (one, or one per core), which is then measured.
"""

import itertools
import os
import sys
import time
from typing import Any

import torch
import transformers

from benchmarks.channel import Channel, peak_rss_bytes
from benchmarks.job import Job, seconds_per_1k_tokens
from benchmarks.qwen2 import make_qwen2

_TRIALS = 2


class Generation:
    """One model and its prompts."""

    def __init__(self, job: Job, dtype: torch.dtype):
        self._job = job
        self._model = make_qwen2(job).to(dtype).eval()
        ids = {word: i for i, word in enumerate(job.vocabulary)}
        self._prompts_PS = torch.tensor(
            [[ids[word] for word in text.split()] for text in job.prompt_texts()]
        )

    def step(self, threads: int, cache: str) -> dict[str, Any]:
        """Returns the seconds of sampling, and the length of each completion."""
        torch.set_num_threads(threads)
        start = time.perf_counter()
        out_BT = self._model.generate(
            self._prompts_PS,
            attention_mask=torch.ones_like(self._prompts_PS),
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            num_return_sequences=self._job.group_size,
            max_new_tokens=self._job.new_tokens,
            pad_token_id=self._job.eos_ids[0],
            cache_implementation=cache,
        )
        seconds = time.perf_counter() - start
        rows = out_BT[:, self._prompts_PS.shape[1] :].tolist()
        lengths = [self._job.true_length(row) for row in rows]
        return {"rollout_s": seconds, "tokens": sum(lengths), "lengths": lengths}


def main() -> None:
    """Warms up, chooses a variant, then samples on request."""
    channel = Channel()
    dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16}[sys.argv[1]]
    generation = Generation(channel.receive_job(Job), dtype)
    start = time.perf_counter()
    cores = len(os.sched_getaffinity(0))
    generation.step(cores, "dynamic")
    first_step_s = time.perf_counter() - start
    trials = {
        (threads, cache): min(
            seconds_per_1k_tokens(generation.step(threads, cache))
            for _ in range(_TRIALS)
        )
        for threads, cache in itertools.product(
            sorted({1, cores}), ("dynamic", "static")
        )
    }
    threads, cache = min(trials, key=trials.__getitem__)
    channel.send(
        {
            "versions": {
                one.__name__: one.__version__ for one in (torch, transformers)
            },
            "chosen": {"threads": threads, "cache": cache},
            "trials": [[*variant, seconds] for variant, seconds in trials.items()],
            "first_step_s": first_step_s,
        }
    )
    while channel.wants_step():
        channel.send(generation.step(threads, cache))
    channel.send({"peak_rss_bytes": peak_rss_bytes()})


if __name__ == "__main__":
    main()
