"""Writes trl_losses.json: TRL's own losses, gradients and advantages on fixed numbers.

    pip install -e '.[bench]'        # torch 2.13.0, trl 1.16.0
    python tests/golden/make_trl_goldens.py

Real GRPOTrainer and RLOOTrainer objects compute everything. Only the model's outputs
are replaced: log-probabilities and entropies come from `inputs()`, completions and
rewards from `REWARDS`. Computed in float64. Needs no network and no GPU.
"""

import json
import pathlib
import tempfile

import numpy as np
import torch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer
from trl import __version__ as trl_version

OUT = pathlib.Path(__file__).with_name("trl_losses.json")
LENGTHS = [7, 1, 4, 6, 3, 5]
WIDTH = 7
MAX_LENGTH = 8
# Both signs of the advantage with both directions of the policy's movement.
ADVANTAGES = [1.5, -0.8, 0.0, 0.6, -1.2, 0.9]
DRIFT = [0.15, -0.6, 0.0, 0.0, 0.15, -0.15]
ON_POLICY_ROW = 3
# One success in four, no preference, all different, one failure in four.
REWARDS = [[0.0, 1.0, 0.0, 0.0], [0.7] * 4, [0.1, 0.5, -1.0, 0.9], [1.0, 1.0, 1.0, 0.0]]

GSPO = {"loss_type": "grpo", "importance_sampling_level": "sequence"}
CASES = {
    "grpo": {"loss_type": "grpo"},
    "grpo_kl": {"loss_type": "grpo", "beta": 0.04},
    "bnpo": {"loss_type": "bnpo"},
    "dr_grpo": {"loss_type": "dr_grpo"},
    "dr_grpo_kl": {"loss_type": "dr_grpo", "beta": 0.1},
    "dapo": {"loss_type": "dapo", "epsilon_high": 0.28},
    "dapo_entropy": {"loss_type": "dapo", "epsilon_high": 0.28, "entropy_coef": 0.01},
    "gspo": {**GSPO, "epsilon": 3e-4, "epsilon_high": 4e-4},
    "gspo_wide_kl": {**GSPO, "epsilon": 0.1, "epsilon_high": 0.15, "beta": 0.04},
    "luspo": {
        "loss_type": "luspo",
        "importance_sampling_level": "sequence",
        "epsilon": 0.1,
    },
    "cispo": {"loss_type": "cispo", "epsilon_high": 1.25},
    "cispo_kl": {"loss_type": "cispo", "epsilon_high": 5.0, "beta": 0.04},
}


def inputs() -> dict[str, list]:
    """Returns the numbers for every case, short enough to read."""
    rng = np.random.default_rng(0)
    shape = (len(LENGTHS), WIDTH)
    logprobs = -rng.uniform(0.05, 3.0, shape)
    moved = rng.normal(0.0, 0.25, shape) + np.array(DRIFT)[:, None]
    moved[ON_POLICY_ROW] = 0.0
    old_logprobs = np.minimum(logprobs - moved, -0.01)
    ref_logprobs = np.minimum(logprobs + rng.normal(0.0, 0.2, shape), -0.01)
    return {
        "lengths": LENGTHS,
        "max_length": MAX_LENGTH,
        "advantages": ADVANTAGES,
        "logprobs": logprobs.round(3).tolist(),
        "old_logprobs": old_logprobs.round(3).tolist(),
        "ref_logprobs": ref_logprobs.round(3).tolist(),
        "entropies": rng.uniform(0.1, 2.0, shape).round(3).tolist(),
    }


def parts() -> dict:
    """Returns arguments that both trainers require but these numbers do not use."""
    vocabulary = {"<pad>": 0, "<eos>": 1, "a": 2, "b": 3}
    words = Tokenizer(WordLevel(vocabulary, unk_token="<pad>"))
    words.pre_tokenizer = Whitespace()
    config = Qwen2Config(
        vocab_size=len(vocabulary),
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
    )
    return {
        "model": Qwen2ForCausalLM(config),
        "processing_class": PreTrainedTokenizerFast(
            tokenizer_object=words, pad_token="<pad>", eos_token="<eos>"
        ),
        "reward_funcs": lambda completions, **_: np.ravel(REWARDS).tolist(),
        "train_dataset": Dataset.from_dict({"prompt": ["a"] * len(REWARDS)}),
    }


class ReplayGRPO(GRPOTrainer):
    """GRPOTrainer with the model's output and the sampler's given."""

    def _get_per_token_logps_and_entropies(self, *_, **__):
        return self.replayed

    def _generate_single_turn(self, prompt_ids, *_, **__):
        return [[3, 1]] * len(prompt_ids), None


class ReplayRLOO(RLOOTrainer):
    """RLOOTrainer with the model's output and the sampler's given."""

    def _get_per_token_logps_and_entropies(self, *_, **__):
        return self.replayed

    def _generate_single_turn(self, prompt_ids, *_, **__):
        return [[3, 1]] * len(prompt_ids)


def trainer(kind: type, config: type, **settings):
    """Returns a trainer on CPU with all of REWARDS as its one generation batch.

    GRPO's KL term is the published one: TRL's default multiplies it by the ratio.
    """
    if config is GRPOConfig:
        settings["use_bias_correction_kl"] = False
    # If beta were set here, TRL would fetch the reference model from a hub.
    beta = settings.pop("beta", 0.0)
    args = config(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=np.size(REWARDS),
        gradient_accumulation_steps=1,
        num_generations=len(REWARDS[0]),
        max_completion_length=MAX_LENGTH,
        beta=0.0,
        use_cpu=True,
        bf16=False,
        report_to=[],
        **settings,
    )
    built = kind(args=args, **parts())
    built.beta = beta
    built.current_gradient_accumulation_steps = 1
    built.model.train()
    return built


def loss_and_gradient(built, numbers: dict) -> dict:
    """Returns the trainer's loss and its gradient at the true tokens, row by row."""
    tensors = {
        name: torch.tensor(numbers[name], dtype=torch.float64)
        for name in ("advantages", "old_logprobs", "ref_logprobs", "entropies")
    }
    logprobs = torch.tensor(
        numbers["logprobs"], dtype=torch.float64, requires_grad=True
    )
    lengths = torch.tensor(LENGTHS)
    mask = (torch.arange(WIDTH)[None] < lengths[:, None]).long()
    tokens = torch.ones(len(LENGTHS), WIDTH, dtype=torch.long)
    built.replayed = (logprobs, tensors["entropies"], None)
    loss = built._compute_loss(
        built.model,
        {
            "prompt_ids": tokens[:, :1],
            "prompt_mask": tokens[:, :1],
            "completion_ids": tokens,
            "completion_mask": mask,
            "advantages": tensors["advantages"],
            "old_per_token_logps": tensors["old_logprobs"],
            "ref_per_token_logps": tensors["ref_logprobs"],
            "old_logps": (tensors["old_logprobs"] * mask).sum(1),
            "num_items_in_batch": mask.sum(),
        },
    )
    loss.backward()
    if logprobs.grad[mask == 0].any():
        raise AssertionError("TRL gave padding a gradient")
    gradient = logprobs.grad[mask == 1].numpy()
    return {
        "loss": round(loss.item(), 9),
        "gradient": (gradient.round(9) + 0.0).tolist(),
    }


def advantages(built) -> list:
    """Returns the trainer's advantages for REWARDS, one row per group."""
    shape = (np.size(REWARDS), 2)
    built.replayed = (torch.zeros(shape), torch.zeros(shape), None)
    batch = built._generate_and_score_completions([{"prompt": "a"}] * shape[0])
    rows = batch["advantages"].numpy().astype(np.float64).reshape(np.shape(REWARDS))
    return rows.round(7).tolist()


def main() -> None:
    """Computes every case and writes the file next to this script."""
    numbers = inputs()
    losses = {
        name: loss_and_gradient(trainer(ReplayGRPO, GRPOConfig, **settings), numbers)
        for name, settings in CASES.items()
    }
    rloo = trainer(ReplayRLOO, RLOOConfig)
    losses["rloo"] = loss_and_gradient(rloo, numbers)
    by_scale = {
        scale: advantages(trainer(ReplayGRPO, GRPOConfig, scale_rewards=scale))
        for scale in ("group", "batch", "none")
    }
    golden = {
        "trl": trl_version,
        "inputs": numbers,
        "losses": losses,
        "rewards": REWARDS,
        "advantages": {**by_scale, "leave_one_out": advantages(rloo)},
    }
    text = json.dumps(golden, separators=(",", ":"))
    OUT.write_text(text.replace('},"', '},\n"').replace('],"', '],\n"') + "\n")
    print(f"{OUT.name}: {OUT.stat().st_size} bytes, {len(losses)} losses")


if __name__ == "__main__":
    main()
