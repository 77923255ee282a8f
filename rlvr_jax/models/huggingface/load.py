"""A directory of safetensors -> a policy; each device reads its own part, once.

The host holds one tensor of one layer at a time. Layers are written one by one into
their stack, which is on the devices from the start.
"""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import (
    Mesh,
    NamedSharding,
    PartitionSpec,
    Sharding,
    SingleDeviceSharding,
)

from job_jax.mesh import check_axes
from job_jax.schema import ConfigError, did_you_mean
from rlvr_jax.config import ModelConfig, PretrainedConfig
from rlvr_jax.models.families import ParamMapping, load_family
from rlvr_jax.models.huggingface.config import (
    Dtype,
    hf_vocab_size,
    read_json,
    text_settings,
)
from rlvr_jax.models.huggingface.tensors import (
    FLOAT_DTYPES,
    TensorIndex,
    abbreviate,
    index_tensors,
    open_safetensors,
)
from rlvr_jax.models.huggingface.tied import head_name, read_stored_config
from rlvr_jax.models.parameters import layer_sharding, param_shardings
from rlvr_jax.models.transformer import Transformer
from rlvr_jax.tokenizer.huggingface import import_transformers

GENERATION = "generation_config.json"


def load_hf(
    path: str | os.PathLike[str],
    *,
    dtype: jax.typing.DTypeLike = "float32",
    mesh: Mesh | None = None,
    family: str | None = None,
) -> Transformer:
    """Returns the policy of a Hugging Face directory, sharded over the mesh.

    Args:
        path: a directory with config.json and safetensors; nothing is downloaded.
        dtype: float32 or bfloat16, for parameters and computation, regardless of the
            files' dtype.
        mesh: a mesh from `job_jax.mesh.make_mesh`; without one, the first device holds
            the policy.
        family: "package.module:NAME" for a custom family; without it, config.json
            decides.

    Raises ConfigError on any other dtype or mesh, on an unsupported family or setting,
    and on files that are damaged or do not match config.json.

    Example:
        >>> import tempfile
        >>> from flax import nnx
        >>> from rlvr_jax.config import ModelConfig
        >>> from rlvr_jax.models import Transformer, load_hf, save_hf
        >>> config = ModelConfig(
        ...     num_layers=1, hidden_size=8, intermediate_size=8, num_heads=1,
        ...     num_kv_heads=1, head_dim=8,
        ... )
        >>> policy = Transformer(config, vocab_size=5, rngs=nnx.Rngs(0))
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     save_hf(policy, directory)
        ...     loaded = load_hf(directory)
        >>> loaded.config == config
        True
    """
    directory = Path(path)
    if mesh is not None:
        check_axes(mesh)
    abstract = abstract_policy(directory, dtype=_dtype(dtype), family=family)
    graphdef, params = nnx.split(abstract)
    flat = {".".join(map(str, p)): (p, param) for p, param in nnx.to_flat_state(params)}
    mapping = _param_mapping(abstract.config, set(flat))
    tensors = index_tensors(directory)
    _check_names(mapping, abstract.config, tensors, directory)
    _check_shapes(
        {name: flat[name][1] for name in mapping}, mapping, tensors, directory
    )
    layouts = _shardings(abstract, mesh)
    values, loaded = {}, []
    # Embedding and head are the largest: load them first, to free their copies early.
    for name, (key, param) in sorted(
        flat.items(), key=lambda item: item[0].startswith("blocks")
    ):
        value = _load_param(mapping[name], param, tensors, layouts[name])
        values[name] = value
        loaded.append((key, param.replace(value)))
    _check_finite(values, mapping, directory, mesh)
    return nnx.merge(graphdef, nnx.from_flat_state(loaded))


def _dtype(dtype: jax.typing.DTypeLike) -> Dtype:
    """Returns a dtype's name. Raises ConfigError if a policy cannot have it."""
    name = dtype if isinstance(dtype, str) else jnp.dtype(dtype).name
    for allowed in get_args(Dtype):
        if name == allowed:
            return allowed
    raise ConfigError(f"dtype={name!r}; it must be one of {', '.join(get_args(Dtype))}")


def stored_dtype(path: str | os.PathLike[str]) -> Dtype:
    """Returns bfloat16 if the files hold nothing else, float32 otherwise.

    In this dtype every tensor except float64 is read without loss. Raises ConfigError
    on files that are missing or damaged.
    """
    dtypes, tensors = set(), index_tensors(Path(path))
    for shard in {file for file, _ in tensors.values()}:
        with open_safetensors(shard) as file:
            keys = [key for where, key in tensors.values() if where == shard]
            dtypes |= {file.get_slice(key).get_dtype() for key in keys}
    return "bfloat16" if dtypes == {"BF16"} else "float32"


def abstract_policy(
    directory: Path, *, dtype: Dtype, family: str | None = None
) -> Transformer:
    """Returns the policy of a directory, with shapes instead of parameters."""
    config = read_stored_config(directory, dtype=dtype, family=family)
    vocab_size = hf_vocab_size(PretrainedConfig(path=str(directory)))
    _check_tokenizer(directory, vocab_size)
    eos_ids = _eos_ids(directory)
    policy = nnx.eval_shape(
        lambda: Transformer(config, vocab_size, nnx.Rngs(0), eos_ids=eos_ids)
    )
    policy.hf_dir = str(directory)
    return policy


def _eos_ids(directory: Path) -> tuple[int, ...]:
    """Returns the tokens at which transformers would end a completion."""
    ids = None
    if (directory / GENERATION).is_file():
        settings = read_json(directory / GENERATION)
        ids = import_transformers().GenerationConfig(**settings).eos_token_id
    if ids is None:
        ids = text_settings(directory).get("eos_token_id")
    if ids is None:
        return ()
    return tuple(ids) if isinstance(ids, list) else (ids,)


def _check_tokenizer(directory: Path, vocab_size: int) -> None:
    """Raises ConfigError if the tokenizer has tokens beyond the embedding."""
    path = directory / "tokenizer.json"
    if not path.is_file():
        return
    tokenizer = read_json(path)
    pieces = tokenizer.get("model", {}).get("vocab", {})
    ids = list(pieces.values()) if isinstance(pieces, dict) else [len(pieces) - 1]
    ids += [token["id"] for token in tokenizer.get("added_tokens", [])]
    if (count := max(ids, default=-1) + 1) > vocab_size:
        raise ConfigError(
            f"{path} has {count} tokens, more than config.json's vocab_size="
            f"{vocab_size}"
        )


def _param_mapping(config: ModelConfig, names: set[str]) -> dict[str, ParamMapping]:
    """Returns the family's mapping. ConfigError if it is not of these parameters."""
    mapping = load_family(config.family).param_mapping(config)
    if mismatch := sorted(set(mapping) ^ names):
        raise ConfigError(
            f"model.family={config.family}: its param_mapping and the model "
            f"that its from_hf describes differ in {abbreviate(mismatch)}"
        )
    return mapping


def _check_names(
    mapping: dict[str, ParamMapping],
    config: ModelConfig,
    tensors: TensorIndex,
    directory: Path,
) -> None:
    """Raises ConfigError unless the files hold exactly the model's tensors."""
    if config.tie_embeddings:
        # A copy of the embedding: `read_stored_config` has compared them.
        tensors.pop(head_name(config), None)
    needed = {
        param.hf_name.format(layer)
        for param in mapping.values()
        for layer in range(config.num_layers)
    }
    if missing := sorted(needed - set(tensors)):
        raise ConfigError(f"{directory} lacks {abbreviate(missing)}")
    if unexpected := sorted(set(tensors) - needed):
        nearest = did_you_mean(unexpected[0], needed)
        raise ConfigError(
            f"{directory} holds {abbreviate(unexpected)}, which the model of "
            f"config.json has no place for{nearest}"
        )


def _check_shapes(
    params: dict[str, nnx.Param],
    mapping: dict[str, ParamMapping],
    tensors: TensorIndex,
    directory: Path,
) -> None:
    """Raises ConfigError unless every tensor has its shape and holds floats."""
    shapes_and_dtypes = {}
    for path in {path for path, _ in tensors.values()}:
        with open_safetensors(path) as file:
            for name, (where, stored) in tensors.items():
                if where == path:
                    view = file.get_slice(stored)
                    shapes_and_dtypes[name] = (
                        tuple(view.get_shape()),
                        view.get_dtype(),
                    )
    for param_path, param_mapping in mapping.items():
        stacked, shape = "{}" in param_mapping.hf_name, params[param_path].shape
        expected = param_mapping.hf_shape(shape[1:] if stacked else shape)
        for layer in range(shape[0] if stacked else 1):
            name = param_mapping.hf_name.format(layer)
            actual, dtype = shapes_and_dtypes[name]
            if actual != expected and param_path in ("embedding", "lm_head"):
                raise ConfigError(
                    f"{directory}: {name} has {actual[0]} tokens x {actual[1:]}, but "
                    f"config.json says vocab_size={expected[0]} x {expected[1:]}"
                )
            if actual != expected:
                raise ConfigError(
                    f"{directory}: {name} has shape {actual}, but config.json "
                    f"describes {expected}"
                )
            if dtype not in FLOAT_DTYPES:
                raise ConfigError(
                    f"{directory}: {name} holds {dtype}; {', '.join(FLOAT_DTYPES)} "
                    "can be read, quantized weights cannot"
                )


def _shardings(policy: Transformer, mesh: Mesh | None) -> dict[str, Sharding]:
    """Returns each parameter's sharding, by its dotted path."""
    if mesh is None:
        first_device = SingleDeviceSharding(jax.devices()[0])
        flat_state = nnx.to_flat_state(nnx.state(policy))
        names = [".".join(map(str, path)) for path, _ in flat_state]
        return dict.fromkeys(names, first_device)
    flat = jax.tree_util.tree_flatten_with_path(param_shardings(policy, mesh))[0]
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): sharding
        for path, sharding in flat
    }


def _load_param(
    mapping: ParamMapping, param: nnx.Param, tensors: TensorIndex, sharding: Sharding
) -> jax.Array:
    """Returns a parameter on its devices, reading one layer at a time."""
    if "{}" not in mapping.hf_name:
        return _load_tensor(
            mapping, tensors[mapping.hf_name], param.shape, param.dtype, sharding
        )
    shape, dtype = tuple(param.shape), param.dtype
    make_stack, write_layer = _stack_programs(shape, dtype, sharding)
    stack = make_stack()
    inner = layer_sharding(sharding)
    for layer in range(shape[0]):
        where = tensors[mapping.hf_name.format(layer)]
        one_layer = _load_tensor(mapping, where, shape[1:], dtype, inner)
        stack = write_layer(stack, one_layer, layer)
    # Without this, reading would run ahead of writing and fill the host with layers.
    return jax.block_until_ready(stack)


def _check_finite(
    values: dict[str, jax.Array],
    mapping: dict[str, ParamMapping],
    directory: Path,
    mesh: Mesh | None,
) -> None:
    """Raises ConfigError if a tensor holds NaN or infinite numbers."""

    def are_finite(values: dict[str, jax.Array]) -> dict[str, jax.Array]:
        return {  # for a stack, one result per layer
            name: jnp.isfinite(value).all(
                axis=range(1, value.ndim) if "{}" in mapping[name].hf_name else None
            )
            for name, value in values.items()
        }

    everywhere = NamedSharding(mesh, PartitionSpec()) if mesh else None
    found = jax.device_get(jax.jit(are_finite, out_shardings=everywhere)(values))
    names = [
        mapping[name].hf_name.format(layer)
        for name, finite in found.items()
        for layer in np.flatnonzero(~np.atleast_1d(finite))
    ]
    if names:
        raise ConfigError(
            f"{directory}: {abbreviate(names)} holds NaN or infinite numbers; copy or "
            "download it again"
        )


@functools.cache  # many parameters have the same shape, and each program is compiled
def _stack_programs(
    shape: tuple[int, ...], dtype: Any, sharding: Sharding
) -> tuple[Callable[[], jax.Array], Callable[[jax.Array, jax.Array, int], jax.Array]]:
    """Returns programs that make a stack of zeros and that write a layer into one."""

    def write_layer(stack: jax.Array, part: jax.Array, layer: jax.Array) -> jax.Array:
        return jax.lax.dynamic_update_index_in_dim(stack, part, layer, axis=0)

    return (
        jax.jit(lambda: jnp.zeros(shape, dtype), out_shardings=sharding),
        jax.jit(write_layer, donate_argnums=0, out_shardings=sharding),
    )


def _load_tensor(
    mapping: ParamMapping,
    where: tuple[Path, str],
    shape: tuple[int, ...],
    dtype: Any,
    sharding: Sharding,
) -> jax.Array:
    """Returns one layer of a parameter; each device reads its own part."""
    path, stored_name = where
    with open_safetensors(path) as file:
        view = file.get_slice(stored_name)

        @functools.cache  # devices that hold the same part read it once
        def part(*bounds: tuple[int, int]) -> np.ndarray:
            index = [slice(*start_stop) for start_stop in bounds]
            array = mapping.from_hf(
                view[mapping.hf_slices(index, shape)], [b - a for a, b in bounds]
            )
            return np.ascontiguousarray(array.astype(dtype, copy=False))

        def callback(index: tuple[slice, ...] | None) -> np.ndarray:
            assert index is not None  # every device holds a part
            return part(*(s.indices(n)[:2] for s, n in zip(index, shape, strict=True)))

        return jax.make_array_from_callback(shape, sharding, callback)
