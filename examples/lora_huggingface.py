"""LoRA on a Hugging Face directory, which writes a merged directory at the end.

    python examples/lora_huggingface.py [--model=DIR]  # 3 to 7 minutes on two cores

Without --model it makes a tiny Llama. RL only trains adapters (docs/models/lora.md).
"""

import argparse
import pathlib

import tokenizers
from flax import nnx
from transformers import PreTrainedTokenizerFast

import rlvr_jax
from job_jax.mesh import start_jax
from rlvr_jax import config, convert, models
from rlvr_jax.tasks import ChainMix, FiniteFieldTask


def write_model(path: pathlib.Path) -> None:
    """Writes a directory like transformers: config.json, weights, a tokenizer."""
    start_jax(config.MeshConfig())  # once, before anything is computed
    ids = {word: i for i, word in enumerate(FiniteFieldTask(modulus=3).vocabulary())}
    sizes = config.ModelConfig()  # a Llama of 0.9M parameters
    models.save_hf(models.Transformer(sizes, len(ids), nnx.Rngs(0), eos_ids=(1,)), path)
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, unk_token="<pad>"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<eos>")
    tokenizer.save_pretrained(path)


def make_config(steps: int, model: pathlib.Path) -> config.Config:
    """Returns a run: `steps` steps of LoRA, after three times as many of SFT."""
    chains = ChainMix(chain_lengths=(2, 3), operand_decay=0.8)
    room, lora = config.SamplingConfig(max_new_tokens=26), config.LoRAConfig(rank=8)
    fast = config.OptimizerConfig(learning_rate=2e-3)
    return config.Config(
        task=FiniteFieldTask(modulus=3, sft=chains, train=chains, eval=chains),
        pretrained=config.PretrainedConfig(path=str(model)),
        tokenizer=config.TokenizerConfig(kind="huggingface"),
        sft=config.SFTConfig(steps=3 * steps, batch_size=64, optimizer=fast),
        train=config.TrainConfig(steps=steps, sampling=room, optimizer=fast, lora=lora),
        eval=config.EvalConfig(num_problems=128, num_samples=4, sampling=room),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--workdir", default="runs/examples/lora_huggingface")
    args = parser.parse_args()
    model = args.model or pathlib.Path(args.workdir, "model")
    if not model.exists():
        write_model(model)
    found = rlvr_jax.train(make_config(args.steps, model), workdir=args.workdir)["eval"]
    before, after = (found[at]["pass@k"]["1"]["mean"] for at in ("before", "after"))
    print(f"held-out pass@1: {before:.1%} before RL, {after:.1%} after")
    convert.main(["to-hf", args.workdir, f"{args.workdir}/merged"])
