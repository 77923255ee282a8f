"""Orbax checkpoints of a stage: device state and host state, all or nothing.

Saving is asynchronous. A checkpoint counts once orbax has renamed its directory into
place, so a process killed at any moment leaves the previous one intact. Everything else
(data order, sampling keys) is a pure function of (config, step), so it is not saved.

A run of several processes in a bucket writes checkpoints straight to the bucket
(`job_jax.buckets.joint`). There a checkpoint counts once a commit names it; afterwards
it is read from the disk.
"""

import contextlib
import functools
import hashlib
import logging
import pathlib
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from jaxtyping import PyTree

from job_jax.buckets import BucketError, JointMirror, describe_error, mirror_of
from job_jax.closing import Closing
from job_jax.config import CheckpointConfig
from job_jax.digests import DigestRecorder, find_damage, set_aside_damaged
from job_jax.disk import name_file
from job_jax.files import latest_step
from job_jax.processes import device_get
from job_jax.schema import ConfigError


class CheckpointMismatchError(ConfigError):
    """A checkpoint does not match the config."""


class CheckpointReadError(RuntimeError):
    """A checkpoint's files are damaged. The message says how to continue."""


class StageCheckpoints(Closing):
    """The checkpoints of one stage, in `workdir/checkpoints/STAGE/STEP`.

    A step's checkpoint is the state *after* that many steps. Without a config,
    checkpoints are only read, so a run that writes there is not disturbed.
    """

    def __init__(self, directory: pathlib.Path, config: CheckpointConfig | None = None):
        _hush_libraries()
        self._directory = directory
        options = ocp.CheckpointManagerOptions(
            read_only=True, create=False, save_interval_steps=0
        )
        self._bucket = _Bucket.of(directory, config) if config else None
        self._digests: DigestRecorder | None = None  # a bucket keeps its own digests
        self._intact: set[int] = set()  # steps whose digests matched
        if config and not self._bucket:
            self._intact |= set_aside_damaged(directory)
            self._digests = DigestRecorder(directory)
            options = ocp.CheckpointManagerOptions(
                preservation_policy=_KeepChosen(config), cleanup_tmp_directories=True
            )
        self._manager = _open_manager(directory.absolute(), options)

    @property
    def latest_step(self) -> int | None:
        """Returns the step of the newest complete checkpoint, or None."""
        return latest_step(self._directory)

    @property
    def is_saving(self) -> bool:
        """Returns whether a save is running; its directory is then incomplete."""
        manager = self._bucket.manager if self._bucket else self._manager
        return manager.is_saving_in_progress()

    def record_digests(self) -> None:
        """Starts taking digests of saved checkpoints, if no save is running."""
        if self._digests and not self.is_saving:
            self._digests.record()

    def save(self, step: int, state: PyTree, host_state: dict[str, Any]) -> None:
        """Starts saving; the device state is copied before this returns."""
        args = ocp.args.Composite(
            state=ocp.args.PyTreeSave(_to_nested_dict(state)),
            host=ocp.args.JsonSave(host_state),
        )
        if self._bucket:
            self._bucket.save(step, args)
        else:
            with name_file(self._directory):
                self._manager.save(step, args=args)

    def restore(self, step: int, target: PyTree) -> tuple[Any, dict[str, Any]]:
        """Returns a step's state and host state.

        The state has the structure and the shardings of `target`, whose leaves may be
        abstract. Raises CheckpointMismatchError, which names the first array that
        differs, and CheckpointReadError.
        """
        restored = self._read(step, target, host=ocp.args.JsonRestore())
        return _from_nested_dict(target, restored.state), restored.host

    def restore_params(self, step: int, target: PyTree) -> Any:
        """Returns only the parameters of a step, otherwise as `restore`."""
        wanted = {"params": target}
        return _from_nested_dict(wanted, self._read(step, wanted).state)["params"]

    def restore_host_state(self, step: int) -> dict[str, Any]:
        """Returns only the host state of a step. Raises CheckpointReadError."""
        self._check_digests(step)
        try:
            args = ocp.args.Composite(host=ocp.args.JsonRestore())
            return self._manager.restore(step, args=args).host
        except Exception as error:  # as in _read
            raise self._read_error(step, error) from error

    def _read(
        self, step: int, target: PyTree, **extra_args: ocp.args.CheckpointArgs
    ) -> Any:
        """Returns the arrays of `target`, sharded like it, and the extra items."""
        self._check_digests(step)
        try:
            saved = self._manager.item_metadata(step).state
            self._check_matches(step, dict(_named_leaves(saved)), target)
            state = ocp.args.PyTreeRestore(
                item=_to_nested_dict(jax.tree.map(_abstract_array, target)),
                restore_args=_to_nested_dict(jax.tree.map(_restore_args, target)),
                partial_restore=True,
            )
            args = ocp.args.Composite(state=state, **extra_args)
            return self._manager.restore(step, args=args)
        except CheckpointMismatchError:
            raise
        except Exception as error:  # orbax has no narrower class for damaged arrays
            raise self._read_error(step, error) from error

    def _check_digests(self, step: int) -> None:
        """Raises CheckpointReadError if a file has changed since it was written."""
        if step not in self._intact and (path := find_damage(self._directory, step)):
            raise self._read_error(
                step, ValueError(f"{path} has changed since it was written")
            )
        self._intact.add(step)

    def _read_error(self, step: int, error: Exception) -> CheckpointReadError:
        cause = str(error.__cause__ or error).splitlines()[0]
        return CheckpointReadError(
            f"checkpoint {self._directory}/{step} cannot be read ({cause:.200}); "
            "remove it, and the run continues from the previous one"
        )

    def wait(self) -> None:
        """Waits until every save is on disk, or in the bucket."""
        if self._bucket:
            self._bucket.wait()
        with name_file(self._directory):
            self._manager.wait_until_finished()
        if self._digests:
            self._digests.record()
            self._digests.wait()

    def close(self) -> None:
        """Waits for running saves, then closes."""
        self.wait()
        if self._bucket:
            self._bucket.manager.close()
        self._manager.close()

    def _check_matches(self, step: int, saved: dict[str, Any], target: PyTree) -> None:
        wanted = dict(_named_leaves(target))
        sections = {name.split("/")[0] for name in wanted}
        where = f"checkpoint {self._directory}/{step}"
        for name in [*wanted, *saved]:
            there, here = saved.get(name), wanted.get(name)
            if there is None:
                raise CheckpointMismatchError(
                    f"{where} has no {name}; it was written by another model or "
                    "optimizer, so use the config it was made with, or another workdir"
                )
            if here is None and name.split("/")[0] in sections:
                raise CheckpointMismatchError(
                    f"{where} holds {name}, which the config does not have; it was "
                    "written by another model or optimizer, so use the config it was "
                    "made with, or another workdir"
                )
            if here is not None and _dtype_and_shape(there) != _dtype_and_shape(here):
                raise CheckpointMismatchError(
                    f"{where} holds {name} as {_dtype_and_shape(there)}, but the "
                    f"config needs {_dtype_and_shape(here)}; use the config it was "
                    "made with, or another workdir"
                )


class _KeepChosen(ocp.checkpoint_managers.PreservationPolicy):
    """Tells orbax which checkpoints the config keeps."""

    def __init__(self, config: CheckpointConfig):
        self._config = config

    def should_preserve(
        self,
        checkpoints: Sequence[ocp.checkpoint_managers.PolicyCheckpointInfo],
        *,
        context: ocp.checkpoint_managers.PreservationContext,
    ) -> list[bool]:
        """Returns for each checkpoint whether it stays."""
        kept = self._config.choose_kept([each.step for each in checkpoints])
        return [each.step in kept for each in checkpoints]


class _Bucket:
    """Saves a stage's checkpoints from several processes straight to a bucket.

    Its methods raise BucketError. The mirror decides which checkpoints to remove, since
    one that a commit names must stay.
    """

    def __init__(self, mirror: JointMirror, stage: str, config: CheckpointConfig):
        self._mirror, self._stage = mirror, stage
        self._config = config
        self._url = mirror.checkpoint_url(stage)
        with self._told():
            self.manager = _open_manager(self._url, ocp.CheckpointManagerOptions())

    @classmethod
    def of(cls, directory: pathlib.Path, config: CheckpointConfig) -> "_Bucket | None":
        """Returns the bucket of a stage, or None if it is saved to the directory."""
        mirror = mirror_of(directory.parent.parent)
        if not isinstance(mirror, JointMirror):
            return None
        return cls(mirror, directory.name, config)

    def save(self, step: int, args: ocp.args.CheckpointArgs) -> None:
        """Starts saving."""
        self._mirror.begin_checkpoint(self._stage, step, self._config)
        with self._told():
            self.manager.save(step, args=args)

    def wait(self) -> None:
        """Waits until every save is in the bucket."""
        with self._told():
            self.manager.wait_until_finished()

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # the libraries share no narrower class
            raise BucketError(
                f"checkpoints cannot be written to {self._url} "
                f"({describe_error(error.__cause__ or error)})"
            ) from error


@functools.cache
def _hush_libraries() -> None:
    """Silences orbax and TensorStore about failed saves; the failures are still raised.

    Otherwise every write that was pending would print its own traceback or warning,
    some of them after our line of error, while Python ends.
    """
    for name in ("absl", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    pending = "coroutine 'async_serialize_from_host"
    warnings.filterwarnings("ignore", pending, RuntimeWarning)
    show = sys.unraisablehook

    def show_others(unraisable: "sys.UnraisableHookArgs") -> None:
        if str(unraisable.exc_value) != "Event loop is closed":
            show(unraisable)

    sys.unraisablehook = show_others


def _open_manager(
    directory: pathlib.Path | str, options: ocp.CheckpointManagerOptions
) -> ocp.CheckpointManager:
    return ocp.CheckpointManager(
        directory,
        options=options,
        item_handlers={
            "state": ocp.PyTreeCheckpointHandler(),
            "host": ocp.JsonCheckpointHandler(),
        },
    )


def params_sha256(params: PyTree) -> str:
    """Returns the SHA-256 of all parameters: names, dtypes, shapes and bytes."""
    sha = hashlib.sha256()
    for name, leaf in sorted(_named_leaves(params)):
        array = np.asarray(device_get(leaf))
        sha.update(f"{name} {array.dtype} {array.shape}\n".encode())
        sha.update(np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()


def _to_nested_dict(tree: PyTree) -> dict[str, Any]:
    """Returns the tree as nested dicts, as a reader of the checkpoint will see it."""
    root: dict[str, Any] = {}
    for name, leaf in _named_leaves(tree):
        *parents, last = name.split("/")
        node = root
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = leaf
    return root


def _from_nested_dict(tree: PyTree, nested: dict[str, Any]) -> Any:
    """Returns the arrays of `nested` in the structure of `tree`."""
    arrays = dict(_named_leaves(nested))
    leaves = [arrays[name] for name, _ in _named_leaves(tree)]
    return jax.tree.unflatten(jax.tree.structure(tree), leaves)


def _named_leaves(tree: PyTree) -> list[tuple[str, Any]]:
    """Returns the leaves with their paths, such as "params/layers/0/scale"."""
    return [
        (jax.tree_util.keystr(path, simple=True, separator="/"), leaf)
        for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]
    ]


def _dtype_and_shape(leaf: Any) -> str:
    return f"{leaf.dtype}{list(leaf.shape)}"


def _abstract_array(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)


def _restore_args(leaf: Any) -> ocp.ArrayRestoreArgs:
    return ocp.ArrayRestoreArgs(sharding=leaf.sharding, dtype=leaf.dtype)
