"""Whether RL on two chains carries over to three to five chains (2606.13125).

SFT shows evaluations, inversions and compositions. Each chain is worked by the strategy
that only calculates. Compositions are mostly of two chains; 7 % are of three to five,
because a policy trained from scratch that saw none always writes two chains. RL,
rewarded by the answer alone, trains on compositions of two chains, on compositions of
three to five, or on single chains, each with 5-9 steps in all. Held-out problems are
compositions of three to five chains.

We added three arms after the first ones had not been seen to learn even two chains. All
three have no KL term. `two_chains_fast` has three times the learning rate.
`two_chains_large` has 80 steps with four times the groups and repeats no problem.
`more_chains_large` trains on compositions of three to five, to show what RL on the
held-out kind itself would teach.

Sizes and algorithm come from configs/paper/reformulation.py. The problems are ours,
because the paper says only that it composes.

Command: bash launch/reproduce.sh composition
Results: docs/findings/composition.md
"""

import dataclasses
from pathlib import Path

from job_jax.command import call_recipe, load_config
from rlvr_jax.config import Arm, Config, Experiment, SamplingConfig
from rlvr_jax.tasks import ChainMix, FiniteFieldTask

_REFORMULATION = Path(__file__).with_name("reformulation.py")


def get_config() -> Config:
    """Returns the recipe: RL on compositions of two chains."""
    config = load_config(_REFORMULATION, Config)
    assert isinstance(config.task, FiniteFieldTask)
    lengths = (5, 6, 7, 8, 9)
    shown = ChainMix(
        types=("evaluation", "inversion", "composition"),
        type_weights=(0.2, 0.2, 0.6),
        chain_lengths=(2, 3, 4, *lengths),
        composition_parts=(2, 3, 4, 5),
        composition_part_weights=(1.0, 0.05, 0.03, 0.01),
        operand_decay=0.8,
        direct_lengths=(2, 3, 4, *lengths),
    )
    asked = ChainMix(types=("composition",), chain_lengths=lengths, num_problems=1024)
    held_out = dataclasses.replace(asked, composition_parts=(3, 4, 5), num_problems=0)
    sampling = SamplingConfig(max_new_tokens=80)
    return dataclasses.replace(
        config,
        name="composition",
        task=dataclasses.replace(config.task, sft=shown, train=asked, eval=held_out),
        train=dataclasses.replace(
            config.train,
            sampling=dataclasses.replace(config.train.sampling, max_new_tokens=80),
        ),
        eval=dataclasses.replace(config.eval, sampling=sampling),
        prompt_pad_multiple=64,
        completion_pad_multiple=40,
    )


def get_experiment() -> Experiment:
    """Returns arms by RL's problems and speed; the paper has no numbers for them."""
    of_reformulation = call_recipe(_REFORMULATION, "get_experiment", Experiment)
    no_kl = {"train.loss.kl_coef": "0"}
    large = {
        "train.steps": "80",
        "train.batch_size": "64",
        "train.grad_accum_steps": "4",
        "task.train.num_problems": "0",
    }
    more = {"task.train.composition_parts": "3,4,5"}
    return dataclasses.replace(
        of_reformulation,
        question="Does RL on two chains carry over to three to five?",
        reference="after arXiv 2606.13125",
        outcomes=(
            "pass@1 gained",
            "pass@1 before RL",
            "pass@1",
            "pass@16",
            "reward gained",
            "groups without signal",
            "completion length",
        ),
        reduced={**of_reformulation.reduced, "train.grad_accum_steps": "1"},
        baseline="two_chains",
        arms={
            "two_chains": Arm(),
            "two_chains_fast": Arm(
                overrides={**no_kl, "train.optimizer.learning_rate": "3e-4"}
            ),
            "two_chains_large": Arm(overrides={**no_kl, **large}),
            "more_chains": Arm(overrides=more),
            "more_chains_large": Arm(overrides={**no_kl, **large, **more}),
            "single_chains": Arm(
                overrides={"task.train.types": "evaluation,inversion"}
            ),
        },
    )
