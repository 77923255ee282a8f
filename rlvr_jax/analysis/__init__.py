"""Reads workdirs and makes tables, figures and the report. Imported by no stage."""

from rlvr_jax.analysis.report import write_report
from rlvr_jax.analysis.workdir import NotAWorkdirError, Run, read_run

__all__ = ["NotAWorkdirError", "Run", "read_run", "write_report"]
