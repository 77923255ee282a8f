"""FLOPs of one matrix product in a compiled program, from its line."""

import math
import re

from rlvr_jax.plan.hlo import Array, Instruction

_CONTRACTED = re.compile(r"lhs_contracting_dims=\{([\d,]*)\}")


def dot_flops(line: Instruction, left: Array) -> float:
    """Returns the FLOPs of a product, given its line and left operand."""
    contracted = _CONTRACTED.search(line.rest)
    sides = [int(at) for at in contracted[1].split(",") if at] if contracted else []
    depth = math.prod(left.sides[at] for at in sides)
    return 2.0 * math.prod(line.results[0].sides) * depth


def convolution_flops(line: Instruction, left: Array, right: Array) -> float:
    """Returns the FLOPs of a convolution, which is how TPU programs write products.

    Padding is not multiplied: on each spatial axis, only pairs of output and window
    positions that meet the input count.
    """
    labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", line.rest)
    assert labels, line.rest
    of_input, of_kernel, of_output = labels.groups()
    output = line.results[0].sides
    spatial = [label for label in of_output if label.isdigit()]
    window = _window(line.rest, len(spatial))
    pairs = math.prod(
        _valid_pairs(
            left.sides[of_input.index(label)], output[of_output.index(label)], **axis
        )
        for label, axis in zip(sorted(spatial), window, strict=True)
    )
    batch_and_features = output[of_output.index("b")] * output[of_output.index("f")]
    groups = re.search(r"batch_group_count=(\d+)", line.rest)
    depth = right.sides[of_kernel.index("i")]
    return 2.0 * batch_and_features * depth * pairs / (int(groups[1]) if groups else 1)


def _window(rest: str, num_axes: int) -> list[dict[str, int]]:
    """Returns each spatial axis of a convolution's window."""
    found = re.search(r"window=\{([^}]*)\}", rest)
    given = dict(part.split("=") for part in found[1].split()) if found else {}

    def values(name: str, default: str) -> list[str]:
        return given.get(name, "x".join([default] * num_axes)).split("x")

    if not num_axes:
        return []
    return [
        {
            "size": int(size),
            "stride": int(stride),
            "low": int(pad.split("_")[0]),
            "left_dilation": int(left),
            "right_dilation": int(right),
        }
        for size, stride, pad, left, right in zip(
            values("size", "1"),
            values("stride", "1"),
            values("pad", "0_0"),
            values("lhs_dilate", "1"),
            values("rhs_dilate", "1"),
            strict=True,
        )
    ]


def _valid_pairs(
    input_side: int,
    output_side: int,
    *,
    size: int,
    stride: int,
    low: int,
    left_dilation: int,
    right_dilation: int,
) -> int:
    """Returns how many pairs of output and window position meet the input."""
    last = (input_side - 1) * left_dilation
    positions = (
        out * stride + at * right_dilation - low
        for out in range(output_side)
        for at in range(size)
    )
    return sum(0 <= at <= last and at % left_dilation == 0 for at in positions)
