"""The same texts, read by several checkpoints of a run, to train a crosscoder on."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from flax import nnx

from job_jax.command import load_config
from job_jax.files import write_atomically
from job_jax.processes import device_get
from job_jax.steps import StopSignal
from rlvr_jax.analysis.completions import complete_problems
from rlvr_jax.config import Config, DifficultyConfig
from rlvr_jax.data.difficulty import bands_of_pass_rates
from rlvr_jax.probe.capture import add_sequences, open_writer, read_residuals
from rlvr_jax.probe.weight_noise import add_matched_noise
from rlvr_jax.rollouts.graded import GradedCompletion, grade_completions
from rlvr_jax.run.lineage import CONFIG_FILE
from rlvr_jax.run.load import (
    load_checkpoint_params,
    load_params_before_rl,
    load_policy,
)
from rlvr_jax.run.setup import RunSetup
from rlvr_jax.types import BANDS, Problem, Rollouts

BEFORE, NOISE = "before", "before_with_noise"
_DOCUMENTS_FILE, _BANDS_FILE = "documents.jsonl", "bands.json"


class CheckpointTexts(NamedTuple):
    """A run's texts as its checkpoints read them. Made by `write_texts`.

    `activations` are data sets by checkpoint, first to last. `noise` is the data set of
    the policy before RL with weight noise that moves the stream as far as RL did.
    `bands` maps each problem to its band.
    """

    activations: Mapping[str, Path]
    noise: Path
    bands: Mapping[str, str]


class _Batch(NamedTuple):
    problems: Sequence[Problem]
    rollouts: Rollouts
    graded: Sequence[GradedCompletion]


def write_texts(
    workdir: Path,
    directory: Path,
    *,
    steps: Sequence[int],
    layer: int,
    num_problems: int,
    num_samples: int,
    stop: StopSignal,
) -> CheckpointTexts:
    """Writes the residual stream of each checkpoint on the same completions.

    The policy before RL and the policy after the last of `steps` each complete every
    problem `num_samples` times. An interrupted call resumes: a data set that exists is
    complete. A problem's band is by the pass rate of the policy before RL.
    """
    config = load_config(workdir / CONFIG_FILE, Config)
    train = workdir / "checkpoints" / "train"
    names = [BEFORE, *(f"step_{step}" for step in steps)]
    activations = {name: directory / name for name in names}
    noise = directory / NOISE
    if all(path.is_dir() for path in (*activations.values(), noise)):
        return CheckpointTexts(activations, noise, _read_bands(directory))
    directory.mkdir(parents=True, exist_ok=True)
    with load_policy(config, train / str(steps[-1]), stage="train") as loaded:
        setup = loaded.setup
        checkpoints = workdir / "checkpoints"
        authors = {
            0: load_params_before_rl(setup, checkpoints),
            steps[-1]: loaded.params,
        }
        batches = [
            _Batch(*batch, grade_completions(setup, *batch))
            for step, params in authors.items()
            for batch in complete_problems(
                setup,
                params,
                step,
                num_problems=num_problems,
                num_samples=num_samples,
                stop=stop,
            )
        ]
        _write_documents(directory, batches, config.difficulty)
        for name, step in zip(names, (0, *steps), strict=True):
            params = authors.get(step)
            if params is None:
                params = load_checkpoint_params(setup, train, step)
            if not activations[name].is_dir():
                _write_stream(setup, params, activations[name], batches, layer=layer)
        if not noise.is_dir():
            noisy = _add_noise(setup, authors, batches[0].rollouts, layer=layer)
            _write_stream(setup, noisy, noise, batches, layer=layer)
    return CheckpointTexts(activations, noise, _read_bands(directory))


def _write_stream(
    setup: RunSetup,
    params: nnx.State,
    path: Path,
    batches: Sequence[_Batch],
    *,
    layer: int,
) -> None:
    """Writes a checkpoint's stream in float32, because RL's change is small."""
    name = f"{setup.config.name}, {path.name}"
    with open_writer(setup, path, layer=layer, model=name, dtype="float32") as shards:
        for batch in batches:
            add_sequences(
                setup,
                shards,
                batch.problems,
                batch.rollouts,
                params=params,
                layer=layer,
            )


def _add_noise(
    setup: RunSetup, authors: Mapping[int, Any], rollouts: Rollouts, *, layer: int
) -> Any:
    """Returns the policy before RL with weight noise as large as RL on a batch.

    Both move the residual stream of the batch equally far.
    """
    prompts, tokens = setup.shard_batch((rollouts.prompts, rollouts.tokens))
    own_BT1 = np.asarray(rollouts.mask)[:, :, None]

    def read(params: nnx.State) -> np.ndarray:
        stream = read_residuals(setup.graphdef, params, prompts, tokens, layer=layer)
        return np.asarray(device_get(stream[1]), np.float64)

    before, after = authors.values()
    clean_BTD = read(before)

    def measure_drift(params: nnx.State) -> float:
        moved_BTD = np.where(own_BT1, read(params) - clean_BTD, 0.0)
        return float(np.linalg.norm(moved_BTD))

    return add_matched_noise(
        before,
        measure_drift,
        target=measure_drift(after),
        key=setup.stream_key("noise"),
    )


def _write_documents(
    directory: Path, batches: Sequence[_Batch], difficulty: DifficultyConfig
) -> None:
    """Writes a line for each text, and the band of each problem."""
    outcomes: dict[str, list[float]] = {}
    lines = []
    for graded in (each for batch in batches for each in batch.graded):
        row = graded.to_json("crosscoder", graded.weight_version)
        lines.append(json.dumps(row) + "\n")
        if graded.weight_version == 0:
            outcomes.setdefault(row["id"], []).append(row["reward"])
    with write_atomically(directory / _DOCUMENTS_FILE) as partial:
        partial.write_text("".join(lines), encoding="utf-8")
    rates = np.array([np.mean(rewards) for rewards in outcomes.values()])
    bands = bands_of_pass_rates(rates, difficulty)
    named = {
        problem: BANDS[band] for problem, band in zip(outcomes, bands, strict=True)
    }
    with write_atomically(directory / _BANDS_FILE) as partial:
        partial.write_text(json.dumps(named) + "\n", encoding="utf-8")


def _read_bands(directory: Path) -> dict[str, str]:
    return json.loads((directory / _BANDS_FILE).read_text(encoding="utf-8"))
