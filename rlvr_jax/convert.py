"""The command between Hugging Face directories and checkpoints.

python -m rlvr_jax.convert from-hf DIR OUT
python -m rlvr_jax.convert to-hf CHECKPOINT OUT
python -m rlvr_jax.convert to-peft CHECKPOINT OUT
python -m rlvr_jax.convert from-gguf FILE OUT [--dtype=bfloat16]
"""

import dataclasses
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from flax import nnx

from job_jax.checkpoint import CheckpointReadError, StageCheckpoints
from job_jax.command import run_command
from job_jax.config import CheckpointConfig
from job_jax.flags import Flags, UsageError, parse_flags
from job_jax.schema import did_you_mean
from job_jax.working import working
from rlvr_jax.models import load_hf, save_hf, save_peft
from rlvr_jax.models.gguf import convert_gguf
from rlvr_jax.models.huggingface import (
    COPIED_FILES,
    stored_dtype,
)
from rlvr_jax.models.huggingface.config import CONFIG, Dtype, read_json
from rlvr_jax.models.huggingface.tokenizer import save_tokenizer
from rlvr_jax.run.fetch import local_checkpoint
from rlvr_jax.run.load import HF_DIR, checkpoint_before_rl, open_stored_policy

_USAGE = """\
usage: python -m rlvr_jax.convert from-hf DIR OUT
       python -m rlvr_jax.convert to-hf CHECKPOINT OUT
       python -m rlvr_jax.convert to-peft CHECKPOINT OUT
       python -m rlvr_jax.convert from-gguf FILE OUT [--dtype=bfloat16]

from-hf  DIR         a Hugging Face directory: config.json and safetensors
         OUT         a new directory: the checkpoint, as step 0, and in hf/ the files
                     that belong to it (config, generation config, tokenizer).
                     bfloat16 if all weights are, else float32

to-hf    CHECKPOINT  the output of from-hf, or a run's WORKDIR, one of its
                     WORKDIR/checkpoints/STAGE, or a step in it
         OUT         a new directory for transformers, with the run's tokenizer, in
                     the dtype of the checkpoint; adapters are merged into the weights

to-peft  CHECKPOINT  a checkpoint of stage train, from a run with train.lora.rank
         OUT         a new directory: its adapters. PEFT loads them on top of the
                     policy before RL (to-hf WORKDIR/checkpoints/sft)

from-gguf FILE       a GGUF file (llama.cpp): llama and Mistral, qwen2, qwen3, gemma3
         OUT         a new Hugging Face directory, with the tokenizer and the chat
                     template; weights are dequantized. Start a run from it with
                     pretrained.path=OUT
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvertFlags(Flags):
    """The flags of this command."""

    # dtype of the weights that from-gguf writes: float32 (default) or bfloat16
    dtype: Dtype | None = None


def main(argv: Sequence[str]) -> int:
    """Returns 0 when done, 1 if a file cannot be read or written, 2 on bad usage."""
    return run_command(lambda: _run_command(argv), (OSError, CheckpointReadError))


def _run_command(argv: Sequence[str]) -> None:
    flags, (name, *paths) = parse_flags(
        argv, ConvertFlags, usage=_USAGE, arguments=["COMMAND", "SOURCE", "OUT"]
    )
    if flags.dtype and name != "from-gguf":
        raise UsageError(f"--dtype is for from-gguf; {name} keeps the dtype it finds")
    commands = {
        "from-hf": _from_hf,
        "to-hf": _to_hf,
        "to-peft": _to_peft,
        "from-gguf": lambda source, out: convert_gguf(
            Path(source), out, dtype=flags.dtype or "float32"
        ),
    }
    if name not in commands:
        raise UsageError(f"no command {name!r}{did_you_mean(name, commands)}")
    source, out = paths[0], Path(paths[1])
    if out.is_file():
        raise UsageError(f"{out} is a file; give a new directory")
    if out.exists() and any(out.iterdir()):
        raise UsageError(f"{out} is not empty; give a new directory")
    with working(f"convert {name}"):
        commands[name](source, out)


def _from_hf(path: str, out: Path) -> None:
    source = Path(path)
    settings = read_json(source / CONFIG)
    dtype = stored_dtype(source)
    with working(f"reading {source}"):
        policy = load_hf(source, dtype=dtype)
    with (
        working(f"writing {out}"),
        StageCheckpoints(out, CheckpointConfig()) as checkpoints,
    ):
        checkpoints.save(0, {"params": nnx.state(policy)}, {})
    (out / HF_DIR).mkdir()
    for name in COPIED_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, out / HF_DIR / name)
    # hf/ has no weights, so config.json must hold the settings read from them.
    settings |= {
        "torch_dtype": dtype,
        "tie_word_embeddings": policy.config.tie_embeddings,
    }
    settings.pop("dtype", None)  # the name of torch_dtype in newer checkpoints
    if settings.get("text_config"):
        settings["text_config"]["tie_word_embeddings"] = policy.config.tie_embeddings
    (out / HF_DIR / CONFIG).write_text(json.dumps(settings, indent=2) + "\n")
    print(f"{out}: step 0")


def _to_hf(source: str, out: Path) -> None:
    stored = open_stored_policy(local_checkpoint(source))
    policy = stored.restore()
    with working(f"writing {out}"):
        save_hf(policy, out)
        if stored.tokenizer is not None:
            save_tokenizer(stored.tokenizer, out, chat_template=stored.chat_template)
    print(f"{out}: step {stored.step}")


def _to_peft(source: str, out: Path) -> None:
    stored = open_stored_policy(local_checkpoint(source))
    if stored.adapters is None:
        raise UsageError(
            f"{stored.directory} has no adapters; give WORKDIR/checkpoints/train of "
            "a run with train.lora.rank, or use to-hf"
        )
    adapted = stored.restore_adapters()
    before = checkpoint_before_rl(stored.directory.resolve().parent)
    base = stored.policy.hf_dir if before is None else None
    save_peft(adapted, out, config=stored.lora, base=base)
    print(f"{out}: step {stored.step}")
    if before is not None:
        print(f"its base is {before}; write that with to-hf", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
