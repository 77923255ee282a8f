"""One run as two processes on this machine, compared with the same run as one.

    python examples/two_processes.py              # 2 to 4 minutes on two cores

Both have two devices, and give the same tokens and parameters. With more processes the
last bits differ, as gloo adds gradients in another order (docs/scale/processes.md).
"""

import argparse
import os
import pathlib
import subprocess
import sys

import jax
import numpy as np

from rlvr_jax import config
from rlvr_jax.run.load import load_policy
from rlvr_jax.tasks import ChainMix, FiniteFieldTask


def get_config() -> config.Config:
    """Returns the recipe; `--config=examples/two_processes.py` calls this function."""
    chains = ChainMix(chain_lengths=(1, 2))
    sampling = config.SamplingConfig(max_new_tokens=24)
    return config.Config(
        task=FiniteFieldTask(modulus=5, sft=chains, train=chains, eval=chains),
        model=config.ModelConfig(num_layers=2, hidden_size=32, intermediate_size=64),
        sft=config.SFTConfig(steps=40, batch_size=64),
        train=config.TrainConfig(batch_size=8, sampling=sampling),
        eval=config.EvalConfig(num_problems=32, num_samples=4, sampling=sampling),
    )


def run(workdir: pathlib.Path, steps: int, *, processes: int, devices: int) -> list:
    """Runs `steps` steps with a number of processes, and returns the parameters."""
    here = pathlib.Path(__file__)
    size = [f"--config.train.steps={steps}", f"--config.mesh.cpu_devices={devices}"]
    flags = [f"--processes={processes}", f"--config={here}", f"--workdir={workdir}"]
    python = {"PYTHON": sys.executable}  # default: .venv's
    command = ["bash", str(here.parents[1] / "launch/local.sh"), *flags, *size]
    subprocess.run(command, check=True, env=os.environ | python)
    with load_policy(get_config(), workdir, stage="eval") as policy:
        return jax.device_get(jax.tree.leaves(policy.params))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--workdir", type=pathlib.Path, default="runs/examples/two")
    args = parser.parse_args()
    one, two = args.workdir / "one", args.workdir / "two"
    alone = run(one, args.steps, processes=1, devices=2)
    shared = run(two, args.steps, processes=2, devices=1)
    apart = [np.abs(a - b).max() for a, b in zip(alone, shared, strict=True)]
    print(f"largest difference of a parameter: {max(apart):.1e}")
    files = [path.relative_to(one) for path in one.glob("rollouts/*")]
    same = [(one / file).read_bytes() == (two / file).read_bytes() for file in files]
    print(f"identical files of completions: {sum(same)} of {len(same)}")
