"""Loads a policy from a checkpoint: for stages, for commands, for `convert`."""

import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
from flax import nnx
from jax.sharding import SingleDeviceSharding
from jaxtyping import PyTree

from job_jax.checkpoint import StageCheckpoints
from job_jax.command import load_config
from job_jax.files import latest_step
from job_jax.flags import UsageError
from job_jax.mesh import start_jax
from job_jax.working import working
from rlvr_jax.config import Config, LoRAConfig
from rlvr_jax.config.task import Stage
from rlvr_jax.models import Transformer, load_hf, lora
from rlvr_jax.models.huggingface import abstract_policy, hf_vocab_size
from rlvr_jax.models.huggingface.config import (
    CONFIG,
    Dtype,
    is_hf_directory,
    read_json,
)
from rlvr_jax.models.huggingface.match import start_from
from rlvr_jax.run.checkpoint_settings import describe_sampling
from rlvr_jax.run.cpu_devices import choose_mesh
from rlvr_jax.run.fetch import local_checkpoint
from rlvr_jax.run.setup import RunSetup, open_setup
from rlvr_jax.run.trainable import abstract_trainable
from rlvr_jax.run.workdir import START, TOKENIZER_FILE
from rlvr_jax.tokenizer import Tokenizer, open_tokenizer

HF_DIR = "hf"  # in a converted checkpoint: the Hugging Face files besides weights


class LoadedPolicy(NamedTuple):
    """A run opened on a checkpoint, with its parameters and step."""

    setup: RunSetup
    params: nnx.State
    step: int


class StoredPolicy(NamedTuple):
    """A checkpoint's shapes, on one device, and how its parameters are read.

    `adapters` is None unless the checkpoint holds only adapters. `tokenizer` is None
    for a converted checkpoint, which has its tokenizer's files in its folder.
    `chat_template` is the run's own Jinja text, "" without one.
    """

    policy: Transformer  # abstract
    adapters: Transformer | None  # abstract, with adapters
    lora: LoRAConfig
    directory: Path
    step: int
    tokenizer: Tokenizer | None = None
    chat_template: str = ""

    def restore(self) -> Transformer:
        """Returns the policy, adapters merged. Raises UsageError."""
        return nnx.merge(nnx.graphdef(self.policy), self.restore_params())

    def restore_params(self) -> nnx.State:
        """Returns the policy's parameters, adapters merged. Raises UsageError."""
        policy, directory = self.policy, self.directory
        sft = directory.resolve().parent / "sft"

        def init_params() -> nnx.State:
            if not policy.hf_dir:
                raise UsageError(
                    f"no checkpoint in {sft}, and {directory} holds only adapters; "
                    "use to-peft"
                )
            model = policy.config
            return nnx.state(
                load_hf(policy.hf_dir, dtype=model.param_dtype, family=model.family)
            )

        return restore_policy_params(
            directory,
            self.step,
            graphdef=nnx.graphdef(policy),
            whole=_on_one_device(nnx.state(policy)),
            adapters=self._abstract_adapters(),
            config=self.lora,
            init_params=init_params,
        )

    def restore_adapters(self) -> Transformer:
        """Returns the abstract policy with the checkpoint's adapters in it."""
        assert self.adapters is not None
        with StageCheckpoints(self.directory) as checkpoints:
            params = checkpoints.restore_params(self.step, self._abstract_adapters())
        nnx.update(self.adapters, params)
        return self.adapters

    def _abstract_adapters(self) -> nnx.State | None:
        if self.adapters is None:
            return None
        return _on_one_device(nnx.state(self.adapters, lora.ADAPTERS))


@contextlib.contextmanager
def load_policy(
    config: Config, path: Path, *, stage: Stage, grades: bool = True
) -> Iterator[LoadedPolicy]:
    """Yields the run, with the problems of `stage` and a checkpoint's parameters.

    `find_checkpoint` reads `path`. It may also be a Hugging Face directory; its policy
    and tokenizer then replace the config's. Starts JAX; within the context, the mesh is
    set and verifiers may be used. With `grades` they are tested first: a judge must
    answer, and programs need a jail. Raises UsageError, CallError and ConfigError.
    """
    if is_hf_directory(path):
        config, at, step = start_from(config, path), None, 0
        tokenizer = path / TOKENIZER_FILE
    else:
        at, step = find_checkpoint(path)
        tokenizer = workdir_of(path) / TOKENIZER_FILE
    if config.tokenizer.trained_in_run and not tokenizer.is_file():
        raise UsageError(
            f"no {tokenizer}; give a checkpoint in its workdir, next to its tokenizer"
        )
    start_jax(choose_mesh(config))
    # No update runs meanwhile, so the sampler gets all devices.
    shared = dataclasses.replace(config.sampler, devices=0)
    config = dataclasses.replace(config, sampler=shared)
    with working("reading the problems"):
        run = open_setup(config, tokenizer, stages=(stage,))
    for line in (*describe_sampling(run.config), *run.dropped_report()):
        print(line, file=sys.stderr)
    with jax.set_mesh(run.mesh), run.verifier:
        for name in sorted(run.first_by_verifier() if grades else ()):
            run.verifier.open_verifier(name).check_ready()
        if at is None:
            yield LoadedPolicy(run, run.initial_params(), step)
        else:
            yield LoadedPolicy(run, load_checkpoint_params(run, at, step), step)


def load_checkpoint(path: str | os.PathLike[str]) -> Transformer:
    """Returns the policy of a checkpoint as a module on one device, adapters merged.

    `path` is a workdir, WORKDIR/checkpoints/STAGE or one of its steps, as
    `find_checkpoint` reads it, also in a bucket; or a Hugging Face directory. Raises
    UsageError, and BucketAccessError.

    Example:
        >>> load_checkpoint("runs/none")
        Traceback (most recent call last):
        ...
        job_jax.flags.UsageError: no complete checkpoint in runs/none, which does \
not exist; give a run's workdir, or WORKDIR/checkpoints/STAGE, or one of the steps in it
    """
    local = local_checkpoint(os.fspath(path))
    if is_hf_directory(local):
        return load_hf(local)
    return open_stored_policy(local).restore()


def workdir_of(path: Path) -> Path:
    """Returns the workdir of a checkpoint; `path` as above. Raises UsageError."""
    return find_checkpoint(path)[0].resolve().parents[1]


def find_checkpoint(path: Path) -> tuple[Path, int]:
    """Returns the directory of a stage's checkpoints, and the step that `path` means.

    WORKDIR/checkpoints/STAGE/STEP means that step, and WORKDIR/checkpoints/STAGE the
    newest one. WORKDIR means the newest of train, else of sft, else the checkpoint that
    the run started from. Raises UsageError.
    """
    if path.name.isdigit() and (path / "state").is_dir():
        return path.parent, int(path.name)
    stages = (f"checkpoints/{stage}" for stage in ("train", "sft", START))
    for inner in (".", *stages):
        if (step := latest_step(path / inner)) is not None:
            return path / inner, step
    missing = "" if path.exists() else ", which does not exist"
    raise UsageError(
        f"no complete checkpoint in {path}{missing}; give a run's workdir, or "
        "WORKDIR/checkpoints/STAGE, or one of the steps in it"
    )


def load_checkpoint_params(setup: RunSetup, directory: Path, step: int) -> nnx.State:
    """Returns the policy's parameters after a stage's step, on the setup's mesh."""
    config = setup.config.train.lora
    is_adapted = config.rank > 0 and directory.resolve().name == "train"
    return restore_policy_params(
        directory,
        step,
        graphdef=setup.graphdef,
        whole=setup.abstract_params(),
        adapters=abstract_trainable(setup).trained if is_adapted else None,
        config=config,
        init_params=setup.initial_params,
    )


def load_params_before_rl(setup: RunSetup, checkpoints: Path) -> nnx.State:
    """Returns the policy's parameters that RL starts from, on the setup's mesh.

    They come from the newest checkpoint of stage `sft`, else from the checkpoint that
    the run started from, else they are the initial ones.
    """
    if (before := checkpoint_before_rl(checkpoints)) is None:
        return setup.initial_params()
    return load_checkpoint_params(setup, before.parent, int(before.name))


def checkpoint_before_rl(checkpoints: Path) -> Path | None:
    """Returns the newest checkpoint of `sft`, else the one that the run started from.

    None if RL starts from the initial parameters.
    """
    for stage in ("sft", START):
        if (step := latest_step(checkpoints / stage)) is not None:
            return checkpoints / stage / str(step)
    return None


def restore_policy_params(
    directory: Path,
    step: int,
    *,
    graphdef: nnx.GraphDef,
    whole: nnx.State,
    adapters: nnx.State | None,
    config: LoRAConfig,
    init_params: Callable[[], nnx.State],
) -> nnx.State:
    """Returns the whole policy's parameters from a stage's checkpoint.

    `whole` and `adapters` are shapes with shardings; `adapters` is None unless the
    checkpoint holds only adapters. These are merged into the parameters that RL started
    from: the last checkpoint of stage `sft` in the same run, else the checkpoint that
    the run started from, else `init_params()`.
    """
    with StageCheckpoints(directory) as checkpoints:
        target = whole if adapters is None else adapters
        with working(f"loading step {step} of {directory}"):
            params = checkpoints.restore_params(step, target)
    if adapters is None:
        return params
    if (before := checkpoint_before_rl(directory.resolve().parent)) is None:
        base = init_params()
    else:
        with (
            working(f"loading {before}"),
            StageCheckpoints(before.parent) as checkpoints,
        ):
            base = checkpoints.restore_params(int(before.name), whole)
    merge = jax.jit(
        lambda base, adapters: lora.merge_adapters(graphdef, base, adapters, config),
        out_shardings=jax.tree.map(lambda leaf: leaf.sharding, whole),
        donate_argnums=0,
    )
    return merge(base, params)


def open_stored_policy(path: Path) -> StoredPolicy:
    """Returns the shapes of a checkpoint, without reading data or weights.

    `find_checkpoint` reads `path`. Raises UsageError.
    """
    directory, step = find_checkpoint(path)
    if (directory / HF_DIR).is_dir():
        stored = read_json(directory / HF_DIR / CONFIG).get("torch_dtype")
        dtype: Dtype = "bfloat16" if stored == "bfloat16" else "float32"
        policy = abstract_policy(directory / HF_DIR, dtype=dtype)
        return StoredPolicy(policy, None, LoRAConfig(), directory, step)
    workdir = directory.resolve().parents[1]
    config = load_config(workdir / "config.json", Config)
    tokenizer = open_tokenizer(
        config, texts=tuple, trained_path=workdir / TOKENIZER_FILE
    )
    start = config.pretrained
    num_rows = hf_vocab_size(start) if start.path else tokenizer.vocab_size
    policy = nnx.eval_shape(
        lambda: Transformer(
            config.model,
            num_rows,
            nnx.Rngs(0),
            eos_ids=tokenizer.eos_ids,
            num_real_tokens=tokenizer.vocab_size,
        )
    )
    policy.hf_dir = start.path or None  # its tokenizer and settings are copied
    adapted = None
    if config.train.lora.rank and directory.resolve().name == "train":
        adapted = lora.abstract_adapted_policy(*nnx.split(policy), config.train.lora)
    task = config.task
    has_own = task.applies_chat_template and not task.needs_tokenizer_template
    return StoredPolicy(
        policy,
        adapted,
        config.train.lora,
        directory,
        step,
        tokenizer,
        task.template_text if has_own else "",
    )


def _on_one_device(tree: PyTree) -> Any:
    sharding = SingleDeviceSharding(jax.devices()[0])
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree
    )
