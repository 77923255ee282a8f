"""Checks a recipe's model against the Hugging Face directory that it starts from."""

import dataclasses
from pathlib import Path

from job_jax.config_io import diff
from job_jax.schema import ConfigError
from rlvr_jax.config import ModelConfig, PretrainedConfig
from rlvr_jax.models.huggingface.config import (
    CONFIG,
    canonical_config,
    hf_vocab_size,
    read_model_config,
)


def check_matches_hf(pretrained: PretrainedConfig, model: ModelConfig) -> None:
    """Raises ConfigError, naming every field, if config.json describes another model.

    A recipe may use a shorter context, and computes as it likes (dtypes, scan, remat).
    """
    directory = Path(pretrained.path)
    theirs = read_model_config(
        directory,
        dtype=model.param_dtype,
        family=model.family if ":" in model.family else None,
    )
    length = min(model.max_seq_len, theirs.max_seq_len)
    wanted = dataclasses.replace(theirs, max_seq_len=length)
    lines = diff(canonical_config(model), canonical_config(wanted))
    lines = [f"model.{line}" for line in lines]
    rows = hf_vocab_size(dataclasses.replace(pretrained, vocab_size=0))
    if pretrained.vocab_size not in (0, rows):
        lines.append(f"pretrained.vocab_size: {pretrained.vocab_size} -> {rows}")
    if lines:
        raise ConfigError(
            f"{directory / CONFIG} describes another model than the config: "
            f"{'; '.join(lines)}; set each as config.json has it "
            "(rlvr_jax.models.families.SIZES has published ones)"
        )
