"""FLOPs and bytes that a job needs, counted before anything is measured.

Counted is what cannot be avoided: every prompt read once for its G samples, only the
keys that causality lets a query see, no recomputation, no optimizer. A side that does
more gets no credit for it, so shares of the machine's peak are comparable.
"""

import dataclasses

from benchmarks.job import Job
from rlvr_jax.config import ModelConfig
from rlvr_jax.run.throughput import num_matmul_weights

_FLOAT32 = 4  # bytes


def model_config(job: Job) -> ModelConfig:
    """Returns the job's model as our configuration spells it."""
    shape = {
        name: value
        for name, value in dataclasses.asdict(job).items()
        if name in {field.name for field in dataclasses.fields(ModelConfig)}
    }
    return ModelConfig(**shape)


def count_parameters(job: Job) -> int:
    """Returns the number of parameters: products (tied head), and norm scales."""
    norms = (2 * job.num_layers + 1) * job.hidden_size
    return num_matmul_weights(model_config(job), job.vocab_size) + norms


def forward_flops(job: Job) -> int:
    """Returns the FLOPs of one pass over prompts and completions.

    2 a weight and token, 4 N H a layer for every query and key it sees. The completion
    token t is predicted from token t - 1, so the last one is never read, and the head
    works at B T positions.
    """
    P, S, T = job.num_prompts, job.prompt_tokens, job.new_tokens
    B = P * job.group_size
    head = job.vocab_size * job.hidden_size
    layers = num_matmul_weights(model_config(job), job.vocab_size) - head
    pairs = P * S * (S + 1) // 2 + B * ((T - 1) * S + T * (T - 1) // 2)
    products = 2 * layers * (P * S + B * (T - 1)) + 2 * head * B * T
    return products + 4 * job.num_layers * job.num_heads * job.head_dim * pairs


def update_flops(job: Job) -> int:
    """Returns the FLOPs of a pass and its gradient: backward is two forwards."""
    return 3 * forward_flops(job)


def decode_bytes(job: Job) -> int:
    """Returns the float32 bytes that decoding reads.

    Each of T - 1 tokens reads all weights once, each prompt's keys and values once for
    its group, and each row's own keys and values up to itself; the first token comes
    from the prompt's pass and reads the head alone.
    """
    P, S, T = job.num_prompts, job.prompt_tokens, job.new_tokens
    B = P * job.group_size
    weights = num_matmul_weights(model_config(job), job.vocab_size)
    position = 2 * job.num_layers * job.num_kv_heads * job.head_dim
    positions = (T - 1) * P * S + B * T * (T - 1) // 2
    head = job.vocab_size * job.hidden_size
    return _FLOAT32 * ((T - 1) * weights + head + position * positions)
