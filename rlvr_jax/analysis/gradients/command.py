"""The subcommand `gradients`: whether token weights give a better gradient."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from flax import nnx

from job_jax.checkpoint import CheckpointReadError
from job_jax.command import run_command
from job_jax.flags import UsageError, parse_flags
from job_jax.metrics import Progress
from job_jax.resampling import Interval
from job_jax.schema import AtLeastTwo, PositiveInt
from rlvr_jax.analysis.credit.policies import ProbedRun, compare_policies, open_runs
from rlvr_jax.analysis.credit.weights import (
    FEATURES,
    TokenWeights,
    WeightFlags,
    check_weights_exist,
)
from rlvr_jax.analysis.gradients.batches import (
    PolicyGradients,
    add,
    is_nonzero,
    sample_batches,
)
from rlvr_jax.analysis.gradients.measure import (
    EVEN,
    DirectionComparison,
    compare_directions,
    measure_cosines,
    shuffle_weights,
)
from rlvr_jax.config import Config, RFGOConfig
from rlvr_jax.probe.edited_policy import clean_residuals
from rlvr_jax.probe.selection import FeatureSelection
from rlvr_jax.report.tables import Table, align_table
from rlvr_jax.rollouts.collect import RolloutBatch
from rlvr_jax.run.load import LoadedPolicy, load_params_before_rl, load_policy
from sae_jax import io
from sae_jax.sae import TSAE

GRADIENTS_FILE = "gradients.json"

_USAGE = """\
usage: python -m rlvr_jax.analysis gradients WORKDIR ... [--num_batches=32]
           [--num_reference=64] [--num_controls=10] [--lambda_w=0.5]

Tests whether RFGO's token weights turn the gradient of a batch toward the gradient of
many batches. The policy before RL answers batches, chosen as in training. Prints the
cosine between a batch's gradient and the total gradient of --num_reference other
batches. It compares RFGO's weights, no weights, weights from random latents, weights
from the tokens' surprise, and RFGO's weights in a random order. Writes
WORKDIR/gradients.json. For several runs it also prints the mean, with an interval over
policies. docs/method/rfgo.md says how to read it.
"""
_SHUFFLED = f"{FEATURES}, in a random order"


@dataclasses.dataclass(frozen=True, kw_only=True)
class GradientsFlags(WeightFlags):
    """The flags of this command."""

    num_batches: AtLeastTwo = 32  # batches whose tokens get weights
    # other batches, whose total gradient is the reference
    num_reference: PositiveInt = 64
    # draws of random latents with equal firing rates
    num_controls: PositiveInt = 10


def main(argv: Sequence[str]) -> int:
    """Returns 0, or 1 if a file is broken, or 2 if a run was not probed."""
    return run_command(
        lambda: _run_command(argv), (CheckpointReadError, OSError, ValueError)
    )


def _run_command(argv: Sequence[str]) -> None:
    flags, named = parse_flags(
        argv, GradientsFlags, usage=_USAGE, arguments=["WORKDIR"], at_least=True
    )
    runs = open_runs(named, _check_config)
    compare_policies(
        runs,
        GRADIENTS_FILE,
        vars(flags),
        DirectionComparison,
        lambda run: _measure_run(run, flags),
        functools.partial(format_directions, num_reference=flags.num_reference),
    )


def _check_config(config: Config) -> None:
    """Raises UsageError if a run lacks this gradient or its weights are unsupported."""
    check_weights_exist(config)
    if config.train.loss.has_external_traces:
        raise UsageError(
            "external traces have no token weights; give a run without them"
        )
    if config.train.lora.rank:
        raise UsageError(
            f"train.lora.rank={config.train.lora.rank}: RL moved only adapters, but "
            "this measures the gradient of all weights; give a run with rank 0"
        )


def _measure_run(run: ProbedRun, flags: GradientsFlags) -> DirectionComparison:
    """Returns the gradient directions of the policy before RL."""
    rfgo = dataclasses.replace(run.config.train.rfgo, lambda_w=flags.lambda_w)
    with load_policy(run.config, run.workdir, stage="train") as loaded:
        before = load_params_before_rl(loaded.setup, run.workdir / "checkpoints")
        policy = loaded._replace(params=before)
        count = flags.num_reference + flags.num_batches
        return _compare(
            policy,
            sample_batches(policy, run.workdir, count),
            functools.partial(
                _draw_weights,
                policy,
                io.load(run.workdir / "sae"),
                run.selection,
                rfgo,
                num_draws=flags.num_controls,
            ),
            num_reference=flags.num_reference,
            num_batches=flags.num_batches,
        )


class _Measured(NamedTuple):
    """The cosines of one batch: by kind, and for each draw of random latents."""

    kinds: dict[str, float]
    draws: list[float]


def _compare(
    policy: LoadedPolicy,
    batches: Iterator[RolloutBatch],
    draw_weights: Callable[[RolloutBatch], TokenWeights],
    *,
    num_reference: int,
    num_batches: int,
) -> DirectionComparison:
    """Returns the cosines of batches with the total gradient of the first batches."""
    gradients = PolicyGradients(policy)
    progress = Progress("batches", num_reference + num_batches, every=1)

    def total_gradient(sampled: RolloutBatch) -> nnx.State:
        batch = gradients.make_batch(sampled)
        return gradients.gradient(batch, np.ones(batch.tokens.shape))

    first = next(batches)
    weights = draw_weights(first)  # first of all, because too few latents may match
    reference = total_gradient(first)
    progress.update(1, {})
    others = itertools.islice(batches, num_reference - 1)
    for done, sampled in enumerate(others, 2):
        reference = add(reference, total_gradient(sampled))
        progress.update(done, {})
    if not is_nonzero(reference):
        raise ValueError(
            f"the {num_reference} reference batches have no gradient; raise "
            "--num_reference, or use problems that are sometimes answered right"
        )
    measured = []
    for done, sampled in enumerate(batches, num_reference + 1):
        if sampled.advantages.any():
            rollouts = sampled.groups.rollouts
            residual = clean_residuals(policy, rollouts, layer=weights.selection.layer)
            kinds, draws = weights.weigh(residual, rollouts)
            measured.append(
                _measure(gradients, sampled, reference, kinds, draws, seed=done)
            )
        progress.update(done, {})
    progress.close()
    labels = measured[0].kinds if measured else [EVEN]
    return compare_directions(
        {label: [each.kinds[label] for each in measured] for label in labels},
        np.array([each.draws for each in measured]).T,
    )


def _draw_weights(
    policy: LoadedPolicy,
    tsae: TSAE,
    selection: FeatureSelection,
    rfgo: RFGOConfig,
    sampled: RolloutBatch,
    *,
    num_draws: int,
) -> TokenWeights:
    """Returns the run's features, and random latents that fire as often here."""
    rollouts = sampled.groups.rollouts
    residual = clean_residuals(policy, rollouts, layer=selection.layer)
    return TokenWeights.draw(
        tsae, selection, rfgo, residual, rollouts, num_draws=num_draws
    )


def _measure(
    gradients: PolicyGradients,
    sampled: RolloutBatch,
    reference: nnx.State,
    kinds: dict[str, np.ndarray],
    draws: list[np.ndarray],
    *,
    seed: int,
) -> _Measured:
    """Returns one batch's cosines under all weights; `seed` is for the random order."""
    batch = gradients.make_batch(sampled)
    kinds = {
        EVEN: np.ones(batch.tokens.shape),
        **kinds,
        _SHUFFLED: shuffle_weights(kinds[FEATURES], batch.lengths, seed=seed),
    }
    gradient = functools.partial(gradients.gradient, batch)
    of_kinds = measure_cosines(gradient, reference, [*kinds.values()])
    return _Measured(
        kinds=dict(zip(kinds, of_kinds, strict=True)),
        draws=measure_cosines(gradient, reference, draws),
    )


def format_directions(
    found: DirectionComparison, over: str = "", *, num_reference: int
) -> str:
    """Returns the table, and how to read it.

    `over` names the units of the intervals, by default the batches.
    """
    rows = [
        (
            label,
            _format(kind.cosine),
            "" if label == EVEN else _format(kind.less_even, sign="+"),
            _format(kind.less_draws, sign="+"),
            f"{kind.num_as_high} of {len(found.of_draws)}",
        )
        for label, kind in found.kinds.items()
    ]
    rows.append(("random latents", _format(found.draws), "", "", ""))
    head = ("weights by", "cosine", "minus weights of 1", "minus random", "as high")
    low, high = min(found.of_draws), max(found.of_draws)
    return "\n".join(
        [
            align_table(Table(head=head, rows=rows)),
            "",
            f"The cosine of a batch's gradient with the total of {num_reference} other "
            f"batches. Draws of random latents: {low:.4f} to {high:.4f}. Intervals are "
            f"over {over or f'{found.num_batches} batches'}.",
        ]
    )


def _format(interval: Interval, sign: str = "") -> str:
    mean, low, high = (f"{value:{sign}.4f}" for value in interval)
    return f"{mean} [{low}, {high}]"
