"""The work that every side does. Standard library only: the peers read it too.

The end-of-sequence id is V, one beyond the model's vocabulary: every side looks for it
after every token, none can draw it, so every completion has exactly `new_tokens`.
"""

import dataclasses
import random


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """One GRPO step of a decoder in Qwen2's shape with random weights."""

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
    new_tokens: int = 64  # T

    @property
    def eos_id(self) -> int:
        """Returns the id that would end a completion."""
        return self.vocab_size

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """Returns the word of every id, the end-of-sequence word last."""
        return (*(f"w{i}" for i in range(self.vocab_size)), "<eos>")

    def prompt_texts(self) -> list[str]:
        """Returns P prompts of S words each, drawn once and for all."""
        draw = random.Random(0)
        words = self.vocabulary[: self.vocab_size]
        return [
            " ".join(draw.choices(words, k=self.prompt_tokens))
            for _ in range(self.num_prompts)
        ]


JOBS = {
    "tiny": Job(
        num_layers=1,
        hidden_size=32,
        intermediate_size=64,
        num_heads=2,
        num_kv_heads=1,
        head_dim=16,
        prompt_tokens=8,
        new_tokens=8,
    ),
    "3M": Job(
        num_layers=4,
        hidden_size=256,
        intermediate_size=704,
        num_heads=4,
        num_kv_heads=2,
        head_dim=64,
    ),
    "24M": Job(
        num_layers=8,
        hidden_size=512,
        intermediate_size=1408,
        num_heads=8,
        num_kv_heads=4,
        head_dim=64,
    ),
}


def reward(text: str) -> float:
    """Returns 1 where the last word's number is even: it costs next to nothing."""
    return float(text[-1] in "02468")
