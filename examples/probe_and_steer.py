"""Looks inside a policy: trains a T-SAE, and removes its strongest latent.

python examples/probe_and_steer.py    # 3 to 8 minutes on two cores; docs/lab/causal.md
"""

import argparse
import pathlib

import rlvr_jax
import sae_jax.config
from rlvr_jax import config
from rlvr_jax.probe import SAEProbeConfig, intervene
from rlvr_jax.run.load import load_policy
from rlvr_jax.tasks import ChainMix, FiniteFieldTask


def make_config(steps: int) -> config.Config:
    """Returns a run: `steps` steps of RL, after three times as many of SFT."""
    chains = ChainMix(chain_lengths=(2, 3), operand_decay=0.8)
    room = config.SamplingConfig(max_new_tokens=26)
    fast = config.OptimizerConfig(learning_rate=3e-3, schedule="cosine")
    latents = sae_jax.config.SAEConfig(latents=128, k=8)
    fit = sae_jax.config.TrainConfig(steps=50 * steps, threshold_start_step=5 * steps)
    sae = config.ProbeSAEConfig(architecture=latents, train=fit)
    return config.Config(
        task=FiniteFieldTask(modulus=3, sft=chains, train=chains, eval=chains),
        model=config.ModelConfig(scale_embeddings=True),
        sft=config.SFTConfig(steps=3 * steps, batch_size=64, optimizer=fast),
        probe=SAEProbeConfig(layer=2, sae=sae),
        train=config.TrainConfig(steps=steps, sampling=room),
        eval=config.EvalConfig(num_problems=64, num_samples=4, sampling=room),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--workdir", type=pathlib.Path, default="runs/examples/probe")
    args = parser.parse_args()
    run = make_config(args.steps)
    rlvr_jax.train(run, workdir=args.workdir)
    tsae = sae_jax.load(args.workdir / "sae")
    with load_policy(run, args.workdir, stage="eval") as policy:
        problems = policy.setup.problems("eval", run.eval.num_problems)
        usual = intervene.calibrate(policy, tsae, problems, layer=2)
        latent = int((usual.firing.rate * usual.firing.mean_when_active).argmax())
        spec = intervene.InterventionSpec(
            layer=2,
            latents=(latent,),
            mode="ablate",
            strengths=(1.0,),
            num_controls=1,
            scope="completion",
        )
        arms = intervene.make_arms(spec, tsae, usual, seed=0)
        for arm in (intervene.EditArm(kind="clean"), *arms):
            found = intervene.run_arm(policy, problems, arm, scope=spec.scope)
            rate, kl = found.correct.mean(), found.metrics["kl"].mean()
            print(f"{arm.kind}: pass@1 {rate:.1%}, KL {kl:.3f} nats a token, such as")
            print("   ", found.graded[0].completion)
