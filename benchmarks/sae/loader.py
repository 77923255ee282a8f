"""`python -m benchmarks.sae.loader [--size=D256 --tokens=1048576 --rounds=7]`.

Measures what reading from disk costs a training run. It alternates between blocks of
steps on one batch that stays on the device, and equal blocks on batches that the loader
reads from shards. Pairs are read at random as in training, or in blocks with
--buffer_tokens=N, like `pairs.buffer_tokens`; prefetch is as in training. The files are
new, so they are in the system's cache if they fit.
"""

import argparse
import dataclasses
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh

from benchmarks.sae.job import JOBS, Job
from benchmarks.sae.ours import make_config
from job_jax.mesh import batch_sharding, configure_cpu, make_mesh
from sae_jax.config import Config
from sae_jax.data.pairs import PairSource
from sae_jax.data.shards import ShardWriter
from sae_jax.optimize import TrainState, init_state, train_step
from sae_jax.train import open_source
from sae_jax.types import Pairs

_DOCUMENT = 512  # tokens
_STEPS = 40  # per block: ten times the prefetched steps


def main(argv: Sequence[str]) -> int:
    """Prints a JSON line: seconds per step of each kind, and their ratio by round."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.sae.loader", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("--size", default="D256", choices=[*JOBS])
    parser.add_argument("--kind", default="batchtopk", help="or temporal")
    parser.add_argument("--tokens", type=int, default=1 << 20, help="on disk")
    parser.add_argument("--buffer_tokens", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=7)
    flags = parser.parse_args(argv)
    job = JOBS[flags.size]
    config = make_config(flags.kind, job)
    configure_cpu(config.mesh)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "activations"
        write_activations(path, job, tokens=flags.tokens)
        pairs = dataclasses.replace(
            config.pairs, path=str(path), buffer_tokens=flags.buffer_tokens
        )
        mesh = make_mesh(config.mesh)
        source, _ = open_source(pairs, seed=0, mesh=mesh)
        seconds = _measure(config, source, mesh, rounds=flags.rounds)
    ratios = sorted(disk / held for held, disk in seconds)
    held, disk = np.median(seconds, axis=0)
    record = {
        "size": flags.size,
        "kind": flags.kind,
        "tokens": flags.tokens,
        "buffer_tokens": flags.buffer_tokens,
        "step_s": {"held": held, "from_disk": disk},
        "ratio": {"median": np.median(ratios), "low": ratios[0], "high": ratios[-1]},
    }
    print(json.dumps(record))
    return 0


def write_activations(path: Path, job: Job, *, tokens: int) -> None:
    """Writes documents of 512 tokens, each with rows of the job's batch."""
    rows_BD = job.activations()
    rng = np.random.default_rng(0)
    with ShardWriter(
        path, width=rows_BD.shape[1], layer=0, hook="h", model="m", roles=("text",)
    ) as out:
        for start in range(0, tokens, _DOCUMENT):
            out.add(
                rows_BD[rng.integers(0, len(rows_BD), _DOCUMENT)],
                token_ids=start + np.arange(_DOCUMENT),
                roles=np.zeros(_DOCUMENT, int),
            )


def _measure(
    config: Config, source: PairSource, mesh: Mesh, *, rounds: int
) -> list[tuple[float, float]]:
    """Returns the seconds per step in each round: on one batch, and from disk."""
    seconds = []
    with jax.set_mesh(mesh):
        batches = source.iter_batches(0, _STEPS * (rounds + 1))
        held = jax.device_put(next(source.iter_batches(0, 1)), batch_sharding(mesh))
        state = init_state(held, config=config)
        for _ in range(rounds + 1):
            one: dict[str, float] = {}
            for kind in ("held", "disk"):
                start = time.perf_counter()
                state = _run_block(state, held if kind == "held" else batches, config)
                one[kind] = (time.perf_counter() - start) / _STEPS
            seconds.append((one["held"], one["disk"]))
    return seconds[1:]  # the first round compiles


def _run_block(
    state: TrainState, source: Pairs | Iterator[Pairs], config: Config
) -> TrainState:
    """Runs a block of steps like `sae_jax.train`: with one step in flight."""
    report = None
    for _ in range(_STEPS):
        batch = source if isinstance(source, Pairs) else jax.device_put(next(source))
        jax.block_until_ready(report)
        state, report = train_step(state, batch, config=config)
    jax.block_until_ready((state, report))
    return state


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
