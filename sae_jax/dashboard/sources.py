"""What is known of latents and documents beside their activations, from files."""

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
    """What a model makes of its residual stream: logits are (x * scale) head^T."""

    head: Float[np.ndarray, "V D"]
    scale: Float[np.ndarray, " D"]  # of the last norm, whose division is left out


def read_documents(path: Path, count: int) -> list[dict[str, Any]]:
    """Returns what is known of each document: one JSON object a line, in their order.

    Of each line `id`, `band`, `verdict` and `reward` are kept. Raises FormatError where
    there are not `count` of them, or fewer documents are asked for than there are lines
    (they are then the first ones).
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
            "that the activations are of, an object a line in the same order"
        )
    return [
        {name: row[name] for name in _DOCUMENT_FIELDS if name in row}
        for row in rows[:count]
    ]


def find_outcomes(
    documents: Sequence[Mapping[str, Any]],
) -> Int[np.ndarray, " M"] | None:
    """Returns 1 for documents that are correct, 0 incorrect, -1 else; None if all are.

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
    """Returns a number for each document's `id`, equal for equal ones; None without.

    >>> number_problems([{"id": "b"}, {"id": "a"}, {"id": "b"}]).tolist()
    [1, 0, 1]
    """
    ids = [row["id"] for row in documents if "id" in row]
    if not ids or len(ids) < len(documents):
        return None
    return np.unique(ids, return_inverse=True)[1]


def read_unembedding(directory: Path, width: int) -> Unembedding:
    """Returns the output embedding of a Hugging Face directory, in float32.

    Raises FormatError where there is none, or it is of another width.
    """
    head = _read_first(directory, _HEADS)
    scale = _read_first(directory, _NORMS)
    if head is None or scale is None:
        raise FormatError(
            f"{directory}: no safetensors with one of {_HEADS} and one of {_NORMS}"
        )
    if head.shape[1] != width:
        raise FormatError(
            f"{directory} writes to a stream of width {head.shape[1]}, and the "
            f"autoencoder reads one of {width}: they are of different models"
        )
    return Unembedding(head, scale)


def _read_first(
    directory: Path, names: Sequence[str]
) -> Float[np.ndarray, "*N"] | None:
    """Returns the first of the tensors that a directory has, in float32."""
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
    """Returns by latent what RL did to it: rows of a run's features/dynamics.json.

    Each has `band`, `kinds`, `ratio` (value, low, high), `q` and `noise_ratio`.
    """
    wanted = ("band", "kinds", "ratio", "q", "noise_ratio")
    found: dict[int, list[dict[str, Any]]] = {}
    for row in _list_of(path, "features"):
        found.setdefault(int(row["feature"]), []).append({n: row[n] for n in wanted})
    return found


def read_causes(path: Path) -> dict[int, list[dict[str, Any]]]:
    """Returns by latent its causal tests: contrasts of a causal.json, of it alone."""
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
    """Returns the weights of a run's reward features, from selection.json beside it.

    Empty where the autoencoder is not of a run, or its run chose none.
    """
    path = directory / "selection.json"
    if not path.is_file():
        return {}
    selection = read_json(path)
    return dict(zip(selection["latents"], selection["weights"], strict=True))
