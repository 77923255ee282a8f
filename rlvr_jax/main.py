"""`python -m rlvr_jax.main --config=FILE --workdir=DIR [--config.a.b=v] [--stage=S]`.

Exit code 0: done; 1: failed; 2: bad usage or config; 75: stopped by a signal after a
checkpoint, run again to go on.
"""

import contextlib
import logging
import os
import pathlib
import sys
from collections.abc import Sequence

import jax

from rlvr_jax import loop, plan
from rlvr_jax.analysis.report import write_report
from rlvr_jax.checkpoint import CheckpointShapeError
from rlvr_jax.compiles import CompileCounter
from rlvr_jax.config import Config, ConfigError
from rlvr_jax.config_io import to_json
from rlvr_jax.flags import Invocation, UsageError, parse
from rlvr_jax.learn.optimize import LogprobGapError, StaleRolloutsError
from rlvr_jax.learn.update import DivergedError
from rlvr_jax.mesh import configure_cpu
from rlvr_jax.metrics import MetricsWriter, NonFiniteMetricError
from rlvr_jax.run import device_name, open_run
from rlvr_jax.stage import StoppedError, StopSignal
from rlvr_jax.workdir import Workdir

_DONE, _FAILED, _BAD_USAGE, _STOPPED = 0, 1, 2, 75

# What a user can mend. Anything else is our bug and shows its traceback.
_FAILURES = (
    CheckpointShapeError,
    DivergedError,
    LogprobGapError,
    NonFiniteMetricError,
    StaleRolloutsError,
)


def main(argv: Sequence[str]) -> int:
    """Returns the exit code of the command."""
    try:
        invocation = parse(argv)
        _configure_jax(invocation.config)
        if invocation.dry_run:
            print(plan.text(invocation.config))
            return _DONE
        return _run(invocation)
    except (UsageError, ConfigError) as error:
        print(f"error: {error}", file=sys.stderr)
        return _BAD_USAGE
    except _FAILURES as error:
        print(f"error: {error}", file=sys.stderr)
        return _FAILED
    except StoppedError:
        print("stopped; run the same command again to go on", file=sys.stderr)
        return _STOPPED


def _configure_jax(config: Config) -> None:
    """Sets up devices and the compilation cache, before JAX starts."""
    configure_cpu(config.mesh)
    cache = pathlib.Path(
        os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    )
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(cache / "rlvr_jax"))
    # Orbax says at every step what it is about to do; what it failed at, it raises.
    logging.getLogger("absl").setLevel(logging.ERROR)


def _run(invocation: Invocation) -> int:
    config, path = invocation.config, invocation.workdir
    if path is None:
        raise UsageError("--workdir=DIR is missing; say where the run shall live")
    stop = StopSignal()
    stop.install()
    compiles = CompileCounter()
    workdir = Workdir(path, config, device=device_name())
    with contextlib.ExitStack() as stack:
        run = open_run(config, path)
        stack.enter_context(jax.set_mesh(run.mesh))
        stack.enter_context(run.judge)
        writer = stack.enter_context(MetricsWriter(path))
        stages = loop.Loop(run=run, workdir=workdir, writer=writer, stop=stop)
        programs = {
            "warmup": lambda: loop.warmup(stages),
            "train": lambda: loop.train(stages),
            "eval": lambda: loop.evaluation(stages),
            "report": lambda: print(f"report: {write_report(path)}"),
        }
        for name, program in programs.items():
            if invocation.stage in ("all", name):
                stop.check()
                program()
                workdir.update_summary(
                    {
                        "config": to_json(config),
                        "seed": config.seed,
                        "device": device_name(),
                        "compile_count": compiles.count,
                    }
                )
    return _DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
