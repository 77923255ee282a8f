"""The subcommand `crosscoder`: latents that RL added, kept and lost, with controls."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from job_jax.checkpoint import CheckpointReadError
from job_jax.command import load_config, run_command
from job_jax.files import checkpoint_steps, write_json
from job_jax.flags import Flags, UsageError, parse_flags
from job_jax.steps import StopSignal
from rlvr_jax.analysis.crosscoder.fit import (
    CrosscoderSettings,
    Fitted,
    fit_crosscoders,
    open_measured,
)
from rlvr_jax.analysis.crosscoder.summary import (
    BASE,
    CROSSCODER_FILE,
    HALVES,
    OTHER_SEED,
    RANDOM,
    RL,
    count_replicated,
    describe_fit,
    describe_latents,
)
from rlvr_jax.analysis.crosscoder.text import format_crosscoder
from rlvr_jax.analysis.crosscoder.texts import CheckpointTexts, write_texts
from rlvr_jax.analysis.quotes import quote_latents
from rlvr_jax.config import Config
from rlvr_jax.report.page import write_report
from rlvr_jax.report.run_files import to_plain_json
from rlvr_jax.run.fetch import local_run
from rlvr_jax.run.lineage import CONFIG_FILE

_USAGE = """\
usage: python -m rlvr_jax.analysis crosscoder WORKDIR [--random_run=WORKDIR]
           [--steps=N,...] [--layer=N] [--num_problems=N ...]

Trains a crosscoder on the residual streams of the policy before RL and after RL (the
last checkpoint, or --steps), on the same texts. Says which latents RL added, grew,
kept, shrank and lost. Controls are another seed, each half of the problems, the policy
before RL against itself with weight noise as large as RL's change, and a run that was
rewarded at random (--random_run). Everything is kept in WORKDIR/crosscoder; the same
command resumes where it stopped. docs/lab/crosscoder.md says how to read the output.
"""
_SETTINGS_FILE = "settings.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CrosscoderFlags(CrosscoderSettings, Flags):
    """The flags of this command."""

    random_run: str = ""  # a run rewarded at random
    steps: tuple[int, ...] = ()  # RL steps of checkpoints; default: the last
    layer: int | None = None  # default: the probe's, or the middle layer


def main(argv: Sequence[str]) -> int:
    """Returns 0, or 1 if a file is broken, or 2 if runs or checkpoints are missing."""
    return run_command(
        lambda: _run_command(argv),
        (CheckpointReadError, OSError, ValueError, RuntimeError),
    )


def _run_command(argv: Sequence[str]) -> None:
    flags, (given,) = parse_flags(
        argv, CrosscoderFlags, usage=_USAGE, arguments=["WORKDIR"]
    )
    names = [field.name for field in dataclasses.fields(CrosscoderSettings)]
    settings = {name: vars(flags)[name] for name in names}
    workdir = local_run(given, with_checkpoints=True)
    runs = {RL: workdir}
    if flags.random_run:
        runs[RANDOM] = local_run(flags.random_run, with_checkpoints=True)
    steps = {name: _choose_steps(run, flags.steps) for name, run in runs.items()}
    layer = _choose_layer(workdir, flags.layer)
    asked = {
        name: {"steps": steps[name], "layer": _choose_layer(run, layer), **settings}
        for name, run in runs.items()
    }
    for name, run in runs.items():
        _check_settings(run / CROSSCODER_FILE.parent / _SETTINGS_FILE, asked[name])
    stop = StopSignal()
    stop.install()
    texts = {}
    for name, run in runs.items():
        texts[name] = write_texts(
            run,
            run / CROSSCODER_FILE.parent / "activations",
            steps=steps[name],
            layer=layer,
            num_problems=flags.num_problems,
            num_samples=flags.num_samples,
            stop=stop,
        )
        stop.check()
    fitted = _fit_all(texts, runs, flags, stop)
    record = _describe(workdir, texts[RL], fitted, asked[RL])
    write_json(workdir / CROSSCODER_FILE, record)
    print(format_crosscoder(record))
    print(f"\nwritten: {workdir / CROSSCODER_FILE} and {write_report(workdir)}")


def _fit_all(
    texts: dict[str, CheckpointTexts],
    runs: dict[str, Path],
    settings: CrosscoderSettings,
    stop: StopSignal,
) -> dict[str, Fitted]:
    """Returns RL's crosscoder and the controls, by name, in the order of the table."""

    def fit(run: str, name: str, paths: Sequence[Path], **how: Any) -> list[Fitted]:
        directory = runs[run] / CROSSCODER_FILE.parent / name
        return fit_crosscoders(paths, directory, settings, stop=stop, **how)

    streams = {name: list(each.activations.values()) for name, each in texts.items()}
    both_seeds = fit(RL, "rl", streams[RL], num_seeds=2)
    fitted = dict(zip((RL, OTHER_SEED), both_seeds, strict=True))
    for half, name in enumerate(HALVES):
        (fitted[name],) = fit(RL, f"half_{half}", streams[RL], half=half)
    base = [streams[RL][0], texts[RL].noise]
    (fitted[BASE],) = fit(RL, "base", base)
    if RANDOM in texts:
        (fitted[RANDOM],) = fit(RANDOM, "rl", streams[RANDOM])
    return fitted


def _describe(
    workdir: Path,
    texts: CheckpointTexts,
    fitted: dict[str, Fitted],
    asked: dict[str, Any],
) -> dict[str, Any]:
    corpus = open_measured(list(texts.activations.values()))
    names = corpus.shards.index.problems
    rows = describe_latents(
        fitted[RL],
        list(texts.activations),
        bands={number: texts.bands[name] for number, name in enumerate(names)},
        others={OTHER_SEED: fitted[OTHER_SEED]},
    )
    quotes = quote_latents(fitted[RL].tsae, corpus, [row["latent"] for row in rows])
    first, second = (fitted[name] for name in HALVES)
    record = {
        "run": load_config(workdir / CONFIG_FILE, Config).name,
        "checkpoints": list(texts.activations),
        "settings": asked,
        "crosscoders": {name: describe_fit(each) for name, each in fitted.items()},
        "replicated": {
            f"{RL} by {OTHER_SEED}": count_replicated(fitted[RL], fitted[OTHER_SEED]),
            f"{HALVES[0]} by {HALVES[1]}": count_replicated(first, second),
        },
        "latents": [{**row, "contexts": quotes[row["latent"]]} for row in rows],
    }
    return to_plain_json(record)


def _choose_steps(workdir: Path, asked: Sequence[int]) -> list[int]:
    """Returns the steps in --steps, or the last one. Raises UsageError."""
    train = workdir / "checkpoints" / "train"
    if not (kept := checkpoint_steps(train)):
        raise UsageError(f"no checkpoint in {train}: RL has not begun")
    steps = sorted({*asked}) or kept[-1:]
    if missing := [step for step in steps if step not in kept]:
        raise UsageError(f"{train} has no step {missing[0]}; it has {kept}")
    return steps


def _choose_layer(workdir: Path, asked: int | None) -> int:
    config = load_config(workdir / CONFIG_FILE, Config)
    layers = config.model.num_layers
    if asked is None:
        return config.probe.layer if config.probe.enabled else layers // 2
    if not 0 <= asked < layers:
        raise UsageError(f"--layer={asked}; the policy has layers 0..{layers - 1}")
    return asked


def _check_settings(path: Path, asked: dict[str, Any]) -> None:
    """Records the settings. Raises UsageError if other settings were begun."""
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, asked)
        return
    begun = json.loads(path.read_text(encoding="utf-8"))
    changed = [name for name in asked if begun.get(name) != asked[name]]
    if changed:
        name = changed[0]
        raise UsageError(
            f"{path.parent} was begun with {name}={_flag(begun.get(name))}, not "
            f"{_flag(asked[name])}; use the old --{name}, or remove that directory"
        )


def _flag(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
