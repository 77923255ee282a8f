"""The command `python -m rlvr_jax.generate`: texts, as they are and steered."""

import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from absl import flags

from job_jax.checkpoint import CheckpointReadError
from job_jax.command import (
    UsageError,
    check_output_file,
    define_config_flags,
    parse_command,
    run_command,
)
from job_jax.files import write_atomically
from rlvr_jax.config import Config
from rlvr_jax.probe.intervene import MODES, NullEditError, load_fitting_sae
from rlvr_jax.probe.steering import SCOPES, SteerablePolicy, WrittenText
from rlvr_jax.run.fetch import local_checkpoint
from rlvr_jax.run.load import LoadedPolicy, load_policy
from rlvr_jax.types import Problem

_USAGE = """\
usage: python -m rlvr_jax.generate --config=FILE --checkpoint=DIR [--prompts=FILE]
           [--sae=DIR[,...] --layers=N[,...] --steer=LATENT:STRENGTH[,...]]

Prints what a checkpoint writes: on the prompts of a file, one a line and read as they
stand, or on the first held-out problems of the config. With --steer it writes each text
twice, with the same sampling keys: as it is, and with latents of an autoencoder changed
in the residual stream; KL says how far the words moved, in nats a token. Before that,
the same edit with gain 0 must write the clean texts, token for token.

--layers and --sae go together, one autoencoder a layer. With several layers each latent
names its own: --steer=2/382:1.5,5/17:-1. Strengths are told in docs/causal.md; samples,
tokens and temperature are the config's (--config.eval.num_samples,
--config.eval.sampling.*). --checkpoint is read as rlvr_jax.evaluate reads it.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Steering:
    """The latents to change after one layer."""

    layer: int
    sae: str
    strengths: dict[int, float]


def main(argv: Sequence[str]) -> int:
    """Returns the exit code: 0 done, 1 failed, 2 bad usage or config."""
    errors = (CheckpointReadError, NullEditError, OSError)
    return run_command(lambda: _run_command(argv), errors)


def _define_flags() -> flags.FlagValues:
    values = define_config_flags()
    for name, text in (
        (
            "checkpoint",
            "a run's workdir, one of its checkpoints, or a Hugging Face one",
        ),
        ("prompts", "a text file with a prompt on each line"),
        ("out", "a .jsonl file to write the texts to"),
    ):
        flags.DEFINE_string(name, None, text, flag_values=values)
    flags.DEFINE_integer(
        "first",
        4,
        "held-out problems, where no prompts are given",
        1,
        flag_values=values,
    )
    for name, text in (
        ("sae", "autoencoders, of any format that sae_jax reads"),
        ("layers", "the layer of each, counted from 0"),
        ("steer", "latents with their strengths, such as 382:1.5,17:-1"),
    ):
        flags.DEFINE_list(name, [], text, flag_values=values)
    flags.DEFINE_enum("mode", "add", MODES, "|".join(MODES), flag_values=values)
    flags.DEFINE_enum(
        "scope", "completion", SCOPES, "|".join(SCOPES), flag_values=values
    )
    return values


def _run_command(argv: Sequence[str]) -> None:
    values = _define_flags()
    _, config = parse_command(
        argv, values, usage=_USAGE, default=Config(), find_faults=_find_faults
    )
    if config.environment.enabled:
        raise UsageError(
            "texts are of one turn, and environment.name="
            f"{config.environment.tags()['name']} makes episodes; add "
            "--config.environment.name=none"
        )
    out = check_output_file(Path(values.out), (".jsonl",)) if values.out else None
    prompts = _read_prompts(Path(values.prompts)) if values.prompts else None
    steering = _parse_steering(values)
    with load_policy(
        config, local_checkpoint(values.checkpoint), stage="eval"
    ) as policy:
        asked = prompts or policy.setup.problems("eval", values.first)
        rows = _write_texts(policy, asked, steering, values)
    _print_rows(rows)
    if out:
        with write_atomically(out) as partial:
            partial.write_text("".join(json.dumps(row) + "\n" for row in rows))
        print(json.dumps({"texts": str(out)}))


def _find_faults(values: flags.FlagValues) -> Iterator[str]:
    """Yields what is wrong with the flags, each in a line."""
    if not values.checkpoint:
        yield "--checkpoint=DIR is missing; see --help"
    if values.prompts and values["first"].present:
        yield "--first counts held-out problems, and --prompts gives others; leave one"
    given = [name for name in ("sae", "layers", "steer") if values[name].value]
    for name in ("mode", "scope"):
        if values[name].present and not values.steer:
            yield f"--{name} is of --steer, which names no latent"
    if 0 < len(given) < 3:
        missing = {"sae", "layers", "steer"} - {*given}
        yield f"--{given[0]} needs {' and '.join(f'--{m}' for m in sorted(missing))}"
    elif len(values.sae) != len(values.layers):
        yield (
            f"--sae names {len(values.sae)} autoencoders and --layers "
            f"{len(values.layers)} layers; give one autoencoder a layer"
        )


def _read_prompts(path: Path) -> list[str]:
    if not path.is_file():
        raise UsageError(f"--prompts={path}: there is no such file")
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise UsageError(f"--prompts={path} is no UTF-8 text: {error}") from error
    prompts = [line for line in lines if line.strip()]
    if not prompts:
        raise UsageError(f"--prompts={path} holds no prompt; write one on each line")
    return prompts


def _parse_steering(values: flags.FlagValues) -> list[_Steering]:
    """Returns what to change after each layer. Raises UsageError."""
    if not values.steer:
        return []
    try:
        layers = [int(layer) for layer in values.layers]
    except ValueError as error:
        raise UsageError(
            f"--layers={','.join(values.layers)}: write numbers, such as 2 or 2,5"
        ) from error
    strengths: dict[int, dict[int, float]] = {layer: {} for layer in layers}
    if len(strengths) < len(layers):
        raise UsageError(f"--layers={','.join(values.layers)} names one of them twice")
    for item in values.steer:
        layer, latent, strength = _parse_item(item, layers)
        if latent in strengths[layer]:
            raise UsageError(f"--steer names latent {latent} of layer {layer} twice")
        strengths[layer][latent] = strength
    unused = [layer for layer, changed in strengths.items() if not changed]
    if unused:
        raise UsageError(f"--steer names no latent of layer {unused[0]}")
    return [
        _Steering(layer=layer, sae=sae, strengths=strengths[layer])
        for layer, sae in zip(layers, values.sae, strict=True)
    ]


def _parse_item(item: str, layers: Sequence[int]) -> tuple[int, int, float]:
    """Returns layer, latent and strength of "382:1.5" or "2/382:1.5"."""
    where, _, strength = item.partition(":")
    layer, slash, latent = where.rpartition("/")
    try:
        found = int(layer) if slash else layers[0], int(latent), float(strength)
    except ValueError as error:
        raise UsageError(
            f"--steer={item}: write latent:strength, such as 382:1.5, or "
            "layer/latent:strength"
        ) from error
    if (not slash and len(layers) > 1) or found[0] not in layers:
        raise UsageError(
            f"--steer={item}: say which of the layers {','.join(map(str, layers))}, "
            f"such as {layers[-1]}/{item.rpartition('/')[2]}"
        )
    return found


def _write_texts(
    loaded: LoadedPolicy,
    asked: Sequence[str | Problem],
    steering: Sequence[_Steering],
    values: flags.FlagValues,
) -> list[dict[str, Any]]:
    """Returns a row a completion: prompt, clean text, and the steered one."""
    policy = SteerablePolicy(loaded)
    edits = [
        policy.change_latents(
            load_fitting_sae(
                each.sae,
                loaded.setup.config,
                layer=each.layer,
                latents=tuple(each.strengths),
            ).tsae,
            layer=each.layer,
            strengths=each.strengths,
            mode=values.mode,
        )
        for each in steering
    ]
    clean = policy.generate(asked)
    if not edits:
        return [{"prompt": text.prompt, "clean": _describe(text)} for text in clean]
    policy.check_sham(asked, *edits, scope=values.scope)
    with policy.steer(*edits, scope=values.scope):
        steered = policy.generate(asked)
    about = {
        "mode": values.mode,
        "scope": values.scope,
        "latents": [dataclasses.asdict(each) for each in steering],
    }
    return [
        {
            "prompt": before.prompt,
            "clean": _describe(before),
            "steered": _describe(after) | {"kl": after.kl},
            "steering": about,
        }
        for before, after in zip(clean, steered, strict=True)
    ]


def _describe(text: WrittenText) -> dict[str, Any]:
    return {
        "text": text.completion,
        "tokens": len(text.token_ids),
        "finished": text.finished,
    }


def _print_rows(rows: Sequence[dict[str, Any]]) -> None:
    asked = None
    for row in rows:
        if row["prompt"] != asked:
            asked = row["prompt"]
            print(f"\nprompt: {asked}")
        print(f"  clean:   {row['clean']['text']}")
        if "steered" in row:
            print(f"  steered: {row['steered']['text']}")
            print(f"           KL {row['steered']['kl']:.4f} nats a token")
    if any("steered" in row for row in rows):
        tokens = sum(row["steered"]["tokens"] for row in rows)
        total = sum(row["steered"]["kl"] * row["steered"]["tokens"] for row in rows)
        changed = sum(row["steered"]["text"] != row["clean"]["text"] for row in rows)
        print(
            f"\n{changed} of {len(rows)} texts changed, "
            f"KL {total / max(tokens, 1):.4f} nats a token; "
            "with gain 0 all are the clean ones"
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
