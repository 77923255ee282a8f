"""The interface of a probe in an update, where it reads the residual stream.

The update calls only these few methods and knows nothing else of the probe;
`probe.protocol` defines a probe for the rest of a run.
"""

import dataclasses
from typing import Any, Protocol, Self

import jax
from jaxtyping import Array, Float

from rlvr_jax.config import RFGOConfig
from rlvr_jax.types import Batch, ReasoningFeatures


class FeatureReader(Protocol):
    """Computes R features of a residual stream. A pytree: it is an argument of jit.

    The update stops gradients through `features`.
    """

    def features(self, residual: Float[Array, "B T D"], /) -> Float[Array, "B T R"]:
        """Returns the features of each token; called inside jit."""
        ...


class Observer(Protocol):
    """Sums up a probe's statistics of a batch beyond its features. A pytree."""

    def init(self) -> Any:
        """Returns the sums over no tokens: a pytree whose values add up with `+`."""
        ...

    def observe(self, residual: Float[Array, "B T D"], batch: Batch, /) -> Any:
        """Returns the sums over a micro-batch; `residual` has tokens 0..T-2."""
        ...


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class ProbeInputs:
    """A probe's inputs to one update. Written by `stages.probe_hooks`.

    With an `observer` (logged steps) the update also returns its sums; in all other
    steps it is None.
    """

    reader: FeatureReader
    reasoning_features: ReasoningFeatures
    observer: Observer | None = None

    def without_observer(self) -> Self:
        """Returns the same inputs for an update that sums up only features."""
        return dataclasses.replace(self, observer=None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProbeSpec:
    """How every update of a run uses its probe: the layer, and RFGO's settings.

    `shuffle_weights` turns on the control that gives each token another token's weight.
    """

    layer: int
    rfgo: RFGOConfig
    shuffle_weights: bool
