"""The report's sections on a crosscoder's findings, if the run has a crosscoder."""

import json

from rlvr_jax.analysis.crosscoder.summary import CROSSCODER_FILE
from rlvr_jax.analysis.crosscoder.text import (
    READING,
    counts_table,
    describe_replication,
    latents_table,
)
from rlvr_jax.report.run_files import RunArtifacts
from rlvr_jax.report.sections import Part, Section


def crosscoder_sections(run: RunArtifacts) -> list[Section]:
    """Returns the counts with their controls, and the latents that changed most."""
    path = run.path / CROSSCODER_FILE
    if not path.is_file():
        return []
    record = json.loads(path.read_text(encoding="utf-8"))
    return [
        Section(
            title="What RL added, kept and lost",
            text=f"{READING} Confirmed changes that others find again: "
            f"{describe_replication(record)}.",
            table=counts_table(record),
        ),
        Section(
            title="Latents that RL changed most",
            text="Confirmed latents come first. The cosine compares a latent's "
            "direction before and after RL: below 1 it turned.",
            table=latents_table(record),
        ),
    ]


PARTS = (Part(crosscoder_sections, order=310),)
