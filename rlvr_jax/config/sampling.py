"""Settings of sampling: how completions are drawn, and on which devices."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar

from job_jax.config import PositiveFraction
from job_jax.schema import (
    ConfigSection,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    check,
    read_other_names,
)

# Completions of a step, or of one batch of an evaluation. The largest published steps
# have some ten thousand.
MAX_COMPLETIONS = 2**20
_TOKEN_BYTES = 8  # its id and its log-probability


def check_num_completions(max_new_tokens: int, **factors: int) -> None:
    """Raises ConfigError if the product of the fields `factors` is absurdly large."""
    count = math.prod(factors.values())
    gib = count * max_new_tokens * _TOKEN_BYTES / 2**30
    largest = max(factors, key=factors.__getitem__)
    product = " x ".join(f"{name}={n}" for name, n in factors.items())
    check(
        count <= MAX_COMPLETIONS,
        f"{product} means {count:,} completions at once, whose ids and "
        f"log-probabilities alone need {gib:,.0f} GiB; lower {largest} to at most "
        f"{MAX_COMPLETIONS * factors[largest] // count}",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplingConfig(ConfigSection):
    """How completions are drawn. All but max_new_tokens are traced, not compiled in.

    With `pretrained.path`, a temperature, top_p or top_k that you leave out comes from
    the checkpoint's generation_config.json, if it has one.
    """

    earlier_values: ClassVar[Mapping[str, Any]] = {
        "temperature": 1.0,  # for old records, which never used a checkpoint's values
        "top_p": 1.0,
        "top_k": 0,
    }

    other_names: ClassVar[Mapping[str, str]] = read_other_names(
        max_new_tokens=(
            "max_tokens max_completion_length max_response_length "
            "max_gen_tokens generate_max_len max_gen_len response_length"
        ),
        temperature="temp t",
        top_p="nucleus",
        min_new_tokens="min_tokens",
    )

    max_new_tokens: PositiveInt = 96  # longest completion, in tokens
    temperature: NonNegativeFloat = 1.0  # 0: greedy
    top_p: PositiveFraction = 1.0  # 1: off
    top_k: NonNegativeInt = 0  # 0: off
    min_new_tokens: NonNegativeInt = 0  # no end-of-sequence before this length

    def __post_init__(self) -> None:
        """Refuses a minimum length that is not below the maximum."""
        super().__post_init__()
        check(
            self.min_new_tokens < self.max_new_tokens,
            f"min_new_tokens={self.min_new_tokens} must be below max_new_tokens="
            f"{self.max_new_tokens}",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplerConfig(ConfigSection):
    """How the policy samples on the devices: see docs/scale/meshes.md."""

    # Devices that share a copy of the weights, in compute dtype; 0: as in the update
    tensor_parallel: NonNegativeInt = 0
    devices: NonNegativeInt = 0  # the last n only sample; 0: all, in turns with updates
    slots: NonNegativeInt = 0  # rows decoded at a time, over all devices; 0: all

    def __post_init__(self) -> None:
        """Refuses sampler devices without a layout of the weights on them."""
        super().__post_init__()
        check(
            self.devices == 0 or self.tensor_parallel > 0,
            f"devices={self.devices} gives the sampler its own copies of the weights, "
            "but tensor_parallel=0 makes none; set tensor_parallel to the number of "
            "devices that share a copy, such as 1",
        )
        check(
            self.tensor_parallel == 0 or self.devices % self.tensor_parallel == 0,
            f"devices={self.devices} does not split into copies over tensor_parallel="
            f"{self.tensor_parallel}; make it a multiple",
        )
