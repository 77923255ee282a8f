"""`python -m rlvr_jax.main --config=FILE --workdir=DIR [--config.a.b=v] [--stage=S]`.

Exit code 0: done; 1: failed; 2: bad usage or config; 75: stopped by a signal after a
checkpoint, run again to go on.
"""

import sys
from collections.abc import Callable, Sequence

import jax

from job_jax.checkpoint import CheckpointReadError
from job_jax.command import exit_code
from job_jax.compiles import CompileCounter
from job_jax.config_io import to_json
from job_jax.mesh import device_name, start_jax
from job_jax.metrics import MetricsWriter, NonFiniteMetricError
from job_jax.processes import check_same, is_primary
from job_jax.steps import StopSignal
from job_jax.workdir import SUMMARY_FILE
from rlvr_jax import aot, estimate, held_out, loop, plan, tsae
from rlvr_jax.analysis.report import REPORT_FILE, write_report
from rlvr_jax.analysis.workdir import read_run
from rlvr_jax.config import Config
from rlvr_jax.flags import parse
from rlvr_jax.given import check_asked
from rlvr_jax.learn.optimize import LogprobGapError, StaleRolloutsError
from rlvr_jax.learn.update import DivergedError
from rlvr_jax.run import open_run
from rlvr_jax.stage import Loop, is_done
from rlvr_jax.workdir import Workdir

# What a user can mend.
_FAILURES = (
    CheckpointReadError,
    DivergedError,
    LogprobGapError,
    NonFiniteMetricError,
    OSError,
    StaleRolloutsError,
)

_STAGES: dict[str, Callable[[Loop], None]] = {
    "warmup": loop.warmup,
    "difficulty": estimate.estimation,
    "tsae": tsae.probing,
    "train": loop.train,
    "eval": held_out.evaluation,
}


def main(argv: Sequence[str]) -> int:
    """Returns the exit code of the command."""
    return exit_code(lambda: _do(argv), _FAILURES)


def _do(argv: Sequence[str]) -> None:
    invocation = parse(argv)
    runs = invocation.workdir is not None and not invocation.dry_run
    start_jax(invocation.config.mesh, several=runs)
    if invocation.topology:
        print(aot.text(invocation.config, invocation.topology))
    elif invocation.workdir is None or invocation.dry_run:
        print(plan.text(invocation.config))
    else:
        check_same({"stage": invocation.stage, "config": to_json(invocation.config)})
        if invocation.stage == "report":
            read_run(invocation.workdir)  # refused before anything is made there
        workdir = Workdir(invocation.workdir, invocation.config)
        _run(invocation.config, workdir, stage=invocation.stage)


def _run(config: Config, workdir: Workdir, *, stage: str) -> None:
    """Does what is left of a stage, or of all of them."""
    asked = [name for name in _STAGES if stage in ("all", name)]
    left = [name for name in asked if not is_done(name, config=config, workdir=workdir)]
    if left:
        _work(config, workdir, left)
    if not is_primary():
        return
    if stage == "report" or (stage == "all" and _report_is_old(workdir)):
        print(f"report: {write_report(workdir.path)}")
    elif off := _off(config, stage):
        print(f"nothing to do: the recipe has no stage {stage} ({off})")
    elif not left:
        print(f"finished: {workdir.path} has nothing left to do for --stage={stage}")


def _off(config: Config, stage: str) -> str:
    """Returns the setting by which a recipe goes without a stage, "" if it has it."""
    settings = {
        "warmup": ("warmup.steps=0", config.warmup.steps),
        "difficulty": ("difficulty.samples=0", config.difficulty.samples),
        "tsae": ("probe.source=off", config.probe.source != "off"),
        "train": ("train.steps=0", config.train.steps),
    }
    setting, on = settings.get(stage, ("", True))
    return "" if on else setting


def _work(config: Config, workdir: Workdir, stages: Sequence[str]) -> None:
    stop = StopSignal()
    stop.install()
    compiles = CompileCounter()
    run = open_run(config, workdir.tokenizer)
    if not is_done("tsae", config=config, workdir=workdir):
        check_asked(config, run.tokenizer.encode)
    workdir.record(config, device=device_name())
    for line in run.left_out() if is_primary() else ():
        print(line, file=sys.stderr)
    with jax.set_mesh(run.mesh), run.judge, MetricsWriter(workdir.path) as writer:
        shared = Loop(
            run=run, workdir=workdir, writer=writer, stop=stop, compiles=compiles
        )
        for stage in stages:
            stop.check()
            _STAGES[stage](shared)


def _report_is_old(workdir: Workdir) -> bool:
    """Returns whether the report is missing or older than the summary it tells of."""
    report, summary = workdir.path / REPORT_FILE, workdir.path / SUMMARY_FILE
    return not report.exists() or report.stat().st_mtime_ns < summary.stat().st_mtime_ns


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
