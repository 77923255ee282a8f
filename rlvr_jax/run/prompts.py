"""A recipe that only answers prompts with a Hugging Face directory's policy."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from job_jax.config import MeshConfig
from job_jax.schema import ConfigError
from rlvr_jax.config import Config, EvalConfig, ModelConfig, SamplingConfig
from rlvr_jax.models.huggingface.config import read_json, read_model_config
from rlvr_jax.models.huggingface.load import GENERATION
from rlvr_jax.models.huggingface.match import start_from
from rlvr_jax.tasks.prompts import PromptsTask
from rlvr_jax.tokenizer.huggingface import SETTINGS

_TEMPLATE_FILE = "chat_template.jinja"
_MAX_NEW_TOKENS = 128
# Settings of generation_config.json with the same name in `SamplingConfig`.
_SHARED = ("temperature", "top_p", "top_k")


def read_sampling(directory: Path) -> dict[str, Any]:
    """Returns the sampling settings that a directory's generation_config.json states.

    Keys are fields of `SamplingConfig`. There is always a temperature: 0 (greedy),
    unless the file says `do_sample` or gives a temperature. `max_new_tokens` is 128
    unless the file has another value.
    """
    path = directory / GENERATION
    stated = read_json(path) if path.is_file() else {}
    is_sampled = stated.get("do_sample", "temperature" in stated)
    settings = {"max_new_tokens": stated.get("max_new_tokens") or _MAX_NEW_TOKENS}
    if not is_sampled:
        return settings | {"temperature": 0.0}
    given = {name: stated[name] for name in _SHARED if stated.get(name) is not None}
    return settings | {"temperature": 1.0} | given


def has_chat_template(directory: Path) -> bool:
    """Returns whether the tokenizer of a directory has a chat template."""
    if (directory / _TEMPLATE_FILE).is_file():
        return True
    path = directory / SETTINGS
    return path.is_file() and bool(read_json(path).get("chat_template"))


def prompts_config(
    directory: Path,
    texts: Sequence[str],
    *,
    sampling: Mapping[str, Any],
    num_samples: int,
    seed: int,
    is_chat: bool,
) -> Config:
    """Returns a config whose held-out problems are the texts, for `load_policy`.

    To compile faster, the layers are scanned (only one is compiled), and a CPU is one
    device. Raises ConfigError on sampling settings out of range.
    """
    try:
        drawn = SamplingConfig(**sampling)
        evaluation = EvalConfig(num_samples=num_samples, sampling=drawn)
    except ConfigError as error:
        raise ConfigError(
            f"{error} (from flags or {directory / GENERATION})"
        ) from error
    room = read_model_config(directory, dtype="float32").max_seq_len
    config = start_from(
        Config(
            name=directory.name or "prompts",
            seed=seed,
            mesh=MeshConfig(cpu_devices=1),
            model=ModelConfig(scan_layers=True, max_seq_len=room),
            eval=evaluation,
        ),
        directory,
    )
    task = PromptsTask(texts=tuple(texts), chat_template="tokenizer" if is_chat else "")
    return dataclasses.replace(config, task=task)


def read_prompts(path: Path) -> list[str]:
    """Returns the lines of a text file that are not blank. Raises ConfigError."""
    if not path.is_file():
        raise ConfigError(f"--prompts={path}: no such file")
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise ConfigError(f"--prompts={path} is not UTF-8 text: {error}") from error
    prompts = [line for line in lines if line.strip()]
    if not prompts:
        raise ConfigError(f"--prompts={path} has no prompt; write one on each line")
    return prompts
