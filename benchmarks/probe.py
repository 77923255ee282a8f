"""What a probe costs a training step: reward columns, RFGO, the full dictionary.

    python -m benchmarks.probe [--config=configs/quickstart.py] [--repeats=15]

Random weights, random completions, a random dictionary of the recipe's size: costs do
not depend on what they hold. Each round takes every arm in turn, and of each arm the
second of two calls in a row: a first call pays for the memory of the program before it.
Figures are medians of the rounds; the overhead is the median of the rounds' differences
to the arm without a probe, with its 95 % interval, as a share of one whole step:
sampling, and an update without a probe. The arm `plain_again` is the one without a
probe once more: what it "costs" is the noise. One JSON line an arm.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags
from flax import nnx

from job_jax.command import load_config
from job_jax.mesh import batch_sharding, device_name, make_mesh, replicated, start_jax
from rlvr_jax.config import Config
from rlvr_jax.latents import Observer
from rlvr_jax.learn.batches import rollout_batch, weighted
from rlvr_jax.learn.objectives import policy_objective
from rlvr_jax.learn.update import Probing, Updater
from rlvr_jax.models import Transformer
from rlvr_jax.models.distribution import Sampling
from rlvr_jax.probes import Probe, placed
from rlvr_jax.sampler import sample
from rlvr_jax.selection import Selection
from rlvr_jax.types import Guidance, Prompts
from sae_jax import TSAE

_VOCABULARY = 64
_PROMPT = 32  # tokens


class Job:
    """The parts of one step of a recipe."""

    def __init__(self, config: Config):
        self.config = config
        train, model = config.train, config.model
        mesh = jax.sharding.get_mesh()
        policy = Transformer(model, _VOCABULARY, nnx.Rngs(0), eos_ids=(_VOCABULARY,))
        self._graphdef, params = nnx.split(policy)
        self._params = jax.device_put(params, replicated(mesh))
        self._sampling = jax.device_put(Sampling.of(train.sampling), replicated(mesh))
        prompts = Prompts(
            tokens=np.ones((train.prompts_per_step, _PROMPT), np.int32),
            lengths=np.full(train.prompts_per_step, _PROMPT, np.int32),
            uid=np.arange(train.prompts_per_step, dtype=np.uint32),
        )
        self._prompts = jax.device_put(prompts, batch_sharding(mesh))
        self._updater = Updater(
            self._graphdef,
            policy_objective(train.loss),
            optimizer=train.optimizer,
            total_steps=1,
            logit_chunk=train.logit_chunk,
            probing=Probing(
                layer=config.probe.layer,
                rfgo=train.rfgo,
                shuffled=False,
                observer=Observer(),
            ),
        )
        self._probe = _probe(config)
        self._guide = jax.device_put(
            self._probe.guide(
                self._probe.selection.sigma, proxy_strength=0.1, key=jax.random.key(0)
            ),
            replicated(mesh),
        )
        self._batch = jax.device_put(self._rolled_out(), batch_sharding(mesh))

    def arms(self) -> dict[str, Callable[[], Any]]:
        """Returns what is timed, by name."""
        guide, tsae = self._guide, self._probe.tsae
        return {
            "sampling": self._sample,
            "plain": lambda: self._gradient(None, None),
            "reward_columns": lambda: self._gradient(guide, None),
            "full_dictionary": lambda: self._gradient(guide, tsae),
            "plain_again": lambda: self._gradient(None, None),
        }

    def _gradient(self, guide: Any, dictionary: Any) -> Any:
        return self._updater.gradient(
            self._params, self._batch, self._sampling, guide, dictionary
        )

    def _sample(self) -> Any:
        return sample(
            self._graphdef,
            self._params,
            self._prompts,
            self._sampling,
            key=jax.random.key(0),
            weight_version=jnp.int32(0),
            samples_per_prompt=self.config.train.samples_per_prompt,
            max_new_tokens=self.config.train.sampling.max_new_tokens,
        )

    def _rolled_out(self) -> Any:
        """Returns a batch of completions, half of the groups without a preference."""
        train = self.config.train
        rollouts = jax.device_get(self._sample())
        shape = (train.prompts_per_step, train.samples_per_prompt)
        B, T = rollouts.tokens.shape
        random = np.random.default_rng(0)
        split_P1 = np.arange(shape[0])[:, None] % 2 == 0
        advantages_PG = np.where(split_P1, random.standard_normal(shape), 0.0)
        batch = rollout_batch(
            rollouts,
            advantages_PG.astype(np.float32),
            bands_P=random.integers(0, 4, shape[0]),
            guidance=Guidance(
                outcomes=random.integers(0, 2, B).astype(np.int32),
                proxied=np.repeat(~split_P1[:, 0], shape[1]),
                ref_levels=np.zeros((B, T), np.float32),
            ),
        )
        return weighted(batch, aggregation=train.loss.aggregation, max_length=T)


def _probe(config: Config) -> Probe:
    """Returns a probe of a random dictionary; it reads no fixed texts."""
    width, latents = config.model.width, config.probe.dictionary.sae.latents
    tsae = TSAE.init(jax.random.key(1), width=width, latents=latents)
    count = config.probe.features.count
    selection = Selection(
        latents=tuple(range(count)),
        weights=(1 / count,) * count,
        sigma=(1.0,) * count,
        score=(0.0,) * count,
        stability=None,
        method="list",
        arm="features",
        layer=config.probe.layer,
        dead=(),
        unstable=0,
        completions=0,
    )
    tsae = placed(tsae.on_host(), jax.sharding.get_mesh())
    return Probe(tsae=tsae, selection=selection, fixed=None)


def main(argv: Sequence[str]) -> int:
    """Returns 0 once one JSON line an arm is printed."""
    values = flags.FlagValues()
    flags.DEFINE_string(
        "config", "configs/quickstart.py", "a recipe with a probe", flag_values=values
    )
    flags.DEFINE_integer("repeats", 15, "rounds", 1, flag_values=values)
    values(["probe", *argv])
    config = load_config(Path(values.config), Config)
    start_jax(config.mesh)
    with jax.set_mesh(make_mesh(config.mesh)):
        arms = Job(config).arms()
        times: dict[str, list[float]] = {name: [] for name in arms}
        for _ in range(1 + values.repeats):
            for name, arm in arms.items():
                jax.block_until_ready(arm())
                start = time.perf_counter()
                jax.block_until_ready(arm())
                times[name].append(time.perf_counter() - start)
    seconds = {name: np.array(each[1:]) for name, each in times.items()}
    step_s = np.median(seconds["sampling"] + seconds["plain"])
    for name, each in seconds.items():
        line = {"arm": name, "device": device_name(), "load": os.getloadavg()[0]}
        line["seconds"] = float(np.median(each))
        if name not in ("sampling", "plain"):
            more = (each - seconds["plain"]) / step_s
            draws = np.random.default_rng(0).choice(more, (2000, more.size))
            low, high = np.quantile(np.median(draws, axis=1), (0.025, 0.975))
            line |= {"of_step": float(np.median(more)), "interval": [low, high]}
        print(json.dumps(line), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
