"""The run that the faults hit: every stage of a recipe, in seconds."""

import dataclasses
import gzip
import json
import math
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
_ARGUMENTS = (
    f"--config={ROOT}/configs/smoke.py",
    "--config.model.num_layers=1",
    "--config.model.hidden_size=16",
    "--config.model.intermediate_size=16",
    "--config.model.num_heads=1",
    "--config.model.num_kv_heads=1",
    "--config.sft.steps=12",
    "--config.sft.batch_size=16",
    "--config.difficulty.num_samples=2",
    "--config.difficulty.pool_size=32",
    "--config.train.steps=8",
    # Gives different rewards in groups that are all wrong; else nothing is learned.
    "--config.train.overlong_buffer=24",
    "--config.eval.every=3",
    "--config.eval.num_problems=8",
    "--config.eval.batch_size=8",
    "--config.probe.name=sae",
    "--config.probe.num_problems=10",
    "--config.probe.num_reference_texts=8",
    "--config.probe.log_every=2",
    "--config.probe.measure_overhead=False",
    "--config.probe.sae.architecture.latents=48",
    "--config.probe.sae.architecture.k=4",
    "--config.probe.sae.batch_size=32",
    "--config.probe.sae.optimizer.warmup_steps=2",
    "--config.probe.sae.train.steps=12",
    "--config.probe.sae.train.threshold_start_step=2",
    "--config.probe.sae.train.threshold_decay=0.5",
    "--config.probe.features.method=list",
    "--config.probe.features.latents=1,2,40",
    "--config.checkpoint.every=2",
    "--config.log.rollouts_every=1",
    "--config.log.progress_every=1",
)
# The fields of summary.json that depend only on the seed.
_KEPT = ("params_sha256", "eval", "verdicts", "alarms", "difficulty", "params")


@dataclasses.dataclass(frozen=True)
class Job:
    """Runs of one command on `devices`, with a shared folder of compiled programs."""

    programs: Path
    devices: int = 1

    def start(
        self, workdir: Path, said: Path, **environment: str
    ) -> subprocess.Popen[bytes]:
        """Starts or resumes the run; its standard error goes to the file `said`."""
        return self._start(
            "rlvr_jax.main", workdir, said, devices=self.devices, **environment
        )

    def start_several(
        self, workdir: Path, said: list[Path]
    ) -> list[subprocess.Popen[bytes]]:
        """Does the same with several processes, each with its own file."""
        with socket.socket() as opened:
            opened.bind(("127.0.0.1", 0))
            port = opened.getsockname()[1]
        return [
            self._start(
                "benchmarks.storm.process",
                workdir,
                own,
                devices=self.devices // len(said),
                JAX_COORDINATOR_ADDRESS=f"127.0.0.1:{port}",
                JAX_NUM_PROCESSES=str(len(said)),
                JAX_PROCESS_ID=str(number),
            )
            for number, own in enumerate(said)
        ]

    def _start(
        self,
        module: str,
        workdir: Path,
        said: Path,
        *,
        devices: int,
        **environment: str,
    ) -> subprocess.Popen[bytes]:
        where = (f"--workdir={workdir}", f"--config.mesh.cpu_devices={devices}")
        with said.open("wb") as file:
            return subprocess.Popen(
                [sys.executable, "-m", module, *_ARGUMENTS, *where],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=file,
                env=os.environ
                | {
                    "JAX_COMPILATION_CACHE_DIR": str(self.programs),
                    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                    "PYTHONHASHSEED": "0",
                    **environment,
                },
            )


def read_outcome(workdir: Path) -> Mapping[str, Any]:
    """Returns everything that depends only on the seed, for example parameters."""
    summary = json.loads((workdir / "summary.json").read_text())
    lines = (workdir / "metrics.jsonl").read_text().splitlines()
    return {
        **{name: summary[name] for name in _KEPT},
        "metrics": [
            {k: v for k, v in json.loads(line).items() if not k.startswith("time")}
            for line in lines
        ],
        "rollouts": {
            path.name: gzip.decompress(path.read_bytes())
            for path in sorted((workdir / "rollouts").iterdir())
        },
        "difficulties": (workdir / "difficulty.jsonl").read_bytes(),
        "features": {
            path.name: _read_arrays(path)
            for path in sorted((workdir / "features").glob("*.npz"))
        },
        "report": (workdir / "report" / "index.html").is_file(),
    }


def _read_arrays(path: Path) -> dict[str, bytes]:
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name].tobytes() for name in file.files}


def find_differences(
    expected: Mapping[str, Any], found: Mapping[str, Any], *, is_exact: bool = True
) -> list[str]:
    """Returns the names of the parts that differ between two outcomes.

    Unless `is_exact`, numbers may differ, because several processes add in another
    order: metrics by a relative 1e-4, and parameters and features are not compared.
    """
    if is_exact:
        return [name for name in expected if found[name] != expected[name]]
    exact = expected.keys() - {"params_sha256", "features", "metrics"}
    differ = [name for name in exact if found[name] != expected[name]]
    rows = expected["metrics"], found["metrics"]
    same = len(rows[0]) == len(rows[1]) and all(
        a.keys() == b.keys() and all(_are_close(a[key], b[key]) for key in a)
        for a, b in zip(*rows, strict=True)
    )
    return sorted(differ) + ([] if same else ["metrics"])


def _are_close(a: object, b: object) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-5)
    return a == b
