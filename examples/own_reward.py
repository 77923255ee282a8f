"""Your own reward: it pays for correct steps, and never reads the gold.

    python examples/own_reward.py                 # 3 to 7 minutes on two cores

Problems are sums in GF(3), arithmetic modulo 3. The policy first trains on worked
solutions, half of which start with a guess. Then RL only pays the reward `shown`, a
function in this file. docs/use/rewards.md explains what a reward can be.
"""

import argparse

import rlvr_jax
from rlvr_jax import config
from rlvr_jax.tasks import ChainMix, FiniteFieldTask
from rlvr_jax.tasks.finite_field.traces import parse_trace
from rlvr_jax.types import Problem


def shown(problem: Problem, completion: str) -> float:
    """Returns 1 if correct steps lead from the given value to the answer, else 0."""
    trace = parse_trace(problem.prompt, completion, modulus=3)
    if trace.first_error is not None or not trace.consistent_start:
        return 0.0
    *_, result, _, answer = completion.split()  # ... = e2 answer e2
    return float(trace.answer == answer == result)


def make_config(steps: int) -> config.Config:
    """Returns a run: `steps` steps of RL, after three times as many of SFT."""
    chains = ChainMix(chain_lengths=(2, 3), operand_decay=0.8)
    sampling = config.SamplingConfig(max_new_tokens=26)
    return config.Config(
        task=FiniteFieldTask(modulus=3, sft=chains, train=chains, eval=chains),
        model=config.ModelConfig(scale_embeddings=True),
        sft=config.SFTConfig(
            steps=3 * steps,
            batch_size=64,
            optimizer=config.OptimizerConfig(learning_rate=3e-3, schedule="cosine"),
        ),
        train=config.TrainConfig(
            steps=steps,
            reward=config.RewardConfig(names=("own_reward:shown",)),  # file:function
            sampling=sampling,
        ),
        eval=config.EvalConfig(num_problems=128, num_samples=4, sampling=sampling),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--workdir", default="runs/examples/own_reward")
    args = parser.parse_args()
    scores = rlvr_jax.train(make_config(args.steps), workdir=args.workdir)["eval"]
    before, after = (scores[at]["pass@k"]["1"]["mean"] for at in ("before", "after"))
    print(f"held-out pass@1: {before:.1%} before RL, {after:.1%} after")
