"""The work that every side does. Standard library only: the peers read it too.

The end-of-sequence id is V, one beyond the model's vocabulary: every side looks for it
after every token, none can draw it, so every completion has exactly `new_tokens`.
"""

import dataclasses
import random


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """One GRPO step of a decoder in Qwen2's shape with random weights."""

    layers: int
    width: int
    mlp_width: int
    heads: int
    kv_heads: int
    head_width: int
    vocab_size: int = 512
    prompts: int = 8  # P
    samples: int = 8  # G
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
            for _ in range(self.prompts)
        ]


JOBS = {
    "tiny": Job(
        layers=1,
        width=32,
        mlp_width=64,
        heads=2,
        kv_heads=1,
        head_width=16,
        prompt_tokens=8,
        new_tokens=8,
    ),
    "3M": Job(layers=4, width=256, mlp_width=704, heads=4, kv_heads=2, head_width=64),
    "24M": Job(layers=8, width=512, mlp_width=1408, heads=8, kv_heads=4, head_width=64),
}


def reward(text: str) -> float:
    """Returns 1 where the last word's number is even: it costs next to nothing."""
    return float(text[-1] in "02468")
