"""`python -m sae_jax.synthesize --out=DIR`: a world whose factors are known.

Writes DIR/activations, a data set that `sae_jax.train` reads, with a label for each
factor, and DIR/directions.npy, the direction that each factor adds: [F, D], in the
labels' order.

    python -m sae_jax.train --workdir=runs/w --config.pairs.path=DIR/activations
    python -m sae_jax.evaluate --sae=runs/w/sae --activations=DIR/activations
        --directions=DIR/directions.npy
"""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np

from job_jax.command import run_command
from job_jax.disk import name_file
from job_jax.flags import Flags, UsageError, parse_flags
from job_jax.schema import Constraint, NonNegativeFloat, NonNegativeInt, PositiveInt
from sae_jax.data.shards import ShardWriter
from sae_jax.data.synthetic import MOMENTARY, PERSISTENT, make_synthetic_world

_USAGE = """\
usage: python -m sae_jax.synthesize --out=DIR [--seed=0] [--flag=value ...]

Writes synthetic activations (DIR/activations) with known factors, and the direction of
each factor (DIR/directions.npy), which a dictionary trained on them should find.

flags:"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SynthesizeFlags(Flags):
    """The flags of this command."""

    out: str  # a new directory
    seed: NonNegativeInt = 0  # seed of the random factors and documents
    width: PositiveInt = 64  # width of an activation
    num_sequences: PositiveInt = 800  # documents
    length: PositiveInt = 128  # tokens of a document
    num_persistent: PositiveInt = 24  # factors that stay on over several tokens
    num_momentary: PositiveInt = 72  # factors that are drawn again at every token
    # mean number of tokens for which a persistent factor stays on
    mean_duration: Annotated[float, Constraint("be at least 1", lambda x: x >= 1)] = 20
    # size of momentary factors, relative to persistent ones
    momentary_scale: NonNegativeFloat = 2.0


def main(argv: Sequence[str]) -> int:
    """Returns the exit code of the command."""
    return run_command(lambda: _run_command(argv), (OSError,))


def _run_command(argv: Sequence[str]) -> None:
    flags, _ = parse_flags(argv, SynthesizeFlags, usage=_USAGE)
    out = Path(flags.out)
    if out.exists():
        raise UsageError(f"--out={out} exists already; give a new directory")
    settings = {name: value for name, value in vars(flags).items() if name != "out"}
    data, directions = make_synthetic_world(**settings)
    kinds = (PERSISTENT, MOMENTARY)
    names = [n for kind in kinds for n in sorted(data.columns) if n.startswith(kind)]
    out.mkdir(parents=True)
    with ShardWriter(
        out / "activations",
        width=flags.width,
        layer=0,
        hook="synthetic",
        model="synthetic",
        roles=data.role_names,
        factors=names,
        dtype="float32",
    ) as writer:
        token_ids = np.arange(len(data.activations))  # so that no document is a copy
        for start in range(0, len(data.activations), flags.length):
            at = slice(start, start + flags.length)
            writer.add(
                data.activations[at],
                token_ids=token_ids[at],
                roles=data.columns["role"][at],
                factors={name: data.columns[name][at] for name in names},
            )
    with name_file(out / "directions.npy"):
        np.save(out / "directions.npy", directions)
    print(f"{out}: {len(data.activations)} tokens, {len(directions)} factors")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
