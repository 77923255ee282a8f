"""The subcommand `credit`: whether token weights follow value changes."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from job_jax.checkpoint import CheckpointReadError
from job_jax.command import run_command
from job_jax.flags import UsageError, parse_flags
from job_jax.resampling import Interval
from job_jax.schema import AtLeastTwo, PositiveInt
from rlvr_jax.analysis.credit.measure import (
    CreditComparison,
    compare_weights,
)
from rlvr_jax.analysis.credit.policies import ProbedRun, compare_policies, open_runs
from rlvr_jax.analysis.credit.weights import (
    TokenWeights,
    WeightFlags,
    check_weights_exist,
)
from rlvr_jax.config import Config
from rlvr_jax.probe.edited_policy import clean_residuals
from rlvr_jax.probe.prefix_values import sample_prefix_values, squared_changes
from rlvr_jax.report.tables import Table, align_table
from rlvr_jax.rollouts.graded import GradedCompletion, grade_completions
from rlvr_jax.rollouts.sample import sample_problems
from rlvr_jax.run.load import LoadedPolicy, load_params_before_rl, load_policy
from rlvr_jax.types import Rollouts
from sae_jax import io

CREDIT_FILE = "credit.json"

_USAGE = """\
usage: python -m rlvr_jax.analysis credit WORKDIR ... [--num_problems=64]
           [--num_samples=16] [--num_controls=20] [--lambda_w=0.5]

Tests whether RFGO's token weights are large on the tokens that change the chance of a
right answer. The policy before RL answers held-out problems. Then it is sampled from
every prefix of every completion: the share of right answers is the prefix's value.
Prints how much weight goes to the tokens that change the value, compared with random
latents and with the tokens' surprise. Writes WORKDIR/credit.json. For several runs it
also prints the mean, with an interval over policies. docs/method/rfgo.md says how to
read it.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CreditFlags(WeightFlags):
    """The flags of this command."""

    # held-out problems, one completion each, in one batch
    num_problems: AtLeastTwo = 64
    num_samples: AtLeastTwo = 16  # samples from each prefix
    # draws of random latents with equal firing rates
    num_controls: PositiveInt = 20


class _Answers(NamedTuple):
    """One completion of each problem, in NumPy, and its residual stream."""

    graded: list[GradedCompletion]
    rollouts: Rollouts
    residual: Float[np.ndarray, "B T D"]


def main(argv: Sequence[str]) -> int:
    """Returns 0, or 1 if a file is broken, or 2 if a run was not probed."""
    return run_command(
        lambda: _run_command(argv), (CheckpointReadError, OSError, ValueError)
    )


def _run_command(argv: Sequence[str]) -> None:
    flags, named = parse_flags(
        argv, CreditFlags, usage=_USAGE, arguments=["WORKDIR"], at_least=True
    )
    runs = open_runs(named, _check_config)
    compare_policies(
        runs,
        CREDIT_FILE,
        vars(flags),
        CreditComparison,
        lambda run: _measure_run(run, flags),
        format_credit,
    )


def _measure_run(run: ProbedRun, flags: CreditFlags) -> CreditComparison:
    """Returns which tokens get the weights, for the policy before RL."""
    rfgo = dataclasses.replace(run.config.train.rfgo, lambda_w=flags.lambda_w)
    with load_policy(run.config, run.workdir, stage="eval") as loaded:
        before = load_params_before_rl(loaded.setup, run.workdir / "checkpoints")
        policy = loaded._replace(params=before)
        answers = _answer(policy, flags.num_problems, layer=run.selection.layer)
        # Before the long part, because too few latents may match.
        weights = TokenWeights.draw(
            io.load(run.workdir / "sae"),
            run.selection,
            rfgo,
            answers.residual,
            answers.rollouts,
            num_draws=flags.num_controls,
        )
        changes = _measure_changes(policy, answers, num_samples=flags.num_samples)
    return compare_weights(*weights.weigh(answers.residual, answers.rollouts), changes)


def _check_config(config: Config) -> None:
    """Raises UsageError if prefixes cannot be continued or weights are unsupported."""
    check_weights_exist(config)
    if config.train.sampling.min_new_tokens:
        raise UsageError(
            f"train.sampling.min_new_tokens={config.train.sampling.min_new_tokens} "
            "would restart its count at every prefix; use a run with 0"
        )


def _answer(policy: LoadedPolicy, num_problems: int, *, layer: int) -> _Answers:
    """Returns one completion of each held-out problem, sampled as in training."""
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
    """Returns each token's squared change of the value, for each completion."""
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

    `over` names the units of the intervals, by default the problems.
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
            "The mean weight of a token, averaged in proportion to how much it changes "
            "the chance of a right answer: at 1, weights ignore the change. Draws of "
            f"random latents: {low:.2f} to {high:.2f}. Intervals are over "
            f"{over or f'{found.num_problems} problems'}.",
        ]
    )


def _format(interval: Interval, sign: str = "") -> str:
    mean, low, high = (f"{value:{sign}.2f}" for value in interval)
    return f"{mean} [{low}, {high}]"
