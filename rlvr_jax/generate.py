"""The command `python -m rlvr_jax.generate`: texts, as they are and steered."""

import contextlib
import dataclasses
import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from job_jax.checkpoint import CheckpointReadError
from job_jax.command import check_output_file, load_config, parse_command, run_command
from job_jax.files import write_atomically
from job_jax.flags import Repeated, UsageError
from job_jax.schema import NonNegativeFloat, PositiveInt, UnitInterval
from job_jax.working import NARRATOR, working
from rlvr_jax.config import Config
from rlvr_jax.models.huggingface.config import is_hf_directory
from rlvr_jax.probe.intervene import Mode, NullEditError, load_fitting_sae
from rlvr_jax.probe.steering import Scope, SteerablePolicy, WrittenText
from rlvr_jax.probe.steering_flags import (
    LatentStrengths,
    SteeringFlags,
    parse_steering,
)
from rlvr_jax.run.fetch import local_checkpoint
from rlvr_jax.run.load import LoadedPolicy, load_policy, workdir_of
from rlvr_jax.run.prompts import (
    has_chat_template,
    prompts_config,
    read_prompts,
    read_sampling,
)
from rlvr_jax.tasks.prompts import PromptsTask
from rlvr_jax.types import Problem

_USAGE = """\
usage: python -m rlvr_jax.generate --checkpoint=DIR --prompt=TEXT [--prompt=TEXT ...]
       python -m rlvr_jax.generate --checkpoint=DIR [--config=FILE] [--prompts=FILE]
           [--sae=DIR[,...] --layers=N[,...] --steer=LATENT:STRENGTH[,...]]

Prints the texts that a model writes, each as soon as it is done.

A Hugging Face directory needs no recipe. A prompt becomes a user's message in the
tokenizer's chat template; with --raw the model reads it unchanged. Temperature, top-p,
top-k and the number of tokens come from generation_config.json. If it says nothing,
texts are greedy and have at most 128 tokens.

For a run's checkpoint the recipe is --config, by default the run's own. It sets the
samples, tokens and temperature (eval.num_samples, eval.sampling.*), and the model reads
prompts unchanged. Without --prompt or --prompts it answers the first held-out problems.
--checkpoint is as for rlvr_jax.evaluate. The flags for sampling override all of this.

With --steer each text is written twice, with the same sampling keys: as it is, and with
latents of an autoencoder changed in the residual stream. KL says how far the words
moved, in nats a token. Before that, the same edit with gain 0 must write the clean
texts, token for token. --layers and --sae go together, one autoencoder a layer. With
several layers each latent names its own: --steer=2/382:1.5,5/17:-1. docs/lab/causal.md
explains the strengths.
"""
_PROMPTS_AT_ONCE = 16  # on an accelerator; a CPU takes one, so the first text is soon
_PAD_MULTIPLE = 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class GenerateFlags(SteeringFlags):
    """The flags of this command."""

    # a run's workdir, one of its checkpoints, or a Hugging Face directory
    checkpoint: str
    prompts: str = ""  # a text file with a prompt on each line
    out: str = ""  # a .jsonl file to write the texts to
    prompt: Repeated = ()  # a prompt; may be given several times
    raw: bool = False  # for a Hugging Face directory: leave out its chat template
    max_new_tokens: PositiveInt | None = None  # most tokens of a text
    num_samples: PositiveInt | None = None  # texts for each prompt
    temperature: NonNegativeFloat | None = None  # 0: greedy
    top_p: UnitInterval | None = None  # 1: off
    seed: int | None = None  # seed of the sampling
    first: PositiveInt = 4  # without prompts: how many held-out problems to answer
    mode: Mode = "add"  # how an edit changes the stream
    scope: Scope = "completion"  # which tokens it changes


def main(argv: Sequence[str]) -> int:
    """Returns the exit code: 0 done, 1 failed, 2 bad usage or config."""
    errors = (CheckpointReadError, NullEditError, OSError)
    return run_command(lambda: _run_command(argv), errors)


def _run_command(argv: Sequence[str]) -> None:
    flags, _, config = parse_command(
        argv,
        GenerateFlags,
        usage=_USAGE,
        default=Config(),
        find_faults=_find_faults,
        needs_config=False,
    )
    out = check_output_file(Path(flags.out), (".jsonl",)) if flags.out else None
    texts = read_prompts(Path(flags.prompts)) if flags.prompts else flags.prompt
    steering = parse_steering(flags)
    rows: list[dict[str, Any]] = []
    with working("generate"), _open_policy(config, texts, flags) as opened:
        asked = _choose_problems(opened, texts, flags)
        policy = _fit_batches(opened, asked, is_steered=bool(steering))
        written = {each.prompt: text for each, text in zip(asked, texts, strict=False)}
        for row in _write_texts(policy, asked, steering, flags):
            row["prompt"] = written.get(row["prompt"], row["prompt"])
            _print_row(row, is_new=not rows or rows[-1]["prompt"] != row["prompt"])
            NARRATOR.note_line()
            rows.append(row)
    _print_summary(rows)
    if out:
        with write_atomically(out) as partial:
            partial.write_text("".join(json.dumps(row) + "\n" for row in rows))
        print(json.dumps({"texts": str(out)}))


@contextlib.contextmanager
def _open_policy(
    config: Config, texts: Sequence[str], flags: GenerateFlags
) -> Iterator[LoadedPolicy]:
    """Yields the policy; flags for sampling override its config."""
    path = local_checkpoint(flags.checkpoint)
    if not flags.config and is_hf_directory(path):
        config = _config_of_directory(path, texts, flags)
    else:
        if not flags.config:
            config = load_config(workdir_of(path) / "config.json", Config)
        config = _override_settings(config, flags)
    if config.environment.enabled:
        raise UsageError(
            "this command writes texts of one turn, and environment.name="
            f"{config.environment.tags()['name']} makes episodes; add "
            "--config.environment.name=none"
        )
    with load_policy(config, path, stage="eval", grades=False) as policy:
        if isinstance(config.task, PromptsTask):
            _check_room(policy, policy.setup.too_long["eval"], len(texts))
        yield policy


def _check_room(policy: LoadedPolicy, num_long: int, num_texts: int) -> None:
    """Raises UsageError if any prompt is too long."""
    config = policy.setup.config
    if num_long:
        raise UsageError(
            f"{num_long} of {num_texts} prompts leave no room for "
            f"{config.eval.sampling.max_new_tokens} new tokens in the "
            f"{config.model.max_seq_len} that the model reads; shorten them, or lower "
            "--max_new_tokens"
        )


def _config_of_directory(
    path: Path, texts: Sequence[str], flags: GenerateFlags
) -> Config:
    """Returns the config for a Hugging Face directory; prints its settings."""
    if not texts:
        raise UsageError(
            f"{path} has no problems to answer; add --prompt=TEXT or --prompts=FILE"
        )
    is_chat = has_chat_template(path) and not flags.raw
    config = prompts_config(
        path,
        texts,
        sampling=read_sampling(path) | _given_sampling(flags),
        num_samples=flags.num_samples or 1,
        seed=flags.seed or 0,
        is_chat=is_chat,
    )
    drawn = config.eval.sampling
    settings = [
        "chat template" if is_chat else "no chat template",
        f"temperature {drawn.temperature:g}" if drawn.temperature else "greedy",
        *([f"top-p {drawn.top_p:g}"] if drawn.top_p < 1 else []),
        *([f"top-k {drawn.top_k}"] if drawn.top_k else []),
        f"at most {drawn.max_new_tokens} tokens",
        *([f"seed {config.seed}"] if drawn.temperature else []),
    ]
    print(f"{path}: {', '.join(settings)}", file=sys.stderr)
    return config


def _given_sampling(flags: GenerateFlags) -> dict[str, Any]:
    asked = {
        "max_new_tokens": flags.max_new_tokens,
        "temperature": flags.temperature,
        "top_p": flags.top_p,
    }
    return {name: value for name, value in asked.items() if value is not None}


def _override_settings(config: Config, flags: GenerateFlags) -> Config:
    """Returns the recipe with the flags' settings, on as few CPU devices as fit it."""
    sampling = dataclasses.replace(config.eval.sampling, **_given_sampling(flags))
    default = config.eval.num_samples if sampling.temperature else 1
    num_samples = flags.num_samples or default
    seed = config.seed if flags.seed is None else flags.seed
    mesh = config.mesh
    if mesh.cpu_devices == mesh.data == -1 and not config.sampler.tensor_parallel:
        mesh = dataclasses.replace(mesh, cpu_devices=mesh.fsdp * mesh.tensor)
    return dataclasses.replace(
        config,
        seed=seed,
        mesh=mesh,
        eval=dataclasses.replace(
            config.eval, sampling=sampling, num_samples=num_samples, k=()
        ),
    )


def _choose_problems(
    policy: LoadedPolicy, texts: Sequence[str], flags: GenerateFlags
) -> list[Problem]:
    """Returns the prompts as problems, or the first held-out ones."""
    setup = policy.setup
    if isinstance(setup.config.task, PromptsTask):
        return setup.problems("eval", len(texts))
    if texts:
        return PromptsTask(texts=tuple(texts)).problems("eval", seed=0)
    return setup.problems("eval", flags.first)


def _fit_batches(
    policy: LoadedPolicy, asked: Sequence[Problem], *, is_steered: bool
) -> LoadedPolicy:
    """Returns the policy with batches no larger than these prompts need.

    All prompts are padded to one length, so one program serves every batch. On a CPU a
    batch is one prompt, whose texts can be shown while the next ones are written; but
    steering reads all of them first.
    """
    setup, config = policy.setup, policy.setup.config
    shards = math.lcm(
        *(
            mesh.shape["data"] * mesh.shape["fsdp"]
            for mesh in (setup.mesh, setup.sampler_layout.mesh)
        )
    )
    is_cpu = setup.mesh.devices.flat[0].platform == "cpu"
    at_once = 1 if is_cpu else _PROMPTS_AT_ONCE
    if is_steered:
        at_once = max(len(asked), len(setup.problems("eval", config.eval.num_problems)))
    size = min(config.eval.batch_size, -(-at_once // shards) * shards)
    encode = setup.tokenizer.encode_prompt
    lengths = [len(encode(problem.prompt)) for problem in asked]
    room = config.model.max_seq_len - config.eval.sampling.max_new_tokens
    _check_room(policy, sum(length > room for length in lengths), len(asked))
    padded = -(-max(lengths) // _PAD_MULTIPLE) * _PAD_MULTIPLE
    fitted = dataclasses.replace(
        config,
        eval=dataclasses.replace(config.eval, batch_size=size),
        prompt_pad_multiple=max(config.prompt_pad_multiple, padded),
    )
    return policy._replace(setup=dataclasses.replace(setup, config=fitted))


def _find_faults(flags: GenerateFlags) -> Iterator[str]:
    """Yields the faults of the flags, one line each."""
    if flags.prompt and flags.prompts:
        yield "--prompt and --prompts both give prompts; leave one"
    if (flags.prompt or flags.prompts) and "first" in flags.stated:
        name = "prompt" if flags.prompt else "prompts"
        yield f"--first counts held-out problems, and --{name} gives others; leave one"
    if flags.raw and flags.config:
        yield "--raw is for a Hugging Face directory without --config; leave one"
    given = [name for name in ("sae", "layers", "steer") if vars(flags)[name]]
    for name in ("mode", "scope"):
        if name in flags.stated and not flags.steer:
            yield f"--{name} needs --steer, with the latents to change"
    if 0 < len(given) < 3:
        missing = {"sae", "layers", "steer"} - {*given}
        yield f"--{given[0]} needs {' and '.join(f'--{m}' for m in sorted(missing))}"
    elif len(flags.sae) != len(flags.layers):
        yield (
            f"--sae names {len(flags.sae)} autoencoders and --layers "
            f"{len(flags.layers)} layers; give one autoencoder a layer"
        )


def _write_texts(
    loaded: LoadedPolicy,
    asked: Sequence[Problem],
    steering: Sequence[LatentStrengths],
    flags: GenerateFlags,
) -> Iterator[dict[str, Any]]:
    """Yields a row for each completion: prompt, clean text, and the steered one."""
    policy = SteerablePolicy(loaded)
    with working("measuring how strongly the latents fire"):
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
                mode=flags.mode,
            )
            for each in steering
        ]
    if edits:
        with working("checking edits of gain 0"):
            policy.check_sham(asked, *edits, scope=flags.scope)
    size = loaded.setup.config.eval.batch_size
    about = {
        "mode": flags.mode,
        "scope": flags.scope,
        "latents": [dataclasses.asdict(each) for each in steering],
    }
    for start in range(0, len(asked), size):
        batch = asked[start : start + size]
        clean = policy.generate(batch)
        if not edits:
            for text in clean:
                yield {"prompt": text.prompt, "clean": _describe(text)}
            continue
        with policy.steer(*edits, scope=flags.scope):
            steered = policy.generate(batch)
        for before, after in zip(clean, steered, strict=True):
            yield {
                "prompt": before.prompt,
                "clean": _describe(before),
                "steered": _describe(after) | {"kl": after.kl},
                "steering": about,
            }


def _describe(text: WrittenText) -> dict[str, Any]:
    return {
        "text": text.completion,
        "tokens": len(text.token_ids),
        "finished": text.finished,
    }


def _print_row(row: dict[str, Any], *, is_new: bool) -> None:
    if is_new:
        print(f"\nprompt: {row['prompt']}")
    print(f"  clean:   {row['clean']['text']}", flush=True)
    if "steered" in row:
        print(f"  steered: {row['steered']['text']}")
        print(f"           KL {row['steered']['kl']:.4f} nats a token", flush=True)


def _print_summary(rows: Sequence[dict[str, Any]]) -> None:
    """Prints how many texts the steering changed; nothing without steering."""
    if not any("steered" in row for row in rows):
        return
    tokens = sum(row["steered"]["tokens"] for row in rows)
    total = sum(row["steered"]["kl"] * row["steered"]["tokens"] for row in rows)
    changed = sum(row["steered"]["text"] != row["clean"]["text"] for row in rows)
    print(
        f"\n{changed} of {len(rows)} texts changed, "
        f"KL {total / max(tokens, 1):.4f} nats a token; "
        "with gain 0 all equal the clean ones"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
