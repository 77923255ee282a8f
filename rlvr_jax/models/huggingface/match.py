"""Sets a recipe's model to the Hugging Face model that it starts from."""

import dataclasses
from pathlib import Path
from typing import Any

from job_jax.schema import ConfigError
from rlvr_jax.config import (
    Config,
    ModelConfig,
    PretrainedConfig,
    TokenizerConfig,
)
from rlvr_jax.config.model import PRETRAINED
from rlvr_jax.models.huggingface.config import (
    CONFIG,
    FUNCTION_PRESERVING,
    canonical_config,
    hf_vocab_size,
)
from rlvr_jax.models.huggingface.tied import read_stored_config

# Not in config.json: how the run computes, and its longest sequence.
_OWN = (*FUNCTION_PRESERVING, "max_seq_len")

_MIN_SCANNED_LAYERS = 16  # with fewer, compiling no longer dominates the start


def start_from(config: Config, directory: Path) -> Config:
    """Returns the config with the policy and the tokenizer of a directory.

    From `model` it keeps how the run computes, and the longest sequence.
    """
    model = config.model
    own = {name: vars(model)[name] for name in _OWN if name in model.stated}
    family = model.family if ":" in model.family else PRETRAINED
    return dataclasses.replace(
        config,
        pretrained=PretrainedConfig(path=str(directory)),
        model=ModelConfig(family=family, **own),
        tokenizer=TokenizerConfig(
            kind="huggingface", stop_strings=config.tokenizer.stop_strings
        ),
    )


def resolve_pretrained(config: Config) -> Config:
    """Returns the config with missing fields of `model` read from the checkpoint.

    A config without a checkpoint, or with every field given, is returned unchanged. If
    pretrained.vocab_size is set, the directory may be missing: then this is a plan, and
    `model` is used as it is. Raises ConfigError as `resolve_model` does.
    """
    start, model = config.pretrained, config.model
    fields = {field.name for field in dataclasses.fields(model)}
    is_whole = fields - set(_OWN) <= model.stated and model.family != PRETRAINED
    is_plan = start.vocab_size > 0 and not Path(start.path).is_dir()
    if not start.path or is_whole or (is_plan and model.family != PRETRAINED):
        return config
    return dataclasses.replace(config, model=resolve_model(start, model))


def resolve_model(pretrained: PretrainedConfig, model: ModelConfig) -> ModelConfig:
    """Returns the model that config.json describes, computed as `model` says.

    Precision, scan, rematerialization, chunks and max_seq_len come from `model`, but
    the checkpoint's context is an upper bound of max_seq_len. If `model` does not state
    `scan_layers`, a deep checkpoint with one layer type is scanned. Raises ConfigError,
    which names every field that differs between `model` and config.json.
    """
    directory = Path(pretrained.path)
    given = {name: vars(model)[name] for name in model.stated}
    if model.family == PRETRAINED:
        given.pop("family", None)
    theirs = read_stored_config(
        directory,
        dtype=model.param_dtype,
        family=model.family if ":" in model.family else None,
    )
    own = {name: vars(model)[name] for name in FUNCTION_PRESERVING}
    own["scan_layers"] = _is_better_scanned(theirs)  # unless `given` has it
    found = dataclasses.replace(
        theirs, **own, max_seq_len=min(model.max_seq_len, theirs.max_seq_len)
    )
    lines = [
        f"model.{field.name}: {given[field.name]!r} -> {vars(theirs)[field.name]!r}"
        for field in dataclasses.fields(model)
        if field.name in given and _contradicts(theirs, field.name, given[field.name])
    ]
    rows = hf_vocab_size(dataclasses.replace(pretrained, vocab_size=0))
    if pretrained.vocab_size not in (0, rows):
        lines.append(f"pretrained.vocab_size: {pretrained.vocab_size} -> {rows}")
    if lines:
        raise ConfigError(
            f"{directory / CONFIG} describes another model than the config: "
            f"{'; '.join(lines)}; remove these fields, to read them from there, or set "
            f"--config.model={PRETRAINED} to read all of model"
        )
    return dataclasses.replace(found, **given)


def _is_better_scanned(model: ModelConfig) -> bool:
    """Returns whether a model is deep, with layers of one type.

    With 30 layers, scanned programs of a GRPO step compile in a quarter of the time and
    need less memory, but sampling takes 7 % longer. Layers of two types would lose
    their kernels in a scan (docs/models/attention.md).
    """
    return model.num_layers >= _MIN_SCANNED_LAYERS and len({*model.layer_types}) == 1


def _contradicts(theirs: ModelConfig, name: str, value: Any) -> bool:
    """Returns whether this value of a field would turn `theirs` into another model."""
    if name == "max_seq_len":
        return value > theirs.max_seq_len
    if name in _OWN or value == vars(theirs)[name]:
        return False
    try:
        changed = dataclasses.replace(theirs, **{name: value})
    except ConfigError:  # it does not fit the other fields
        return True
    return canonical_config(changed) != canonical_config(theirs)
