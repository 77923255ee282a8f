"""prime-rl: names as in versions 0.2 to 0.8 and of August 2026.

Rows are lines of metrics.jsonl, which orchestrator and trainer write in their own
output directories. The monitor leaves numbers that are not finite out of its lines.
"""

from rlvr_jax.other_trainers.trainer import Trainer

_ALL = "train/agg/all"  # before filters; the part after it names the agent

PRIME_RL = Trainer(
    name="prime-rl",
    signature=(
        "batch/effective_batch_size",
        "batch/solve_none",
        "decode_len/*/mean",
        "effective_batch_size",
        "effective_batch_size/*",
        "is_truncated/*/mean",
        "is_truncated/mean",
        "mismatch_kl/*/mean",
        "mismatch_kl/mean",
        "optim/grad_norm",
        "optim/lr",
        "solve_none",
        "solve_none/*",
        f"{_ALL}/*/mean",
        f"{_ALL}/*/*/mean",
        f"{_ALL}/*/solved_none",
    ),
    drops_nonfinite=True,
    names={
        "reward": (
            f"{_ALL}/*/reward/mean",
            f"{_ALL}/reward/mean",
            "reward/all/mean",
            "reward/mean",
        ),
        "reward_low": (f"{_ALL}/*/reward/min", f"{_ALL}/reward/min", "reward/all/min"),
        "reward_high": (f"{_ALL}/*/reward/max", f"{_ALL}/reward/max", "reward/all/max"),
        "solved_none": (
            f"{_ALL}/*/solved_none",
            f"{_ALL}/solved_none",
            "solve_none/all",
            "batch/solve_none",
            "solve_none",
        ),
        "solved_all": (
            f"{_ALL}/*/solved_all",
            f"{_ALL}/solved_all",
            "solve_all/all",
            "batch/solve_all",
            "solve_all",
        ),
        "length": (
            f"{_ALL}/num_output_tokens/mean",
            "decode_len/all/mean",
            "completion_len/all/mean",
            "completion_len/mean",
            "seq_len/all/mean",
            "seq_len/mean",
        ),
        "truncated": (
            f"{_ALL}/*/is_truncated/mean",
            f"{_ALL}/is_truncated/mean",
            "is_truncated/all/mean",
            "is_truncated/mean",
        ),
        "entropy": ("entropy/all/mean", "entropy/mean"),
        "loss": ("loss/mean",),
        "learning_rate": ("optim/lr",),
        "grad_norm": ("optim/grad_norm",),
        "sampler_kl": ("mismatch_kl/all/mean", "mismatch_kl/mean"),
    },
    options={
        "max_length": "orchestrator.train.sampling.max_completion_tokens",
        "group_size": "orchestrator.group_size",
        "temperature": "orchestrator.train.sampling.temperature",
        "learning_rate": "trainer.optim.lr",
        "clip_high": "trainer.loss.dppo_mask_high",
        "entropy": "a higher orchestrator.train.sampling.temperature",
        "kl": "trainer.loss.kl_tau",
        "grad_clip": "trainer.optim.max_norm",
        "filter": "curriculum of orchestrator.train.source",
        "chat_template": "orchestrator.renderer.name",
        "end_token": "eos_token_id in the model's generation_config.json",
        "mismatch": "then lower orchestrator.max_off_policy_steps, and update vLLM",
    },
    how_to_log=dict.fromkeys(
        ("entropy", "grad_norm", "sampler_kl"), "in the trainer's metrics.jsonl"
    )
    | dict.fromkeys(
        ("reward", "solved_none", "truncated", "length"),
        "in the orchestrator's metrics.jsonl",
    ),
)
