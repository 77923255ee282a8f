"""The cost of a probe in a training step: RFGO's features, and sums of every latent.

    python -m benchmarks.probe [--config=configs/quickstart.py] [--repeats=15]

Weights, completions and the autoencoder (of the recipe's size) are random, because
costs do not depend on their values. Each round runs every arm in turn, twice in a row.
Only the second call counts: the first pays for the memory of the previous program.
Figures are medians over the rounds. The overhead is the median of the rounds'
differences to the arm without a probe, with its 95 % interval. It is a share of one
whole step: sampling, and an update without a probe. The arm `no_probe_again` repeats
the one without a probe: its "cost" is the noise. Prints one JSON line per arm.
"""

import dataclasses
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
from flax import nnx

from job_jax.command import load_config
from job_jax.flags import Flags, UsageError, parse_flags
from job_jax.mesh import (
    batch_sharding,
    describe_devices,
    make_mesh,
    replicated_sharding,
    start_jax,
)
from job_jax.schema import PositiveInt
from rlvr_jax.config import Config
from rlvr_jax.learn.batches import batch_from_rollouts, with_loss_weights
from rlvr_jax.learn.objectives import policy_objective
from rlvr_jax.learn.probe_inputs import ProbeInputs, ProbeSpec
from rlvr_jax.learn.update import Updater
from rlvr_jax.models import Transformer
from rlvr_jax.models.distribution import SamplingParams
from rlvr_jax.probe import SAEProbeConfig
from rlvr_jax.probe.sae_probe import SAEProbe, shard_sae
from rlvr_jax.probe.selection import FeatureSelection
from rlvr_jax.sampler import sample
from rlvr_jax.types import ProbeTargets, Prompts
from sae_jax import TSAE

_VOCABULARY_SIZE = 64
_PROMPT_LENGTH = 32  # tokens


class ProbeStep:
    """One training step of a recipe, split into the timed parts."""

    def __init__(self, config: Config):
        self.config = config
        train, model = config.train, config.model
        mesh = jax.sharding.get_mesh()
        policy = Transformer(
            model, _VOCABULARY_SIZE, nnx.Rngs(0), eos_ids=(_VOCABULARY_SIZE,)
        )
        self._graphdef, params = nnx.split(policy)
        self._params = jax.device_put(params, replicated_sharding(mesh))
        self._sampling = jax.device_put(
            SamplingParams.from_config(train.sampling), replicated_sharding(mesh)
        )
        prompts = Prompts(
            tokens=np.ones((train.batch_size, _PROMPT_LENGTH), np.int32),
            lengths=np.full(train.batch_size, _PROMPT_LENGTH, np.int32),
            uid=np.arange(train.batch_size, dtype=np.uint32),
        )
        self._prompts = jax.device_put(prompts, batch_sharding(mesh))
        self._updater = Updater(
            self._graphdef,
            policy_objective(train.loss),
            optimizer=train.optimizer,
            total_steps=1,
            logits_chunk_size=train.logits_chunk_size,
            probe=ProbeSpec(
                layer=config.probe.layer,
                rfgo=train.rfgo,
                shuffle_weights=False,
            ),
        )
        self._inputs, self._observed = probe_inputs(random_probe(config))
        self._batch = jax.device_put(self._sample_batch(), batch_sharding(mesh))

    def arms(self) -> dict[str, Callable[[], Any]]:
        """Returns the functions to time, by name."""
        inputs, observed = self._inputs, self._observed
        return {
            "sampling": self._sample,
            "no_probe": lambda: self._gradient(None),
            "features": lambda: self._gradient(inputs),
            "observer": lambda: self._gradient(observed),
            "no_probe_again": lambda: self._gradient(None),
        }

    def _gradient(self, inputs: ProbeInputs | None) -> Any:
        return self._updater.gradient(self._params, self._batch, self._sampling, inputs)

    def _sample(self) -> Any:
        return sample(
            self._graphdef,
            self._params,
            self._prompts,
            self._sampling,
            key=jax.random.key(0),
            weight_version=jnp.int32(0),
            num_samples=self.config.train.group_size,
            max_new_tokens=self.config.train.sampling.max_new_tokens,
        )

    def _sample_batch(self) -> Any:
        """Returns a batch of completions; half of the groups have advantages of 0."""
        train = self.config.train
        rollouts = jax.device_get(self._sample())
        shape = (train.batch_size, train.group_size)
        B, T = rollouts.tokens.shape
        random = np.random.default_rng(0)
        split_P1 = np.arange(shape[0])[:, None] % 2 == 0
        advantages_PG = np.where(split_P1, random.standard_normal(shape), 0.0)
        batch = batch_from_rollouts(
            rollouts,
            advantages_PG.astype(np.float32),
            bands_P=random.integers(0, 4, shape[0]),
            probe_targets=ProbeTargets(
                row=np.arange(B, dtype=np.int32),
                outcomes=random.integers(0, 2, B).astype(np.int32),
                proxy_eligible=np.repeat(~split_P1[:, 0], shape[1]),
                ref_features=None,
            ),
        )
        return with_loss_weights(
            batch, aggregation=train.loss.aggregation, max_length=T
        )


def probe_inputs(probe: SAEProbe) -> tuple[ProbeInputs, ProbeInputs]:
    """Returns an update's inputs from a probe: with only features, and all latents."""
    features = probe.make_features(probe.rms, proxy_strength=0.1, key=jax.random.key(0))
    inputs = jax.device_put(
        ProbeInputs(reader=probe.reader, reasoning_features=features),
        replicated_sharding(jax.sharding.get_mesh()),
    )
    return inputs, dataclasses.replace(inputs, observer=probe.observer)


def random_probe(config: Config) -> SAEProbe:
    """Returns a probe of a random autoencoder, without reference texts."""
    settings = config.probe
    if not isinstance(settings, SAEProbeConfig):
        raise UsageError(f"recipe {config.name} has no autoencoder as probe; use one")
    width, latents = config.model.hidden_size, settings.sae.architecture.latents
    tsae = TSAE.init(jax.random.key(1), width=width, latents=latents)
    count = settings.features.num_features
    selection = FeatureSelection(
        latents=tuple(range(count)),
        weights=(1 / count,) * count,
        rms=(1.0,) * count,
        scores=(0.0,) * count,
        effects=(0.0,) * count,
        effect_errors=(0.0,) * count,
        q_values=None,
        seed_cosine=None,
        method="list",
        control="none",
        layer=config.probe.layer,
        dead=(),
        num_alive=latents,
        num_stable=None,
        num_completions=0,
        halves=None,
    )
    tsae = shard_sae(tsae.to_host(), jax.sharding.get_mesh())
    return SAEProbe.of_selection(tsae, selection)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProbeFlags(Flags):
    """The flags of this command."""

    config: str = "configs/quickstart.py"  # a recipe with a probe
    repeats: PositiveInt = 15  # rounds


def main(argv: Sequence[str]) -> int:
    """Prints one JSON line per arm and returns 0."""
    flags, _ = parse_flags(argv, ProbeFlags, usage=__doc__)
    config = load_config(Path(flags.config), Config)
    start_jax(config.mesh)
    with jax.set_mesh(make_mesh(config.mesh)):
        arms = ProbeStep(config).arms()
        times: dict[str, list[float]] = {name: [] for name in arms}
        for _ in range(1 + flags.repeats):
            for name, arm in arms.items():
                jax.block_until_ready(arm())
                start = time.perf_counter()
                jax.block_until_ready(arm())
                times[name].append(time.perf_counter() - start)
    seconds = {name: np.array(rounds[1:]) for name, rounds in times.items()}
    step_s = np.median(seconds["sampling"] + seconds["no_probe"])
    for name, rounds in seconds.items():
        line = {"arm": name, "device": describe_devices(), "load": os.getloadavg()[0]}
        line["seconds"] = float(np.median(rounds))
        if name not in ("sampling", "no_probe"):
            more = (rounds - seconds["no_probe"]) / step_s
            draws = np.random.default_rng(0).choice(more, (2000, more.size))
            low, high = np.quantile(np.median(draws, axis=1), (0.025, 0.975))
            line |= {"of_step": float(np.median(more)), "interval": [low, high]}
        print(json.dumps(line), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
