"""The subcommand `credit`: whether token weights follow a completion's value."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from absl import flags
from jaxtyping import Float

from job_jax.checkpoint import CheckpointReadError
from job_jax.command import UsageError, parse_flags, run_command
from job_jax.resampling import Interval
from rlvr_jax.analysis.credit.flags import define_weight_flags, what_was_asked
from rlvr_jax.analysis.credit.measure import (
    CreditComparison,
    compare_weights,
)
from rlvr_jax.analysis.credit.policies import ProbedRun, compare_policies, open_runs
from rlvr_jax.analysis.credit.weights import TokenWeights, check_weights_exist
from rlvr_jax.analysis.tables import Table, align_table
from rlvr_jax.config import Config
from rlvr_jax.probe.edited_policy import clean_residuals
from rlvr_jax.probe.prefix_values import sample_prefix_values, squared_changes
from rlvr_jax.rollouts.graded import GradedCompletion, grade_completions
from rlvr_jax.rollouts.sample import sample_problems
from rlvr_jax.run.load import LoadedPolicy, load_params_before_rl, load_policy
from rlvr_jax.types import Rollouts
from sae_jax import io

CREDIT_FILE = "credit.json"

_USAGE = """\
usage: python -m rlvr_jax.analysis credit WORKDIR ... [--num_problems=64]
           [--num_samples=16] [--num_controls=20] [--lambda_w=0.5]

Asks whether RFGO's token weights lie on the tokens that change the chance of a right
answer. The policy before RL answers held-out problems; from every prefix of every
completion it is sampled on, and the share of right ends is the prefix's value. Prints
how much weight the tokens get that change it, beside random latents and the tokens'
surprise, and writes WORKDIR/credit.json; of several runs the mean as well, with an
interval over policies. docs/rfgo.md says how to read it.
"""


class _Answers(NamedTuple):
    """One completion of each problem, in NumPy, and its residual stream."""

    graded: list[GradedCompletion]
    rollouts: Rollouts
    residual: Float[np.ndarray, "B T D"]


def main(argv: Sequence[str]) -> int:
    """Returns 0; 1 where a file is broken; 2 where there is no probed run."""
    return run_command(
        lambda: _run_command(argv), (CheckpointReadError, OSError, ValueError)
    )


def _run_command(argv: Sequence[str]) -> None:
    values = define_weight_flags(_COUNTS)
    named = parse_flags(
        argv, values, usage=_USAGE, arguments=["WORKDIR"], at_least=True
    )
    runs = open_runs(named, _check_config)
    compare_policies(
        runs,
        CREDIT_FILE,
        what_was_asked(values, _COUNTS),
        CreditComparison,
        lambda run: _measure_run(run, values),
        format_credit,
    )


def _measure_run(run: ProbedRun, values: flags.FlagValues) -> CreditComparison:
    """Returns where the token weights of the policy before RL lie."""
    rfgo = dataclasses.replace(run.config.train.rfgo, lambda_w=values.lambda_w)
    with load_policy(run.config, run.workdir, stage="eval") as loaded:
        before = load_params_before_rl(loaded.setup, run.workdir / "checkpoints")
        policy = loaded._replace(params=before)
        answers = _answer(policy, values.num_problems, layer=run.selection.layer)
        changes = _measure_changes(policy, answers, num_samples=values.num_samples)
    weights = TokenWeights.draw(
        io.load(run.workdir / "sae"),
        run.selection,
        rfgo,
        answers.residual,
        answers.rollouts,
        num_draws=values.num_controls,
    )
    return compare_weights(*weights.weigh(answers.residual, answers.rollouts), changes)


_COUNTS = {
    "num_problems": (64, 2, "held-out problems, a completion each, in one batch"),
    "num_samples": (16, 2, "samples from each prefix"),
    "num_controls": (20, 1, "draws of random latents that fire as often"),
}


def _check_config(config: Config) -> None:
    """Raises UsageError where prefixes cannot be sampled on, or weights are others."""
    check_weights_exist(config)
    if config.train.sampling.min_new_tokens:
        raise UsageError(
            "train.sampling.min_new_tokens would count anew from every prefix; a run "
            "with 0 is needed"
        )


def _answer(policy: LoadedPolicy, num_problems: int, *, layer: int) -> _Answers:
    """Returns one completion of each held-out problem, drawn as in training."""
    config = policy.setup.config
    problems = policy.setup.problems("eval", num_problems)
    whole_batches = -(-len(problems) // config.eval.batch_size)
    ((batch, rollouts),) = sample_problems(
        policy.setup,
        policy.params,
        problems,
        sampling=config.train.sampling,
        num_samples=1,
        batch_size=whole_batches * config.eval.batch_size,
        stream="eval",
    )
    return _Answers(
        graded=grade_completions(policy.setup, batch, rollouts),
        rollouts=rollouts,
        residual=clean_residuals(policy, rollouts, layer=layer)[: len(batch)],
    )


def _measure_changes(
    policy: LoadedPolicy, answers: _Answers, *, num_samples: int
) -> list[Float[np.ndarray, " T"]]:
    """Returns the squared change of the value by each token of each completion."""
    config = policy.setup.config
    values = sample_prefix_values(
        policy,
        answers.graded,
        answers.rollouts,
        sampling=config.train.sampling,
        num_samples=num_samples,
        batch_size=config.eval.batch_size,
    )
    return [squared_changes(each) for each in values]


def format_credit(found: CreditComparison, over: str = "") -> str:
    """Returns the table, and how to read it.

    `over` is what its intervals are over, by default the problems.
    """
    low, high = min(found.of_draws), max(found.of_draws)
    rows = [
        (
            label,
            _format(kind.ratio),
            _format(kind.beyond_controls, sign="+"),
            f"{kind.num_as_high} of {len(found.of_draws)}",
        )
        for label, kind in found.kinds.items()
    ]
    rows.append(("random latents", _format(found.controls), "", ""))
    head = ("weights by", "weight on change", "beyond random latents", "as high")
    return "\n".join(
        [
            align_table(Table(head=head, rows=rows)),
            "",
            "The mean weight of a token, by how much it changes the chance of a right "
            f"answer: 1 is none the wiser. Draws of random latents: {low:.2f} to "
            f"{high:.2f}. Intervals are over "
            f"{over or f'{found.num_problems} problems'}.",
        ]
    )


def _format(interval: Interval, sign: str = "") -> str:
    mean, low, high = (f"{value:{sign}.2f}" for value in interval)
    return f"{mean} [{low}, {high}]"
