"""How many virtual CPU devices a run starts with, by the size of its policy."""

import dataclasses
import json
from pathlib import Path

import jax

from job_jax.config import MeshConfig
from job_jax.mesh import num_cpu_devices
from job_jax.processes import asks_for_several, process_count
from rlvr_jax.config import Config
from rlvr_jax.models.huggingface import hf_vocab_size, resolve_model
from rlvr_jax.run.throughput import num_matmul_weights

# Every device holds and reads all weights. On two cores, sampling with two devices is
# 7 % faster than with one at 24 million weights, and slower at 135 million.
MAX_WEIGHTS_PER_CORE = 64_000_000

RECORD = "cpu_devices"  # in config.json


def choose_mesh(config: Config, workdir: Path | None = None) -> MeshConfig:
    """Returns `config.mesh` with the number of CPU devices to start JAX with.

    A number in the config stays. Otherwise, a run that resumes in `workdir` keeps the
    number it began with, so it computes the same bits. A new run gets one device for
    all cores if its policy has more than 64 million weights and only the batch is
    split. All others get -1, which means one device per core. Several processes share
    a machine's cores differently each time, so they keep no number.
    """
    mesh = config.mesh
    if mesh.cpu_devices != -1:
        return mesh
    record = (workdir or Path()) / "config.json"
    is_begun = workdir is not None and record.is_file() and not asks_for_several()
    count = _recorded(record) if is_begun else _by_size(config)
    return dataclasses.replace(mesh, cpu_devices=count)


def record() -> dict[str, int]:
    """Returns the entry of config.json that counts one process's CPU devices.

    It is empty on an accelerator, and if several processes run together.
    """
    if jax.default_backend() != "cpu" or process_count() > 1:
        return {}
    return {RECORD: jax.local_device_count()}


def describe_choice(config: Config, workdir: Path) -> list[str]:
    """Returns a line that explains the number of CPU devices, if it is not obvious.

    Call it after JAX has started and config.json is written.
    """
    if jax.default_backend() != "cpu" or process_count() > 1:
        return []
    count, began = jax.local_device_count(), _recorded(workdir / "config.json")
    if began not in (-1, count):
        return [
            f"CPU devices: {count}, but this run began with {began}; from here on it "
            "equals an uninterrupted run only up to rounding (set "
            f"mesh.cpu_devices={began} to get the same bits)"
        ]
    per_core = num_cpu_devices(dataclasses.replace(config.mesh, cpu_devices=-1))
    if config.mesh.cpu_devices != -1 or count == per_core:
        return []
    return [
        f"CPU devices: {count}, chosen by the policy's size when the run began; one "
        f"per core would be {per_core} (mesh.cpu_devices={per_core})"
    ]


def _recorded(path: Path) -> int:
    """Returns the number in a config.json; -1 if an earlier version wrote it."""
    return json.loads(path.read_text()).get(RECORD, -1)


def _by_size(config: Config) -> int:
    """Returns 1 for a large policy that one device can hold, else -1."""
    mesh, sampler = config.mesh, config.sampler
    has_layout = mesh.data != -1 or mesh.fsdp > 1 or mesh.tensor > 1
    if has_layout or sampler.devices or sampler.tensor_parallel > 1:
        return -1
    return 1 if _num_weights(config) > MAX_WEIGHTS_PER_CORE else -1


def _num_weights(config: Config) -> int:
    """Returns the weights of the layers, and of a checkpoint's output layer.

    Without a checkpoint the size of the vocabulary is not known yet.
    """
    start = config.pretrained
    if not start.path:
        return num_matmul_weights(config.model, 0)
    has_weights = Path(start.path).is_dir()
    model = resolve_model(start, config.model) if has_weights else config.model
    return num_matmul_weights(model, hf_vocab_size(start))
