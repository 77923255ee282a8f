"""Flips bits in files that a later step reads, and checks that its reader notices."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

from job_jax.checkpoint import CheckpointReadError, StageCheckpoints
from job_jax.files import DamagedFileError, check_digest, latest_step
from rlvr_jax.tokenizer import SentencePieceTokenizer
from sae_jax import io
from sae_jax.data.shard_index import ShardError
from sae_jax.data.shards import ActivationShards

_TOLD = (CheckpointReadError, DamagedFileError, ShardError)


def flip_bits(workdir: Path, count: int, *, seed: int) -> Iterator[tuple[str, int]]:
    """Yields each kind of file, and how many of `count` flipped bits were noticed.

    `workdir` is from a finished run. Each bit is restored.
    """
    train = workdir / "checkpoints" / "train"
    newest = train / str(latest_step(train))
    tokenizer = workdir / "tokenizer.model"
    texts = [f"{n} plus {n + 1} is {2 * n + 1}" for n in range(100)]
    SentencePieceTokenizer.train(texts, vocab_size=280, path=tokenizer)
    activations = workdir / "activations"
    kinds: dict[str, tuple[list[Path], Callable[[], object]]] = {
        "checkpoint": (_files(newest), lambda: _read_checkpoint(train)),
        "difficulties": (
            [workdir / "difficulty.jsonl"],
            lambda: check_digest(workdir / "difficulty.jsonl"),
        ),
        "tokenizer": ([tokenizer], lambda: SentencePieceTokenizer(tokenizer)),
        "dictionary": (
            [workdir / "sae" / "sae_weights.safetensors"],
            lambda: io.load(workdir / "sae"),
        ),
        "activations": (
            sorted(activations.glob("*.bin")),
            lambda: ActivationShards(activations).verify(),
        ),
    }
    rng = random.Random(seed)
    for kind, (files, read) in kinds.items():
        read()  # undamaged files are readable
        yield kind, sum(_is_noticed(files, read, rng) for _ in range(count))


def _is_noticed(
    files: list[Path], read: Callable[[], object], rng: random.Random
) -> bool:
    """Flips a random bit in the files, reads them, and restores the bit."""
    sizes = [path.stat().st_size for path in files]
    (file,) = rng.choices(files, weights=sizes)
    content = file.read_bytes()
    flipped = bytearray(content)
    bit = rng.randrange(8 * len(content))
    flipped[bit // 8] ^= 1 << bit % 8
    file.write_bytes(flipped)
    try:
        read()
    except _TOLD:
        return True
    finally:
        file.write_bytes(content)
    return False


def _files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file() and p.stat().st_size)


def _read_checkpoint(stage: Path) -> None:
    with StageCheckpoints(stage) as checkpoints:
        checkpoints.restore_host_state(checkpoints.latest_step or 0)
