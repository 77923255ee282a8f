"""The subcommand `sufficiency`: steers a policy before RL along what RL amplified."""

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from job_jax.calls import CallError
from job_jax.checkpoint import CheckpointReadError
from job_jax.command import parse_command, run_command
from job_jax.files import write_atomically, write_json
from job_jax.flags import ConfigFlags, UsageError
from job_jax.schema import NonNegativeInt, PositiveInt
from rlvr_jax.analysis.causal.arms import check_before_edits, run_arms
from rlvr_jax.analysis.causal.contrasts import (
    MIN_DRAWS,
    arm_row,
    compute_contrasts,
    contrast_row,
)
from rlvr_jax.analysis.causal.summary import draw_figure, warn_of_few_draws
from rlvr_jax.analysis.sufficiency.few_shot import (
    add_worked_examples,
    choose_examples,
)
from rlvr_jax.analysis.sufficiency.measure import (
    Amplification,
    measure_amplification,
    measure_shares,
    with_lenient_metrics,
)
from rlvr_jax.analysis.sufficiency.text import describe_shares, format_shares
from rlvr_jax.config import Config
from rlvr_jax.probe.intervene import (
    ArmResult,
    EditArm,
    InterventionSpec,
    NullEditError,
    load_fitting_sae,
    make_arms,
)
from rlvr_jax.probe.steering import Scope
from rlvr_jax.report.run_files import to_plain_json
from rlvr_jax.run.fetch import local_run
from rlvr_jax.run.load import LoadedPolicy, load_params_before_rl, load_policy
from rlvr_jax.types import Problem
from sae_jax.sae import TSAE
from sae_jax.train import SAE_DIR

_MIN_PROBLEMS = 4
OUTCOMES = ("pass@1", "answered", "lenient", "length")

_USAGE = """\
usage: python -m rlvr_jax.analysis sufficiency --config=RUN/config.json --run=RUN
           --out=DIR [--top=16] [--strengths=1,4,16,64] [--num_controls=20] [--shots=N]

Does what RL amplified suffice for what RL gained? Reads every second held-out problem
with the policies before and after RL, and takes the latents whose mean activation rose
most. Then the policy before RL answers the other problems while these latents are added
to the residual stream; at strength 1, as much as RL added on average. Controls are
random latents that fire as often, and random directions, both moving the stream as far.
With --shots there is another: worked examples in the prompt of the policy before RL.
Prints the share of RL's change that each strength brings, and writes
DIR/sufficiency.json and DIR/sufficiency.svg. docs/lab/causal.md says how to read it.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SufficiencyFlags(ConfigFlags):
    """The flags of this command."""

    run: str  # a run's workdir, with checkpoints from before and after RL
    out: str  # the directory to write; it must not exist
    sae: str = ""  # the autoencoder; by default the run's own
    layer: int | None = None  # counted from 0; by default the run's probe.layer
    top: PositiveInt = 16  # latents that are added
    strengths: tuple[float, ...] = (1.0, 4.0, 16.0, 64.0)  # 1: as much as RL added
    num_controls: PositiveInt = 20  # draws of random latents, and of directions
    # completion|predicting|everywhere: completion tokens only; with the prompt's last
    # token, which predicts the first of them; with the whole prompt
    scope: Scope = "completion"
    shots: NonNegativeInt = 0  # worked examples in the prompt, as one more control


def main(argv: Sequence[str]) -> int:
    """Returns the exit code: 0 done, 1 failed, 2 bad usage or config."""
    errors = (CallError, CheckpointReadError, NullEditError, OSError)
    return run_command(lambda: _run_command(argv), errors)


def _run_command(argv: Sequence[str]) -> None:
    flags, _, config = parse_command(
        argv, SufficiencyFlags, usage=_USAGE, default=Config()
    )
    out = Path(flags.out)
    check_before_edits(config, out)
    run = local_run(flags.run, with_checkpoints=True)
    layer = config.probe.layer if flags.layer is None else flags.layer
    with load_policy(config, run, stage="eval") as after:
        sae = flags.sae or str(run / SAE_DIR)
        record = load_fitting_sae(sae, after.setup.config, layer=layer, latents=(0,))
        params = load_params_before_rl(after.setup, run / "checkpoints")
        before = after._replace(params=params, step=0)
        result, picture = measure_sufficiency(
            before, after, record.tsae, flags, layer=layer
        )
    about = {"run": flags.run, "sae": sae, "layer": layer, "step": after.step}
    out.mkdir(parents=True)
    write_json(out / "sufficiency.json", to_plain_json(about | result))
    with write_atomically(out / "sufficiency.svg") as partial:
        partial.write_text(picture)
    print(json.dumps({"sufficiency": str(out)}))


def measure_sufficiency(
    before: LoadedPolicy,
    after: LoadedPolicy,
    tsae: TSAE,
    flags: SufficiencyFlags,
    *,
    layer: int,
) -> tuple[dict[str, Any], str]:
    """Returns the measurements as JSON, and their figure; prints the table."""
    config = after.setup.config
    choosing, scored = _split_problems(after)
    if flags.num_controls < MIN_DRAWS:
        print(warn_of_few_draws(flags.num_controls), file=sys.stderr)
    examples = choose_examples(choosing, flags.shots)
    few_shot_policy = (
        add_worked_examples(before, examples, scored) if examples else None
    )
    found = measure_amplification(before, after, tsae, choosing, layer=layer)
    latents = found.choose(flags.top)
    spec = InterventionSpec(
        layer=layer,
        latents=latents,
        mode="add",
        strengths=flags.strengths,
        num_controls=flags.num_controls,
        scope=flags.scope,
    )
    arms = make_arms(spec, tsae, found.in_units_of_change(latents), seed=config.seed)
    clean, after_rl, few_shot, edited = _run_arms(
        before, after, few_shot_policy, scored, arms, scope=flags.scope
    )
    resampling = {"resamples": config.eval.bootstrap_resamples, "seed": config.seed}
    outcomes = [name for name in OUTCOMES if name in clean.metrics]
    contrasts = compute_contrasts(clean, edited, outcomes=outcomes, **resampling)
    compared = edited if few_shot is None else [*edited, few_shot]
    shares = measure_shares(clean, after_rl, compared, outcomes, **resampling)
    sentences = describe_shares(shares, contrasts)
    print(format_shares(shares), "", *sentences, sep="\n")
    return {
        "intervention": vars(spec),
        "latents": _describe_latents(found, latents),
        "problems": {"choosing": len(choosing), "scored": len(scored)},
        "clean": arm_row(clean, clean),
        "after_rl": arm_row(after_rl, clean),
        "few_shot": few_shot and arm_row(few_shot, clean),
        "examples": [problem.id for problem in examples],
        "arms": [arm_row(result, clean) for result in edited],
        "contrasts": [contrast_row(contrast) for contrast in contrasts],
        "shares": [share.to_json() for share in shares],
        "summary": sentences,
    }, draw_figure(
        contrasts,
        title=f"{config.name} before RL, with {flags.top} latents that RL amplified",
        mode="add",
        outcomes=outcomes,
    )


def _split_problems(policy: LoadedPolicy) -> tuple[list[Problem], list[Problem]]:
    """Returns the held-out problems that choose latents, and those that are scored.

    No problem is both, so no score is of a choice that was made to fit it. Raises
    UsageError if there are too few.
    """
    problems = policy.setup.problems("eval", policy.setup.config.eval.num_problems)
    if len(problems) < _MIN_PROBLEMS:
        raise UsageError(
            f"{len(problems)} held-out problems: half of them choose latents and the "
            f"others are scored; give at least {_MIN_PROBLEMS} (eval.num_problems)"
        )
    return problems[::2], problems[1::2]


class _Results(NamedTuple):
    """The answers before RL, after it, with worked examples, and under every edit."""

    clean: ArmResult
    after_rl: ArmResult
    few_shot: ArmResult | None
    edited: list[ArmResult]


def _run_arms(
    before: LoadedPolicy,
    after: LoadedPolicy,
    few_shot_policy: LoadedPolicy | None,
    problems: Sequence[Problem],
    arms: Sequence[EditArm],
    *,
    scope: Scope,
) -> _Results:
    """Returns all answers, those with worked examples only if there is a policy."""
    clean, num_samples = EditArm(kind="clean"), before.setup.config.eval.num_samples
    unedited = [(before, clean), (after, clean)]
    if few_shot_policy:
        unedited.append((few_shot_policy, EditArm(kind="few-shot")))
    results = run_arms(
        [*unedited, *((before, arm) for arm in arms)],
        problems,
        scope=scope,
        name="sufficiency",
        keep=lambda _, result: with_lenient_metrics(result, num_samples=num_samples),
    )
    others = [_without_kl(result) for result in results[1 : len(unedited)]]
    return _Results(
        clean=results[0],
        after_rl=others[0],
        few_shot=others[1] if few_shot_policy else None,
        edited=results[len(unedited) :],
    )


def _without_kl(result: ArmResult) -> ArmResult:
    """Returns the answers without "kl", which is measured for edits only."""
    metrics = {name: ratio for name, ratio in result.metrics.items() if name != "kl"}
    return dataclasses.replace(result, metrics=metrics)


def _describe_latents(
    found: Amplification, latents: Sequence[int]
) -> list[dict[str, float]]:
    """Returns each latent's change by RL and its firing rate before, as JSON."""
    return [
        {
            "latent": latent,
            "change": float(found.change[latent]),
            "rate_before": float(found.before.firing.rate[latent]),
        }
        for latent in latents
    ]
