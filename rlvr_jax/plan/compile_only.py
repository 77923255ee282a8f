"""Compiles a recipe for a TPU slice that need not exist, to see whether it fits.

XLA's own TPU compiler (libtpu, extra `[tpu]`) compiles sampler, scorer and update for
the slice's mesh, on any machine, and reports the memory that the chips would need. It
needs no weights and no data: every argument is a shape with its layout.
"""

import contextlib
import dataclasses
import functools
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import jax

from job_jax.flags import UsageError
from rlvr_jax.config import Config
from rlvr_jax.plan.program_costs import ProgramCosts, program_costs
from rlvr_jax.plan.step_programs import PROGRAMS, StepPrograms
from rlvr_jax.plan.topology import Chip, Topology, parse_topology
from rlvr_jax.sampler import update_mesh

INTERRUPTED = 130  # the exit code, as in a shell
_GIB = 1 << 30


def print_report(
    config: Config, topology: str, *, programs: Collection[str] = ()
) -> None:
    """Prints the report as JSON, and a line for each program on stderr meanwhile.

    If interrupted, it prints the report so far and ends the process with code
    INTERRUPTED, without waiting for the compiler, which cannot be interrupted.
    """
    report = compile_report(config, topology, programs=programs, log=_log)
    print(json.dumps(report, indent=2), flush=True)
    missing = report.get("not_compiled", [])
    if missing := [name for name in missing if not programs or name in programs]:
        _log(f"interrupted; not compiled: {', '.join(missing)}")
        os._exit(INTERRUPTED)


def _log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def compile_report(
    config: Config,
    topology: str,
    *,
    programs: Collection[str] = (),
    log: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Returns the memory and costs of the recipe on each chip of a slice ("v5e:4x4").

    It compiles the `programs` named, or all. `log` gets a line before and after each.
    After a KeyboardInterrupt the report covers the programs compiled so far.
    In the report, `fits` says whether every phase's peak stays below the chip's memory.
    If not, `shrink` names the tightest phase, its largest part, and settings to make it
    smaller. If programs are missing, `not_compiled` names them, and `fits` is null
    unless it is known to be false.

    Each program's costs are for one run on one chip (`plan.program_costs`). `per_token`
    is the cost over all chips for each token of completions of maximal length.
    `predicted_s` is the time that a chip would take at its peaks.
    Raises UsageError if the slice or a program is unknown, ConfigError if the mesh does
    not fit the slice.
    """
    slice_ = parse_topology(topology)
    devices = _topology_devices(slice_)
    mesh = update_mesh(config, devices)
    with jax.set_mesh(mesh):
        step = StepPrograms(config, mesh, devices)
        lowerings, resident = step.lowerings(), step.resident_bytes()
    asked = _select_programs(lowerings, programs)
    compiled: dict[str, dict[str, Any]] = {}

    def compile_all() -> Iterator[str]:
        with jax.set_mesh(mesh):  # the current mesh is per thread
            for place, (name, lower) in enumerate(asked.items(), start=1):
                yield f"{name} ({place} of {len(asked)}): compiling"
                stats = _program_stats(lower, slice_.chip, step)
                if name == "sampler":
                    stats["weights_bytes"] = step.sampler_weights_bytes
                compiled[name] = stats | _costs_per_token(name, stats, step)
                yield _describe_program(peaks(name, stats), stats, slice_.chip)

    peaks = functools.partial(
        _peak_memory,
        parts=resident,
        has_own_devices=config.sampler.devices > 0,
    )
    # The compiler cannot be interrupted, so it runs in a thread that we can abandon.
    with contextlib.suppress(KeyboardInterrupt):
        for line in iterate_in_thread(compile_all()):
            log(line)
    done = dict(compiled)
    phases = {name: peaks(name, stats) for name, stats in done.items()}
    return _make_report(
        config,
        slice_,
        step,
        programs=done,
        phases={name: phase for name, phase in phases.items() if phase},
        names=list(lowerings),
    )


def _select_programs(
    lowerings: Mapping[str, Callable[[], Any]], names: Collection[str]
) -> dict[str, Callable[[], Any]]:
    """Returns the lowerings of the programs named, or all. Raises UsageError."""
    known = [*dict.fromkeys([*PROGRAMS, *lowerings])]
    if unknown := [name for name in names if name not in known]:
        raise UsageError(
            f"--programs={','.join(unknown)} is not one of {', '.join(known)}"
        )
    return {
        name: lower for name, lower in lowerings.items() if not names or name in names
    }


def _make_report(
    config: Config,
    topology: Topology,
    step: StepPrograms,
    *,
    programs: Mapping[str, Mapping[str, object]],
    phases: Mapping[str, Mapping[str, int]],
    names: Sequence[str],
) -> dict[str, Any]:
    """Returns the report on the compiled programs, out of all `names`."""
    failed = [name for name, program in programs.items() if "error" in program]
    short = None
    if programs:
        short = suggest_shrink(phases, failed, limit=topology.chip.hbm_gib * _GIB)
    missing = [name for name in names if name not in programs]
    return {
        "recipe": config.name,
        "topology": topology.name,
        "mesh": dict(step.mesh.shape),
        "sampler_mesh": dict(step.sampler_mesh.shape),
        "hbm_gib": topology.chip.hbm_gib,
        "fits": None if missing and short is None else short is None,
        "shrink": short,
        "resident_bytes": step.resident_bytes(),
        "phases": {
            name: {"peak_bytes": sum(phase.values()), **phase}
            for name, phase in phases.items()
        },
        "programs": programs,
        **({"not_compiled": missing} if missing else {}),
    }


def iterate_in_thread(items: Iterator[object]) -> Iterator[Any]:
    """Yields the items, made in another thread.

    Waiting here can be interrupted; a call of the compiler cannot. An exception of the
    thread is raised here.
    """
    arrived: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()

    def make_all() -> None:
        try:
            for item in items:
                arrived.put(("item", item))
            arrived.put(("end", None))
        except BaseException as error:
            arrived.put(("error", error))

    threading.Thread(target=make_all, daemon=True).start()
    while True:
        kind, value = arrived.get()
        if kind == "error":
            raise value
        if kind == "end":
            return
        yield value


def _describe_program(
    phase: Mapping[str, int], stats: Mapping[str, object], chip: Chip
) -> str:
    """Returns a line about a program that was compiled, or did not fit."""
    if not phase:
        return f"  does not fit: {stats['error']:.200}"
    peak, room = sum(phase.values()) / _GIB, chip.hbm_gib
    verdict = "" if peak <= room else " (does not fit)"
    return (
        f"  {peak:.3g} of {room:g} GiB a chip{verdict}, "
        f"{phase['temporaries'] / _GIB:.3g} of them temporaries; compiled in "
        f"{stats['compile_s']:.0f} s"
    )


def _topology_devices(topology: Topology) -> list[Any]:
    """Returns the slice's devices, as libtpu describes them."""
    from jax.experimental import topologies  # noqa: PLC0415 - for this command alone

    if topology.accelerator_type is None:
        raise UsageError(
            f"--topology={topology.name}: programs for GPUs are compiled only on a "
            "machine that has one; use --dry_run for an estimate"
        )
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("TPU_ACCELERATOR_TYPE", topology.accelerator_type)
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    # No chip is taken, so several may compile at once.
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    try:
        found = topologies.get_topology_desc(
            platform="tpu", topology_name=topology.name
        )
    except (RuntimeError, ValueError, NotImplementedError) as error:
        raise UsageError(
            f"--topology={topology.name}: cannot compile for it here "
            f"({' '.join(str(error).split()):.200}); install the extra [tpu]"
        ) from error
    return list(found.devices)


def suggest_shrink(
    phases: Mapping[str, Mapping[str, int]], failed: Sequence[str], *, limit: float
) -> dict[str, str] | None:
    """Returns the phase and part to shrink, and how; None if every phase fits.

    A program that did not compile needs more than a chip's memory for its temporaries.
    """
    if failed:
        phase, part = failed[0], "temporaries"
    else:
        phase = max(phases, key=lambda name: sum(phases[name].values()))
        if sum(phases[phase].values()) <= limit:
            return None
        part = max(phases[phase], key=lambda part: phases[phase][part])
    if part != "temporaries":
        how = "a larger mesh.fsdp or mesh.tensor"
    elif phase == "sampler":
        how = (
            "fewer sampler.slots than train.batch_size x train.group_size, or a "
            "smaller train.sampling.max_new_tokens"
        )
    else:
        how = (
            "more train.grad_accum_steps or fewer train.micro_batch_tokens, "
            "model.remat=block, or a smaller "
            "model.attention_chunk_size or train.logits_chunk_size"
        )
    return {"phase": phase, "part": part, "by": how}


def _program_stats(
    lower: Callable[[], Any], chip: Chip, step: StepPrograms
) -> dict[str, Any]:
    """Returns a program's memory, costs, predicted seconds and compilation seconds."""
    start = time.perf_counter()
    try:
        compiled = lower().compile()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return {"error": " ".join(str(error).split())[:400]}
    memory = compiled.memory_analysis()
    stats = {
        "arguments_bytes": memory.argument_size_in_bytes,
        "outputs_bytes": memory.output_size_in_bytes,
        "donated_bytes": memory.alias_size_in_bytes,
        "temporary_bytes": memory.temp_size_in_bytes,
        "code_bytes": memory.generated_code_size_in_bytes,
        "compile_s": time.perf_counter() - start,
    }
    try:
        text = compiled.as_text()
    except jax.errors.JaxRuntimeError as error:
        # jaxlib may fail to read the text of a newer libtpu.
        return {**stats, "costs_error": " ".join(str(error).split())[:400]}
    costs = program_costs(
        text,
        unbounded_trips=step.unbounded_trips,
        skipped_scopes=step.skipped_scopes,
    )
    return {
        **stats,
        **dataclasses.asdict(costs),
        "predicted_s": chip.predict_seconds(costs),
    }


def _costs_per_token(
    name: str, stats: Mapping[str, Any], step: StepPrograms
) -> dict[str, dict[str, float]]:
    """Returns {"per_token": costs}: over all chips, for one token of the completions.

    {} if a program does not process completions, or did not fit.
    """
    tokens = step.completion_tokens(name) if "flops" in stats else 0
    if not tokens:
        return {}
    mesh = step.sampler_mesh if name == "sampler" else step.mesh
    share = mesh.size / tokens
    return {
        "per_token": {
            field.name: share * stats[field.name]
            for field in dataclasses.fields(ProgramCosts)
        }
    }


def _resident_parts(
    name: str,
    program: Mapping[str, Any],
    *,
    parts: Mapping[str, int],
    has_own_devices: bool,
) -> Mapping[str, int]:
    """Returns the bytes that stay in memory while a program runs, by part.

    Stage `probe` holds nothing of RL. If the sampler has separate devices, these hold
    nothing of the update.
    """
    if name == "sampler" and has_own_devices:
        return {}
    if name == "probe_activations":
        return {"parameters": parts["parameters"]}
    if name == "probe_fit":
        return {"arguments": program["arguments_bytes"]}
    return parts


def _peak_memory(
    name: str,
    program: Mapping[str, Any],
    *,
    parts: Mapping[str, int],
    has_own_devices: bool,
) -> dict[str, int]:
    """Returns a chip's bytes while a program runs, by part; {} if it did not compile.

    Arrays that stay between programs count even if the program does not read them.
    """
    if "error" in program:
        return {}
    new = program["outputs_bytes"] - program["donated_bytes"]
    return {
        **_resident_parts(name, program, parts=parts, has_own_devices=has_own_devices),
        "sampler_weights": program.get("weights_bytes", 0),
        "results": new,
        "temporaries": program["temporary_bytes"],
        "code": program["code_bytes"],
    }
