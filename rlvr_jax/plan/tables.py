"""The tables of a dry run: memory by phase and part, disk by folder, time by stage."""

from collections.abc import Mapping, Sequence

from rlvr_jax.plan.duration import Duration, describe_seconds
from rlvr_jax.plan.peak_memory import SAMPLING_PHASES, Phases

_MIB = 1 << 20
_LABEL, _COLUMN = 18, 12


def format_phases(phases: Phases, *, has_own_devices: bool) -> list[str]:
    """Returns a column for each phase and a row for each part, in MiB.

    If the sampler has its own devices, they get a separate table.
    """
    if not has_own_devices:
        return _format_matrix("memory of each device", phases)
    sampling = {name: phases[name] for name in phases if name in SAMPLING_PHASES}
    rest = {name: phases[name] for name in phases if name not in SAMPLING_PHASES}
    return [
        *_format_matrix("memory of each device of the update", rest),
        *_format_matrix("memory of each device of the sampler", sampling),
    ]


def format_sizes(sizes: Mapping[str, int]) -> list[str]:
    """Returns a row for each size, and their total."""
    rows = {**sizes, "total": sum(sizes.values())}
    return [format_size(part, size) for part, size in rows.items()]


def format_size(part: str, size: int) -> str:
    """Returns one row of a table, in MiB."""
    return f"  {part:<22}{size / _MIB:12.1f} MiB"


def format_stages(stages: Mapping[str, Duration]) -> list[str]:
    """Returns a row with the estimated time of each stage."""
    return [
        "time, if completions are as long as allowed and nothing is compiled yet:",
        *(
            f"  {stage:<{_LABEL}}{describe_seconds(each.total)}, "
            f"{each.compilation:.0f} s of it compiling"
            for stage, each in stages.items()
        ),
    ]


def _format_matrix(title: str, phases: Phases) -> list[str]:
    parts = dict.fromkeys(
        part for sizes in phases.values() for part, size in sizes.items() if size
    )
    rows = [
        _format_row(part, [sizes.get(part, 0) for sizes in phases.values()])
        for part in parts
    ]
    totals = [sum(sizes.values()) for sizes in phases.values()]
    names = "".join(f"{name:>{_COLUMN}}" for name in phases)
    return [
        f"{title}, MiB (an estimate; for TPUs --compile_only is exact):",
        f"  {'':<{_LABEL}}{names}",
        *rows,
        _format_row("total", totals),
    ]


def _format_row(label: str, sizes: Sequence[int]) -> str:
    cells = (f"{size / _MIB:,.1f}" if size else "-" for size in sizes)
    return f"  {label:<{_LABEL}}" + "".join(f"{cell:>{_COLUMN}}" for cell in cells)
