"""A GGUF file -> a Hugging Face directory, whole or not at all."""

import collections
import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from job_jax.disk import describe_lack, name_file
from job_jax.schema import ConfigError
from rlvr_jax.config import ModelConfig
from rlvr_jax.models.gguf.architectures import EMBEDDING, find_architecture
from rlvr_jax.models.gguf.config import read_config
from rlvr_jax.models.gguf.reader import GGUFFile, read_gguf
from rlvr_jax.models.gguf.tokenizer import tokenizer_config, tokenizer_json
from rlvr_jax.models.gguf.vocabulary import Vocabulary, read_vocabulary
from rlvr_jax.models.gguf.weights import (
    output_bytes,
    plan_conversions,
    write_safetensors,
)
from rlvr_jax.models.huggingface.config import CONFIG, Dtype, to_hf_config
from rlvr_jax.models.huggingface.load import GENERATION
from rlvr_jax.tokenizer.huggingface import SETTINGS, TOKENIZER

_TEMPLATE = "tokenizer.chat_template"


def convert_gguf(path: Path, out: Path, *, dtype: Dtype = "float32") -> None:
    """Writes the model and the tokenizer of a GGUF file into a new directory `out`.

    transformers and `load_hf` can read it. Weights are dequantized into `dtype`, and
    progress is printed. Raises ConfigError, before anything is written, if the file is
    damaged or something in it is not supported.
    """
    file = read_gguf(path)
    name = str(file.metadata.get("general.architecture"))
    architecture = find_architecture(name, where=str(path))
    kinds = collections.Counter(tensor.kind for tensor in file.tensors.values())
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    print(f"{path}: {name}, {len(file.tensors)} tensors ({counts})", flush=True)
    config = read_config(file, architecture, dtype=dtype)
    vocabulary = read_vocabulary(file)
    rows = _embedding_rows(file, vocabulary)
    conversions = plan_conversions(file, architecture, config, rows)
    contents = _json_files(file, vocabulary, config, rows)
    if lack := describe_lack(out, output_bytes(conversions, dtype)):
        raise OSError(f"{lack}; make room, then run the same command again")
    with _new_directory(out) as partial:
        for file_name, content in contents.items():
            text = json.dumps(content, indent=2, ensure_ascii=False)
            (partial / file_name).write_text(text + "\n", encoding="utf-8")
        weights = partial / "model.safetensors"
        with name_file(weights):
            write_safetensors(weights, file, conversions, dtype=dtype)
    print(f"{out} is ready: start a run from it with pretrained.path={out}")


def _json_files(
    file: GGUFFile, vocabulary: Vocabulary, config: ModelConfig, rows: int
) -> dict[str, dict[str, Any]]:
    """Returns the content of each JSON file of the directory, by its name."""
    special = {"bos_token_id": vocabulary.bos, "pad_token_id": vocabulary.pad}
    special = {key: number for key, number in special.items() if number is not None}
    ends = list(vocabulary.ends)
    return {
        CONFIG: to_hf_config(
            config, vocab_size=rows, extra=special | {"eos_token_id": ends[0]}
        ),
        GENERATION: special | {"eos_token_id": ends},
        TOKENIZER: tokenizer_json(vocabulary),
        SETTINGS: tokenizer_config(
            vocabulary, _chat_templates(file), max_length=config.max_seq_len
        ),
    }


def _embedding_rows(file: GGUFFile, vocabulary: Vocabulary) -> int:
    """Returns V, the rows of the embedding. Raises ConfigError if they are too few."""
    if EMBEDDING not in file.tensors:
        raise ConfigError(f"{file.path} lacks the tensor {EMBEDDING!r}")
    rows = file.tensors[EMBEDDING].shape[0]
    if len(vocabulary.tokens) > rows:
        raise ConfigError(
            f"{file.path}: {len(vocabulary.tokens)} tokens do not fit an embedding of "
            f"{rows} rows"
        )
    return rows


def _chat_templates(file: GGUFFile) -> dict[str, str]:
    """Returns the chat templates by name; the one without a name is "default"."""
    templates = (
        {"default": file.metadata[_TEMPLATE]} if _TEMPLATE in file.metadata else {}
    )
    for key, text in file.metadata.items():
        if key.startswith(f"{_TEMPLATE}."):
            templates[key.removeprefix(f"{_TEMPLATE}.")] = text
    return templates


@contextlib.contextmanager
def _new_directory(out: Path) -> Iterator[Path]:
    """Yields the directory OUT.partial to write into, and renames it to OUT at the end.

    An interrupted conversion therefore never leaves an OUT. If the block raises,
    OUT.partial is removed.
    """
    partial = out.with_name(f"{out.name}.partial")
    partial.mkdir(parents=True, exist_ok=True)
    try:
        yield partial
        partial.replace(out)
    except BaseException:
        shutil.rmtree(partial)
        raise
