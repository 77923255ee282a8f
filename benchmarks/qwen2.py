"""The job's model for the peers: Qwen2 with random weights, float32."""

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from benchmarks.job import FINAL_NORM_SCALE, Job


def make_qwen2(job: Job) -> Qwen2ForCausalLM:
    """Returns the model; unlike ours it has biases on queries, keys and values."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=job.vocab_size,
        hidden_size=job.hidden_size,
        intermediate_size=job.intermediate_size,
        num_hidden_layers=job.num_layers,
        num_attention_heads=job.num_heads,
        num_key_value_heads=job.num_kv_heads,
        max_position_embeddings=job.prompt_tokens + job.new_tokens,
        tie_word_embeddings=True,
    )
    model = Qwen2ForCausalLM(config)
    torch.nn.init.constant_(model.model.norm.weight, FINAL_NORM_SCALE)
    model.generation_config.eos_token_id = list(job.eos_ids)
    return model
