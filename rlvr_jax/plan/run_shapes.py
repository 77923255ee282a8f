"""The shapes of a run, which its memory and its time are estimated from."""

import dataclasses
import functools
import math

import jax
from flax import nnx
from jax.sharding import Mesh

from rlvr_jax.config import Config
from rlvr_jax.models import Transformer, abstract_params
from rlvr_jax.plan.widths import Widths
from rlvr_jax.run.trainable import PolicyParts, abstract_policy_parts
from rlvr_jax.sampler import SamplerLayout


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunShapes:
    """A run without its arrays. Made by `dry_run`, read by the estimates.

    `policy` is abstract. With `on_cpu` the run's own devices are CPU devices; the
    devices of `mesh` may be CPU devices instead of chips.
    """

    config: Config
    policy: Transformer
    mesh: Mesh
    layout: SamplerLayout
    vocab_size: int
    widths: Widths
    on_cpu: bool

    @functools.cached_property
    def params(self) -> nnx.State:
        """Returns the policy's parameters as shapes with shardings."""
        return abstract_params(self.policy, self.mesh)

    @functools.cached_property
    def parts(self) -> PolicyParts:
        """Returns the parameters that RL trains, and the others."""
        graphdef = nnx.graphdef(self.policy)
        lora = self.config.train.lora
        return abstract_policy_parts(graphdef, self.params, self.mesh, lora)

    @property
    def num_params(self) -> int:
        """Returns the number of the policy's parameters."""
        return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(self.params))
