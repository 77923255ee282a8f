"""Problems -> completions, in batches of one size."""

from collections.abc import Iterator, Sequence

import numpy as np
from flax import nnx

from job_jax.processes import device_get
from job_jax.schema import check
from job_jax.working import working
from rlvr_jax.config import SamplingConfig
from rlvr_jax.rollouts.episodes import sample_episodes
from rlvr_jax.rollouts.request import SampleRequest, draw_rollouts
from rlvr_jax.run.setup import RunSetup
from rlvr_jax.sampler import ScopedIntervention
from rlvr_jax.tokenizer import truncate_at_stop
from rlvr_jax.types import Problem, Rollouts


def sample_completions(setup: RunSetup, request: SampleRequest) -> Rollouts:
    """Returns the requested completions in NumPy, cut at stop texts.

    With an environment they are episodes. Raises ConfigError if an `intervention` is
    requested for episodes.
    """
    num_problems = len(request.filled_problems)
    with working(f"sampling {num_problems} x {request.num_samples} completions"):
        if setup.config.environment.enabled:
            check(
                request.intervention is None,
                "an intervention works only on completions of one turn; set "
                "environment.name=none",
            )
            return sample_episodes(setup, request)
        return fetch_rollouts(setup, start_sampling(setup, request))


def start_sampling(setup: RunSetup, request: SampleRequest) -> Rollouts:
    """Returns completions on the sampler's devices, which may still compute them."""
    return draw_rollouts(
        setup,
        request,
        request.encode_prompts(setup),
        num_samples=request.num_samples,
        max_new_tokens=request.sampling.max_new_tokens,
    )


def fetch_rollouts(setup: RunSetup, rollouts: Rollouts) -> Rollouts:
    """Waits for rollouts; returns them in NumPy, cut at stop texts."""
    return truncate_at_stop(device_get(rollouts), setup.tokenizer)


def sample_problems(
    setup: RunSetup,
    params: nnx.State,
    problems: Sequence[Problem],
    *,
    sampling: SamplingConfig,
    num_samples: int,
    batch_size: int,
    stream: str,
    weight_version: int = 0,
    intervention: ScopedIntervention | None = None,
) -> Iterator[tuple[list[Problem], Rollouts]]:
    """Yields the problems in batches, each with rollouts of the policy `params`.

    A row's sampling key depends only on the config's seed, the `stream` and the
    problem's id, so samples of two policies are paired. The last batch may have fewer
    problems than prompts, because repeated prompts fill it up.
    """
    weights = setup.sampler_layout.place_params(params)
    for start in range(0, len(problems), batch_size):
        batch = list(problems[start : start + batch_size])
        request = SampleRequest(
            problems=batch,
            weights=weights,
            sampling=sampling,
            num_samples=num_samples,
            key=setup.stream_key(stream),
            weight_version=np.int32(weight_version),
            batch_size=batch_size,
            intervention=intervention,
        )
        yield batch, sample_completions(setup, request)


def slot_metrics(rounds: Sequence[Rollouts]) -> dict[str, float]:
    """Returns how much of the sampler's work became completion tokens.

    `rollout/wasted_tokens` counts tokens of slots whose rows had ended, and tokens
    after a stop text. Returns {} if no round counted its slots.
    """
    counted = [
        (int(rollouts.slot_steps), int(rollouts.mask.sum()))
        for rollouts in rounds
        if rollouts.slot_steps is not None
    ]
    if not counted:
        return {}
    slot_steps, tokens = map(sum, zip(*counted, strict=True))
    return {
        "rollout/occupancy": tokens / slot_steps,
        "rollout/wasted_tokens": float(slot_steps - tokens),
    }
