"""The subcommand `causal`: latents edited while a checkpoint answers."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags

from job_jax.checkpoint import CheckpointReadError
from job_jax.command import UsageError, command_flags, exit_code, read_command
from job_jax.metrics import Progress
from rlvr_jax.analysis.effects import (
    arm_row,
    contrast_row,
    contrasts,
    figure,
    named,
    table,
    words,
)
from rlvr_jax.causal import (
    MODES,
    Answered,
    Arm,
    Calibration,
    Question,
    answer,
    arms,
    calibrate,
    open_sae,
)
from rlvr_jax.config import Config
from rlvr_jax.restored import Restored, restored_policy

# Doses asked where none are given. The unit is explained in sae_jax/edits.py.
_DOSES = {
    "ablate": (0.5, 1.0),
    "clamp": (1.0, 2.0),
    "scale": (0.0, 0.5, 2.0),
    "add": (1.0, 2.0),
}

_USAGE = """\
usage: python -m rlvr_jax.analysis causal --config=FILE --checkpoint=DIR --sae=DIR
           --layer=N --latents=3,17 --out=DIR [--mode=ablate] [--doses=0.5,1]

Answers the held-out problems of a config (eval.*) with latents of an autoencoder edited
in the residual stream after a layer, and with controls: random latents matched in
firing rate and in the distance they move the stream, random directions, a sham. All
arms share problems and sampling keys. Prints one table, a sentence for each dose,
and what was written: DIR/causal.json and DIR/causal.svg.

--config and --checkpoint are read as rlvr_jax.evaluate reads them; how to read the
table is told in docs/causal.md.
"""


def main(argv: Sequence[str]) -> int:
    """Returns the exit code: 0 done, 1 failed, 2 bad usage or config."""
    return exit_code(lambda: _run(argv), (CheckpointReadError, OSError))


def _flags() -> flags.FlagValues:
    values = command_flags()
    for name, text in (
        ("checkpoint", "a run's workdir, or one of its checkpoints"),
        ("sae", "the autoencoder, of any format that sae_jax reads"),
        ("out", "the directory to write; it must not exist"),
    ):
        flags.DEFINE_string(name, None, text, flag_values=values)
    flags.DEFINE_integer("layer", None, "counted from 0", flag_values=values)
    flags.DEFINE_list("latents", [], "their numbers, such as 3,17", flag_values=values)
    flags.DEFINE_boolean(
        "separately", False, "edit the latents one by one", flag_values=values
    )
    flags.DEFINE_enum("mode", "ablate", MODES, "|".join(MODES), flag_values=values)
    flags.DEFINE_list(
        "doses",
        None,
        "ablate: the share taken away; scale: the factor; clamp, add: in means of the "
        "latent where it fires. By default "
        + "; ".join(f"{mode} {_listed(doses)}" for mode, doses in _DOSES.items()),
        flag_values=values,
    )
    flags.DEFINE_integer(
        "draws", 5, "of random latents, and of directions", 1, flag_values=values
    )
    flags.DEFINE_enum(
        "where",
        "completion",
        ("completion", "drawn", "everywhere"),
        "completion|drawn|everywhere: completion tokens alone; with the prompt's last, "
        "that the first is drawn from; with the prompt",
        flag_values=values,
    )
    return values


def _run(argv: Sequence[str]) -> None:
    values = _flags()
    _, config = read_command(argv, values, usage=_USAGE, default=Config())
    for name in ("checkpoint", "sae", "layer", "out"):
        if values[name].value is None:
            raise UsageError(f"--{name} is missing; see --help")
    out = Path(values.out)
    if out.exists():
        raise UsageError(f"--out={out} exists; remove it or name another")
    latents = tuple(_numbers(values.latents, int, "--latents"))
    doses = _DOSES[values.mode]
    if values.doses is not None:
        doses = tuple(_numbers(values.doses, float, "--doses"))
    questions = [
        Question(
            layer=values.layer,
            latents=asked,
            mode=values.mode,
            doses=doses,
            draws=values.draws,
            where=values.where,
        )
        for asked in ([(each,) for each in latents] if values.separately else [latents])
    ]
    with restored_policy(config, Path(values.checkpoint), stage="eval") as restored:
        record = open_sae(values.sae, config, layer=values.layer, latents=latents)
        result, picture = experiment(restored, record.tsae, questions)
    out.mkdir(parents=True)
    about = {
        "sae": {"path": values.sae, **record.metadata},
        "policy": {"name": config.name, "step": restored.step},
    }
    text = json.dumps(_plain(about | result), indent=2, allow_nan=False)
    (out / "causal.json").write_text(text + "\n")
    (out / "causal.svg").write_text(picture)
    print(json.dumps({"causal": str(out)}))


def experiment(
    restored: Restored, tsae: Any, questions: Sequence[Question]
) -> tuple[dict[str, Any], str]:
    """Returns the record of all questions, and the figure of the first; prints both.

    What is printed is the table and its sentences. False discovery is held in check
    over all questions together.
    """
    config = restored.run.config
    problems = restored.run.problems("eval", config.eval.problems)
    known = calibrate(restored, tsae, problems, layer=questions[0].layer)
    asked = [
        arm
        for number, question in enumerate(questions)
        for arm in arms(question, tsae, known, seed=config.seed + number)
    ]
    for warning in _warnings(questions, known):
        print(warning, file=sys.stderr)
    progress = Progress("causal", len(asked) + 1, every=1)
    done: list[Answered] = []
    for arm in (Arm(kind="clean"), *asked):
        done.append(answer(restored, problems, arm, where=questions[0].where))
        progress.update(len(done), {}, tokens=int((done[-1].tokens > 0).sum()))
    progress.close()
    clean, *edited = done
    found = contrasts(clean, edited, resamples=config.eval.bootstrap, seed=config.seed)
    first = questions[0]
    told = words(found)
    print(table(found), "", *told, sep="\n")
    title = (
        f"{config.name}, step {restored.step}: {first.mode} latents "
        f"{named(first.latents)} after layer {first.layer} ({first.where} tokens)"
    )
    return {
        "questions": [vars(question) for question in questions],
        "problems": len(problems),
        "samples_per_problem": config.eval.samples_per_problem,
        "calibration": _calibration(questions, known),
        "clean": arm_row(clean, clean),
        "arms": [arm_row(one, clean) for one in edited],
        "contrasts": [contrast_row(one) for one in found],
        "words": told,
    }, figure(found, title=title, mode=first.mode)


def _warnings(questions: Sequence[Question], known: Calibration) -> list[str]:
    """Returns a line on latents that no clean completion makes fire."""
    asked = dict.fromkeys(i for question in questions for i in question.latents)
    dead = known.firing.dead(tuple(asked))
    return [
        f"warning: dead latents {list(dead)}: they fire on none of "
        f"{len(known.streams)} clean tokens; to ablate or scale them does nothing, and "
        "clamp and add have no unit"
    ] * bool(dead)


def _calibration(questions: Sequence[Question], known: Calibration) -> dict[str, Any]:
    asked = dict.fromkeys(i for question in questions for i in question.latents)
    return {
        "tokens": len(known.streams),
        "rate": {i: float(known.firing.rate[i]) for i in asked},
        "unit": {i: float(known.firing.unit[i]) for i in asked},
        "dead": list(known.firing.dead(tuple(asked))),
    }


def _numbers(texts: Sequence[str], kind: Any, flag: str) -> list[Any]:
    try:
        return [kind(text) for text in texts]
    except ValueError as error:
        example = "3,17" if kind is int else "0.5,1"
        raise UsageError(
            f"{flag}={','.join(texts)}: write numbers, such as {example}"
        ) from error


def _listed(values: Sequence[float]) -> str:
    return ",".join(f"{value:g}" for value in values)


def _plain(value: Any) -> Any:
    """Returns the value as JSON has it: no NaN, no tuple keys, no NumPy."""
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (float, np.floating)):
        return float(value) if np.isfinite(value) else None
    return value
