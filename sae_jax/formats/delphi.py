"""delphi's latent cache: where each latent fires, for automatic explanation.

    HOOK/config.json                  the model, and the length of the contexts
    HOOK/FIRST_LAST.safetensors       the latents FIRST..LAST:
        locations    [n, 3]  row, position, latent - FIRST; uint16 where all fit
        activations  [n]     float16
        tokens       [S, T]  the token ids; contexts are padded with 0

https://github.com/EleutherAI/delphi. Activations of 1e-5 and less are left out.
"""

import itertools
import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from job_jax.files import write_atomically
from sae_jax.data.corpus import Corpus
from sae_jax.sae import TSAE

_MIN_ACTIVATION = 1e-5
# delphi cuts contexts into windows of this many tokens, so we pad them to a multiple.
_WINDOW = 32
_NUM_SPLITS = 5


def write(directory: Path, tsae: TSAE, corpus: Corpus) -> None:
    """Writes the cache of a corpus into `directory`/HOOK."""
    index = corpus.shards.index
    length = -(-index.context_size // _WINDOW) * _WINDOW
    tokens = np.zeros((len(corpus.document_ids), length), np.int64)
    locations, activations = [], []
    done = 0
    for block, f in corpus.encode_blocks(tsae):
        real = corpus.block_document_ids(block) >= 0
        ids = np.maximum(corpus.block_column("token_id", block)[real], 0)
        tokens[done : done + len(ids), : ids.shape[1]] = ids
        dense = np.asarray(f)[real]
        at = np.argwhere(dense > _MIN_ACTIVATION)
        activations.append(dense[tuple(at.T)].astype(np.float16))
        locations.append(at + np.array([done, 0, 0]))
        done += len(ids)
    module = directory / index.hook
    module.mkdir(parents=True, exist_ok=True)
    _write_splits(
        module, np.concatenate(locations), np.concatenate(activations), tokens, tsae
    )
    config = {
        "model_name": index.model,
        "dataset_repo": f"sha256:{corpus.shards.data_hash}",
        "dataset_split": "",
        "dataset_name": "",
        "dataset_column": "",
        "batch_size": 1,
        "cache_ctx_len": length,
        "ctx_len": length,
        "n_tokens": tokens.size,
        "n_splits": _NUM_SPLITS,
    }
    (module / "config.json").write_text(json.dumps(config, indent=4) + "\n")


def _write_splits(
    module: Path,
    locations: np.ndarray,
    activations: np.ndarray,
    tokens: np.ndarray,
    tsae: TSAE,
) -> None:
    splits = min(_NUM_SPLITS, tsae.latents)
    bounds = np.linspace(0, tsae.latents, splits + 1).astype(int)
    for first, end in itertools.pairwise(bounds.tolist()):
        inside = (locations[:, 2] >= first) & (locations[:, 2] < end)
        part = locations[inside] - np.array([0, 0, first])
        small = part.max(initial=0) < 2**16
        with write_atomically(module / f"{first}_{end - 1}.safetensors") as partial:
            save_file(
                {
                    "locations": part.astype(np.uint16 if small else np.uint32),
                    "activations": activations[inside],
                    "tokens": tokens,
                },
                partial,
            )
