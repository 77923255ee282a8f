"""Settings that a recipe leaves out, filled in from the checkpoint of its start.

They are the model, the chat and prompt templates, and temperature, top_p and top_k. The
order is the same for all: a value in the recipe or on the command line wins. Next come
the run that is resumed or continued, then the checkpoint's files, then the default.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from job_jax.config_io import from_record, iter_fields, override
from rlvr_jax.config import Config, SamplingConfig
from rlvr_jax.models.huggingface import resolve_pretrained
from rlvr_jax.run.lineage import CONFIG_FILE, Lineage
from rlvr_jax.tokenizer import (
    has_chat_template,
    sampling_defaults,
    tokenizer_directory,
)
from rlvr_jax.tokenizer.huggingface import GENERATION


def settle_config(config: Config, recorded: Config | None = None) -> Config:
    """Returns the config with every setting that the checkpoint decides filled in.

    `recorded` is the config of the run that is resumed or continued; it fills settings
    that the recipe leaves out. A settled config is returned unchanged. So is a config
    whose checkpoint is missing, which can be planned but not run. Raises ConfigError if
    the checkpoint's model differs from the config's.
    """
    config = resolve_pretrained(config)
    start = config.pretrained.path
    if start and not Path(start).is_dir():
        return config
    values = _open_values(config, recorded)
    return override(config, values) if values else config


def recorded_config(workdir: Path | None, lineage: Lineage | None) -> Config | None:
    """Returns the config of the run in `workdir`, else of the run in `lineage`.

    None if there is neither, or if the record cannot be read: `Workdir` reports that.
    """
    directories = [workdir, lineage.directory if lineage else None]
    for directory in filter(None, directories):
        if (record := directory / CONFIG_FILE).is_file():
            try:
                return from_record(Config, record)
            except ValueError:
                return None
    return None


def describe_sampling(config: Config) -> list[str]:
    """Returns a line that names the sampling values from generation_config.json.

    It also names those that the recipe overrides. Empty without a checkpoint, or if the
    checkpoint says nothing about sampling.
    """
    given = checkpoint_sampling(config)
    if not given:
        return []
    train, evaluation = (
        _compare_sampling(sampling, given) for sampling in _sampling(config).values()
    )
    if train == evaluation:
        return [f"sampling: {train}"]
    return [f"sampling: {train} in training; {evaluation} in evaluation"]


def _compare_sampling(sampling: SamplingConfig, given: Mapping[str, float]) -> str:
    values = vars(sampling)
    taken = [f"{name} {given[name]:g}" for name in given if values[name] == given[name]]
    stated = [
        f"{name} {values[name]:g} as the recipe states ({GENERATION}: {given[name]:g})"
        for name in given
        if values[name] != given[name]
    ]
    from_file = [f"{', '.join(taken)} from {GENERATION}"] if taken else []
    return ", ".join([*from_file, *stated])


def _open_values(config: Config, recorded: Config | None) -> dict[str, str]:
    """Returns a value, as text, for each path that the config leaves open."""
    is_start = bool(config.pretrained.path) and config.tokenizer.kind == "huggingface"
    values: dict[str, Any] = config.task.automatic_values(
        tokenizer_has_template=is_start
        and has_chat_template(tokenizer_directory(config))
    )
    given = checkpoint_sampling(config)
    for path, sampling in _sampling(config).items():
        values |= {
            f"{path}.{name}": value
            for name, value in given.items()
            if name not in sampling.stated
        }
    before = {path: v for path, _, v in iter_fields(recorded)} if recorded else {}
    return {path: str(before.get(path, value)) for path, value in values.items()}


def _sampling(config: Config) -> dict[str, SamplingConfig]:
    """Returns the sections that set how completions are sampled, by their paths."""
    return {
        "train.sampling": config.train.sampling,
        "eval.sampling": config.eval.sampling,
    }


def checkpoint_sampling(config: Config) -> dict[str, float | int]:
    """Returns the sampling values of the weights' generation_config.json, if any."""
    path = config.pretrained.path
    return sampling_defaults(Path(path)) if path else {}
