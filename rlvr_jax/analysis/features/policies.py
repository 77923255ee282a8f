"""The policies that `features --layers` compares: before RL, after, and null runs."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from job_jax.command import load_config
from job_jax.files import checkpoint_steps, write_json
from job_jax.flags import UsageError
from rlvr_jax.config import Config
from rlvr_jax.config.probe import ProbeSAEConfig
from rlvr_jax.probe.protocol import PROBE_DIR
from rlvr_jax.probe.reference_texts import REFERENCE_TEXTS_FILE
from rlvr_jax.probe.sae import SAEProbeConfig
from rlvr_jax.report.run_files import RunArtifacts, read_run
from rlvr_jax.run.lineage import CONFIG_FILE

BY_LAYER_DIR = "features_by_layer"
RUN = "run"  # its own name among the policies after RL; null runs have their names
_SETTINGS_FILE = "settings.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PolicyComparison:
    """The policies that are compared, all `step` steps after the same start.

    `runs` has their workdirs: the run's own, under RUN, and those of the null runs.
    """

    run: RunArtifacts
    config: Config
    sae: ProbeSAEConfig
    runs: Mapping[str, Path]
    step: int
    layers: Sequence[int]
    pooled: bool

    @property
    def directory(self) -> Path:
        """Returns where everything is kept."""
        kind = "pooled" if self.pooled else "before"
        return self.run.path / BY_LAYER_DIR / f"{kind}_{self.step}"

    @property
    def texts_file(self) -> Path:
        """Returns the reference texts, which the policy before RL wrote."""
        return self.run.path / PROBE_DIR / REFERENCE_TEXTS_FILE

    def folder(self, layer: int, name: str = RUN) -> Path:
        """Returns the folder of a layer, or of a null run below it."""
        folder = self.directory / f"layer_{layer}"
        return folder if name == RUN else folder / name


def open_comparison(
    workdir: Path,
    layers: Sequence[int],
    *,
    pooled: bool,
    step: int | None,
    null_workdirs: Sequence[Path],
) -> PolicyComparison:
    """Returns the policies to compare.

    Raises UsageError if the run has no settings of a T-SAE, no reference texts or no
    such layer or step, if a null run has another model or no such step, or if other
    null runs were begun.
    """
    config = load_config(workdir / CONFIG_FILE, Config)
    last = _check_step(workdir, step)
    runs = {RUN: workdir}
    for path in null_workdirs:
        if path.resolve() == workdir.resolve():
            raise UsageError(f"--null_runs={path} is the run itself; name another run")
        name = "null_" + "_".join(path.resolve().parts[-2:])
        if name in runs:
            raise UsageError(f"two null runs are called {name}; rename one's folder")
        _check_step(path, last)
        other = load_config(path / CONFIG_FILE, Config)
        if (other.model, other.train.lora) != (config.model, config.train.lora):
            raise UsageError(
                f"{path} has another model than {workdir}, so no T-SAE reads both"
            )
        runs[name] = path
    sae = _check_probe(config, workdir)
    wrong = [L for L in layers if not 0 <= L < config.model.num_layers]
    if wrong:
        raise UsageError(
            f"--layers={wrong[0]}; the policy has layers "
            f"0..{config.model.num_layers - 1}"
        )
    asked = PolicyComparison(
        run=read_run(workdir),
        config=config,
        sae=sae,
        runs=runs,
        step=last,
        layers=sorted({*layers}),
        pooled=pooled,
    )
    if not asked.texts_file.is_file():
        raise UsageError(f"{asked.texts_file} is missing: stage probe has not ended")
    _check_null_runs(asked)
    return asked


def _check_step(workdir: Path, step: int | None) -> int:
    """Returns the step, by default the last that is kept. Raises UsageError."""
    train_dir = workdir / "checkpoints" / "train"
    if not (kept := checkpoint_steps(train_dir)):
        raise UsageError(f"no checkpoint in {train_dir}: RL has not begun")
    if step is not None and step not in kept:
        raise UsageError(f"{train_dir} has no step {step}; it has {kept}")
    return kept[-1] if step is None else step


def _check_probe(config: Config, workdir: Path) -> ProbeSAEConfig:
    """Returns the settings of the run's T-SAE. Raises UsageError."""
    if not isinstance(config.probe, SAEProbeConfig):
        raise UsageError(
            f"{workdir} has no settings of a T-SAE: train with probe.name=sae"
        )
    if config.probe.sae_path:
        raise UsageError(
            f"{workdir} took its autoencoder from probe.sae_path="
            f"{config.probe.sae_path}, so it has no settings to train one"
        )
    return config.probe.sae


def record_null_runs(asked: PolicyComparison) -> None:
    """Records the null runs, which later calls must not exchange for others."""
    write_json(
        asked.directory / _SETTINGS_FILE,
        {"null_runs": {**_read_null_runs(asked), **_null_runs(asked)}},
    )


def _check_null_runs(asked: PolicyComparison) -> None:
    """Raises UsageError if others were begun: under one of these names, or if `pooled`.

    Pooled T-SAEs are trained on all of them.
    """
    begun, nulls = _read_null_runs(asked), _null_runs(asked)
    if asked.pooled and begun not in ({}, nulls):
        other = [*begun.values()]
    else:
        other = [at for name, at in begun.items() if nulls.get(name, at) != at]
    if other:
        raise UsageError(
            f"{asked.directory} was begun with --null_runs={','.join(other)}; "
            "use these again, or remove that directory"
        )


def _null_runs(asked: PolicyComparison) -> dict[str, str]:
    """Returns the workdirs of the null runs by name."""
    return {name: str(at.resolve()) for name, at in asked.runs.items() if name != RUN}


def _read_null_runs(asked: PolicyComparison) -> dict[str, str]:
    """Returns the null runs of earlier calls, {} before the first."""
    path = asked.directory / _SETTINGS_FILE
    if not path.is_file():
        return {}
    found: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))["null_runs"]
    return found
