"""Parts that are commands of the project: its tests on a GPU, and a recipe.

This process does not use the device, because the command needs it.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
from typing import Any

from benchmarks.accelerator.parts import RECIPE
from benchmarks.channel import ROOT

_STOP_S = 15  # to stop a recipe and to read its metrics


def device_tests(*, seconds: float) -> dict[str, Any]:
    """Returns how many of the tests marked `gpu` passed and failed."""
    files = [
        str(path)
        for path in sorted((ROOT / "tests/models").glob("test_*.py"))
        if "mark.gpu" in path.read_text()
    ]
    command = [
        *(sys.executable, "-m", "pytest", "-m", "gpu", *files, "-v"),
        # Without the project's default options, which need more packages.
        *("-o", "addopts=--import-mode=importlib", "-o", "filterwarnings="),
        *("-p", "no:cacheprovider"),
    ]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False
    )
    print(done.stdout, done.stderr, sep="\n", flush=True)
    counts = count_outcomes(done.stdout)
    return {"counts": counts, "passed": done.returncode == 0 and "passed" in counts}


def count_outcomes(output: str) -> dict[str, int]:
    """Returns pytest's counts from its last line.

    Example:
        >>> count_outcomes("=== 1 failed, 2 passed in 3.10s ===")
        {'failed': 1, 'passed': 2}
    """
    last = output.strip().rpartition("\n")[2]
    found = re.findall(r"(\d+) (passed|failed|errors?|skipped)", last)
    return {name: int(count) for count, name in found}


def recipe(model: str, *, seconds: float) -> dict[str, Any]:
    """Runs configs/smollm2.py and returns the last metrics of each stage.

    The run ends by itself, or is killed shortly before the seconds are over.
    """
    with tempfile.TemporaryDirectory() as folder:
        workdir = pathlib.Path(folder) / "run"
        command = [
            *(sys.executable, "-m", "rlvr_jax.main", f"--config={RECIPE}"),
            *(f"--workdir={workdir}", f"--config.pretrained.path={model}"),
        ]
        finished = True
        try:
            subprocess.run(command, cwd=ROOT, timeout=seconds - _STOP_S, check=True)
        except subprocess.TimeoutExpired:
            finished = False
        lines = (workdir / "metrics.jsonl").read_text().splitlines()
    last = {line["stage"]: line for line in map(json.loads, lines)}
    return {"finished": finished, "last": last}
