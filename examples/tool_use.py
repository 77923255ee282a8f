"""A policy that learns to use a tool: word problems with a calculator.

    python examples/tool_use.py                   # 3 to 8 minutes on two cores

Half of the worked solutions for SFT call the calculator. The other half only state the
answer, which a policy of this size cannot know. RL pays for correct answers, and the
policy calls the calculator more and more often. For your own tool, see
docs/use/environments.md.
"""

import argparse

import rlvr_jax
from rlvr_jax import config
from rlvr_jax.analysis import read_run
from rlvr_jax.environments import Calculator
from rlvr_jax.tasks import WordProblemsTask


def make_config(steps: int) -> config.Config:
    """Returns a run: `steps` steps of RL, after ten times as many of SFT."""
    story = (1, 2)  # calculations in a problem
    sampling = config.SamplingConfig(max_new_tokens=32)  # in a whole episode
    return config.Config(
        task=WordProblemsTask(
            largest=99, sft_steps=story, train_steps=story, eval_steps=story
        ),
        environment=Calculator(max_turns=4, max_turn_tokens=8, largest_result=99),
        model=config.ModelConfig(num_layers=2, hidden_size=64, intermediate_size=128),
        sft=config.SFTConfig(
            steps=10 * steps,
            batch_size=64,
            optimizer=config.OptimizerConfig(learning_rate=4e-3, schedule="cosine"),
        ),
        train=config.TrainConfig(
            steps=steps,
            sampling=sampling,
            optimizer=config.OptimizerConfig(learning_rate=5e-4, warmup_steps=5),
        ),
        eval=config.EvalConfig(num_problems=128, num_samples=4, sampling=sampling),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--workdir", default="runs/examples/tool_use")
    args = parser.parse_args()
    scores = rlvr_jax.train(make_config(args.steps), workdir=args.workdir)["eval"]
    _, calls = read_run(args.workdir).series("train", "environment/tool_calls")
    print(f"calls per episode: {calls[0]:.2f} at the start, {calls[-1]:.2f} at the end")
    before, after = (scores[at]["pass@k"]["1"]["mean"] for at in ("before", "after"))
    print(f"held-out pass@1: {before:.1%} before RL, {after:.1%} after")
