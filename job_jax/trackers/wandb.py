"""Weights & Biases, from the extra `wandb`.

Each line of metrics.jsonl is the step of the same number in the tracked run. Online,
the server reports how many steps it has, and a resumed run continues after them.
Offline, nothing reports that, and a killed process leaves up to 15 s of its lines
unwritten. So a resumed run rewrites its one folder `wandb/offline-run-*` from the first
line on.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from job_jax import DISTRIBUTION
from job_jax.schema import ConfigError
from job_jax.trackers.base import RunResults, TrackedLine, Tracker, table_of

_FINISH_S = 50.0  # then the rest of the upload is left to `wandb sync`
_INIT_S = 30.0


class WandbTracker(Tracker):
    """Tracks a run on wandb, or offline in the workdir's folder wandb/."""

    _run: Any = None

    @classmethod
    def check_ready(cls, *, offline: bool) -> None:
        """Raises ConfigError without the library, or online without a login."""
        wandb = _import_wandb()
        if not offline and not _is_logged_in(wandb):
            raise ConfigError(
                "log.trackers: wandb has no login; run `wandb login`, set "
                "WANDB_API_KEY, or set log.tracking.mode=offline"
            )

    def open(self) -> int:
        """Opens the tracked run; returns the number of its steps."""
        wandb, run = _import_wandb(), self.run
        if run.offline:
            for folder in Path(run.workdir, "wandb").glob(f"offline-run-*-{run.id}"):
                shutil.rmtree(folder)
        self._stages: set[str] = set()
        self._run = wandb.init(
            project=run.project,
            name=run.name,
            id=run.id,
            resume=None if run.offline else "allow",
            mode="offline" if run.offline else "online",
            dir=run.workdir,
            config={**run.config, "continued_from": run.parent},
            allow_val_change=True,
            settings=wandb.Settings(
                console="off",
                silent=True,
                init_timeout=_INIT_S,
                finish_timeout=_FINISH_S,
                finish_timeout_raises=True,
            ),
        )
        return self._run.step

    @property
    def place(self) -> str:
        """Returns the run's address, or the folder that `wandb sync` uploads."""
        if self.run.offline:
            return f"offline; wandb sync {self._run.dir.removesuffix('/files')}"
        return self._run.url

    def log(self, line: TrackedLine) -> None:
        """Logs a line, its alarms, and a table of its completions."""
        wandb = _import_wandb()
        if line.stage not in self._stages:
            self._stages.add(line.stage)
            self._run.define_metric(f"{line.stage}/*", step_metric=f"{line.stage}/step")
        values: dict[str, Any] = line.flat()
        if line.samples:
            values[f"rollouts/{line.stage}"] = _table(wandb, line.samples)
        for alarm in line.alarms:
            self._run.alert(title=f"{self.run.name}: run doctor", text=alarm)
        self._run.log(values, step=line.number, commit=True)

    def finish(self, results: RunResults) -> None:
        """Sets the summary, and logs files and tables as an artifact."""
        wandb = _import_wandb()
        self._run.summary.update(dict(results.numbers))
        artifact = wandb.Artifact(f"run-{self.run.id}-report", type="report")
        for file in results.files:
            artifact.add_file(file)
        for name, rows in results.tables.items():
            artifact.add(_table(wandb, rows), name)
        self._run.log_artifact(artifact)

    def close(self, *, failed: bool) -> None:
        """Uploads the remaining data, for at most 50 s."""
        self._run.finish(exit_code=int(failed))


def _table(wandb: Any, rows: Sequence[Mapping[str, object]]) -> Any:
    columns, data = table_of(rows)
    return wandb.Table(columns=columns, data=data, allow_mixed_types=True)


def _is_logged_in(wandb: Any) -> bool:
    try:
        return bool(wandb.login(prompt=False, verify=False))
    except wandb.errors.AuthenticationError as error:
        raise ConfigError(f"log.trackers: wandb: {error}") from error


def _import_wandb() -> Any:
    """Returns the library. Raises ConfigError if it is not installed."""
    try:
        import wandb  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise ConfigError(
            f"log.trackers: wandb is not installed; pip install '{DISTRIBUTION}[wandb]'"
        ) from error
    return wandb
