"""Reads facts about latents and documents, other than activations, from files."""

import gzip
import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from safetensors import SafetensorError, safe_open

from sae_jax.formats.files import read_json
from sae_jax.formats.record import FormatError

_OUTCOMES = {"correct": 1, "incorrect": 0}
_DOCUMENT_FIELDS = ("id", "band", "verdict", "reward")
_HEADS = ("lm_head.weight", "model.embed_tokens.weight", "transformer.wte.weight")
_NORMS = ("model.norm.weight", "transformer.ln_f.weight")
_WEIGHT_INDEX = "model.safetensors.index.json"


class Unembedding(NamedTuple):
    """How a model turns its residual stream x into logits: (x * scale) head^T."""

    head: Float[np.ndarray, "V D"]
    scale: Float[np.ndarray, " D"]  # weights of the last norm; its division is ignored


def read_documents(path: Path, count: int) -> list[dict[str, Any]]:
    """Returns facts about each document, from one JSON object per line, in their order.

    It keeps `id`, `band`, `verdict` and `reward` of the first `count` lines. Raises
    FormatError if there are fewer lines than that, or if a line is not an object.
    """
    opener: Any = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise FormatError(f"{path}: {error}") from error
    if len(rows) < count or not all(isinstance(row, dict) for row in rows):
        raise FormatError(
            f"{path} has {len(rows)} lines for {count} documents; give the rollouts "
            "of these activations, one object per line, in the same order"
        )
    return [
        {name: row[name] for name in _DOCUMENT_FIELDS if name in row}
        for row in rows[:count]
    ]


def find_outcomes(
    documents: Sequence[Mapping[str, Any]],
) -> Int[np.ndarray, " M"] | None:
    """Returns 1 for correct documents, 0 for incorrect, -1 otherwise; None if all -1.

    >>> find_outcomes([{"verdict": "correct"}, {"verdict": "unverified"}]).tolist()
    [1, -1]
    """
    outcomes = np.array(
        [_OUTCOMES.get(row.get("verdict", ""), -1) for row in documents]
    )
    return outcomes if (outcomes >= 0).any() else None


def number_problems(
    documents: Sequence[Mapping[str, Any]],
) -> Int[np.ndarray, " M"] | None:
    """Returns a number for each document, equal for equal ids; None if any lacks one.

    >>> number_problems([{"id": "b"}, {"id": "a"}, {"id": "b"}]).tolist()
    [1, 0, 1]
    """
    ids = [row["id"] for row in documents if "id" in row]
    if not ids or len(ids) < len(documents):
        return None
    return np.unique(ids, return_inverse=True)[1]


def read_unembedding(directory: Path, width: int) -> Unembedding:
    """Returns the output embedding of a Hugging Face directory, in float32.

    Raises FormatError if there is none, or if it has another width.
    """
    head = _read_first(directory, _HEADS)
    scale = _read_first(directory, _NORMS)
    if head is None or scale is None:
        raise FormatError(
            f"{directory}: no safetensors with one of {_HEADS} and one of {_NORMS}"
        )
    if head.shape[1] != width:
        raise FormatError(
            f"{directory} has a stream of width {head.shape[1]}, and the autoencoder "
            f"reads one of {width}: they are of different models"
        )
    return Unembedding(head, scale)


def _read_first(
    directory: Path, names: Sequence[str]
) -> Float[np.ndarray, "*N"] | None:
    """Returns the first of these tensors that the directory has, in float32."""
    index = directory / _WEIGHT_INDEX
    place = read_json(index)["weight_map"] if index.is_file() else {}
    for name in names:
        path = directory / place.get(name, "model.safetensors")
        try:
            with safe_open(path, framework="flax") as file:
                if name in file.keys():  # noqa: SIM118 (the file is no mapping)
                    return np.asarray(file.get_tensor(name), np.float32)
        except (OSError, SafetensorError) as error:
            raise FormatError(f"{path}: {error}") from error
    return None


def read_movement(path: Path) -> dict[int, list[dict[str, Any]]]:
    """Returns each latent's changes by RL, from a run's features/dynamics.json.

    Each has `band`, `kinds`, `ratio` (value, low, high), `q` and `noise_ratio`.
    """
    wanted = ("band", "kinds", "ratio", "q", "noise_ratio")
    found: dict[int, list[dict[str, Any]]] = {}
    for row in _list_of(path, "features"):
        found.setdefault(int(row["feature"]), []).append({n: row[n] for n in wanted})
    return found


def read_causes(path: Path) -> dict[int, list[dict[str, Any]]]:
    """Returns each latent's causal tests: contrasts of it alone in a causal.json."""
    wanted = ("outcome", "strength", "effect", "q", "rank_p", "verdict")
    found: dict[int, list[dict[str, Any]]] = {}
    for row in _list_of(path, "contrasts"):
        if len(row["latents"]) == 1:
            (latent,) = row["latents"]
            found.setdefault(latent, []).append({n: row[n] for n in wanted})
    return found


def _list_of(path: Path, name: str) -> list[dict[str, Any]]:
    rows = read_json(path).get(name)
    if not isinstance(rows, list):
        raise FormatError(f"{path} has no list {name!r}")
    return rows


def read_reward_weights(directory: Path) -> dict[int, float]:
    """Returns the weights of a run's reward features, from its selection.json.

    It is empty if the autoencoder is not from a run, or if the run chose no features or
    was a control that earns along directions.
    """
    path = directory / "selection.json"
    if not path.is_file():
        return {}
    selection = read_json(path)
    if selection.get("control") in ("direction", "random_directions"):
        return {}
    return dict(zip(selection["latents"], selection["weights"], strict=True))
