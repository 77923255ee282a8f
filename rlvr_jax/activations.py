"""The command that writes a policy's residual stream on its own completions.

`python -m rlvr_jax.activations --config --checkpoint --layer --out`
"""

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from job_jax.calls import CallError
from job_jax.checkpoint import CheckpointReadError
from job_jax.command import parse_command, run_command
from job_jax.flags import ConfigFlags, UsageError
from job_jax.schema import PositiveInt
from rlvr_jax.config import Config
from rlvr_jax.probe.capture import write_activations
from rlvr_jax.run.fetch import local_checkpoint
from rlvr_jax.run.load import load_policy

_USAGE = """\
usage: python -m rlvr_jax.activations --config=FILE --checkpoint=DIR --layer=N --out=DIR

Writes the residual stream after a layer, on the policy's own completions of its train
problems, in the format of sae_jax.data.shards, from which `python -m sae_jax.train`
learns. Each completion carries its verdict (factor `correct`). With several samples a
problem, `sae_jax.export --format=mechreward` can contrast correct with incorrect ones.
FILE may be WORKDIR/config.json; --checkpoint takes the same values as for
rlvr_jax.evaluate.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ActivationsFlags(ConfigFlags):
    """The flags of this command."""

    checkpoint: str  # a run's workdir, or one of its checkpoints
    out: str  # the directory to write; it must not exist
    layer: int  # the layer, from 0
    sequences: PositiveInt = 4096  # problems to answer
    num_samples: PositiveInt = 1  # completions of each problem
    # dtype of the rows on disk
    dtype: Literal["float32", "float16", "bfloat16"] = "bfloat16"


def main(argv: Sequence[str]) -> int:
    """Returns the exit code: 0 done, 1 failed, 2 bad usage or config."""
    return run_command(
        lambda: _run_command(argv), (CallError, CheckpointReadError, OSError)
    )


def _run_command(argv: Sequence[str]) -> None:
    flags, _, config = parse_command(
        argv, ActivationsFlags, usage=_USAGE, default=Config()
    )
    out = Path(flags.out)
    if out.exists():
        raise UsageError(f"--out={out} exists; remove it or choose another directory")
    checkpoint = local_checkpoint(flags.checkpoint)
    with load_policy(config, checkpoint, stage="train", grades=False) as restored:
        tokens = write_activations(
            restored,
            out,
            layer=flags.layer,
            num_problems=flags.sequences,
            num_samples=flags.num_samples,
            dtype=flags.dtype,
        )
    print(json.dumps({"activations": str(out), "tokens": tokens}))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
