"""Flags of the commands that measure token weights: `credit` and `gradients`."""

from collections.abc import Mapping
from typing import Any

from absl import flags

# A flag's default, smallest value and help.
Counts = Mapping[str, tuple[int, int, str]]


def define_weight_flags(counts: Counts) -> flags.FlagValues:
    """Returns flags for these counts and for lambda_w, not yet parsed."""
    values = flags.FlagValues()
    for name, (default, least, text) in counts.items():
        flags.DEFINE_integer(name, default, text, least, flag_values=values)
    flags.DEFINE_float(
        "lambda_w", 0.5, "as train.rfgo.lambda_w", 0.0, flag_values=values
    )
    return values


def what_was_asked(values: flags.FlagValues, counts: Counts) -> dict[str, Any]:
    """Returns the values of these flags as JSON."""
    return {name: values[name].value for name in (*counts, "lambda_w")}
