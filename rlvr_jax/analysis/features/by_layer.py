"""What RL did to features at several layers, each read by a T-SAE of its own.

`compute_by_layer` trains the T-SAEs on completions of the policy before RL, or pooled
over all policies that it compares. It leaves in the workdir's features_by_layer/, below
before_STEP/ or pooled_STEP/:

    settings.json         the null runs
    layer_L/activations/  the policies on their own completions
    layer_L/sae/          the T-SAE
    layer_L/features/     the texts that it reads: before RL, after it, with noise
    layer_L/null_NAME/    the same of a run that should have learned nothing
    layers.json           the changes at each layer
"""

import dataclasses
import functools
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
from flax import nnx

from job_jax.checkpoint import params_sha256
from job_jax.files import write_json
from job_jax.flags import UsageError
from job_jax.mesh import describe_devices
from job_jax.metrics import MetricsWriter
from job_jax.processes import device_get
from job_jax.steps import StopSignal
from job_jax.workdir import Workdir
from job_jax.working import working
from rlvr_jax.analysis.completions import complete_problems
from rlvr_jax.analysis.features.dynamics import (
    FeatureDynamics,
    compute_dynamics,
    to_json,
)
from rlvr_jax.analysis.features.log import read_feature_log
from rlvr_jax.analysis.features.policies import (
    RUN,
    PolicyComparison,
    open_comparison,
    record_null_runs,
)
from rlvr_jax.probe.capture import add_sequences, open_writer
from rlvr_jax.probe.reference_texts import ReferenceTexts
from rlvr_jax.probe.sae_probe import SAEProbe, shard_sae
from rlvr_jax.probe.weight_noise import noise_file
from rlvr_jax.run.load import (
    load_checkpoint_params,
    load_params_before_rl,
    load_policy,
)
from rlvr_jax.run.setup import RunSetup
from sae_jax import io, train
from sae_jax.stats.dynamics import Thresholds

RECORD_FILE = "layers.json"


class LayerChanges(NamedTuple):
    """A layer's changes by RL, and those of runs that should have learned nothing."""

    layer: int
    changes: FeatureDynamics
    null_runs: Mapping[str, FeatureDynamics]


def compute_by_layer(
    workdir: Path,
    layers: Sequence[int],
    *,
    pooled: bool,
    thresholds: Thresholds,
    step: int | None = None,
    null_workdirs: Sequence[Path] = (),
    stop: StopSignal,
) -> list[LayerChanges]:
    """Returns what RL did up to `step` (default: the last) at each of `layers`.

    The T-SAEs have the settings of the run's probe, and one seed. An interrupted call
    resumes. Raises UsageError if the run has no settings of a T-SAE, no reference texts
    or no such layer or step, if a null run has another model, start or no such step, or
    if other null runs were begun.
    """
    asked = open_comparison(
        workdir, layers, pooled=pooled, step=step, null_workdirs=null_workdirs
    )
    folders = [asked.folder(L, name) for L in asked.layers for name in asked.runs]
    if not all(noise_file(folder, asked.step).is_file() for folder in folders):
        _read_all(asked, stop)
    layer_changes = [
        LayerChanges(
            layer,
            _compare(asked, asked.folder(layer), thresholds),
            {
                name: _compare(asked, asked.folder(layer, name), thresholds)
                for name in asked.runs
                if name != RUN
            },
        )
        for layer in asked.layers
    ]
    _write_record(asked, layer_changes)
    return layer_changes


def _read_all(asked: PolicyComparison, stop: StopSignal) -> None:
    """Trains each layer's T-SAE, and reads the texts before RL, after it, with noise.

    What exists is kept.
    """
    after = asked.runs[RUN] / "checkpoints" / "train" / str(asked.step)
    with load_policy(asked.config, after, stage="train", grades=False) as loaded:
        setup = loaded.setup
        before = load_params_before_rl(setup, asked.runs[RUN] / "checkpoints")
        policies = {RUN: loaded.params}
        for name, path in asked.runs.items():
            if name != RUN:
                policies[name] = _load_null(setup, path, before, asked.step)
        asked.directory.mkdir(parents=True, exist_ok=True)
        record_null_runs(asked)
        _write_activations(asked, setup, before, policies, stop)
        texts = ReferenceTexts.load(asked.texts_file)
        for layer in asked.layers:
            _fit(asked, setup, layer, stop)
            for name, params in policies.items():
                stop.check()
                _read_texts(asked, setup, texts, before, params, layer, name)


def _load_null(
    setup: RunSetup, workdir: Path, before: nnx.State, step: int
) -> nnx.State:
    """Returns a null run's policy. Raises UsageError if it began from other weights."""
    start = load_params_before_rl(setup, workdir / "checkpoints")
    if params_sha256(start) != params_sha256(before):
        raise UsageError(
            f"{workdir} began RL from other weights, so a difference between the two "
            "runs is not RL's; fork both from one start (python -m rlvr_jax.fork)"
        )
    return load_checkpoint_params(setup, workdir / "checkpoints" / "train", step)


def _write_activations(
    asked: PolicyComparison,
    setup: RunSetup,
    before: nnx.State,
    policies: Mapping[str, nnx.State],
    stop: StopSignal,
) -> None:
    """Writes each layer's stream on completions, unless it exists.

    There are as many completions as the run's own probe had. If `pooled`, each policy
    writes an equal share of them for the same problems, at least one a problem.
    """
    missing = [
        layer
        for layer in asked.layers
        if not (asked.folder(layer) / "activations").is_dir()
    ]
    if not missing:
        return
    authors = {"": (before, 0)}
    if asked.pooled:
        authors |= {name: (params, asked.step) for name, params in policies.items()}
    batches = [
        complete_problems(
            setup,
            params,
            step,
            num_problems=asked.config.probe.num_problems,
            num_samples=max(1, asked.config.train.group_size // len(authors)),
            stop=stop,
            run=name,
        )
        for name, (params, step) in authors.items()
    ]
    for layer in missing:
        asked.folder(layer).mkdir(parents=True, exist_ok=True)
        with (
            working(f"activations of layer {layer}"),
            open_writer(
                setup,
                asked.folder(layer) / "activations",
                layer=layer,
                model=asked.config.name,
                dtype="bfloat16",
            ) as shards,
        ):
            for (params, _), of_author in zip(authors.values(), batches, strict=True):
                for problems, rollouts in of_author:
                    stop.check()
                    add_sequences(
                        setup, shards, problems, rollouts, params=params, layer=layer
                    )


def _fit(
    asked: PolicyComparison, setup: RunSetup, layer: int, stop: StopSignal
) -> None:
    """Trains a layer's T-SAE on its activations, unless it was trained."""
    config, folder = asked.config, asked.folder(layer)
    job = asked.sae.make_train_config(
        name=config.name,
        seed=config.seed,
        activations_dir=str(folder / "activations"),
        checkpoint=config.checkpoint,
        log_every=config.log.progress_every,
    )
    single = dataclasses.replace(job.train, num_seeds=1, no_contrast_baseline=False)
    job = dataclasses.replace(job, train=single)
    # The path may be written in another way by the command that resumes.
    mutable = (*train.MUTABLE_SECTIONS, "pairs.path")
    workdir = Workdir(folder, job, mutable_sections=mutable)
    if train.is_finished(job, workdir):
        return
    print(f"T-SAE of layer {layer}", file=sys.stderr)
    source, metadata = train.open_source(job.pairs, seed=job.seed, mesh=setup.mesh)
    workdir.write_config(job, device=describe_devices())
    with MetricsWriter(folder) as writer:
        train.train(
            job,
            source,
            mesh=setup.mesh,
            workdir=workdir,
            writer=writer,
            stop=stop,
            metadata=metadata,
        )


def _read_texts(
    asked: PolicyComparison,
    setup: RunSetup,
    texts: ReferenceTexts,
    before: nnx.State,
    after: nnx.State,
    layer: int,
    name: str,
) -> None:
    """Writes what a layer's T-SAE reads in the texts, unless it was written."""
    folder = asked.folder(layer, name)
    if noise_file(folder, asked.step).is_file():
        return
    folder.mkdir(exist_ok=True)
    if name != RUN and not (folder / train.SAE_DIR).is_symlink():
        (folder / train.SAE_DIR).symlink_to(Path("..") / train.SAE_DIR)
    tsae = shard_sae(io.load(asked.folder(layer) / train.SAE_DIR), setup.mesh)
    probe = SAEProbe.without_features(tsae, layer=layer)
    on_mesh = setup.shard_batch(texts)
    read = functools.partial(probe.read_texts, setup.graphdef, texts=on_mesh)
    with working(f"texts of {name} at layer {layer}"):
        for step, params in ((0, before), (asked.step, after)):
            probe.write_step(
                folder,
                run=asked.config.name,
                step=step,
                rollout_sums=None,
                texts=texts,
                text_stats=device_get(read(params)),
            )
        probe.write_noise(
            folder,
            setup.graphdef,
            before=before,
            after=after,
            texts=on_mesh,
            step=asked.step,
            key=jax.random.fold_in(setup.stream_key("noise"), layer),
        )


def _compare(
    asked: PolicyComparison, folder: Path, thresholds: Thresholds
) -> FeatureDynamics:
    log = read_feature_log(dataclasses.replace(asked.run, path=folder))
    return compute_dynamics(log, thresholds, step=asked.step)


def _write_record(
    asked: PolicyComparison, layer_changes: Sequence[LayerChanges]
) -> None:
    """Writes layers.json; layers of earlier calls stay in it."""
    path = asked.directory / RECORD_FILE
    record: dict[str, Any] = {}
    if path.is_file():
        record = json.loads(path.read_text(encoding="utf-8"))
    for layer, changes, null_runs in layer_changes:
        record[str(layer)] = {
            "run": to_json(changes) | {"run": asked.run.path.name},
            "null_runs": {
                name: to_json(null) | {"run": name} for name, null in null_runs.items()
            },
        }
    ordered = sorted(record.items(), key=lambda item: int(item[0]))
    write_json(path, dict(ordered))
