"""A request to a policy: completions of several problems, sampled with one key."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
from flax import nnx

from job_jax.working import working
from rlvr_jax.config import SamplingConfig
from rlvr_jax.data import encode_prompts
from rlvr_jax.models.distribution import SamplingParams
from rlvr_jax.run.setup import RunSetup
from rlvr_jax.sampler import ScopedIntervention
from rlvr_jax.types import Problem, Prompts, Rollouts


@dataclasses.dataclass(frozen=True, kw_only=True)
class SampleRequest:
    """A request for `num_samples` completions of each problem, for `rollouts.sample`.

    `weights` are parameters placed by `setup.sampler_layout.place_params`. With
    `batch_size`, the first problem is repeated to fill the batch, so a smaller last
    batch can use the compiled program of the others.
    """

    problems: Sequence[Problem]
    weights: nnx.State
    sampling: SamplingConfig
    num_samples: int
    key: jax.Array
    weight_version: Any
    batch_size: int | None = None
    intervention: ScopedIntervention | None = None

    @property
    def filled_problems(self) -> list[Problem]:
        """Returns the problems, followed by copies that fill up the batch."""
        count = len(self.problems)
        missing = 0 if self.batch_size is None else self.batch_size - count
        return [*self.problems, *[self.problems[0]] * missing]

    def encode_prompts(self, setup: RunSetup) -> Prompts:
        """Returns the prompts of `filled_problems`, in NumPy."""
        return encode_prompts(
            self.filled_problems,
            setup.tokenizer,
            pad_multiple=setup.config.prompt_pad_multiple,
        )


def draw_rollouts(
    setup: RunSetup,
    request: SampleRequest,
    prompts: Prompts,
    *,
    num_samples: int,
    max_new_tokens: int,
) -> Rollouts:
    """Returns the requested completions of the prompts, on the sampler's devices.

    The devices may still be computing them.
    """
    with working("compiling the sampler"):  # once compiled, this returns at once
        return setup.sample(
            request.weights,
            setup.shard_batch(prompts),
            setup.replicate(SamplingParams.from_config(request.sampling)),
            key=request.key,
            weight_version=setup.replicate(request.weight_version),
            num_samples=num_samples,
            max_new_tokens=max_new_tokens,
            intervention=request.intervention,
        )
