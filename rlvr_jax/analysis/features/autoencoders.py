"""The report's section on the autoencoders that a run trained, if any."""

from typing import Any

from rlvr_jax.report.run_files import RunArtifacts
from rlvr_jax.report.sections import Section
from rlvr_jax.report.tables import Table
from sae_jax.train import STAGE

_GROUPS = ("high", "low")


def autoencoder_section(run: RunArtifacts) -> Section | None:
    """Returns a table of the replicas: each seed, and its baseline without contrast.

    Returns None if the run trained none, or used an existing one.
    """
    replicas = run.summary.get(STAGE, {}).get("replicas")
    if not replicas:
        return None
    return Section(
        title="How well the autoencoders fit before RL",
        text="Measured on documents held out of their training. The contrast should "
        "make high-level latents change slowly: compare a seed with its baseline of "
        "alpha 0, which had the same start and the same data. Slopes are relative: 1 "
        "is a jump from nothing to a latent's peak in one step of mean size. "
        "Autocorrelation compares a latent at neighboring tokens. Neither depends on "
        "the size of activations.",
        table=Table(
            head=(
                "replica",
                "alpha",
                "FVE",
                "alive",
                *(f"slope, {group}-level" for group in _GROUPS),
                *(f"autocorrelation, {group}-level" for group in _GROUPS),
            ),
            rows=[_row(name, replica) for name, replica in replicas.items()],
        ),
    )


def _row(name: str, replica: dict[str, Any]) -> tuple[str, ...]:
    def by_group(kind: str) -> list[str]:
        values = replica[kind]
        return [
            f"{values[group]:.3f}" if group in values else "\u2013" for group in _GROUPS
        ]

    return (
        name,
        f"{replica['alpha']:g}",
        f"{replica['fve']:.3f}",
        f"{100 * replica['alive']['all']:.0f} %",
        *by_group("relative_smoothness"),
        *by_group("autocorrelation"),
    )
