"""The Hugging Face decoders that `sae_jax` can read: documents in, activations out.

This is the `ModelReader` (`sae_jax.capture.reader`) that `python -m sae_jax.collect`
opens by default. sae_jax only knows its name.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from job_jax.config import MeshConfig
from job_jax.files import fingerprint
from job_jax.mesh import make_mesh
from rlvr_jax.models.hooks import read_hook
from rlvr_jax.models.huggingface import abstract_policy, load_hf
from rlvr_jax.models.next_tokens import compare_next_tokens
from rlvr_jax.models.transformer import Transformer
from rlvr_jax.tokenizer.huggingface import HuggingFaceTokenizer


class HuggingFaceReader:
    """A Hugging Face directory of any supported family, on the first device.

    config.json and tokenizer are read at once, weights when they are first needed.
    `dtype` (float32 or bfloat16) is used for weights and computation. Raises
    ConfigError on files that are missing, damaged or of an unsupported family.
    """

    def __init__(self, path: str, *, dtype: str):
        self._directory = Path(path)
        self._dtype = dtype
        config = abstract_policy(self._directory, dtype="float32").config
        self._tokenizer = HuggingFaceTokenizer(self._directory)
        self.name = path
        self.width = config.hidden_size
        self.num_layers = config.num_layers
        self.max_tokens = config.max_seq_len
        self.prefix_ids = tuple(self._tokenizer.encode_prompt(""))
        self.special_ids = self._tokenizer.special_ids | set(self.prefix_ids)

    @functools.cached_property
    def fingerprint(self) -> str:
        """Returns a hash that identifies this model's files."""
        names = ("config.json", "tokenizer.json", "*.safetensors")
        files = sorted(f for name in names for f in self._directory.glob(name))
        parts = [f"{file.name} {fingerprint(file)}" for file in files]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    @functools.cached_property
    def vocabulary(self) -> tuple[str, ...]:
        """Returns the text of each token id as it appears within a text."""
        return tuple(self._tokenizer.token_texts())

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a document, without special tokens before or after."""
        return self._tokenizer.encode(text)

    def read(
        self,
        tokens: Int[np.ndarray, "B T"],
        lengths: Int[np.ndarray, " B"],
        *,
        hook: str,
        layers: Sequence[int],
    ) -> tuple[Float[Array, "B T D"], ...]:
        """Returns the values at a hook of each of these layers: `hooks.read_hook`.

        Rows are padded on the right; values beyond their lengths are arbitrary.
        """
        mask_BT = np.arange(tokens.shape[1])[None] < lengths[:, None]
        with jax.set_mesh(self._mesh):
            return read_hook(
                self._policy,
                jnp.asarray(tokens),
                jnp.asarray(mask_BT),
                hook=hook,
                layers=layers,
            )

    def compare_predictions(
        self,
        tokens: Int[np.ndarray, "B T"],
        lengths: Int[np.ndarray, " B"],
        edited: Bool[np.ndarray, "B T"],
        *,
        layer: int,
        edits: Sequence[object],
    ) -> tuple[Float[Array, "A B N"], Float[Array, "A B N"]]:
        """Returns the cost of predicting each next token, unedited and with each edit.

        The second array is KL(unedited || edited), as in
        `sae_jax.capture.reader.EditableReader`.
        """
        mask_BT = np.arange(tokens.shape[1])[None] < lengths[:, None]
        with jax.set_mesh(self._mesh):
            return _compare_predictions(
                *nnx.split(self._policy),
                jnp.asarray(tokens),
                jnp.asarray(mask_BT),
                tuple(
                    _Edit(edit=edit, edited=jnp.asarray(edited), layer=layer)
                    for edit in edits
                ),
            )

    @functools.cached_property
    def _mesh(self) -> jax.sharding.Mesh:
        return make_mesh(MeshConfig(), jax.devices()[:1])

    @functools.cached_property
    def _policy(self) -> Transformer:
        return load_hf(self._directory, dtype=self._dtype, mesh=self._mesh)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class _Edit:
    """An edit of some tokens, as an `Intervention`."""

    edit: Any
    edited: Bool[Array, "B T"]
    layer: int = dataclasses.field(metadata={"static": True})

    def __call__(self, x: Float[Array, "B T D"], /) -> Float[Array, "B T D"]:
        return self.edit(x, self.edited)


@functools.partial(jax.jit, static_argnums=0)
def _compare_predictions(
    graphdef: nnx.GraphDef,
    params: nnx.State,
    tokens: Int[Array, "B T"],
    mask: Bool[Array, "B T"],
    edits: tuple[_Edit, ...],
) -> tuple[Array, Array]:
    policy: Transformer = nnx.merge(graphdef, params)
    arms = tuple(
        policy.prefill(tokens, mask, interventions=each)[0].hidden
        for each in ((), *((edit,) for edit in edits))
    )
    return compare_next_tokens(policy, arms, tokens)
