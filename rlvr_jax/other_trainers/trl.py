"""TRL's GRPO trainer: names as in versions 0.14 to 1.10 (July 2026).

Rows are the `log_history` of trainer_state.json. Version 0.16 and older have
`completion_length`, no share of truncated completions and no `frac_reward_zero_std`;
`entropy` is there from 0.20 on. transformers leaves a loss of NaN out of its mean, so
only `grad_norm` shows it.
"""

from rlvr_jax.other_trainers.trainer import Trainer

TRL = Trainer(
    name="TRL",
    signature=(
        "completion_length",
        "completions/*",
        "frac_reward_zero_std",
        "reward_std",
        "rewards/*",
        "rewards/*/mean",
    ),
    names={
        "reward": ("reward",),
        "reward_std": ("reward_std",),
        "same_reward": ("frac_reward_zero_std",),
        "length": ("completions/mean_length", "completion_length"),
        "truncated": ("completions/clipped_ratio",),
        "entropy": ("entropy",),
        "loss": ("loss",),
        "learning_rate": ("learning_rate",),
        "grad_norm": ("grad_norm",),
        "logprob_mismatch": ("sampling/sampling_logp_difference/mean",),
    },
    options={
        "max_length": "max_completion_length",
        "group_size": "num_generations",
        "temperature": "temperature",
        "learning_rate": "learning_rate",
        "clip_high": "epsilon_high",
        "entropy": "entropy_coef",
        "kl": "beta",
        "grad_clip": "max_grad_norm",
        "filter": "filter the train_dataset by its pass rate",
        "chat_template": "give prompts as lists of messages; see chat_template_kwargs "
        "and processing_class",
        "end_token": "eos_token of the tokenizer that you pass as processing_class",
        "mismatch": "keep vllm_importance_sampling_correction on, and update vLLM",
    },
    how_to_log={
        "truncated": "TRL 0.17 or newer",
        "same_reward": "TRL 0.18 or newer",
        "entropy": "TRL 0.20 or newer",
        "logprob_mismatch": "use_vllm with vllm_importance_sampling_correction",
    },
)
