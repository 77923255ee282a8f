"""The subcommand `features`: what RL did to each feature, from workdirs."""

import argparse
import dataclasses

from job_jax.command import UsageError
from rlvr_jax.analysis.feature_log import read_log, same_dictionary
from rlvr_jax.analysis.feature_text import compared_text, text
from rlvr_jax.analysis.features import compared, dynamics, write_dynamics
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


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the subcommand; its `run` returns what to print."""
    parser = commands.add_parser(
        "features",
        help="features strengthened, suppressed, emerging, unique, by band",
        description="Compares the last logged step (or --step) with step 0 on the same "
        "texts, prints the tables and writes WORKDIR/features/dynamics.json. Several "
        "workdirs read with one T-SAE are compared too: what each gained that the "
        "others did not; those that differ in their seed alone count as one.",
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
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> str:
    """Returns the tables; writes features/dynamics.json into each workdir."""
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
    parts += [f"written: {write_dynamics(each, groups)}" for each in found]
    return "\n\n".join(parts)
