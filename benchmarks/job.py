"""The work that every side does. Uses only the standard library: peers import it too.

If no id ends a completion, the end-of-sequence id is V, one beyond the model's
vocabulary: every side looks for it after every token, none can draw it, and every
completion has exactly `new_tokens`. Otherwise each of the last `num_end_ids` ids ends a
completion. The scale of the last norm makes all ids about equally likely for any random
weights. So lengths are geometric, cut at `new_tokens`, and have the same distribution
on all sides.
"""

import dataclasses
import random
from collections.abc import Mapping, Sequence
from typing import Any

PARTS = ("rollout_s", "verify_s", "update_s")
FINAL_NORM_SCALE = 1e-3  # logits of order 0.01, which still have gradients


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """One GRPO step of a decoder with Qwen2's architecture and random weights."""

    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int = 512
    num_prompts: int = 8  # P
    group_size: int = 8  # G
    prompt_tokens: int = 64  # S
    new_tokens: int = 64  # T, or the limit
    num_end_ids: int = 0  # ids that end a completion
    lora_rank: int = 0  # 0: all parameters are trained
    scan_layers: bool = False  # only ours: how we run a checkpoint of this depth

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Returns the ids that end a completion, or one beyond all ids if none does."""
        last = self.vocab_size
        return tuple(range(last - self.num_end_ids, last)) or (last,)

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """Returns the word of every id, and one more word that no side draws."""
        return (*(f"w{i}" for i in range(self.vocab_size)), "<eos>")

    def prompt_texts(self) -> list[str]:
        """Returns P fixed random prompts of S words, without end words."""
        draw = random.Random(0)
        words = self.vocabulary[: self.eos_ids[0]]
        return [
            " ".join(draw.choices(words, k=self.prompt_tokens))
            for _ in range(self.num_prompts)
        ]

    def true_length(self, ids: Sequence[int]) -> int:
        """Returns the number of tokens up to and including a completion's first end."""
        ends = (at for at, token in enumerate(ids, 1) if token in self.eos_ids)
        return next(ends, len(ids))


_TINY = Job(
    num_layers=1,
    hidden_size=32,
    intermediate_size=64,
    num_heads=2,
    num_kv_heads=1,
    head_dim=16,
    prompt_tokens=8,
    new_tokens=8,
)
_3M = Job(
    num_layers=4,
    hidden_size=256,
    intermediate_size=704,
    num_heads=4,
    num_kv_heads=2,
    head_dim=64,
)

_24M = Job(
    num_layers=8,
    hidden_size=512,
    intermediate_size=1408,
    num_heads=8,
    num_kv_heads=4,
    head_dim=64,
)
# SmolLM2-135M, with completions as long as a short answer.
_135M = Job(
    num_layers=30,
    hidden_size=576,
    intermediate_size=1536,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    vocab_size=49_152,
    prompt_tokens=40,
    new_tokens=48,
    scan_layers=True,
)
# One id in 64 ends a row: 63 tokens on average, a quarter of the limit.
_GEOMETRIC: dict[str, Any] = {"new_tokens": 256, "num_end_ids": 8}

JOBS = {
    "tiny": _TINY,
    "tiny-geometric": dataclasses.replace(_TINY, num_end_ids=64),
    "tiny-lora": dataclasses.replace(_TINY, lora_rank=4),
    "3M": _3M,
    "3M-geometric": dataclasses.replace(_3M, **_GEOMETRIC),
    "3M-vocab8192": dataclasses.replace(_3M, vocab_size=8192),
    "24M": _24M,
    "24M-geometric": dataclasses.replace(_24M, **_GEOMETRIC),
    "135M": _135M,
    "135M-lora": dataclasses.replace(_135M, lora_rank=16),
}


def seconds_per_1k_tokens(step: Mapping[str, Any]) -> float:
    """Returns the seconds of all parts of a step per 1,000 tokens that it made."""
    seconds = sum(step[part] for part in PARTS if part in step)
    return 1000 * seconds / step["tokens"]


def reward(text: str) -> float:
    """Returns 1 if the last word's number is even, which costs almost nothing."""
    return float(text.endswith(("0", "2", "4", "6", "8")))
