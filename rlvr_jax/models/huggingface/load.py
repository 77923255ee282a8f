"""A directory of safetensors -> a policy, each tensor read once, to its own shards.

The host holds one tensor of one layer at a time: layers are written one by one into
their stack, which lies on the devices from the start.
"""

import contextlib
import functools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, Sharding, SingleDeviceSharding
from safetensors import SafetensorError, safe_open

from job_jax.mesh import require_axes
from job_jax.schema import ConfigError, did_you_mean
from rlvr_jax.config import ModelConfig, PretrainedConfig
from rlvr_jax.models.huggingface.families import Dtype, model_config, text_settings
from rlvr_jax.models.huggingface.layout import Place, places
from rlvr_jax.models.parameters import layer_sharding, shardings
from rlvr_jax.models.transformer import Transformer

CONFIG, INDEX, WEIGHTS = "config.json", "model.safetensors.index.json", "model"
GENERATION = "generation_config.json"

_FLOATS = ("F64", "F32", "F16", "BF16")
# What a checkpoint may hold beside the language model: parts that see, and constants.
_ASIDE = ("vision_tower.", "multi_modal_projector.", "vision_model.")
_CONSTANT = "rotary_emb.inv_freq"
# Where models that also see keep the language model.
_WRAPPERS = (
    ("language_model.model.", "model."),
    ("language_model.lm_head.", "lm_head."),
    ("model.language_model.", "model."),
)

Found = dict[str, tuple[Path, str]]  # our spelling of a name -> file, its own name


def load_hf(
    path: str | os.PathLike[str],
    *,
    dtype: jax.typing.DTypeLike = "float32",
    mesh: Mesh | None = None,
) -> Transformer:
    """Returns the policy of a Hugging Face directory, laid out on the mesh.

    `dtype`, float32 or bfloat16, is that of parameters and computation, whatever the
    files hold. The mesh has the axes of `job_jax.mesh.make_mesh`; without one the
    policy lies on the first device. Raises ConfigError on any other of either, and on a
    checkpoint that is damaged, that lacks or exceeds what config.json describes, or
    that is of a family not computed here.
    """
    directory = Path(path)
    if mesh is not None:
        require_axes(mesh)
    abstract = abstract_hf(directory, dtype=_dtype(dtype))
    config = abstract.config
    graphdef, params = nnx.split(abstract)
    flat = {".".join(map(str, p)): (p, param) for p, param in nnx.to_flat_state(params)}
    table = places(config)
    found = _found(directory)
    _check_names(table, config, found, directory)
    _check_forms({path: flat[path][1] for path in table}, table, found, directory)
    layouts = _layouts(abstract, mesh)
    values = []
    # Embedding and head are the largest: their copies are gone before the rest come.
    for name, (at, param) in sorted(
        flat.items(), key=lambda item: item[0].startswith("blocks")
    ):
        value = _read(table[name], param, found, layouts[name])
        values.append((at, param.replace(value)))
    policy = nnx.merge(graphdef, nnx.from_flat_state(values))
    return policy


def _dtype(dtype: jax.typing.DTypeLike) -> Dtype:
    """Returns the name of a dtype that a policy may have. Raises ConfigError."""
    name = dtype if isinstance(dtype, str) else jnp.dtype(dtype).name
    for known in get_args(Dtype):
        if name == known:
            return known
    raise ConfigError(f"dtype={name!r}; it must be one of {', '.join(get_args(Dtype))}")


def stored_dtype(path: str | os.PathLike[str]) -> Dtype:
    """Returns bfloat16 where the files hold nothing else, float32 otherwise.

    Every tensor is read in it without loss, but for float64. Raises ConfigError.
    """
    kinds, found = set(), _found(Path(path))
    for shard in {at for at, _ in found.values()}:
        with opened(shard) as file:
            keys = [key for at, key in found.values() if at == shard]
            kinds |= {file.get_slice(key).get_dtype() for key in keys}
    return "bfloat16" if kinds == {"BF16"} else "float32"


def abstract_hf(directory: Path, *, dtype: Dtype) -> Transformer:
    """Returns the policy that config.json describes, its parameters abstract."""
    settings = text_settings(read_json(directory / CONFIG))
    config = model_config(settings, dtype=dtype)
    vocab_size = embedding_rows(PretrainedConfig(path=str(directory)))
    _check_tokenizer(directory, vocab_size)

    def new() -> Transformer:
        eos_ids = _eos_ids(directory, settings)
        return Transformer(config, vocab_size, nnx.Rngs(0), eos_ids=eos_ids)

    policy = nnx.eval_shape(new)
    policy.origin = str(directory)
    return policy


def embedding_rows(pretrained: PretrainedConfig) -> int:
    """Returns V, which config.json is asked for only if the config does not say."""
    if pretrained.vocab_size:
        return pretrained.vocab_size
    file = Path(pretrained.path) / CONFIG
    settings = text_settings(read_json(file))
    if "vocab_size" not in settings:
        raise ConfigError(f"{file} has no vocab_size")
    return settings["vocab_size"]


def read_json(path: Path) -> dict[str, Any]:
    """Returns the object in a file. Raises ConfigError."""
    if not path.is_file():
        raise ConfigError(f"no {path}; give a directory of a Hugging Face checkpoint")
    try:
        value = json.loads(path.read_text())
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{path} holds no JSON object")
    return value


def _eos_ids(directory: Path, settings: dict[str, Any]) -> tuple[int, ...]:
    """Returns the tokens that end a completion, as generation would have them."""
    ids = settings.get("eos_token_id")
    if (directory / GENERATION).is_file():
        ids = read_json(directory / GENERATION).get("eos_token_id", ids)
    if ids is None:
        return ()
    return tuple(ids) if isinstance(ids, list) else (ids,)


def _check_tokenizer(directory: Path, vocab_size: int) -> None:
    """Raises ConfigError where the tokenizer knows tokens that the model does not."""
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


def _found(directory: Path) -> Found:
    """Returns every tensor of the language model. Raises ConfigError."""
    if (directory / INDEX).is_file():
        weight_map = read_json(directory / INDEX).get("weight_map", {})
        files = sorted(set(weight_map.values()))
    else:
        weight_map, files = None, [f"{WEIGHTS}.safetensors"]
    found, held = {}, set()
    for name in files:
        with opened(directory / name) as file:
            keys = list(file.keys())
        held |= set(keys)
        for key in keys:
            if not key.startswith(_ASIDE) and not any(f".{a}" in key for a in _ASIDE):
                found[_spelled(key)] = (directory / name, key)
    if weight_map is not None and (lost := sorted(set(weight_map) - held)):
        raise ConfigError(f"{directory}: {INDEX} names {_some(lost)}, in no file")
    return {name: at for name, at in found.items() if not name.endswith(_CONSTANT)}


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Yields a safetensors file. Raises ConfigError where it is missing or damaged."""
    if not path.is_file():
        beside = sorted(p.name for p in path.parent.glob("*"))
        raise ConfigError(f"no {path}; beside it lie {_some(beside)}")
    try:
        with safe_open(path, framework="numpy") as file:
            yield file
    except SafetensorError as error:
        raise ConfigError(
            f"{path} is damaged ({error}); copy or download it again"
        ) from error


def _spelled(name: str) -> str:
    for theirs, plain in _WRAPPERS:
        if name.startswith(theirs):
            return plain + name.removeprefix(theirs)
    return name


def _check_names(
    table: dict[str, Place], config: ModelConfig, found: Found, directory: Path
) -> None:
    """Raises ConfigError unless the files hold all that is needed, and no more."""
    if config.tie_embeddings:
        found.pop("lm_head.weight", None)  # a copy of the embedding
    needed = {
        place.name.format(layer)
        for place in table.values()
        for layer in range(config.layers)
    }
    if missing := sorted(needed - set(found)):
        raise ConfigError(f"{directory} lacks {_some(missing)}")
    if unexpected := sorted(set(found) - needed):
        nearest = did_you_mean(unexpected[0], needed)
        raise ConfigError(
            f"{directory} holds {_some(unexpected)}, which the model of config.json "
            f"has no place for{nearest}"
        )


def _check_forms(
    params: dict[str, nnx.Param],
    table: dict[str, Place],
    found: Found,
    directory: Path,
) -> None:
    """Raises ConfigError unless every tensor has its shape and holds floats."""
    forms = {}
    for shard in {at for at, _ in found.values()}:
        with opened(shard) as file:
            for name, (at, key) in found.items():
                if at == shard:
                    part = file.get_slice(key)
                    forms[name] = (tuple(part.get_shape()), part.get_dtype())
    for path, place in table.items():
        stacked, shape = "{}" in place.name, params[path].shape
        expected = place.shape(shape[1:] if stacked else shape)
        for layer in range(shape[0] if stacked else 1):
            name = place.name.format(layer)
            actual, dtype = forms[name]
            if actual != expected and path in ("embedding", "head"):
                raise ConfigError(
                    f"{directory}: {name} is of {actual[0]} tokens x {actual[1:]}, "
                    f"config.json says vocab_size={expected[0]} x {expected[1:]}"
                )
            if actual != expected:
                raise ConfigError(
                    f"{directory}: {name} has shape {actual}, config.json asks for "
                    f"{expected}"
                )
            if dtype not in _FLOATS:
                raise ConfigError(
                    f"{directory}: {name} holds {dtype}; {', '.join(_FLOATS)} can be "
                    "read, quantised weights cannot"
                )


def _layouts(policy: Transformer, mesh: Mesh | None) -> dict[str, Sharding]:
    if mesh is None:
        one = SingleDeviceSharding(jax.devices()[0])
        flat_state = nnx.to_flat_state(nnx.state(policy))
        names = [".".join(map(str, path)) for path, _ in flat_state]
        return dict.fromkeys(names, one)
    flat = jax.tree_util.tree_flatten_with_path(shardings(policy, mesh))[0]
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): layout
        for path, layout in flat
    }


def _read(place: Place, param: nnx.Param, found: Found, layout: Sharding) -> jax.Array:
    """Returns a parameter, its layers read one after the other."""
    if "{}" not in place.name:
        return _tensor(place, found[place.name], param.shape, param.dtype, layout)
    shape, dtype = tuple(param.shape), param.dtype
    stack = jax.jit(lambda: jnp.zeros(shape, dtype), out_shardings=layout)()
    put = jax.jit(_put, donate_argnums=0, out_shardings=layout)
    inner = layer_sharding(layout)
    for layer in range(shape[0]):
        at = found[place.name.format(layer)]
        stack = put(stack, _tensor(place, at, shape[1:], dtype, inner), layer)
    # Else reading would run ahead of writing, and the host fill with layers.
    return jax.block_until_ready(stack)


def _put(stack: jax.Array, part: jax.Array, layer: jax.Array) -> jax.Array:
    return jax.lax.dynamic_update_index_in_dim(stack, part, layer, axis=0)


def _tensor(
    place: Place,
    at: tuple[Path, str],
    shape: tuple[int, ...],
    dtype: Any,
    layout: Sharding,
) -> jax.Array:
    """Returns one tensor in our form, of which each device reads its part."""
    with opened(at[0]) as file:
        theirs = file.get_slice(at[1])

        @functools.cache  # devices that hold the same part share one reading
        def part(*bounds: tuple[int, int]) -> np.ndarray:
            index = [slice(*each) for each in bounds]
            ours = place.to_ours(
                theirs[place.slices(index, shape)], [b - a for a, b in bounds]
            )
            return np.ascontiguousarray(ours.astype(dtype, copy=False))

        def callback(index: tuple[slice, ...] | None) -> np.ndarray:
            assert index is not None  # every device holds a part
            return part(*(s.indices(n)[:2] for s, n in zip(index, shape, strict=True)))

        return jax.make_array_from_callback(shape, layout, callback)


def _some(names: list[str]) -> str:
    """Returns a few of the names, and how many more there are."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(map(repr, names[:3])) + more
