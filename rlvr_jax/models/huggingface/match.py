"""Whether a recipe's model is that of the Hugging Face directory it starts from."""

import dataclasses
from pathlib import Path

from job_jax.config_io import diff
from job_jax.schema import ConfigError
from rlvr_jax.config import ModelConfig, PretrainedConfig
from rlvr_jax.models.huggingface.families import (
    function_of,
    model_config,
    text_settings,
)
from rlvr_jax.models.huggingface.load import CONFIG, embedding_rows, read_json


def check_match(pretrained: PretrainedConfig, model: ModelConfig) -> None:
    """Raises ConfigError, naming every field, where config.json says otherwise.

    A recipe may use less than the whole context; how it computes is its own affair.
    """
    file = Path(pretrained.path) / CONFIG
    settings = text_settings(read_json(file))
    theirs = model_config(settings, dtype=model.param_dtype)
    length = min(model.max_length, theirs.max_length)
    wanted = dataclasses.replace(theirs, max_length=length)
    lines = diff(function_of(model), function_of(wanted))
    lines = [f"model.{line}" for line in lines]
    rows = embedding_rows(dataclasses.replace(pretrained, vocab_size=0))
    if pretrained.vocab_size not in (0, rows):
        lines.append(f"pretrained.vocab_size: {pretrained.vocab_size} -> {rows}")
    if lines:
        raise ConfigError(
            f"{file} describes another model than the config: {'; '.join(lines)}; set "
            "each as config.json has it (rlvr_jax.models.sizes has the usual ones)"
        )
