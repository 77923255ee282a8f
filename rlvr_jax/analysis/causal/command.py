"""The subcommand `causal`: edits latents while a checkpoint answers."""

import dataclasses
import gzip
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from job_jax.calls import CallError
from job_jax.checkpoint import CheckpointReadError
from job_jax.command import parse_command, run_command
from job_jax.files import write_atomically
from job_jax.flags import ConfigFlags, UsageError
from job_jax.schema import PositiveInt, did_you_mean
from rlvr_jax.analysis.causal.arms import check_before_edits, run_arms
from rlvr_jax.analysis.causal.contrasts import (
    MIN_DRAWS,
    arm_row,
    compute_contrasts,
    contrast_row,
)
from rlvr_jax.analysis.causal.summary import (
    describe_effects,
    draw_figure,
    format_latents,
    format_table,
    warn_of_few_draws,
)
from rlvr_jax.analysis.compare.rows import split_rows
from rlvr_jax.config import Config
from rlvr_jax.probe.intervene import (
    ArmResult,
    Calibration,
    EditArm,
    InterventionSpec,
    Mode,
    NullEditError,
    calibrate,
    load_fitting_sae,
    make_arms,
)
from rlvr_jax.probe.steering import Scope
from rlvr_jax.report.run_files import to_plain_json
from rlvr_jax.run.fetch import local_checkpoint
from rlvr_jax.run.load import LoadedPolicy, load_policy
from rlvr_jax.types import Problem

COMPLETIONS_DIR = "completions"

# Default strengths. sae_jax/edits.py explains the unit.
_DEFAULT_STRENGTHS: dict[Mode, tuple[float, ...]] = {
    "ablate": (0.5, 1.0),
    "clamp": (1.0, 2.0),
    "scale": (0.0, 0.5, 2.0),
    "add": (1.0, 2.0),
}

_USAGE = """\
usage: python -m rlvr_jax.analysis causal --config=FILE --checkpoint=DIR --sae=DIR
           --layer=N --latents=3,17 --out=DIR [--mode=ablate] [--strengths=0.5,1]

Lets a checkpoint answer the held-out problems of a config (eval.*) while latents of an
autoencoder are edited in the residual stream after a layer. Controls are random latents
that match in firing rate and in how far they move the stream, random directions, and a
null edit. All arms share problems and sampling keys. Prints one table and a sentence
for each strength. Writes DIR/causal.json, DIR/causal.svg, and the completions of every
arm in DIR/completions/.

--config and --checkpoint work as in rlvr_jax.evaluate. docs/lab/causal.md says how to
read the table.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CausalFlags(ConfigFlags):
    """The flags of this command."""

    checkpoint: str  # a run's workdir, or one of its checkpoints
    sae: str  # the autoencoder, in any format that sae_jax reads
    out: str  # the directory to write; it must not exist
    layer: int  # counted from 0
    latents: tuple[int, ...] = ()  # their numbers, such as 3,17
    separately: bool = False  # edit the latents one by one
    mode: Mode = "ablate"  # ablate|clamp|scale|add
    # ablate: the fraction taken away; scale: the factor; clamp, add: in means of the
    # latent where it fires. By default ablate 0.5,1; clamp 1,2; scale 0,0.5,2; add 1,2
    strengths: tuple[float, ...] = ()
    # draws of random latents, and of directions; claims need 19 or more
    num_controls: PositiveInt = 20
    # completion|predicting|everywhere: completion tokens only; with the prompt's last
    # token, which predicts the first of them; with the whole prompt
    scope: Scope = "completion"
    # the outcomes to test, such as pass@1; by default all, with less power for each
    outcomes: str = ""


def main(argv: Sequence[str]) -> int:
    """Returns the exit code: 0 done, 1 failed, 2 bad usage or config."""
    errors = (CallError, CheckpointReadError, NullEditError, OSError)
    return run_command(lambda: _run_command(argv), errors)


def _run_command(argv: Sequence[str]) -> None:
    flags, _, config = parse_command(argv, CausalFlags, usage=_USAGE, default=Config())
    out = Path(flags.out)
    check_before_edits(config, out)
    specs = [
        InterventionSpec(
            layer=flags.layer,
            latents=group,
            mode=flags.mode,
            strengths=flags.strengths or _DEFAULT_STRENGTHS[flags.mode],
            num_controls=flags.num_controls,
            scope=flags.scope,
        )
        for group in (
            [(i,) for i in flags.latents] if flags.separately else [flags.latents]
        )
    ]
    checkpoint = local_checkpoint(flags.checkpoint)
    with load_policy(config, checkpoint, stage="eval") as loaded:
        record = load_fitting_sae(
            flags.sae, loaded.setup.config, layer=flags.layer, latents=flags.latents
        )
        result, picture = run_experiment(
            loaded,
            record.tsae,
            specs,
            directory=out,
            outcomes=split_rows(flags.outcomes),
        )
    about = {
        "sae": {"path": flags.sae, **record.metadata},
        "policy": {"name": config.name, "step": loaded.step},
    }
    text = json.dumps(to_plain_json(about | result), indent=2, allow_nan=False)
    (out / "causal.json").write_text(text + "\n")
    (out / "causal.svg").write_text(picture)
    print(json.dumps({"causal": str(out)}))


def run_experiment(
    loaded: LoadedPolicy,
    tsae: Any,
    specs: Sequence[InterventionSpec],
    *,
    directory: Path,
    outcomes: Sequence[str] = (),
) -> tuple[dict[str, Any], str]:
    """Runs all interventions; returns their record, and the figure of the first.

    Prints the table and its sentences. Writes each arm's completions to `directory` as
    soon as the arm ends. False discovery is controlled over all interventions and
    outcomes together. Raises NullEditError if an edit with gain 0 changes a completion,
    and UsageError if an outcome is not measured.
    """
    config = loaded.setup.config
    problems = loaded.setup.problems("eval", config.eval.num_problems)
    calibration = calibrate(loaded, tsae, problems, layer=specs[0].layer)
    arms = [
        arm
        for i, spec in enumerate(specs)
        for arm in make_arms(spec, tsae, calibration, seed=config.seed + i)
    ]
    for warning in _warnings(specs, calibration):
        print(warning, file=sys.stderr)
    clean, *edited = _run_arms(
        loaded,
        problems,
        arms,
        scope=specs[0].scope,
        directory=directory,
        outcomes=outcomes,
    )
    contrasts = compute_contrasts(
        clean,
        edited,
        resamples=config.eval.bootstrap_resamples,
        seed=config.seed,
        outcomes=outcomes,
    )
    first = specs[0]
    sentences = describe_effects(contrasts) or ["no arm changed a tested outcome"]
    print(format_table(contrasts), "", *sentences, sep="\n")
    title = (
        f"{config.name}, step {loaded.step}: {first.mode} latents "
        f"{format_latents(first.latents)} after layer {first.layer} "
        f"({first.scope} tokens)"
    )
    return {
        "interventions": [vars(spec) for spec in specs],
        "problems": len(problems),
        "num_samples": config.eval.num_samples,
        "calibration": _calibration_record(specs, calibration),
        "clean": arm_row(clean, clean),
        "arms": [arm_row(result, clean) for result in edited],
        "contrasts": [contrast_row(contrast) for contrast in contrasts],
        "summary": sentences,
    }, draw_figure(contrasts, title=title, mode=first.mode, outcomes=outcomes)


def _run_arms(
    loaded: LoadedPolicy,
    problems: Sequence[Problem],
    arms: Sequence[EditArm],
    *,
    scope: Scope,
    directory: Path,
    outcomes: Sequence[str],
) -> list[ArmResult]:
    """Returns the results of the clean arm and of `arms`, and writes their texts."""

    def keep(number: int, result: ArmResult) -> ArmResult:
        if number == 0:
            _check_outcomes(outcomes, result)
        _write_completions(directory, number, result)
        return result

    runs = [(loaded, arm) for arm in (EditArm(kind="clean"), *arms)]
    return run_arms(runs, problems, scope=scope, name="causal", keep=keep)


def _check_outcomes(outcomes: Sequence[str], clean: ArmResult) -> None:
    """Raises UsageError if the clean arm did not measure an outcome."""
    for name in outcomes:
        if name not in clean.metrics:
            raise UsageError(
                f"--outcomes: {name!r} is not measured; there are "
                f"{', '.join(clean.metrics)}{did_you_mean(name, [*clean.metrics])}"
            )


def _write_completions(directory: Path, number: int, result: ArmResult) -> None:
    """Writes an arm's completions, a JSON line each, to completions/arm_NNNN.jsonl.gz.

    EditArm 0 is the clean one; arm i + 1 is arms[i] of causal.json.
    """
    file = directory / COMPLETIONS_DIR / f"arm_{number:04d}.jsonl.gz"
    file.parent.mkdir(parents=True, exist_ok=True)
    arm = result.arm
    about = {"arm": arm.kind, "strength": arm.strength, "draw": arm.control_index}
    with write_atomically(file) as partial, gzip.open(partial, "wt") as lines:
        for completion in result.graded:
            row = about | completion.to_json("eval", completion.weight_version)
            lines.write(json.dumps(row, ensure_ascii=False) + "\n")


def _warnings(specs: Sequence[InterventionSpec], calibration: Calibration) -> list[str]:
    """Returns warnings about dead latents and about too few controls."""
    latents = dict.fromkeys(i for spec in specs for i in spec.latents)
    dead = calibration.firing.select_dead(tuple(latents))
    num_controls = specs[0].num_controls
    return [
        f"warning: dead latents {list(dead)}: they fire on none of "
        f"{len(calibration.residuals)} clean tokens; ablate and scale do nothing to "
        "them, and clamp and add have no unit"
    ] * bool(dead) + [warn_of_few_draws(num_controls)] * (num_controls < MIN_DRAWS)


def _calibration_record(
    specs: Sequence[InterventionSpec], calibration: Calibration
) -> dict[str, Any]:
    latents = dict.fromkeys(i for spec in specs for i in spec.latents)
    return {
        "tokens": len(calibration.residuals),
        "rate": {i: float(calibration.firing.rate[i]) for i in latents},
        "unit": {i: float(calibration.firing.mean_when_active[i]) for i in latents},
        "dead": list(calibration.firing.select_dead(tuple(latents))),
    }
