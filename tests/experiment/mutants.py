"""One-line mutants of rlvr_jax/experiment/; CONTRIBUTING.md says how to add one."""

from tests.mutants.mutant import rows

MUTANTS = [
    *rows(
        "rlvr_jax/experiment/execute.py",
        ("tests/experiment/test_execute.py",),
        runs_all_again=("if not run.has_ended()]", "]"),
        goes_on_after_a_failure=(
            "                progress.error = progress.error or StoppedError()\n"
            "                return",
            "                continue",
        ),
        swallows_the_signal=("process.send_signal(signal.SIGTERM)", "pass"),
        stops_for_nobody_else=(
            "return self.error is not None or self._signal",
            "return self._signal",
        ),
        one_seed_at_once=(
            "in enumerate(_share_cores(min(parallel, len(seeds))))",
            "in [(0, set())]",
        ),
        all_on_the_same_cores=(
            "cores[number % len(cores) :: num_workers]",
            "cores[:1]",
        ),
        cores_for_workers_that_are_none=(
            "min(parallel, len(seeds))",
            "parallel",
        ),
        seeds_share_a_worker=(
            "[run for run in left if run.seed == seed]\n        for seed in "
            "dict.fromkeys(run.seed for run in left)",
            "[run] for run in left",
        ),
    ),
    *rows(
        "rlvr_jax/experiment/schedule.py",
        ("tests/experiment/test_schedule.py",),
        arms_forget_their_start=("{**of_parent, **own,", "{**own,"),
        forks_forget_their_forebears=("of_parent = parent.overrides", "pass"),
        arms_overrule_reduced=("        if key not in shared\n", ""),
        makes_a_fork_twice=("self.fork is None or self.workdir.exists()", "False"),
        forks_without_their_parents=(
            "needed.add(experiment.arms[name].parent)",
            "pass",
        ),
    ),
]
