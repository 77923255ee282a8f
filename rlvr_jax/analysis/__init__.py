"""Reads workdirs and makes tables, figures and the report. Imported by no stage."""

from rlvr_jax.report.page import write_report
from rlvr_jax.report.run_files import NotAWorkdirError, RunArtifacts, read_run

__all__ = ["NotAWorkdirError", "RunArtifacts", "read_run", "write_report"]
