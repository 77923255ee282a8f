"""`python -m benchmarks.sae.memory [--tokens=5000000,20000000 --buffer_tokens=N]`.

Measures a training run's memory by the size of its data. For each number of tokens, it
writes activations, trains on them for one epoch, and reads the process's memory (its
own pages, not cached files) twice a second. Linux only.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.sae.job import Job
from benchmarks.sae.loader import write_activations

_JOB = Job(width=128, latents=1024, k=16)
_RECIPE = """\
from sae_jax.config import *

def get_config():
    return Config(
        sae=SAEConfig(latents={latents}, k={k}, group_fractions=(1.0,)),
        loss=LossConfig(alpha=0.0, group_weights=(1.0,)),
        pairs=PairsConfig(
            path={path!r}, batch_size={batch_size}, buffer_tokens={buffer_tokens}
        ),
        optimizer=OptimizerConfig(warmup_steps=10),
        train=TrainConfig(
            steps={steps}, no_contrast_baseline=False, threshold_start_step=10
        ),
        log=LogConfig(every=100),
    )
"""


def main(argv: Sequence[str]) -> int:
    """Prints a JSON line for each number of tokens."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.sae.memory", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("--tokens", default="5000000,20000000")
    parser.add_argument("--buffer_tokens", type=int, default=1 << 20, help="0: none")
    flags = parser.parse_args(argv)
    for tokens in map(int, flags.tokens.split(",")):
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "activations"
            write_activations(path, _JOB, tokens=tokens)
            recipe = Path(directory) / "recipe.py"
            recipe.write_text(
                _RECIPE.format(
                    **vars(_JOB),
                    path=str(path),
                    buffer_tokens=flags.buffer_tokens,
                    steps=int(0.9 * tokens) // _JOB.batch_size,
                )
            )
            seconds, used = _train(recipe, Path(directory) / "run")
        record = {
            "tokens": tokens,
            "buffer_tokens": flags.buffer_tokens,
            "seconds": round(seconds, 1),
            "own_memory_gib": {
                "at_quarters": [round(used[len(used) * i // 4], 3) for i in (1, 2, 3)],
                "most": round(max(used), 3),
            },
        }
        print(json.dumps(record), flush=True)
    return 0


def _train(recipe: Path, workdir: Path) -> tuple[float, list[float]]:
    """Returns the seconds of a run, and its memory in GiB at each reading."""
    command = ["-m", "sae_jax.train", f"--config={recipe}", f"--workdir={workdir}"]
    started = time.monotonic()
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL)
    used = []
    while process.poll() is None:
        status = Path(f"/proc/{process.pid}/status").read_text()
        fields = dict(line.split(":", 1) for line in status.splitlines())
        if "RssAnon" in fields:
            used.append(int(fields["RssAnon"].split()[0]) / 2**20)
        time.sleep(0.5)
    assert process.returncode == 0, "the run failed"
    return time.monotonic() - started, used


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
