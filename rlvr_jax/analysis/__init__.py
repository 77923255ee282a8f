"""Reads workdirs and makes tables, figures and the report. Imported by no stage."""

from rlvr_jax.analysis.report.page import write_report
from rlvr_jax.analysis.workdir import NotAWorkdirError, RunArtifacts, read_run

__all__ = ["NotAWorkdirError", "RunArtifacts", "read_run", "write_report"]
