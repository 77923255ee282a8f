"""FLOPs and bytes that a job needs, counted before anything is measured.

Only unavoidable work counts: every prompt read once for its G samples, only the keys
that a query may see by causality, no recomputation, no optimizer, nothing after a
completion's end. A side that does more gets no credit for it, so shares of the
machine's peak are comparable. If completions end at random, counts are expectations
under the distribution of lengths: P(length >= t) = (1 - p)^(t - 1), p = end ids / ids.
"""

import dataclasses

from benchmarks.figures import LengthLaw
from benchmarks.job import Job
from rlvr_jax.config import ModelConfig
from rlvr_jax.run.throughput import num_matmul_weights

_FLOAT32 = 4  # bytes


def model_config(job: Job) -> ModelConfig:
    """Returns the job's model as our configuration."""
    shape = {
        name: value
        for name, value in dataclasses.asdict(job).items()
        if name in {field.name for field in dataclasses.fields(ModelConfig)}
    }
    return ModelConfig(**shape)


def count_parameters(job: Job) -> int:
    """Returns the number of parameters: matrices (tied head) and norm scales."""
    norms = (2 * job.num_layers + 1) * job.hidden_size
    return num_matmul_weights(model_config(job), job.vocab_size) + norms


def length_law(job: Job) -> LengthLaw:
    """Returns mean, variance and limit of a completion's number of tokens."""
    alive_T = _alive(job)
    mean = sum(alive_T)
    square = sum((2 * t - 1) * alive for t, alive in enumerate(alive_T, 1))
    return LengthLaw(mean=mean, variance=square - mean**2, limit=job.new_tokens)


def expected_tokens(job: Job) -> float:
    """Returns the expected completion tokens in a step."""
    return job.num_prompts * job.group_size * sum(_alive(job))


def _alive(job: Job) -> list[float]:
    """Returns the probability that a completion has a token t, for t = 1 ... T."""
    goes_on = 1 - job.num_end_ids / job.vocab_size
    return [goes_on**t for t in range(job.new_tokens)]


def forward_flops(job: Job) -> int:
    """Returns the FLOPs of one pass over prompts and completions.

    2 per weight and token, and 4 N H per layer for every query and key it sees.
    Completion token t is predicted from token t - 1, which sees S + t - 1 keys. The
    last token is never read. The head works once per completion token.
    """
    return round(sum(_forward_parts(job)))


def _forward_parts(job: Job) -> tuple[float, float]:
    """Returns the FLOPs of a pass: for products with weights, and for attention."""
    P, S = job.num_prompts, job.prompt_tokens
    B = P * job.group_size
    head = job.vocab_size * job.hidden_size
    layers = num_matmul_weights(model_config(job), job.vocab_size) - head
    later = [*enumerate(_alive(job), 1)][1:]
    read = P * S + B * sum(alive for _, alive in later)
    pairs = P * S * (S + 1) / 2 + B * sum((S + t - 1) * alive for t, alive in later)
    products = 2 * layers * read + 2 * head * expected_tokens(job)
    return products, 4 * job.num_layers * job.num_heads * job.head_dim * pairs


def update_flops(job: Job) -> int:
    """Returns the FLOPs of a pass and its gradient: backward costs two forward passes.

    With adapters it costs one, because frozen weights need no gradient, and adapters
    are small.
    """
    return (2 if job.lora_rank else 3) * forward_flops(job)


def adapter_update_flops(job: Job) -> int:
    """Returns the FLOPs of an update that only trains adapters.

    Frozen weights need no gradient, so the backward pass of their product is one
    product, while attention's is two. The adapters' own products do not count.
    """
    products, attention = _forward_parts(job)
    return round(2 * products + 3 * attention)


def decode_bytes(job: Job) -> int:
    """Returns the float32 bytes that decoding reads.

    Every token but the first reads all weights once for all rows that have this token,
    each prompt's keys and values once for its group, and each row's own keys and values
    so far. The first token comes from the pass over the prompt and only reads the head.
    """
    P, G, S = job.num_prompts, job.group_size, job.prompt_tokens
    weights = num_matmul_weights(model_config(job), job.vocab_size)
    position = 2 * job.num_layers * job.num_kv_heads * job.head_dim
    numbers = float(job.vocab_size * job.hidden_size)
    for t, alive in [*enumerate(_alive(job), 1)][1:]:
        any_of_all, any_of_group = (1 - (1 - alive) ** n for n in (P * G, G))
        positions = any_of_group * P * S + alive * P * G * (t - 1)
        numbers += any_of_all * weights + position * positions
    return round(_FLOAT32 * numbers)
