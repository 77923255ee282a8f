"""Orbax checkpoints of a stage: device state and host state, all or nothing.

Saving is asynchronous; a checkpoint counts once orbax has renamed its directory into
place, so a process killed at any moment leaves the previous one. What is not saved is
a pure function of (config, step): data order, sampling keys.
"""

import hashlib
import pathlib
from types import TracebackType
from typing import Any, Self

import jax
import numpy as np
import orbax.checkpoint as ocp

from rlvr_jax.config import CheckpointConfig


class CheckpointShapeError(ValueError):
    """A checkpoint that does not hold what the config describes."""


class StageCheckpoints:
    """The checkpoints of one stage, in `workdir/checkpoints/STAGE/STEP`.

    A step's checkpoint is the state *after* that many steps.
    """

    def __init__(self, directory: pathlib.Path, config: CheckpointConfig):
        self._directory = directory
        options = ocp.CheckpointManagerOptions(
            max_to_keep=config.keep, enable_async_checkpointing=True
        )
        self._manager = ocp.CheckpointManager(
            directory.absolute(),
            options=options,
            item_handlers={
                "state": ocp.PyTreeCheckpointHandler(),
                "host": ocp.JsonCheckpointHandler(),
            },
        )

    @property
    def latest_step(self) -> int | None:
        """Returns the step of the newest complete checkpoint, None without one."""
        return self._manager.latest_step()

    def save(self, step: int, state: Any, host_state: dict[str, Any]) -> None:
        """Starts saving; the device state is copied before this returns."""
        self._manager.save(
            step,
            args=ocp.args.Composite(
                state=ocp.args.PyTreeSave(_to_dict(state)),
                host=ocp.args.JsonSave(host_state),
            ),
        )

    def restore(self, step: int, like: Any) -> tuple[Any, dict[str, Any]]:
        """Returns state and host state of a step, a tree like `like` and laid out so.

        Raises CheckpointShapeError, naming the first array whose shape or type differs.
        """
        restored = self._manager.restore(
            step,
            args=ocp.args.Composite(
                state=self._restore_args(step, like), host=ocp.args.JsonRestore()
            ),
        )
        return _like(like, restored.state), restored.host

    def restore_params(self, step: int, like: Any) -> Any:
        """Returns only the parameters of a step, a tree like `like`."""
        wanted = {"params": like}
        restored = self._manager.restore(
            step, args=ocp.args.Composite(state=self._restore_args(step, wanted))
        )
        return _like(wanted, restored.state)["params"]

    def _restore_args(self, step: int, like: Any) -> ocp.args.PyTreeRestore:
        """Returns what orbax is to read: the arrays of `like`, laid out as they are."""
        self._check(step, like)
        return ocp.args.PyTreeRestore(
            item=_to_dict(jax.tree.map(_abstract, like)),
            restore_args=_to_dict(jax.tree.map(_laid_out, like)),
            partial_restore=True,
        )

    def wait(self) -> None:
        """Returns when every save is on disk."""
        self._manager.wait_until_finished()

    def close(self) -> None:
        """Waits for saves under way, then closes."""
        self._manager.wait_until_finished()
        self._manager.close()

    def __enter__(self) -> Self:
        """Returns the checkpoints themselves."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes, whatever happened."""
        self.close()

    def _check(self, step: int, like: Any) -> None:
        saved = self._manager.item_metadata(step).state
        found = {_name(path): leaf for path, leaf in _leaves(saved)}
        for path, leaf in _leaves(like):
            name = _name(path)
            if name not in found:
                raise CheckpointShapeError(
                    f"checkpoint {self._directory}/{step} has no {name}; it was "
                    "written by another model or optimizer"
                )
            there, here = found[name], leaf
            if tuple(there.shape) != tuple(here.shape) or there.dtype != here.dtype:
                raise CheckpointShapeError(
                    f"checkpoint {self._directory}/{step} holds {name} as "
                    f"{there.dtype}{list(there.shape)} where the config asks for "
                    f"{here.dtype}{list(here.shape)}; use the config it was made with, "
                    "or another workdir"
                )


def digest(params: Any) -> str:
    """Returns the SHA-256 of all parameters: names, types, shapes and bytes."""
    sha = hashlib.sha256()
    for path, leaf in sorted(_leaves(params), key=lambda item: _name(item[0])):
        array = np.asarray(jax.device_get(leaf))
        sha.update(f"{_name(path)} {array.dtype} {array.shape}\n".encode())
        sha.update(np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()


def _to_dict(tree: Any) -> dict[str, Any]:
    """Returns the tree as nested dicts: what a reader of the checkpoint will see."""
    root: dict[str, Any] = {}
    for path, leaf in _leaves(tree):
        *parents, last = _name(path).split("/")
        node = root
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = leaf
    return root


def _like(tree: Any, nested: dict[str, Any]) -> Any:
    """Returns the arrays of `_to_dict`'s form in the form of `tree`."""
    arrays = {_name(path): leaf for path, leaf in _leaves(nested)}
    names = [_name(path) for path, _ in _leaves(tree)]
    return jax.tree.structure(tree).unflatten([arrays[name] for name in names])


def _leaves(tree: Any) -> list[tuple[Any, Any]]:
    return jax.tree_util.tree_flatten_with_path(tree)[0]


def _name(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _abstract(leaf: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)


def _laid_out(leaf: jax.Array) -> ocp.ArrayRestoreArgs:
    return ocp.ArrayRestoreArgs(sharding=leaf.sharding, dtype=leaf.dtype)
