"""Runs `python -m rlvr_jax.main` like a user: a process, its lines, its files."""

import dataclasses
import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SMOKE = ROOT / "configs" / "smoke.py"

# configs/smoke.py made even smaller. The length penalty gives different rewards within
# all-wrong groups. Without it so young a policy would learn nothing, and two runs that
# learn nothing are easily equal.
TINY = (
    "--config.model.num_layers=1",
    "--config.model.hidden_size=16",
    "--config.model.intermediate_size=16",
    "--config.model.num_heads=1",
    "--config.model.num_kv_heads=1",
    "--config.sft.steps=6",
    "--config.sft.batch_size=16",
    "--config.train.steps=4",
    "--config.train.overlong_buffer=24",
    "--config.eval.every=3",
    "--config.eval.num_problems=8",
    "--config.eval.batch_size=8",
    "--config.checkpoint.every=2",
    "--config.log.rollouts_every=1",
    "--config.log.progress_every=1",
)


@dataclasses.dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    out: str
    err: str


@dataclasses.dataclass(frozen=True)
class Command:
    """Runs the command; its processes share a folder of compiled programs."""

    cache: Path

    def start(
        self, *args: object, module: str = "rlvr_jax.main", hash_seed: int = 0
    ) -> subprocess.Popen[str]:
        """Returns the process, its output piped and in lines."""
        return subprocess.Popen(
            [sys.executable, "-m", module, *map(str, args)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ
            | {
                "JAX_COMPILATION_CACHE_DIR": str(self.cache),
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                "PYTHONHASHSEED": str(hash_seed),
            },
        )

    def run(self, *args: object, **options: object) -> Ended:
        """Returns how the command ended without interruption."""
        process = self.start(*args, **options)
        out, err = process.communicate()
        return Ended(process.returncode, out, err)

    def cut(
        self, line: str, number: signal.Signals, *args: object, **options: object
    ) -> Ended:
        """Returns how the command ended after a signal at a line of its progress.

        The line is the first with this beginning.
        """
        ended = self._cut(
            lambda seen: seen[-1].startswith(line), number, *args, **options
        )
        assert f"\n{line}" in f"\n{ended.err}", ended.err
        return ended

    def cut_after(self, lines: int, number: signal.Signals, *args: object) -> Ended:
        """Returns how the command ended that got a signal at so many lines, if ever."""
        return self._cut(lambda seen: len(seen) == lines, number, *args)

    def _cut(
        self,
        is_time: Callable[[list[str]], bool],
        number: signal.Signals,
        *args: object,
        **options: object,
    ) -> Ended:
        process = self.start(*args, **options)
        assert process.stderr is not None
        seen: list[str] = []
        for text in process.stderr:
            seen.append(text)
            if is_time(seen):
                process.send_signal(number)
                break
        out, rest = process.communicate()
        return Ended(process.returncode, out, "".join(seen) + rest)


def tiny(workdir: Path, *more: str) -> list[str]:
    """Returns the arguments of a run of a few steps; later arguments win."""
    return [f"--config={SMOKE}", f"--workdir={workdir}", *TINY, *more]


def summary(workdir: Path) -> dict[str, Any]:
    """Returns summary.json."""
    return json.loads((workdir / "summary.json").read_text())


def metrics(workdir: Path) -> list[dict[str, Any]]:
    """Returns the lines of metrics.jsonl without times."""
    lines = (workdir / "metrics.jsonl").read_text().splitlines()
    return [
        {k: v for k, v in json.loads(line).items() if not k.startswith("time")}
        for line in lines
    ]


def rollouts(workdir: Path) -> dict[str, bytes]:
    """Returns the files of rollouts/, byte for byte."""
    return {p.name: p.read_bytes() for p in sorted((workdir / "rollouts").iterdir())}


def completions(workdir: Path, name: str) -> list[dict[str, Any]]:
    """Returns the lines of one file of rollouts/."""
    text = gzip.decompress((workdir / "rollouts" / name).read_bytes()).decode()
    return [json.loads(line) for line in text.splitlines()]


def outcome(workdir: Path) -> dict[str, Any]:
    """Returns everything that a seed decides: parameters, metrics, texts, scores."""
    found = summary(workdir)
    kept = ("params_sha256", "eval", "verdicts", "alarms", "logprob_mismatch", "params")
    return {
        "metrics": metrics(workdir),
        "rollouts": rollouts(workdir),
        **{name: found[name] for name in kept},
    }


def files(workdir: Path) -> dict[str, tuple[int, int]]:
    """Returns every file's size and time of last change."""
    return {
        str(p.relative_to(workdir)): (p.stat().st_size, p.stat().st_mtime_ns)
        for p in workdir.rglob("*")
        if p.is_file()
    }


def overrides(**values: object) -> Sequence[str]:
    """Returns a__b=1 as --config.a.b=1."""
    return [f"--config.{k.replace('__', '.')}={v}" for k, v in values.items()]
