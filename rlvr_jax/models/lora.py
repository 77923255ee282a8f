"""Adapters beside a policy's weights, and weights quantised, through qwix.

A policy is adapted by giving the products of its blocks modules of their own, which
qwix intercepts one by one: it finds a weight by looking through the module that uses
it, and a block has several of one shape. Layers stay stacked, so adapters are
A [L, in, rank] and B [L, rank, out].

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
from rlvr_jax.models.huggingface.layout import Place, places
from rlvr_jax.models.product import Product
from rlvr_jax.models.transformer import Transformer

ADAPTERS = nnx.LoRAParam  # what selects the adapters among a policy's variables
_TILE = 64  # numbers of a column that share a scale in nf4, as in QLoRA
# Uniform within 1 / sqrt(in), as PEFT draws A. B starts at 0.
_DRAW_A = jax.nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")


def adapt(policy: Transformer, config: LoRAConfig, key: jax.Array) -> Transformer:
    """Returns the policy, itself changed, with new adapters: logits stay as they were.

    With `config.quantize` they become those of the quantised weights. Adapters are
    float32, whatever the weights are.
    """
    for number, (module, name, place) in enumerate(_products(policy)):
        adapted = module in config.modules
        if not adapted and config.quantize == "none":
            continue
        weight = vars(policy.blocks)[name]
        axes = weight.get_metadata()["axes"]
        inner, outer = axes[1], axes[1 + place.columns]
        layers, *shape = weight.shape
        width = math.prod(shape[: place.columns])
        provider = _provider(config, width, adapted=adapted)
        product = _stacked(
            weight[...].reshape(layers, width, -1),
            nnx.Rngs(jax.random.fold_in(key, number)),
            provider=provider,
            axes=("layers", inner, outer),
        )
        if adapted:
            lora_a, lora_b = _adapters(product)
            _keep(lora_a, ("layers", inner, None))
            _keep(lora_b, ("layers", None, outer))
        setattr(policy.blocks, name, product)
    return policy


def adapted_shapes(graphdef: Any, base: Any, config: LoRAConfig) -> Transformer:
    """Returns `adapt` of the policy of these parameters or shapes, in shapes alone."""

    def adapted(base: Any) -> Transformer:
        return adapt(nnx.merge(graphdef, base), config, jax.random.key(0))

    return nnx.eval_shape(adapted, base)


def merged(graphdef: Any, base: Any, adapters: Any, config: LoRAConfig) -> Any:
    """Returns parameters with W + (alpha / rank) A B in the place of W.

    `graphdef` and `base` are the policy before `adapt`; a weight that `adapt` quantised
    enters as the numbers it then stands for.
    """
    policy = nnx.merge(graphdef, base)
    adapted = adapt(nnx.merge(graphdef, base), config, jax.random.key(0))
    nnx.update(adapted, adapters)
    for module, name, _ in _products(policy):
        product, param = vars(adapted.blocks)[name], vars(policy.blocks)[name]
        if isinstance(product, Product):
            weight_LXY = _weight(product).astype(jnp.float32)
            if module in config.modules:
                weight_LXY = weight_LXY + _change(product, config)
            param[...] = weight_LXY.reshape(param.shape).astype(param.dtype)
    return nnx.state(policy)


def named_adapters(policy: Transformer, config: LoRAConfig) -> dict[str, Any]:
    """Returns A [L, in, rank] and B [L, rank, out] by Hugging Face's module names.

    Such as "model.layers.{}.self_attn.q_proj", `{}` for the layer.
    """
    return {
        place.name.removesuffix(".weight"): tuple(
            param[...] for param in _adapters(vars(policy.blocks)[name])
        )
        for module, name, place in _products(policy)
        if module in config.modules
    }


def _products(policy: Transformer) -> list[tuple[str, str, Place]]:
    """Returns a layer's matrices: Hugging Face's name, ours, and their form there."""
    return [
        (place.name.split(".")[-2], path.removeprefix("blocks."), place)
        for path, place in places(policy.config).items()
        if place.columns and path.startswith("blocks.")
    ]


def _provider(config: LoRAConfig, width: int, *, adapted: bool) -> qwix.LoraProvider:
    """Returns what qwix does to one product whose matrix has `width` rows."""
    rule: dict[str, Any] = {"module_path": ".*"}
    if config.quantize != "none":
        rule["weight_qtype"] = config.quantize
    if config.quantize == "nf4":
        rule["tile_size"] = math.gcd(_TILE, width)
    if not adapted:
        return qwix.LoraProvider([qwix.QuantizationRule(**rule)])
    return qwix.LoraProvider(
        [
            qwix.LoraRule(
                rank=config.rank,
                alpha=config.alpha,
                lora_a_initializer=_DRAW_A,
                **rule,
            )
        ]
    )


def _stacked(
    weight_LXY: jax.Array,
    rngs: nnx.Rngs,
    *,
    provider: qwix.LoraProvider,
    axes: tuple[str, ...],
) -> Product:
    """Returns the product that qwix makes of each layer's, as one with an L axis."""
    L, X, _ = weight_LXY.shape

    @nnx.split_rngs(splits=L)
    @nnx.vmap(in_axes=(0, 0), out_axes=0)
    def create(weight_XY: jax.Array, rngs: nnx.Rngs) -> Product:
        # qwix learns what there is to intercept from one call.
        once = jnp.zeros((1, 1, X), weight_XY.dtype)
        return qwix.apply_lora_to_model(
            Product(weight_XY, axes), provider, once, rngs=rngs
        )

    return create(weight_LXY, rngs)


def _adapters(product: Product) -> tuple[nnx.LoRAParam, nnx.LoRAParam]:
    """Returns A and B, which qwix names after the weight."""
    found = vars(product)
    return found["weight_lora_a"], found["weight_lora_b"]


def _keep(param: nnx.LoRAParam, axes: tuple[str | None, ...]) -> None:
    """Gives an adapter its logical axes, and the dtype of master weights."""
    param.set_metadata(axes=axes)
    param[...] = param[...].astype(jnp.float32)


def _change(product: Product, config: LoRAConfig) -> jax.Array:
    """Returns (alpha / rank) A B, [L, in, out]."""
    lora_a, lora_b = _adapters(product)
    scale = config.alpha / config.rank
    return scale * jnp.einsum("lxr,lry->lxy", lora_a[...], lora_b[...])


def _weight(product: Product) -> jax.Array:
    """Returns the matrices as numbers, [L, in, out]."""
    weight = vars(product)["weight"]
    if isinstance(weight, nnx.Param):
        return weight[...]
    plain = jax.tree.map(
        lambda x: x[...], weight.array, is_leaf=lambda x: isinstance(x, nnx.Variable)
    )
    return jax.vmap(qwix.dequantize)(plain)
