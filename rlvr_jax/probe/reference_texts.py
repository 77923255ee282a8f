"""Texts that a probe reads again and again, while only the policy changes."""

import dataclasses
from pathlib import Path
from typing import Self

import jax
import numpy as np
from jaxtyping import Bool, Int

from job_jax.files import write_atomically
from rlvr_jax.types import BANDS, Array, length_mask

REFERENCE_TEXTS_FILE = "reference_texts.npz"


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class ReferenceTexts:
    """F prompts, each with a completion of the policy before RL. Made by stage `probe`.

    The problems are held out: neither RL nor the probe's fit uses them.
    `bands` are the problems' difficulty bands for that policy (indices into BANDS, as
    everywhere); `outcomes` are values of `types.Outcome`. `policy_mask` says which
    tokens the policy wrote, and not an environment (None: all).
    """

    problem_ids: tuple[str, ...] = dataclasses.field(metadata={"static": True})
    prompt_tokens: Int[Array, " F S"]
    prompt_lengths: Int[Array, " F"]
    tokens: Int[Array, " F T"]
    lengths: Int[Array, " F"]
    bands: Int[Array, " F"]
    outcomes: Int[Array, " F"]
    policy_mask: Bool[Array, " F T"] | None = None

    @property
    def mask(self) -> Bool[Array, " F T"]:
        """Returns which positions hold tokens that the policy wrote."""
        mask_FT = length_mask(self.lengths, self.tokens.shape[1])
        return mask_FT if self.policy_mask is None else mask_FT & self.policy_mask

    def save(self, path: Path) -> None:
        """Writes the texts as .npz; the file is complete or absent."""
        arrays = {n: values for n, values in vars(self).items() if values is not None}
        arrays["problem_ids"] = np.array(self.problem_ids)
        with write_atomically(path) as partial, partial.open("wb") as file:
            np.savez_compressed(file, **arrays)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Returns what `save` wrote."""
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
        problem_ids = tuple(arrays.pop("problem_ids").tolist())
        return cls(problem_ids=problem_ids, **arrays)


def stratify_texts(bands_N: Int[np.ndarray, " N"], count: int) -> list[int]:
    """Returns the rows of `count` texts, as many of each band as the bands allow.

    Within a band the first ones are taken. A band with too few leaves its room to the
    others, and problems of unknown difficulty come last.

    >>> stratify_texts(np.array([0, 0, 0, 0, 2, 1, 0, 2]), 5)
    [0, 1, 4, 5, 7]
    """
    num_seen = dict.fromkeys(range(len(BANDS)), 0)
    places = []
    for row, band in enumerate(bands_N.tolist()):
        places.append((BANDS[band] == "unknown", num_seen[band], row))
        num_seen[band] += 1
    return sorted(row for *_, row in sorted(places)[:count])
