"""The command `python -m rlvr_jax.analysis`: offline, from workdirs and checkpoints."""

import importlib
import sys
from collections.abc import Sequence

from job_jax.command import BAD_USAGE, DONE
from job_jax.schema import did_you_mean

# Each is a package in this folder; its command.main(argv) returns the exit code.
COMMANDS = {
    "report": "writes WORKDIR/report/index.html, one self-contained page",
    "compare": "prints several runs side by side, with intervals",
    "experiment": "writes the tables and figures of an experiment's arms and seeds",
    "features": "features that RL strengthened, suppressed or woke, by band",
    "crosscoder": "latents that RL added, kept and lost, with four controls",
    "warnings": "which training metrics move before held-out pass@1 falls",
    "learning_value": "what predicts which single problem is worth training on",
    "influence": "what a step's batch, problem or reward did to the held-out score",
    "estimates": "which cheap estimates rank problems as their influence does",
    "geometry": "how far, along what and how straight RL moved the weights",
    "credit": "whether token weights mark the tokens that change the outcome",
    "gradients": "whether token weights align a batch's gradient with many others",
    "sufficiency": "steers the policy before RL along what RL amplified",
    "causal": "edits latents while a checkpoint answers, with matched controls",
}

_USAGE = "usage: python -m rlvr_jax.analysis COMMAND ...\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one subcommand. Returns its exit code, or 2 if the command is unknown."""
    name, *rest = [*(sys.argv[1:] if arguments is None else arguments), ""]
    if name in ("-h", "--help", "help"):
        print(_USAGE)
        for command, text in COMMANDS.items():
            print(f"  {command:<14} {text}")
        print("\nCOMMAND --help explains a command.")
        return DONE
    if name not in COMMANDS:
        wrong = f"no command {name!r}" if name else "a command is missing"
        nearest = did_you_mean(name, list(COMMANDS)) if name else ""
        known = nearest or f"; give one of {', '.join(COMMANDS)}"
        print(f"error: {wrong}{known}", file=sys.stderr)
        return BAD_USAGE
    return importlib.import_module(f"rlvr_jax.analysis.{name}.command").main(rest[:-1])


if __name__ == "__main__":
    sys.exit(main())
