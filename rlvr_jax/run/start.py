"""Copies the checkpoint of another run that a run starts from into its workdir.

The copy makes the run independent: the other run may continue, or be removed.
"""

import dataclasses
import shutil

import jax

from job_jax.checkpoint import CheckpointMismatchError, StageCheckpoints
from job_jax.command import load_config
from job_jax.config import CheckpointConfig
from job_jax.files import check_digest, write_with_digest
from job_jax.processes import is_primary
from rlvr_jax.config import Config
from rlvr_jax.learn.objectives import supervised_objective
from rlvr_jax.learn.optimizer import restart_schedule
from rlvr_jax.learn.update import TrainState, Updater
from rlvr_jax.run.lineage import CONFIG_FILE, Lineage
from rlvr_jax.run.load import load_checkpoint_params
from rlvr_jax.run.setup import RunSetup
from rlvr_jax.run.stage_table import count_steps
from rlvr_jax.run.workdir import START, TOKENIZER_FILE, Workdir


def copy_tokenizer(config: Config, workdir: Workdir, lineage: Lineage) -> None:
    """Copies a tokenizer that the other run trained, unless that was done before."""
    if config.tokenizer.trained_in_run and is_primary() and not workdir.has_config:
        source = lineage.directory / TOKENIZER_FILE
        check_digest(source)
        with write_with_digest(workdir.tokenizer_path) as partial:
            shutil.copy(source, partial)


def copy_start(setup: RunSetup, workdir: Workdir, lineage: Lineage) -> None:
    """Copies the state that the run starts from, unless that was done before.

    It copies the policy, with adapters merged; the optimizer's moments, if the lineage
    has them; and the number of batches sampled so far, after which this run's draws
    begin. Raises CheckpointMismatchError and CheckpointReadError.
    """
    if count_steps(START, workdir):
        return
    num_batches = 0
    with StageCheckpoints(lineage.checkpoints) as source:
        if lineage.stage == "train":
            host = source.restore_host_state(lineage.step)["host"]
            num_batches = host["difficulty"]["num_batches"]
        if lineage.has_optimizer:
            state = _restart(source.restore(lineage.step, _abstract_state(setup))[0])
    if not lineage.has_optimizer:
        config = load_config(lineage.directory / CONFIG_FILE, Config)
        theirs = dataclasses.replace(setup, config=config)
        _check_same_shapes(theirs, setup, lineage)
        params = load_checkpoint_params(theirs, lineage.checkpoints, lineage.step)
    with StageCheckpoints(workdir.checkpoints / START, CheckpointConfig()) as copies:
        copies.save(
            lineage.step,
            state if lineage.has_optimizer else {"params": params},
            {"num_batches": num_batches},
        )


def load_start_state(workdir: Workdir, abstract: TrainState) -> TrainState:
    """Returns the state before the first step of a run that copied an optimizer."""
    with StageCheckpoints(workdir.checkpoints / START) as copies:
        return copies.restore(count_steps(START, workdir), abstract)[0]


def count_earlier_batches(workdir: Workdir) -> int:
    """Returns the number of batches sampled before this run, 0 without a lineage."""
    if not (step := count_steps(START, workdir)):
        return 0
    with StageCheckpoints(workdir.checkpoints / START) as copies:
        return copies.restore_host_state(step)["num_batches"]


def _check_same_shapes(theirs: RunSetup, ours: RunSetup, lineage: Lineage) -> None:
    shapes = (
        [leaf.shape for leaf in jax.tree.leaves(setup.abstract_params())]
        for setup in (theirs, ours)
    )
    for there, here in zip(*shapes, strict=True):
        if there != here:
            raise CheckpointMismatchError(
                f"the policy of {lineage} has an array of {there}, but the config "
                f"needs {here}; give the config the same model and tokenizer"
            )


def _abstract_state(setup: RunSetup) -> TrainState:
    updater = Updater(
        setup.graphdef,
        supervised_objective,
        optimizer=setup.config.train.optimizer,
        total_steps=1,
        logits_chunk_size=0,
    )
    return updater.abstract_state(setup.abstract_params())


def _restart(state: TrainState) -> TrainState:
    """Returns the state with its steps counted from 0, for the start of a new run."""
    return jax.jit(
        lambda state: dataclasses.replace(
            state,
            opt_state=restart_schedule(state.opt_state),
            step=state.step * 0,
            consecutive_nonfinite=state.consecutive_nonfinite * 0,
        ),
        donate_argnums=0,
        out_shardings=jax.tree.map(lambda leaf: leaf.sharding, state),
    )(state)
