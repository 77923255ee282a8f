"""Your own data: from a file of problems and answers to a report.

    python examples/own_data.py                   # 2 to 5 minutes on two cores

The task is to sort letters. A policy that knows nothing first trains on solutions until
it knows the format, and learns the rest by RL. docs/use/own_data.md explains each step.
"""

import argparse
import json
import pathlib
import random

import rlvr_jax
from rlvr_jax import config
from rlvr_jax.tasks import FilesTask, RecordConfig


def write_problems(folder: pathlib.Path) -> None:
    """Writes train.jsonl and eval.jsonl, an object per line; no problem is in both."""
    rng = random.Random(0)
    words = [" ".join(rng.sample("abcdefgh", rng.randint(4, 6))) for _ in range(3000)]
    lines = [
        json.dumps({"word": word, "sorted": " ".join(sorted(word.split()))}) + "\n"
        for word in dict.fromkeys(words)  # each once
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "eval.jsonl").write_text("".join(lines[:128]))
    (folder / "train.jsonl").write_text("".join(lines[128:]))


def make_config(steps: int, folder: pathlib.Path) -> config.Config:
    """Returns a run: `steps` steps of RL, after twice as many of SFT."""
    fields = RecordConfig(  # the answer is the whole field, without a prefix
        prompt_field="word", answer_field="sorted", answer_prefix="", verifier="exact"
    )
    train, held_out = str(folder / "train.jsonl"), str(folder / "eval.jsonl")
    sampling = config.SamplingConfig(max_new_tokens=16)
    fast = config.OptimizerConfig(learning_rate=3e-3)
    return config.Config(
        task=FilesTask(train_path=train, eval_path=held_out, record=fields),
        tokenizer=config.TokenizerConfig(kind="sentencepiece", vocab_size=280),
        model=config.ModelConfig(num_layers=2, hidden_size=64, intermediate_size=128),
        sft=config.SFTConfig(steps=2 * steps, batch_size=64, optimizer=fast),
        train=config.TrainConfig(steps=steps, sampling=sampling),
        eval=config.EvalConfig(num_problems=128, num_samples=4, sampling=sampling),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--workdir", default="runs/examples/own_data")
    args = parser.parse_args()
    write_problems(folder := pathlib.Path(args.workdir) / "problems")
    run = make_config(args.steps, folder)
    scores = rlvr_jax.train(run, workdir=args.workdir)["eval"]
    before, after = (scores[at]["pass@k"]["1"]["mean"] for at in ("before", "after"))
    print(f"held-out pass@1: {before:.1%} before RL, {after:.1%} after")
