"""What RL did to features at several layers, each read by a T-SAE of its own.

`compute_by_layer` trains the T-SAEs on completions of the policy before RL, or pooled
over the policies before and after. It leaves in the workdir's features_by_layer/, below
before_STEP/ or pooled_STEP/:

    layer_L/activations/  the policies on their own completions
    layer_L/sae/          the T-SAE
    layer_L/features/     the texts that it reads: before RL, after it, with noise
    layer_L/null_NAME/    the same of a run that should have learned nothing
    layers.json           the changes that are claimed at each layer
"""

import dataclasses
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
from flax import nnx

from job_jax.command import load_config
from job_jax.config import MeshConfig
from job_jax.files import checkpoint_steps, write_json
from job_jax.flags import UsageError
from job_jax.mesh import describe_devices, make_mesh
from job_jax.metrics import MetricsWriter
from job_jax.processes import device_get
from job_jax.steps import StopSignal
from job_jax.workdir import Workdir
from job_jax.working import working
from rlvr_jax.analysis.completions import complete_problems
from rlvr_jax.analysis.features.dynamics import (
    CLAIMED,
    EQUAL_DRIFT,
    FeatureDynamics,
    compute_dynamics,
    to_json,
)
from rlvr_jax.analysis.features.log import REFERENCE, read_feature_log
from rlvr_jax.analysis.features.texts import ALL_BANDS
from rlvr_jax.config import Config
from rlvr_jax.config.probe import ProbeSAEConfig
from rlvr_jax.probe.capture import add_sequences, open_writer
from rlvr_jax.probe.protocol import PROBE_DIR
from rlvr_jax.probe.reference_texts import REFERENCE_TEXTS_FILE, ReferenceTexts
from rlvr_jax.probe.sae import SAEProbeConfig
from rlvr_jax.probe.sae_probe import SAEProbe, shard_sae
from rlvr_jax.probe.weight_noise import noise_file
from rlvr_jax.report.run_files import RunArtifacts, read_run
from rlvr_jax.report.tables import Table
from rlvr_jax.run.lineage import CONFIG_FILE
from rlvr_jax.run.load import load_params_before_rl, load_policy
from rlvr_jax.run.setup import RunSetup
from sae_jax import io, train
from sae_jax.stats.dynamics import Thresholds

BY_LAYER_DIR, RECORD_FILE = "features_by_layer", "layers.json"


class LayerChanges(NamedTuple):
    """A layer's changes by RL, and those of runs that should have learned nothing."""

    layer: int
    changes: FeatureDynamics
    nulls: Mapping[str, FeatureDynamics]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _RunAtStep:
    """A run whose policy before RL is compared with the one after `step` steps."""

    run: RunArtifacts
    config: Config
    step: int

    @property
    def checkpoints(self) -> Path:
        return self.run.path / "checkpoints"

    @property
    def after(self) -> Path:
        return self.checkpoints / "train" / str(self.step)


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
    resumes. Raises UsageError, before any work, if the run has no T-SAE's settings, no
    reference texts or no such layer or step, or if a null run has another model.
    """
    run = _open_run(workdir, step)
    nulls = {_name_null(path): _open_null(path, run) for path in null_workdirs}
    sae = _check(run, layers)
    kind = f"{'pooled' if pooled else 'before'}_{run.step}"
    folders = {L: workdir / BY_LAYER_DIR / kind / f"layer_{L}" for L in layers}
    _write_activations(run, folders, pooled=pooled, stop=stop)
    for layer, folder in folders.items():
        print(f"T-SAE of layer {layer}", file=sys.stderr)
        _fit(run.config, sae, folder, stop)
    texts = ReferenceTexts.load(_texts_file(run))
    _read_texts(run, texts, folders)
    for name, null in nulls.items():
        _read_texts(null, texts, {L: folders[L] / name for L in layers})
    found = [
        LayerChanges(
            layer,
            _compare(run, folder, thresholds),
            {
                name: _compare(null, folder / name, thresholds)
                for name, null in nulls.items()
            },
        )
        for layer, folder in folders.items()
    ]
    write_json(workdir / BY_LAYER_DIR / kind / RECORD_FILE, _to_json(found))
    return found


def _open_run(workdir: Path, step: int | None) -> _RunAtStep:
    """Returns the run with the step asked for, or its last. Raises UsageError."""
    train_dir = workdir / "checkpoints" / "train"
    if not (kept := checkpoint_steps(train_dir)):
        raise UsageError(f"no checkpoint in {train_dir}: RL has not begun")
    if step is not None and step not in kept:
        raise UsageError(f"{train_dir} has no step {step}; it has {kept}")
    return _RunAtStep(
        run=read_run(workdir),
        config=load_config(workdir / CONFIG_FILE, Config),
        step=kept[-1] if step is None else step,
    )


def _open_null(workdir: Path, run: _RunAtStep) -> _RunAtStep:
    null = _open_run(workdir, None)
    if null.config.model != run.config.model:
        raise UsageError(
            f"{workdir} has another model than {run.run.path}, so no T-SAE reads both"
        )
    return null


def _name_null(workdir: Path) -> str:
    """Returns a folder's name for a null run: an experiment's arm and seed, say."""
    return "null_" + "_".join(workdir.resolve().parts[-2:])


def _check(run: _RunAtStep, layers: Sequence[int]) -> ProbeSAEConfig:
    """Returns the settings of the run's T-SAE. Raises UsageError."""
    config, path = run.config, run.run.path
    if not isinstance(config.probe, SAEProbeConfig):
        raise UsageError(
            f"{path} has no settings of a T-SAE: train with probe.name=sae"
        )
    if not _texts_file(run).is_file():
        raise UsageError(f"{_texts_file(run)} is missing: stage probe has not ended")
    wrong = [L for L in layers if not 0 <= L < config.model.num_layers]
    if wrong:
        raise UsageError(
            f"--layers={wrong[0]}; the policy has layers "
            f"0..{config.model.num_layers - 1}"
        )
    return config.probe.sae


def _texts_file(run: _RunAtStep) -> Path:
    return run.run.path / PROBE_DIR / REFERENCE_TEXTS_FILE


def _write_activations(
    run: _RunAtStep, folders: Mapping[int, Path], *, pooled: bool, stop: StopSignal
) -> None:
    """Writes each layer's stream on completions, unless it exists.

    There are as many completions as the run's own probe had. If `pooled`, each policy
    writes half of them, for the same problems.
    """
    missing = {
        layer: folder / "activations"
        for layer, folder in folders.items()
        if not (folder / "activations").is_dir()
    }
    if not missing:
        return
    with load_policy(run.config, run.after, stage="train") as loaded:
        setup = loaded.setup
        authors = {0: load_params_before_rl(setup, run.checkpoints)}
        if pooled:
            authors[run.step] = loaded.params
        batches = {
            step: complete_problems(
                setup,
                params,
                step,
                num_problems=run.config.probe.num_problems,
                num_samples=max(1, run.config.train.group_size // len(authors)),
            )
            for step, params in authors.items()
        }
        for layer, path in missing.items():
            stop.check()
            path.parent.mkdir(parents=True, exist_ok=True)
            steps = " and ".join(map(str, authors))
            with (
                working(f"activations of layer {layer}"),
                open_writer(
                    setup,
                    path,
                    layer=layer,
                    model=f"{run.config.name}, step {steps}",
                    dtype="bfloat16",
                ) as shards,
            ):
                for step, params in authors.items():
                    for batch in batches[step]:
                        add_sequences(
                            setup,
                            shards,
                            batch.problems,
                            batch.rollouts,
                            params=params,
                            layer=layer,
                        )


def _fit(config: Config, sae: ProbeSAEConfig, folder: Path, stop: StopSignal) -> None:
    """Trains a T-SAE in `folder` on its activations, unless it was trained."""
    job = sae.make_train_config(
        name=config.name,
        seed=config.seed,
        activations_dir=str(folder / "activations"),
        checkpoint=config.checkpoint,
        log_every=config.log.progress_every,
    )
    single = dataclasses.replace(job.train, num_seeds=1, no_contrast_baseline=False)
    job = dataclasses.replace(job, train=single)
    workdir = Workdir(folder, job, mutable_sections=("mesh.", "log.", "checkpoint."))
    if train.is_finished(job, workdir):
        return
    mesh = make_mesh(MeshConfig(), jax.devices()[:1])
    source, metadata = train.open_source(job.pairs, seed=job.seed, mesh=mesh)
    workdir.write_config(job, device=describe_devices())
    with jax.set_mesh(mesh), MetricsWriter(folder) as writer:
        train.train(
            job,
            source,
            mesh=mesh,
            workdir=workdir,
            writer=writer,
            stop=stop,
            metadata=metadata,
        )


def _read_texts(
    run: _RunAtStep, texts: ReferenceTexts, folders: Mapping[int, Path]
) -> None:
    """Writes what the T-SAEs read in the texts before RL, after it, and under noise.

    A folder that has no T-SAE gets a copy of its parent's.
    """
    missing = {
        L: f for L, f in folders.items() if not noise_file(f, run.step).is_file()
    }
    if not missing:
        return
    with load_policy(run.config, run.after, stage="eval") as loaded:
        setup = loaded.setup
        before = load_params_before_rl(setup, run.checkpoints)
        for layer, folder in missing.items():
            if not (folder / train.SAE_DIR).is_dir():
                shutil.copytree(folder.parent / train.SAE_DIR, folder / train.SAE_DIR)
            tsae = shard_sae(io.load(folder / train.SAE_DIR), setup.mesh)
            probe = SAEProbe.without_features(tsae, layer=layer)
            with working(f"reading the texts at layer {layer}"):
                for step, params in ((0, before), (run.step, loaded.params)):
                    _write_step(setup, probe, folder, texts, params, step)
            probe.write_noise(
                folder,
                setup.graphdef,
                before=before,
                after=loaded.params,
                texts=setup.shard_batch(texts),
                step=run.step,
                key=setup.stream_key("noise"),
            )


def _write_step(
    setup: RunSetup,
    probe: SAEProbe,
    folder: Path,
    texts: ReferenceTexts,
    params: nnx.State,
    step: int,
) -> None:
    stats = probe.read_texts(setup.graphdef, params, setup.shard_batch(texts))
    probe.write_step(
        folder,
        run=setup.config.name,
        step=step,
        rollout_sums=None,
        texts=texts,
        text_stats=device_get(stats),
    )


def _compare(run: _RunAtStep, folder: Path, thresholds: Thresholds) -> FeatureDynamics:
    log = read_feature_log(dataclasses.replace(run.run, path=folder))
    return compute_dynamics(log, thresholds, step=run.step)


def layers_table(found: Sequence[LayerChanges]) -> Table:
    """Returns a row for each layer: fidelity, drift and claims, next to the nulls."""
    bands = [band for band in found[0].changes.prompts if band != ALL_BANDS]
    nulls = list(found[0].nulls)
    head = ["layer", "FVE before", "FVE after", "stream moved", "tested", "claimed"]
    head += [f"in {band}" for band in bands]
    return Table(
        head=[*head, "noise claims", *(f"{name} claims" for name in nulls)],
        rows=[_layer_row(each, bands) for each in found],
    )


def _layer_row(found: LayerChanges, bands: Sequence[str]) -> list[str]:
    changes = found.changes
    (fidelity,) = (d for d in changes.drops if (d.split, d.band) == (REFERENCE, ""))
    (noise,) = (each for each in changes.nulls if each.label == EQUAL_DRIFT)
    return [
        str(found.layer),
        f"{fidelity.before:.3f}",
        f"{fidelity.after:.3f}",
        f"{100 * changes.tally.drift:.2g} %",
        str(changes.findings[ALL_BANDS].num_tested),
        *(str(changes.counts[band][CLAIMED]) for band in (ALL_BANDS, *bands)),
        f"{noise.mean(ALL_BANDS, CLAIMED):.2g}",
        *(str(null.counts[ALL_BANDS][CLAIMED]) for null in found.nulls.values()),
    ]


def _to_json(found: Sequence[LayerChanges]) -> list[dict[str, Any]]:
    return [
        {
            "layer": each.layer,
            "changes": to_json(each.changes),
            "nulls": {name: to_json(null) for name, null in each.nulls.items()},
        }
        for each in found
    ]
