"""verl's PPO trainer: names as in versions 0.4 to 0.8.0.dev (January 2026).

Rows are lines of its file logger, {"step": n, "data": {...}}, or the data alone. The
logger writes NaN as null. verl logs no share of groups, but if no advantage of a step
differs from the others, then no group has a signal.
"""

from rlvr_jax.other_trainers.trainer import Trainer

VERL = Trainer(
    name="verl",
    signature=("actor/*", "critic/*/mean", "response_length/*", "rollout_corr/*"),
    null_is_nonfinite=True,
    names={
        "reward": ("critic/score/mean", "critic/rewards/mean"),
        "reward_low": ("critic/score/min", "critic/rewards/min"),
        "reward_high": ("critic/score/max", "critic/rewards/max"),
        "advantage_low": ("critic/advantages/min",),
        "advantage_high": ("critic/advantages/max",),
        "length": ("response_length/mean",),
        "truncated": ("response_length/clip_ratio",),
        "entropy": ("actor/entropy", "actor/entropy_loss"),
        "loss": ("actor/pg_loss",),
        "grad_norm": ("actor/grad_norm",),
        "prob_mismatch": ("training/rollout_probs_diff_mean",),
        "sampler_kl": ("rollout_corr/k3_kl", "rollout_corr/kl"),
    },
    options={
        "max_length": "data.max_response_length",
        "group_size": "actor_rollout_ref.rollout.n",
        "temperature": "actor_rollout_ref.rollout.temperature",
        "learning_rate": "actor_rollout_ref.actor.optim.lr",
        "clip_high": "actor_rollout_ref.actor.clip_ratio_high",
        "entropy": "actor_rollout_ref.actor.entropy_coeff",
        "kl": "actor_rollout_ref.actor.use_kl_loss and kl_loss_coef",
        "grad_clip": "actor_rollout_ref.actor.grad_clip",
        "filter": "algorithm.filter_groups.enable, in the DAPO recipe",
        "chat_template": "data.prompt_key holds messages; see "
        "actor_rollout_ref.model.custom_chat_template",
        "end_token": "eos_token_id in the model's generation_config.json, and "
        "actor_rollout_ref.rollout.ignore_eos=False",
        "mismatch": "then see algorithm.rollout_correction, and update the rollout "
        "engine",
    },
    how_to_log={"prob_mismatch": "actor_rollout_ref.rollout.calculate_log_probs=True"},
)
