"""Low-rank adapters for a policy's weights, and quantized weights, through qwix.

qwix intercepts the products inside a module's call and finds the weight by searching
that module. A block has several weights of the same shape, so each adapted or quantized
weight first gets its own module (`parameters.Linear`). Layers stay stacked: adapters
are A [L, in, rank] and B [L, rank, out].

LoRA   https://arxiv.org/abs/2106.09685
QLoRA  https://arxiv.org/abs/2305.14314
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import qwix
from flax import nnx

from rlvr_jax.config import LoRAConfig
from rlvr_jax.models.families import ParamMapping, load_family
from rlvr_jax.models.parameters import Linear
from rlvr_jax.models.transformer import Transformer

ADAPTERS = nnx.LoRAParam  # selects the adapters among a policy's variables
_NF4_TILE_SIZE = 64  # numbers of a column that share a scale in nf4, as in QLoRA
# Uniform within 1 / sqrt(in), as PEFT draws A. B starts at 0.
_INIT_A = jax.nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")


def add_adapters(
    policy: Transformer, config: LoRAConfig, key: jax.Array
) -> Transformer:
    """Returns the policy, changed in place, with new adapters in its layers.

    Logits do not change, because B starts at 0; but with `config.quantize` they are
    computed from the quantized weights. Adapters are always float32.

    Example:
        >>> import jax
        >>> from flax import nnx
        >>> from rlvr_jax.config import LoRAConfig, ModelConfig
        >>> from rlvr_jax.models import Transformer
        >>> config = ModelConfig(
        ...     num_layers=1, hidden_size=8, intermediate_size=8, num_heads=1,
        ...     num_kv_heads=1, head_dim=8,
        ... )
        >>> policy = Transformer(config, vocab_size=5, rngs=nnx.Rngs(0))
        >>> lora = LoRAConfig(rank=2, target_modules=("q_proj",))
        >>> policy = add_adapters(policy, lora, jax.random.key(0))
        >>> [x.shape for x in named_adapters(policy, lora).popitem()[1]]
        [(1, 8, 2), (1, 2, 8)]
    """
    for number, (module, name, place) in enumerate(_block_matrices(policy)):
        adapted = module in config.target_modules
        if not adapted and config.quantize == "none":
            continue
        weight = vars(policy.blocks)[name]
        axes = weight.get_metadata()["axes"]
        inner, outer = axes[1], axes[1 + place.num_input_axes]
        layers, *shape = weight.shape
        width = math.prod(shape[: place.num_input_axes])
        provider = _qwix_provider(config, width, adapted=adapted)
        product = _stacked_linear(
            weight[...].reshape(layers, width, -1),
            nnx.Rngs(jax.random.fold_in(key, number)),
            provider=provider,
            axes=("layers", inner, outer),
        )
        if adapted:
            lora_a, lora_b = _lora_pair(product)
            _set_axes(lora_a, ("layers", inner, None))
            _set_axes(lora_b, ("layers", None, outer))
        setattr(policy.blocks, name, product)
    return policy


def abstract_adapted_policy(
    graphdef: nnx.GraphDef, base: nnx.State, config: LoRAConfig
) -> Transformer:
    """Returns the result of `add_adapters`, with shapes instead of arrays."""

    def adapted(base: nnx.State) -> Transformer:
        return add_adapters(nnx.merge(graphdef, base), config, jax.random.key(0))

    return nnx.eval_shape(adapted, base)


def merge_adapters(
    graphdef: nnx.GraphDef, base: nnx.State, adapters: nnx.State, config: LoRAConfig
) -> nnx.State:
    """Returns the policy's parameters with each W replaced by W + (alpha / rank) A B.

    `graphdef` and `base` are the policy before `add_adapters`. With `config.quantize`,
    W is the dequantized quantized weight, with which the adapters were trained.
    """
    policy = nnx.merge(graphdef, base)
    adapted = add_adapters(nnx.merge(graphdef, base), config, jax.random.key(0))
    nnx.update(adapted, adapters)
    for module, name, _ in _block_matrices(policy):
        product, param = vars(adapted.blocks)[name], vars(policy.blocks)[name]
        if isinstance(product, Linear):
            weight_LXY = _dequantized_weight(product).astype(jnp.float32)
            if module in config.target_modules:
                weight_LXY = weight_LXY + _weight_delta(product, config)
            param[...] = weight_LXY.reshape(param.shape).astype(param.dtype)
    return nnx.state(policy)


def named_adapters(policy: Transformer, config: LoRAConfig) -> dict[str, Any]:
    """Returns A [L, in, rank] and B [L, rank, out] by Hugging Face's module name.

    A name looks like "model.layers.{}.self_attn.q_proj", with `{}` for the layer.
    """
    return {
        place.hf_name.removesuffix(".weight"): tuple(
            param[...] for param in _lora_pair(vars(policy.blocks)[name])
        )
        for module, name, place in _block_matrices(policy)
        if module in config.target_modules
    }


def _block_matrices(policy: Transformer) -> list[tuple[str, str, ParamMapping]]:
    """Returns the matrices of a layer: Hugging Face's name, ours, and the mapping."""
    return [
        (place.hf_name.split(".")[-2], path.removeprefix("blocks."), place)
        for path, place in load_family(policy.config.family)
        .param_mapping(policy.config)
        .items()
        if place.num_input_axes and path.startswith("blocks.")
    ]


def _qwix_provider(
    config: LoRAConfig, width: int, *, adapted: bool
) -> qwix.LoraProvider:
    """Returns qwix's rule for one matrix of `width` rows."""
    rule: dict[str, Any] = {"module_path": ".*"}
    if config.quantize != "none":
        rule["weight_qtype"] = config.quantize
    if config.quantize == "nf4":
        rule["tile_size"] = math.gcd(_NF4_TILE_SIZE, width)
    if not adapted:
        return qwix.LoraProvider([qwix.QuantizationRule(**rule)])
    return qwix.LoraProvider(
        [
            qwix.LoraRule(
                rank=config.rank,
                alpha=config.alpha,
                lora_a_initializer=_INIT_A,
                **rule,
            )
        ]
    )


def _stacked_linear(
    weight_LXY: jax.Array,
    rngs: nnx.Rngs,
    *,
    provider: qwix.LoraProvider,
    axes: tuple[str, ...],
) -> Linear:
    """Returns one module with a leading L axis, which qwix creates layer by layer."""
    L, X, _ = weight_LXY.shape

    @nnx.split_rngs(splits=L)
    @nnx.vmap(in_axes=(0, 0), out_axes=0)
    def create(weight_XY: jax.Array, rngs: nnx.Rngs) -> Linear:
        # qwix finds what to intercept by calling the module once.
        example = jnp.zeros((1, 1, X), weight_XY.dtype)
        return qwix.apply_lora_to_model(
            Linear(weight_XY, axes), provider, example, rngs=rngs
        )

    return create(weight_LXY, rngs)


def _lora_pair(product: Linear) -> tuple[nnx.LoRAParam, nnx.LoRAParam]:
    """Returns A and B, which qwix names after the weight."""
    variables = vars(product)
    return variables["weight_lora_a"], variables["weight_lora_b"]


def _set_axes(param: nnx.LoRAParam, axes: tuple[str | None, ...]) -> None:
    """Sets an adapter's logical axes, and casts it to float32."""
    param.set_metadata(axes=axes)
    param.set_value(param[...].astype(jnp.float32))  # [...] = would keep its dtype


def _weight_delta(product: Linear, config: LoRAConfig) -> jax.Array:
    """Returns (alpha / rank) A B, [L, in, out]."""
    lora_a, lora_b = _lora_pair(product)
    scale = config.alpha / config.rank
    return scale * jnp.einsum("lxr,lry->lxy", lora_a[...], lora_b[...])


def _dequantized_weight(product: Linear) -> jax.Array:
    """Returns the matrices [L, in, out], dequantized if they are quantized."""
    weight = vars(product)["weight"]
    if isinstance(weight, nnx.Param):
        return weight[...]
    plain = jax.tree.map(
        lambda x: x[...], weight.array, is_leaf=lambda x: isinstance(x, nnx.Variable)
    )
    return jax.vmap(qwix.dequantize)(plain)
