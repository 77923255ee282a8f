"""The job's model for the peers: Qwen2 with random weights, float32."""

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from benchmarks.job import Job


def qwen2(job: Job) -> Qwen2ForCausalLM:
    """Returns the model; beside ours it has biases on queries, keys and values."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=job.vocab_size,
        hidden_size=job.width,
        intermediate_size=job.mlp_width,
        num_hidden_layers=job.layers,
        num_attention_heads=job.heads,
        num_key_value_heads=job.kv_heads,
        max_position_embeddings=job.prompt_tokens + job.new_tokens,
        tie_word_embeddings=True,
    )
    return Qwen2ForCausalLM(config)
