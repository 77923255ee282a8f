"""What a recipe leaves open and the checkpoint that a run starts from says.

The model, which chat template is filled in and around what, and how completions are
drawn. One rule for all of it: what the recipe or the command line states wins. After it
come the run that is gone on from, if there is one, the checkpoint's files, the default.
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

    `recorded` is the config of a run that is gone on from: what is left open is as it
    was there. A config that is settled is returned as it is. So is one whose checkpoint
    is not there, which can be planned and not run. Raises ConfigError where the
    checkpoint is not what the config says.
    """
    config = resolve_pretrained(config)
    start = config.pretrained.path
    if start and not Path(start).is_dir():
        return config
    values = _open_values(config, recorded)
    return override(config, values) if values else config


def recorded_config(workdir: Path | None, lineage: Lineage | None) -> Config | None:
    """Returns the config of the run in `workdir`, else of the one it goes on from.

    None where there is neither, and where the record cannot be read: `Workdir` says
    what is wrong with it.
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
    """Returns a line on what is taken from generation_config.json, and what is not.

    No line where there is no checkpoint, or where it says nothing of sampling.
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
    """Returns the sections by which completions are drawn, by their paths."""
    return {
        "train.sampling": config.train.sampling,
        "eval.sampling": config.eval.sampling,
    }


def checkpoint_sampling(config: Config) -> dict[str, float | int]:
    """Returns what generation_config.json of the weights has, {} without weights."""
    path = config.pretrained.path
    return sampling_defaults(Path(path)) if path else {}
