"""The mathematics of RL with verifiable rewards: rewards, advantages, losses.

Nothing here knows a run, a model or a file. Settings stand next to the formulas that
read them; `rlvr_jax.config` puts them together.

    rewards     the parts of a reward -> a completion's reward
    advantages  a group's rewards -> advantages, by one rule a file
    objective   the door for objectives; `published` has PPO, CISPO and REINFORCE
    losses      gains, KL and entropy -> one loss that micro-batches add up to
"""
