"""Measures one part: `python -m benchmarks.accelerator.worker --part=NAME ...`."""

import argparse
import json
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

import jax

from benchmarks.accelerator import commands, measure
from benchmarks.accelerator.parts import MACHINE, Part, list_parts
from job_jax.config import MeshConfig
from job_jax.mesh import configure_cpu, make_mesh


def main(argv: Sequence[str]) -> int:
    """Writes the part's result as JSON; returns 0."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--part", required=True)
    parser.add_argument("--result", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=float, required=True, help="at most")
    parser.add_argument("--platform", default="")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--model", default="")
    flags = parser.parse_args(argv)
    parts = list_parts(platform=flags.platform, small=flags.small, model=flags.model)
    part = next(each for each in (MACHINE, *parts) if each.name == flags.part)
    flags.result.write_text(json.dumps(_run(part, seconds=flags.seconds)))
    return 0


def _run(part: Part, *, seconds: float) -> dict[str, Any]:
    """Returns the result of the part's function; it uses at most one device."""
    if not part.on_device:
        result: dict[str, Any] = getattr(commands, part.kind)(
            **part.options, seconds=seconds
        )
        return result
    configure_cpu(MeshConfig(cpu_devices=1))
    with jax.set_mesh(make_mesh(MeshConfig(), jax.devices()[:1])):
        result = getattr(measure, part.kind)(**part.options)
    return result


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
