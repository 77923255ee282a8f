"""A probe of the policy: reasoning features inside updates, and interventions."""

from rlvr_jax.config.probe import FeatureSelectionConfig, ProbeConfig, ProbeSAEConfig
from rlvr_jax.probe.protocol import FitInputs, Probe
from rlvr_jax.probe.sae import SAEProbeConfig

__all__ = [
    "FeatureSelectionConfig",
    "FitInputs",
    "Probe",
    "ProbeConfig",
    "ProbeSAEConfig",
    "SAEProbeConfig",
]
