"""The command between Hugging Face directories and checkpoints.

python -m rlvr_jax.convert from-hf DIR OUT
python -m rlvr_jax.convert to-hf CHECKPOINT OUT
python -m rlvr_jax.convert to-peft CHECKPOINT OUT
"""

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
from flax import nnx
from jax.sharding import SingleDeviceSharding

from job_jax.checkpoint import CheckpointReadError, StageCheckpoints, latest_step
from job_jax.command import UsageError, exit_code, load_config
from job_jax.config import CheckpointConfig
from rlvr_jax.config import Config, LoRAConfig
from rlvr_jax.models import Transformer, load_hf, lora, save_hf, save_peft
from rlvr_jax.models.huggingface import (
    CARRIED,
    abstract_hf,
    embedding_rows,
    stored_dtype,
)
from rlvr_jax.models.huggingface.families import Dtype
from rlvr_jax.models.huggingface.load import CONFIG, read_json
from rlvr_jax.restored import find_checkpoint
from rlvr_jax.tasks.finite_field import vocabulary
from rlvr_jax.tokenizer import open_tokenizer
from rlvr_jax.workdir import TOKENIZER_FILE

_USAGE = """\
usage: python -m rlvr_jax.convert from-hf DIR OUT
       python -m rlvr_jax.convert to-hf CHECKPOINT OUT
       python -m rlvr_jax.convert to-peft CHECKPOINT OUT

from-hf  DIR         a Hugging Face directory: config.json and safetensors
         OUT         a new directory: the checkpoint, as step 0, and in hf/ what goes
                     along with it (config, generation config, tokenizer);
                     bfloat16 if all weights are, else float32
to-hf    CHECKPOINT  what from-hf wrote, or a run's WORKDIR, one of its
                     WORKDIR/checkpoints/STAGE, or a step in that
         OUT         a new directory, which transformers loads, in the dtype of the
                     checkpoint; adapters are merged
to-peft  CHECKPOINT  of stage train, of a run with train.lora.rank
         OUT         a new directory: its adapters, which PEFT loads beside the policy
                     before RL (to-hf WORKDIR/checkpoints/warmup)
"""
_ALONG = "hf"


def main(argv: Sequence[str]) -> int:
    """Returns 0 when done, 1 where files cannot be read or written, 2 on bad usage."""
    return exit_code(lambda: _do(argv), (OSError, CheckpointReadError))


def _do(argv: Sequence[str]) -> None:
    if "--help" in argv:
        print(_USAGE)
        return
    commands = {"from-hf": _from_hf, "to-hf": _to_hf, "to-peft": _to_peft}
    if len(argv) != 3 or argv[0] not in commands:
        raise UsageError(
            "give from-hf DIR OUT or to-hf CHECKPOINT OUT or to-peft CHECKPOINT OUT, "
            f"not {argv}"
        )
    source, out = Path(argv[1]), Path(argv[2])
    if out.exists() and any(out.iterdir()):
        raise UsageError(f"{out} is not empty; give a new directory")
    commands[argv[0]](source, out)


def _from_hf(source: Path, out: Path) -> None:
    dtype = stored_dtype(source)
    policy = load_hf(source, dtype=dtype)
    with StageCheckpoints(out, CheckpointConfig()) as checkpoints:
        checkpoints.save(0, {"params": nnx.state(policy)}, {})
    (out / _ALONG).mkdir()
    for name in CARRIED:
        if (source / name).is_file():
            shutil.copyfile(source / name, out / _ALONG / name)
    settings = read_json(source / CONFIG) | {"torch_dtype": dtype}
    settings.pop("dtype", None)  # what newer checkpoints call it
    (out / _ALONG / CONFIG).write_text(json.dumps(settings, indent=2) + "\n")
    print(f"{out}: step 0")


def _to_hf(source: Path, out: Path) -> None:
    directory, step = find_checkpoint(source)
    policy, config = _described(directory)
    if config.rank:
        params = _merged(policy, config, directory, step)
    else:
        params = _read(directory, step, nnx.state(policy))
    save_hf(nnx.merge(nnx.graphdef(policy), params), out)
    print(f"{out}: step {step}")


def _to_peft(source: Path, out: Path) -> None:
    directory, step = find_checkpoint(source)
    policy, config = _described(directory)
    if not config.rank:
        raise UsageError(
            f"{directory} holds no adapters; give WORKDIR/checkpoints/train of a run "
            "with train.lora.rank, or use to-hf"
        )
    adapted = lora.adapted_shapes(*nnx.split(policy), config)
    params = _read(directory, step, nnx.state(adapted, lora.ADAPTERS))
    nnx.update(adapted, params)
    save_peft(adapted, out, config=config, base=policy.origin)
    print(f"{out}: step {step}")


def _read(directory: Path, step: int, like: Any) -> Any:
    """Returns parameters of a checkpoint, whole on one device."""
    one = SingleDeviceSharding(jax.devices()[0])

    def laid_out(leaf: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=one)

    with StageCheckpoints(directory) as checkpoints:
        return checkpoints.restore_params(step, jax.tree.map(laid_out, like))


def _merged(policy: Transformer, config: LoRAConfig, directory: Path, step: int) -> Any:
    """Returns the adapters of a checkpoint merged into the policy before RL."""
    warm = directory.resolve().parent / "warmup"
    before = latest_step(warm)
    if before is not None:
        base = _read(warm, before, nnx.state(policy))
    elif policy.origin:
        base = nnx.state(load_hf(policy.origin, dtype=policy.config.param_dtype))
    else:
        raise UsageError(
            f"no checkpoint in {warm}, and {directory} holds adapters alone; use "
            "to-peft"
        )
    graphdef, shapes = nnx.split(policy)
    like = nnx.state(lora.adapted_shapes(graphdef, shapes, config), lora.ADAPTERS)
    merge = jax.jit(
        lambda base, adapters: lora.merged(graphdef, base, adapters, config)
    )
    return merge(base, _read(directory, step, like))


def _described(directory: Path) -> tuple[Transformer, LoRAConfig]:
    """Returns the policy of a stage's checkpoints, abstract, and the adapters' config.

    That has rank 0 where the checkpoints hold no adapters.
    """
    if (directory / _ALONG).is_dir():
        along = directory / _ALONG
        kept = read_json(along / CONFIG).get("torch_dtype")
        dtype: Dtype = "bfloat16" if kept == "bfloat16" else "float32"
        return abstract_hf(along, dtype=dtype), LoRAConfig()
    workdir = directory.resolve().parents[1]
    config = load_config(workdir / "config.json", Config)
    task = config.task
    words = vocabulary(task.modulus) if task.kind == "finite_field" else ()
    tokenizer = open_tokenizer(
        config, words=words, texts=tuple, learnt_path=workdir / TOKENIZER_FILE
    )
    start = config.pretrained
    rows = embedding_rows(start) if start.path else tokenizer.vocab_size

    def new() -> Transformer:
        return Transformer(config.model, rows, nnx.Rngs(0), eos_ids=tokenizer.eos_ids)

    policy = nnx.eval_shape(new)
    policy.origin = start.path or None  # whose tokenizer and settings go along
    adapted = directory.resolve().name == "train"
    return policy, config.train.lora if adapted else LoRAConfig()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
