"""An autoencoder's programs on shapes only, to compile a run that has none yet."""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh
from jax.typing import DTypeLike

from job_jax.mesh import batch_sharding, output_shapes
from rlvr_jax.config import Config
from rlvr_jax.config.probe import ProbeSAEConfig
from rlvr_jax.probe.reference_texts import ReferenceTexts
from rlvr_jax.probe.sae_probe import read_reference_texts, sae_shardings
from sae_jax import io
from sae_jax.optimize import init_state, train_step
from sae_jax.sae import TSAE
from sae_jax.types import Pairs


def abstract_sae(config: ProbeSAEConfig, hidden_size: int, mesh: Mesh) -> TSAE:
    """Returns the shapes and shardings of the autoencoder that a run trains."""
    shapes = jax.eval_shape(
        lambda: TSAE.init(
            0,
            width=hidden_size,
            latents=config.architecture.latents,
            group_sizes=config.architecture.group_sizes,
        )
    )
    return on_mesh(shapes, mesh)


def external_shapes(path: str) -> TSAE | None:
    """Returns the shapes of the autoencoder at a path; None if the path is missing.

    Raises ConfigError if it cannot be read.
    """
    return _read_shapes(path) if Path(path).exists() else None


@functools.cache
def _read_shapes(path: str) -> TSAE:
    # Traced, so no array is created: a run may be planned without its device.
    return jax.eval_shape(lambda: io.load(path))


def on_mesh(shapes: TSAE, mesh: Mesh) -> TSAE:
    """Returns the shapes with their shardings on the mesh."""
    arrays: dict[str, Any] = {
        name: jax.ShapeDtypeStruct(
            vars(shapes)[name].shape, jnp.float32, sharding=sharding
        )
        for name, sharding in sae_shardings(shapes, mesh).items()
    }
    return dataclasses.replace(shapes, **arrays)


def lower_sae_programs(
    config: Config,
    sae: ProbeSAEConfig | None,
    tsae: TSAE,
    mesh: Mesh,
    *,
    graphdef: nnx.GraphDef,
    params: nnx.State,
    prompt_length: int,
) -> dict[str, Callable[[], Any]]:
    """Returns the programs that read and train an autoencoder; a call lowers one.

    `tsae` has the autoencoder's shapes. `probe_fit` is a training step of all replicas;
    it exists only with `sae`, the settings of that training. `probe_texts` reads the
    reference texts in a logged step, padded to the longest that the recipe admits.
    """
    layer, batch = config.probe.layer, batch_sharding(mesh)

    def shape(*sizes: int, dtype: DTypeLike = jnp.int32) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(sizes, dtype, sharding=batch)

    def lower_fit(sae: ProbeSAEConfig) -> Any:
        job = sae.make_train_config(
            name=config.name,
            seed=config.seed,
            activations_dir="activations",
            checkpoint=config.checkpoint,
            log_every=config.log.progress_every,
        )
        B = sae.batch_size
        x = shape(B, tsae.width, dtype=jnp.float32)
        pairs = Pairs(x=x, positive=x, valid=shape(B, dtype=bool))
        state = output_shapes(init_state, pairs, config=job)
        return train_step.lower(state, pairs, config=job)

    def lower_texts() -> Any:
        F, T = config.probe.num_reference_texts, config.train.sampling.max_new_tokens
        texts = ReferenceTexts(
            problem_ids=("",) * F,
            prompt_tokens=shape(F, prompt_length),
            prompt_lengths=shape(F),
            tokens=shape(F, T),
            lengths=shape(F),
            bands=shape(F),
            outcomes=shape(F),
            policy_mask=(
                shape(F, T, dtype=bool) if config.environment.enabled else None
            ),
        )
        return read_reference_texts.lower(graphdef, params, tsae, texts, layer=layer)

    if sae is None:
        return {"probe_texts": lower_texts}
    return {"probe_fit": lambda: lower_fit(sae), "probe_texts": lower_texts}
