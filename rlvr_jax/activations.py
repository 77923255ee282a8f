"""The command that writes a policy's residual stream on its own completions.

`python -m rlvr_jax.activations --config --checkpoint --layer --out`
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from absl import flags

from job_jax.calls import CallError
from job_jax.checkpoint import CheckpointReadError
from job_jax.command import UsageError, define_config_flags, parse_command, run_command
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


def main(argv: Sequence[str]) -> int:
    """Returns the exit code: 0 done, 1 failed, 2 bad usage or config."""
    return run_command(
        lambda: _run_command(argv), (CallError, CheckpointReadError, OSError)
    )


def _run_command(argv: Sequence[str]) -> None:
    values = define_config_flags()
    for name, text in (
        ("checkpoint", "a run's workdir, or one of its checkpoints"),
        ("out", "the directory to write; it must not exist"),
    ):
        flags.DEFINE_string(name, None, text, flag_values=values)
    flags.DEFINE_integer("layer", None, "the layer, from 0", flag_values=values)
    flags.DEFINE_integer("sequences", 4096, "problems to answer", 1, flag_values=values)
    flags.DEFINE_integer(
        "num_samples", 1, "completions of each problem", 1, flag_values=values
    )
    flags.DEFINE_enum(
        "dtype",
        "bfloat16",
        ("float32", "float16", "bfloat16"),
        "dtype of the rows on disk",
        flag_values=values,
    )
    _, config = parse_command(argv, values, usage=_USAGE, default=Config())
    for name in ("checkpoint", "out", "layer"):
        if values[name].value is None:
            raise UsageError(f"--{name} is missing: {values[name].help}")
    out = Path(values.out)
    if out.exists():
        raise UsageError(f"--out={out} exists; remove it or choose another directory")
    checkpoint = local_checkpoint(values.checkpoint)
    with load_policy(config, checkpoint, stage="train", grades=False) as restored:
        tokens = write_activations(
            restored,
            out,
            layer=values.layer,
            num_problems=values.sequences,
            num_samples=values.num_samples,
            dtype=values.dtype,
        )
    print(json.dumps({"activations": str(out), "tokens": tokens}))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
