"""What a probe brings to an update, where it reads the residual stream.

The update knows these few methods of a probe and nothing of what stands behind them:
`probe.protocol` says what a probe is for the rest of a run.
"""

import dataclasses
from typing import Any, Protocol, Self

import jax
from jaxtyping import Array, Float

from rlvr_jax.config import RFGOConfig
from rlvr_jax.types import Batch, ReasoningFeatures


class FeatureReader(Protocol):
    """Computes R features of a residual stream. A pytree: it is an argument of jit.

    The update stops gradients at what `features` returns.
    """

    def features(self, residual: Float[Array, "B T D"], /) -> Float[Array, "B T R"]:
        """Returns the features of each token; called inside jit."""
        ...


class Observer(Protocol):
    """Sums up what a probe wants to know of a batch beyond its features. A pytree."""

    def init(self) -> Any:
        """Returns the sums over no tokens: a pytree whose values add up with `+`."""
        ...

    def observe(self, residual: Float[Array, "B T D"], batch: Batch, /) -> Any:
        """Returns the sums over a micro-batch; `residual` is that of tokens 0..T-2."""
        ...


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class ProbeInputs:
    """What one update needs of a probe. Written by `stages.probe_hooks`.

    With an `observer` the update also returns its sums (logged steps); it is None in
    all other steps.
    """

    reader: FeatureReader
    reasoning_features: ReasoningFeatures
    observer: Observer | None = None

    def without_observer(self) -> Self:
        """Returns the same inputs for an update that sums up features alone."""
        return dataclasses.replace(self, observer=None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProbeSpec:
    """How every update of a run uses its probe: the layer, and RFGO's settings.

    `shuffle_weights` is the control that gives each token another token's weight.
    """

    layer: int
    rfgo: RFGOConfig
    shuffle_weights: bool
