"""The subcommand `features`: what RL did to each feature, from workdirs."""

import argparse
import dataclasses
from collections.abc import Sequence

from job_jax.command import ArgumentParser, UsageError, exit_code
from rlvr_jax.analysis.feature_dynamics import compared, dynamics, write_dynamics
from rlvr_jax.analysis.feature_log import read_log, same_dictionary
from rlvr_jax.analysis.feature_text import compared_text, text
from rlvr_jax.analysis.workdir import read_run
from sae_jax.dynamics import Cuts

_CUTS = {
    "delta": "least relative change of a mean activation",
    "e0": "firing rate below which a feature is silent",
    "e1": "firing rate from which it has emerged",
    "min_fired": "tokens that a tested feature fires on",
    "min_prompts": "prompts that a tested feature fires in",
    "level": "share of false claims that is accepted",
}


def main(argv: Sequence[str]) -> int:
    """Returns 0; 1 where a file is broken; 2 where features or runs are missing."""
    return exit_code(lambda: _run(_parser().read(argv)), (OSError, ValueError))


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="python -m rlvr_jax.analysis features",
        description="Compares the last logged step (or --step) with step 0 on the same "
        "texts, prints the tables and writes WORKDIR/features/dynamics.json. Several "
        "workdirs read with one T-SAE are compared too: what each gained that the "
        "others did not; those that differ in their seed alone count as one. How to "
        "read the tables is told in docs/features.md.",
    )
    parser.add_argument("workdirs", metavar="WORKDIR", nargs="+")
    parser.add_argument("--step", type=int, help="RL steps done (default: the last)")
    for field in dataclasses.fields(Cuts):
        parser.add_argument(
            f"--{field.name}",
            type=type(field.default),
            default=field.default,
            help=f"{_CUTS[field.name]} (default: {field.default})",
        )
    return parser


def _run(chosen: argparse.Namespace) -> None:
    try:
        cuts = Cuts(**{name: vars(chosen)[name] for name in _CUTS})
    except ValueError as error:
        raise UsageError(str(error)) from error
    logs = [read_log(read_run(workdir)) for workdir in chosen.workdirs]
    same_dictionary(logs)
    found = [dynamics(log, cuts, step=chosen.step) for log in logs]
    groups = compared(found, cuts) if len(found) > 1 else []
    parts = [text(each) for each in found]
    if groups:
        parts.append(compared_text(groups))
    parts.append("\n".join(f"written: {write_dynamics(f, groups)}" for f in found))
    print("\n\n".join(parts))
