"""`python -m sae_jax.synthesize --out=DIR`: a world whose factors are known.

Writes DIR/activations, a data set that `sae_jax.train` reads, with a label for each
factor, and DIR/directions.npy, the direction that each factor adds: [F, D], in the
labels' order.

    python -m sae_jax.train --workdir=runs/w --config.pairs.path=DIR/activations
    python -m sae_jax.evaluate --sae=runs/w/sae --activations=DIR/activations
        --directions=DIR/directions.npy
"""

import inspect
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags

from job_jax.command import UsageError, parse_flags, run_command
from job_jax.disk import name_file
from sae_jax.data.shards import ShardWriter
from sae_jax.data.synthetic import MOMENTARY, PERSISTENT, make_synthetic_world

_USAGE = """\
usage: python -m sae_jax.synthesize --out=DIR [--seed=0] [--flag=value ...]

Writes synthetic activations (DIR/activations) with known factors, and the direction of
each factor (DIR/directions.npy), which a dictionary trained on them should find.

flags:"""
_ABOUT = {
    "seed": "seed of the random factors and documents",
    "width": "width of an activation",
    "num_sequences": "documents",
    "length": "tokens of a document",
    "num_persistent": "factors that stay on over several tokens",
    "num_momentary": "factors that are drawn again at every token",
    "mean_duration": "mean number of tokens for which a persistent factor stays on",
    "momentary_scale": "size of momentary factors, relative to persistent ones",
}

_FLOATS = ("mean_duration", "momentary_scale")
_MAY_BE_ZERO = ("seed", "momentary_scale")


def main(argv: Sequence[str]) -> int:
    """Returns the exit code of the command."""
    return run_command(lambda: _run_command(argv), (OSError,))


def _run_command(argv: Sequence[str]) -> None:
    values = _define_flags()
    parse_flags(argv, values, usage=_USAGE, required=("out",))
    out = Path(values.out)
    if out.exists():
        raise UsageError(f"--out={out} exists already; give a new directory")
    settings: dict[str, Any] = {name: values[name].value for name in _ABOUT}
    data, directions = make_synthetic_world(**settings)
    kinds = (PERSISTENT, MOMENTARY)
    names = [n for kind in kinds for n in sorted(data.columns) if n.startswith(kind)]
    out.mkdir(parents=True)
    with ShardWriter(
        out / "activations",
        width=values.width,
        layer=0,
        hook="synthetic",
        model="synthetic",
        roles=data.role_names,
        factors=names,
        dtype="float32",
    ) as writer:
        token_ids = np.arange(len(data.activations))  # so that no document is a copy
        for start in range(0, len(data.activations), values.length):
            at = slice(start, start + values.length)
            writer.add(
                data.activations[at],
                token_ids=token_ids[at],
                roles=data.columns["role"][at],
                factors={name: data.columns[name][at] for name in names},
            )
    with name_file(out / "directions.npy"):
        np.save(out / "directions.npy", directions)
    print(f"{out}: {len(data.activations)} tokens, {len(directions)} factors")


def _define_flags() -> flags.FlagValues:
    values = flags.FlagValues()
    flags.DEFINE_string("out", None, "a new directory", flag_values=values)
    for name, parameter in inspect.signature(make_synthetic_world).parameters.items():
        default = 0 if parameter.default is parameter.empty else parameter.default
        define = flags.DEFINE_float if name in _FLOATS else flags.DEFINE_integer
        least = 0 if name in _MAY_BE_ZERO else 1
        define(name, default, _ABOUT[name], lower_bound=least, flag_values=values)
    return values


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
