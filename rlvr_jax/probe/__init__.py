"""A probe of the policy: reasoning features inside updates, and interventions.

The probe with an autoencoder is imported when it is first used, so a run without one
loads no more than the settings of `sae_jax`.
"""

from typing import TYPE_CHECKING, Any

from rlvr_jax.config.probe import FeatureSelectionConfig, ProbeConfig, ProbeSAEConfig
from rlvr_jax.probe.protocol import FitInputs, Probe

if TYPE_CHECKING:
    from rlvr_jax.probe.sae import SAEProbeConfig

__all__ = [
    "FeatureSelectionConfig",
    "FitInputs",
    "Probe",
    "ProbeConfig",
    "ProbeSAEConfig",
    "SAEProbeConfig",
]


def __getattr__(name: str) -> Any:
    """Imports and returns `SAEProbeConfig`."""
    if name == "SAEProbeConfig":
        from rlvr_jax.probe.sae import SAEProbeConfig  # noqa: PLC0415 - see above

        return SAEProbeConfig
    raise AttributeError(f"module 'rlvr_jax.probe' has no attribute {name!r}")
