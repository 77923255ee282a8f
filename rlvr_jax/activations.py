"""A policy's residual stream on its own completions, written for a dictionary to learn.

Also a command: `python -m rlvr_jax.activations --config --checkpoint --layer --out`.
"""

import functools
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags
from flax import nnx

from job_jax.checkpoint import CheckpointReadError
from job_jax.command import UsageError, command_flags, exit_code, read_command
from job_jax.metrics import Progress
from job_jax.processes import is_primary, on_host
from rlvr_jax.config import Config
from rlvr_jax.data.loader import encode_prompts
from rlvr_jax.models import Transformer
from rlvr_jax.models.distribution import Sampling
from rlvr_jax.restored import Restored, restored_policy
from rlvr_jax.run import Run
from rlvr_jax.sampler import sample
from rlvr_jax.tasks.chains import parse_prompt
from rlvr_jax.tasks.traces import FACTORS, UNKNOWN, read_factors
from rlvr_jax.types import Problem, Prompts, Rollouts
from sae_jax.shards import ShardWriter

ROLES = ("prompt", "response")


def write_activations(
    restored: Restored, directory: Path, *, layer: int, sequences: int, dtype: str
) -> int:
    """Returns how many tokens were written: those of `sequences` train problems.

    Each problem is answered once, under the sampling of RL; `layer` counts from 0.
    Raises ConfigError or UsageError before work starts.
    """
    run, config = restored.run, restored.run.config
    if not 0 <= layer < config.model.layers:
        raise UsageError(
            f"--layer={layer}; the policy has layers 0..{config.model.layers - 1}"
        )
    problems = run.problems("train", sequences)
    progress = Progress("activations", len(problems), every=1)
    done = tokens = 0
    name = f"{config.name}, step {restored.step}"
    with writer(run, directory, layer=layer, model=name, dtype=dtype) as shards:
        for batch in batches(problems, config.eval.batch_size):
            rollouts = _rolled_out(restored, batch)
            asked = batch[: len(problems) - done]
            tokens += add_sequences(
                run, shards, asked, rollouts, params=restored.params, layer=layer
            )
            done += len(asked)
            progress.update(done, {}, tokens=tokens)
    progress.close()
    return tokens


def writer(
    run: Run, directory: Path, *, layer: int, model: str, dtype: str
) -> AbstractContextManager[ShardWriter | None]:
    """Returns a writer of the stream after a layer of the run's policy.

    Of several processes the first one has it, the others None.
    """
    if not is_primary():
        return nullcontext()
    is_world = run.config.task.kind == "finite_field"
    return ShardWriter(
        directory,
        width=run.config.model.width,
        layer=layer,
        hook=f"blocks.{layer}.hook_resid_post",
        model=model,
        roles=ROLES,
        factors=FACTORS if is_world else (),
        dtype=dtype,
    )


def add_sequences(
    run: Run,
    shards: ShardWriter | None,
    problems: Sequence[Problem],
    rollouts: Rollouts,
    *,
    params: Any,
    layer: int,
) -> int:
    """Writes the problems' completions (in NumPy); returns how many tokens they have.

    A sequence is the prompt and one completion, its end-of-sequence token (special)
    included. In the finite-field world every response token carries its factors.
    """
    prompts, completions = run.place((rollouts.prompts, rollouts.tokens))
    streams = on_host(_streams(run.graphdef, params, prompts, completions, layer=layer))
    G = len(rollouts.lengths) // len(rollouts.prompts.lengths)
    tokens = 0
    for b in range(len(problems) * G):
        row = _row(rollouts, streams, b, prompt=b // G)
        tokens += len(row["roles"])
        if shards is None:
            continue
        labels = _factors(run, problems[b // G], **row)
        eos = (row["token_ids"] == run.tokenizer.eos_id) & (row["roles"] == 1)
        shards.add(**row, special=eos, factors=labels)
    return tokens


def batches(problems: Sequence[Problem], size: int) -> Iterator[list[Problem]]:
    """Yields equal batches; the last is filled up with the first problem."""
    for start in range(0, len(problems), size):
        part = list(problems[start : start + size])
        yield part + [problems[0]] * (size - len(part))


def _rolled_out(restored: Restored, problems: Sequence[Problem]) -> Rollouts:
    """Returns one completion a problem, in NumPy."""
    run, params, step = restored
    config = run.config
    rollouts = sample(
        run.graphdef,
        params,
        run.place(encode_prompts(problems, run.tokenizer, bucket=config.prompt_bucket)),
        run.replicate(Sampling.of(config.train.sampling)),
        key=run.key("train"),
        weight_version=np.int32(step),
        samples_per_prompt=1,
        max_new_tokens=config.train.sampling.max_new_tokens,
    )
    return jax.device_get(rollouts)


@functools.partial(jax.jit, static_argnames=("graphdef", "layer"))
def _streams(
    graphdef: Any,
    params: Any,
    prompts: Prompts,
    tokens_BT: jax.Array,
    *,
    layer: int,
) -> tuple[jax.Array, jax.Array]:
    """Returns the residual stream after a layer: prompts [P, S, D], rest [B, T, D]."""
    policy: Transformer = nnx.merge(graphdef, params)
    layers = policy.layers()
    index_S = jnp.arange(prompts.tokens.shape[1], dtype=jnp.int32)
    mask_PS = index_S[None] < prompts.lengths[:, None]
    prompt, prefix = policy.prefill(
        prompts.tokens, mask_PS, layers=layers, taps=(layer,)
    )
    rest = policy.extend(tokens_BT, prefix, layers=layers, taps=(layer,))
    return prompt.taps[0], rest.taps[0]


def _row(
    rollouts: Rollouts,
    streams: tuple[np.ndarray, np.ndarray],
    row: int,
    *,
    prompt: int,
) -> dict[str, Any]:
    """Returns one sequence as the writer wants it: padding left out."""
    S, T = int(rollouts.prompts.lengths[prompt]), int(rollouts.lengths[row])
    return {
        "activations": np.concatenate([streams[0][prompt, :S], streams[1][row, :T]]),
        "token_ids": np.concatenate(
            [rollouts.prompts.tokens[prompt, :S], rollouts.tokens[row, :T]]
        ),
        "roles": np.repeat(np.arange(len(ROLES)), [S, T]),
    }


def _factors(
    run: Run, problem: Problem, *, token_ids: np.ndarray, roles: np.ndarray, **_: Any
) -> dict[str, np.ndarray]:
    """Returns what is known of each token of a sequence, {} where nothing can be.

    In the finite-field world a token is a word; of prompts nothing is known.
    """
    task = run.config.task
    if task.kind != "finite_field":
        return {}
    words = [run.tokenizer.decode([token]) for token in token_ids[roles == 1].tolist()]
    symbols = parse_prompt(problem.prompt, modulus=task.modulus).symbols
    unknown = np.full(int((roles == 0).sum()), UNKNOWN)
    return {
        name: np.concatenate([unknown, values])
        for name, values in read_factors(words, symbols).items()
    }


_USAGE = """\
usage: python -m rlvr_jax.activations --config=FILE --checkpoint=DIR --layer=N --out=DIR

Writes the residual stream after a layer, on the policy's own completions of its train
problems, in the format of sae_jax.shards: `python -m sae_jax.train` learns from it.
FILE may be WORKDIR/config.json; --checkpoint is read as rlvr_jax.evaluate reads it.
"""


def main(argv: Sequence[str]) -> int:
    """Returns the exit code: 0 done, 1 failed, 2 bad usage or config."""
    return exit_code(lambda: _write(argv), (CheckpointReadError, OSError))


def _write(argv: Sequence[str]) -> None:
    values = command_flags()
    for name, text in (
        ("checkpoint", "a run's workdir, or one of its checkpoints"),
        ("out", "the directory to write; it must not exist"),
    ):
        flags.DEFINE_string(name, None, text, flag_values=values)
    flags.DEFINE_integer("layer", None, "counted from 0", flag_values=values)
    flags.DEFINE_integer(
        "sequences", 4096, "problems to answer, once each", 1, flag_values=values
    )
    flags.DEFINE_enum(
        "dtype",
        "bfloat16",
        ("float32", "float16", "bfloat16"),
        "of the rows on disk",
        flag_values=values,
    )
    _, config = read_command(argv, values, usage=_USAGE, default=Config())
    for name in ("checkpoint", "out", "layer"):
        if values[name].value is None:
            raise UsageError(f"--{name} is missing; see --help")
    out = Path(values.out)
    if out.exists():
        raise UsageError(f"--out={out} exists; remove it or name another")
    with restored_policy(config, Path(values.checkpoint), stage="train") as restored:
        tokens = write_activations(
            restored,
            out,
            layer=values.layer,
            sequences=values.sequences,
            dtype=values.dtype,
        )
    print(json.dumps({"activations": str(out), "tokens": tokens}))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
