"""A GGUF file -> a Hugging Face directory, whole or not at all."""

import collections
import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from job_jax.schema import ConfigError
from rlvr_jax.models.gguf.architectures import ARCHITECTURES, EMBEDDING
from rlvr_jax.models.gguf.config import read_config
from rlvr_jax.models.gguf.reader import GGUFFile, read_gguf
from rlvr_jax.models.gguf.tokenizer import tokenizer_config, tokenizer_json
from rlvr_jax.models.gguf.vocabulary import Vocabulary, read_vocabulary
from rlvr_jax.models.gguf.weights import plan_conversions, write_safetensors
from rlvr_jax.models.huggingface.config import CONFIG, Dtype, to_hf_config

_TEMPLATE = "tokenizer.chat_template"


def convert_gguf(path: Path, out: Path, *, dtype: Dtype = "float32") -> None:
    """Writes the model and the tokenizer of a GGUF file into a new directory `out`.

    transformers and `load_hf` read it. Weights are dequantized into `dtype`. Raises
    ConfigError, before anything is written, on whatever is not supported or damaged.
    """
    file = read_gguf(path)
    config = read_config(file, dtype=dtype)
    vocabulary = read_vocabulary(file)
    rows = _embedding_rows(file, vocabulary)
    architecture = ARCHITECTURES[file.metadata["general.architecture"]]
    conversions = plan_conversions(file, architecture, config, rows)
    special = {"bos_token_id": vocabulary.bos, "pad_token_id": vocabulary.pad}
    special = {name: number for name, number in special.items() if number is not None}
    ends = list(vocabulary.ends)
    files = {
        CONFIG: to_hf_config(
            config, vocab_size=rows, extra=special | {"eos_token_id": ends[0]}
        ),
        "generation_config.json": special | {"eos_token_id": ends},
        "tokenizer.json": tokenizer_json(vocabulary),
        "tokenizer_config.json": tokenizer_config(
            vocabulary, _chat_templates(file), max_length=config.max_seq_len
        ),
    }
    kinds = collections.Counter(each.stored.kind for each in conversions)
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    print(f"{path}: {config.family}, {len(conversions)} tensors ({counts})", flush=True)
    with _new_directory(out) as partial:
        for name, content in files.items():
            text = json.dumps(content, indent=2, ensure_ascii=False)
            (partial / name).write_text(text + "\n", encoding="utf-8")
        total = write_safetensors(
            partial / "model.safetensors", file, conversions, dtype=dtype
        )
    print(
        f"{out}: {total / 1e9:.2f} GB of {dtype}; start from it with "
        f"pretrained.path={out}"
    )


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
    """Yields OUT.partial to write into; on leaving, it becomes OUT.

    So OUT is there only when it is whole. If the block raises, all of it is removed.
    """
    partial = out.with_name(f"{out.name}.partial")
    partial.mkdir(parents=True, exist_ok=True)
    try:
        yield partial
        partial.replace(out)
    except BaseException:
        shutil.rmtree(partial)
        raise
