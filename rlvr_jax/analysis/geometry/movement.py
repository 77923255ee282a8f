"""Reads the checkpoints of a run, and measures how RL moved each tensor."""

import dataclasses
import zlib
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import numpy.typing as npt
from flax import nnx

from job_jax.checkpoint import params_sha256
from job_jax.files import checkpoint_steps
from job_jax.flags import UsageError
from rlvr_jax.analysis.geometry.measures import (
    Change,
    Matrix,
    Straightness,
    add_noise,
    largest_entries,
    leading_direction,
    measure_change,
    measure_path,
    measure_walk,
    moved_entries,
    principal_vectors,
)
from rlvr_jax.models import load_hf
from rlvr_jax.run.load import checkpoint_before_rl, open_stored_policy

# Matrices of a policy, by words in their names; all other tensors are vectors.
_MATRICES = {
    "embedding": ("embedding", "lm_head"),
    "attention": ("query", "key", "value", "out"),
    "mlp": ("gate", "up", "down"),
}
VECTORS = "vectors"
PARTS = (*_MATRICES, VECTORS)
_STACKED = "blocks"  # holds all layers in one array

_Tensors = dict[str, Matrix]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Movement:
    """How one tensor moved, and how equally large noise would have moved it."""

    name: str
    part: str
    size: int
    change: Change
    noise: Change
    path: Straightness
    walk: Straightness


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunMovement:
    """How RL moved the policy of one run up to the last of `steps`.

    For each tensor, `moved` are the entries that differ in bfloat16, and `largest` the
    entries that moved farthest, as bits (`numpy.packbits`). `start` is the digest of
    the parameters that RL started from: runs that share it share their coordinates.
    `seed` is the config's; runs from a pretrained model share their start.
    `distances` are |W_t - W_0| / |W_0| over all tensors together, for each of `steps`.
    """

    workdir: Path
    steps: list[int]
    start: str
    seed: int = 0
    distances: list[float] = dataclasses.field(default_factory=list)
    tensors: list[Movement] = dataclasses.field(default_factory=list)
    moved: dict[str, npt.NDArray[np.uint8]] = dataclasses.field(default_factory=dict)
    largest: dict[str, npt.NDArray[np.uint8]] = dataclasses.field(default_factory=dict)


def measure_run(
    workdir: Path, *, on_progress: Callable[[int, int], None]
) -> RunMovement:
    """Returns how RL moved the policy of a workdir, over all checkpoints that it keeps.

    `on_progress` gets the work done and the total: checkpoints read plus tensors
    measured. It holds four copies of the policy in host memory. Raises UsageError.
    """
    train = workdir / "checkpoints" / "train"
    if not (steps := checkpoint_steps(train)):
        raise UsageError(f"no checkpoint in {train}: RL has not begun")
    before, start = _read_before_rl(workdir)
    after = _read_tensors(train / str(steps[-1]))
    paths = {
        name: _Path(tensor, after[name])
        for name, tensor in before.items()
        if tensor.ndim > 1
    }
    total = len(steps) + len(before)
    distances = []
    for done, step in enumerate(steps, start=1):
        now = after if step == steps[-1] else _read_tensors(train / str(step))
        for name, path in paths.items():
            path.append(now[name])
        distances.append(measure_distance(before, now))
        on_progress(done, total)
    run = RunMovement(workdir=workdir, steps=steps, start=start, distances=distances)
    for done, (name, tensor) in enumerate(before.items(), start=len(steps) + 1):
        run.tensors.append(
            _measure_tensor(name, tensor, after[name], paths.get(name), steps)
        )
        run.moved[name] = np.packbits(moved_entries(tensor, after[name]))
        run.largest[name] = np.packbits(largest_entries(tensor, after[name]))
        on_progress(done, total)
    return run


def measure_distance(before: _Tensors, now: _Tensors) -> float:
    """Returns |W_t - W_0| / |W_0|, where W are all tensors as one vector."""
    moved = size = 0.0
    for name, tensor in before.items():
        wide = tensor.astype(np.float64)
        moved += float(np.square(now[name].astype(np.float64) - wide).sum())
        size += float(np.square(wide).sum())
    return float(np.sqrt(moved / size))


class _Path:
    """The path of a matrix from W_0 to W_T, checkpoint by checkpoint."""

    def __init__(self, before: Matrix, after: Matrix):
        self._before = self._last = before.astype(np.float32)
        delta = after.astype(np.float32) - self._before
        self._left_M, _, self._right_N = leading_direction(delta)
        self.size = float(np.linalg.norm(delta))
        self.projections: list[float] = []
        self.lengths: list[float] = []

    def append(self, matrix: Matrix) -> None:
        """Adds the matrix of the next checkpoint."""
        now = matrix.astype(np.float32)
        moved = self._left_M @ (now - self._before) @ self._right_N
        self.projections.append(float(moved))
        self.lengths.append(float(np.linalg.norm(now - self._last)))
        self._last = now


def _measure_tensor(
    name: str, before: Matrix, after: Matrix, path: _Path | None, steps: list[int]
) -> Movement:
    generator = np.random.default_rng(zlib.crc32(name.encode()))
    noise = add_noise(before, after, generator=generator)
    principal = None if path is None else principal_vectors(before)
    unknown = Straightness(linearity=np.nan, straightness=np.nan)
    return Movement(
        name=name,
        part=_part(name),
        size=before.size,
        change=measure_change(before, after, principal=principal),
        noise=measure_change(before, noise, principal=principal),
        path=unknown
        if path is None
        else measure_path(
            steps, path.projections, lengths=path.lengths, size=path.size
        ),
        walk=unknown if path is None else measure_walk(steps, path.lengths),
    )


def _read_before_rl(workdir: Path) -> tuple[_Tensors, str]:
    """Returns the tensors that RL started from, and their digest."""
    checkpoints = workdir / "checkpoints"
    if (before := checkpoint_before_rl(checkpoints)) is not None:
        params = open_stored_policy(before).restore_params()
    else:
        policy = open_stored_policy(checkpoints / "train").policy
        if policy.hf_dir is None:
            raise UsageError(
                f"RL in {workdir} started from random weights, and no checkpoint of "
                "them was kept; give a run that kept its start"
            )
        model = policy.config
        params = nnx.state(
            load_hf(policy.hf_dir, dtype=model.param_dtype, family=model.family)
        )
    return _name_tensors(params), params_sha256(params)


def _read_tensors(checkpoint: Path) -> _Tensors:
    return _name_tensors(open_stored_policy(checkpoint).restore_params())


def _name_tensors(params: nnx.State) -> _Tensors:
    """Returns parameters layer by layer: matrices are [in, out], the rest vectors."""
    tensors: _Tensors = {}
    for path, param in nnx.to_flat_state(params):
        name, array = "/".join(map(str, path)), np.asarray(jax.device_get(param[...]))
        layers = {name: array}
        if path[0] == _STACKED:
            layers = {f"{name}/{at}": layer for at, layer in enumerate(array)}
        tensors |= {name: _as_matrix(name, layer) for name, layer in layers.items()}
    return tensors


def _as_matrix(name: str, array: Matrix) -> Matrix:
    """Returns the array as the matrix that it multiplies by, or else as a vector.

    Heads and head width together are one side of an attention matrix: the output side
    for queries, keys and values, and the input side for `out`.
    """
    if _part(name) == VECTORS:
        return array.ravel()
    if "out" in name.split("/"):
        return array.reshape(-1, array.shape[-1])
    return array.reshape(array.shape[0], -1)


def _part(name: str) -> str:
    words = set(name.split("/"))
    return next((p for p, names in _MATRICES.items() if words & {*names}), VECTORS)
