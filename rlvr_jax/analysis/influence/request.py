"""The command line of `influence`, checked before any work starts."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from job_jax.command import check_output_file, load_config
from job_jax.flags import Flags, Repeated, UsageError, parse_flags
from job_jax.schema import NonNegativeInt, did_you_mean
from rlvr_jax.analysis.influence.removals import reward_names
from rlvr_jax.config import Config
from rlvr_jax.run.fork import find_step
from rlvr_jax.run.lineage import CONFIG_FILE

USAGE = """\
usage: python -m rlvr_jax.analysis influence --run=RUN@STEP [--problems=all|0,3]
           [--batch] [--reward=NAME ...] [--num_held_out=N] [--nopass_at_1]
           [--out=FILE.json]

RUN@STEP  a run's workdir, and a step of RL whose checkpoint it still has; 0 is the
          state before RL

What did the step after STEP do to the held-out score? Takes the step again from the
checkpoint, with the same completions, once as it was and once without one thing: the
whole batch, one of its problems, or one part of the reward. Prints the difference in
pass@1 and in the log-probability of worked solutions. Next to each problem it prints
cheap estimates (gradients, the pass rate, EL2N and others) and how well they rank them.
Without --problems, --batch and --reward it removes the batch and every problem in turn.
Writes RUN/influence_STEP.json. docs/use/analysis.md says how to read the output.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class InfluenceFlags(Flags):
    """The flags of this command."""

    run: str  # RUN@STEP
    problems: str = ""  # all, or places in the batch, counted from 0, such as 0,3
    batch: bool = False  # the whole batch
    reward: Repeated = ()  # a part of the reward; may be given again
    # held-out problems; 0 means eval.num_problems of the run
    num_held_out: NonNegativeInt = 0
    # also sample answers to the held-out problems; --nopass_at_1 is much faster
    pass_at_1: bool = True
    out: str = ""  # the file to write, instead of RUN/influence_STEP.json


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """What to remove from which step, and where to write the result."""

    source: Path
    step: int
    config: Config
    batch: bool
    problems: tuple[int, ...]  # places in the batch
    rewards: tuple[str, ...]
    num_held_out: int
    samples: bool
    out: Path


def parse_request(argv: Sequence[str]) -> Request:
    """Returns the request of a command line. Raises UsageError."""
    flags, _ = parse_flags(argv, InfluenceFlags, usage=USAGE)
    source, step = find_step(flags.run)
    config = load_config(source / CONFIG_FILE, Config)
    _check_run(config, step)
    names_nothing = not (flags.batch or flags.problems or flags.reward)
    problems = "all" if names_nothing else flags.problems
    out = Path(flags.out or source / f"influence_{step}.json")
    return Request(
        source=source,
        step=step,
        config=config,
        batch=flags.batch or names_nothing,
        problems=_read_problems(problems, config.train.batch_size),
        rewards=_read_rewards(flags.reward, config),
        num_held_out=flags.num_held_out or config.eval.num_problems,
        samples=flags.pass_at_1,
        out=check_output_file(out, (".json",)),
    )


def _check_run(config: Config, step: int) -> None:
    """Raises UsageError if the run has no such step, or one that cannot be replayed."""
    train = config.train
    if step >= train.steps:
        raise UsageError(
            f"the run ends at step {train.steps} (train.steps), so no step comes after "
            f"step {step}; give an earlier one"
        )
    if train.staleness:
        raise UsageError(
            f"train.staleness={train.staleness}: a step learns from completions of an "
            "earlier policy, which is not replayed; give a run with staleness=0"
        )
    if train.rfgo.changes_updates:
        raise UsageError(
            "RFGO (train.rfgo) gives a group without advantages another signal, so a "
            "problem cannot be removed; give a run with lambda_w=0 and lambda_p=0"
        )


def _read_problems(text: str, batch_size: int) -> tuple[int, ...]:
    if text == "all":
        return tuple(range(batch_size))
    marks = [mark.strip() for mark in text.split(",")] if text else []
    for mark in marks:
        if not mark.isdecimal() or int(mark) >= batch_size:
            raise UsageError(
                f"--problems={text}: {mark!r} is no place in the batch, which has "
                f"problems 0 to {batch_size - 1}; give places, or all"
            )
    return tuple(sorted({int(mark) for mark in marks}))


def _read_rewards(names: Sequence[str], config: Config) -> tuple[str, ...]:
    parts = reward_names(config)
    for name in names:
        if name not in parts:
            raise UsageError(
                f"--reward={name}: the run's reward has no such part; it has "
                f"{', '.join(parts)}{did_you_mean(name, parts)}"
            )
        if len(parts) == 1:
            raise UsageError(
                f"--reward={name} is the only part of the reward; use --batch"
            )
    if names and config.train.loss.has_external_traces:
        raise UsageError(
            "--reward: the worked solutions of train.loss.external_traces would need "
            "new advantages; remove problems or the batch"
        )
    return tuple(dict.fromkeys(names))
