"""The loop: the stages of a run, in order.

warmup   worked solutions -> a policy that solves some problems
train    problems -> rollouts -> verdicts -> advantages -> optimizer steps
eval     held-out problems, before (warmup's policy) and after (train's)
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from job_jax.checkpoint import StageCheckpoints, digest, latest_step
from job_jax.compiles import CompileCounter
from job_jax.config_io import to_json
from job_jax.mesh import device_name
from job_jax.metrics import METRICS_FILE, MetricsWriter, Progress, read_metrics
from job_jax.schema import ConfigError
from job_jax.steps import StageSteps, StopSignal
from rlvr_jax import doctor, throughput
from rlvr_jax.config import Config
from rlvr_jax.data.loader import Loader, encode_prompts
from rlvr_jax.evaluate import Judged, evaluate_policy
from rlvr_jax.experience import Experience, gather
from rlvr_jax.learn.batches import micro_batches, solution_batch, weighted
from rlvr_jax.learn.optimize import Optimized, optimize
from rlvr_jax.learn.update import (
    Updater,
    check_finite,
    policy_objective,
    supervised_objective,
)
from rlvr_jax.models.distribution import Sampling
from rlvr_jax.run import Run
from rlvr_jax.telemetry import rollout_metrics, run_summary
from rlvr_jax.throughput import Clock
from rlvr_jax.tokenizer import pad_rows
from rlvr_jax.types import Batch
from rlvr_jax.workdir import Workdir


@dataclasses.dataclass(frozen=True, kw_only=True)
class Loop:
    """What the stages of a run share."""

    run: Run
    workdir: Workdir
    writer: MetricsWriter
    stop: StopSignal
    compiles: CompileCounter

    def steps(self, name: str, total: int) -> StageSteps:
        """Returns the bookkeeping of one stage's steps."""
        return StageSteps(
            name,
            total,
            directory=self.workdir.checkpoints,
            checkpoint=self.run.config.checkpoint,
            progress_every=self.run.config.log.progress_every,
            writer=self.writer,
            stop=self.stop,
        )

    def summarise(self, values: Mapping[str, Any]) -> None:
        """Merges `values` into summary.json, beside what holds for the whole run."""
        config = self.run.config
        rows = read_metrics(self.workdir.path / METRICS_FILE)
        self.workdir.update_summary(
            {
                "config": to_json(config),
                "seed": config.seed,
                "device": device_name(),
                "compile_count": self.compiles.count,
                "too_long": self.run.too_long,
                **run_summary(rows, config),
                "probe_overhead": None,
                "rfgo": None,
                **values,
            }
        )


def warmup(loop: Loop) -> None:
    """Fits the policy to worked solutions; its last checkpoint is where `train` starts.

    Does nothing with warmup.steps=0.
    """
    run, config = loop.run, loop.run.config.warmup
    if config.steps == 0:
        loop.summarise({"stages": {"warmup": 0.0}})
        return
    loader = Loader(
        run.sources["warmup"], batch_size=config.batch_size, seed=run.config.seed
    )
    updater = Updater(
        run.graphdef,
        supervised_objective,
        optimizer=config.optimizer,
        total_steps=config.steps,
        logit_chunk=run.config.train.logit_chunk,
    )
    plain = run.replicate(Sampling.plain())
    with loop.steps("warmup", config.steps) as steps:
        steps.begin(lambda: updater.init(run.initial_params()), host={})
        for step in steps:
            batch = _solutions(run, loader, step)
            parts = micro_batches(
                weighted(batch, aggregation="token_mean", max_length=1),
                config.micro_batches,
                bucket=run.config.completion_bucket,
            )
            steps.state, losses, report = updater.step(
                steps.state, map(run.place, parts), plain
            )
            losses, report = jax.device_get((losses, report))
            check_finite(report, config.optimizer.max_skipped)
            steps.end(
                step,
                {
                    "loss/total": float(losses.loss),
                    "loss/entropy": float(losses.entropy / losses.tokens),
                    **report.metrics(),
                },
                shown=("loss/total",),
                tokens=int(batch.lengths.sum()),
                skipped=bool(report.skipped),
            )
    loop.summarise({"stages": {"warmup": steps.seconds}})


def train(loop: Loop) -> None:
    """Reinforcement learning: the page that the rest of the package serves."""
    run, config = loop.run, loop.run.config.train
    _check_ended(loop, "warmup")
    # Updates donate their state, so a reference is an array of its own.
    reference = policy_after(loop, "warmup") if config.loss.kl_coef else None
    updater = Updater(
        run.graphdef,
        policy_objective(config.loss),
        optimizer=config.optimizer,
        total_steps=config.optimizer_steps,
        logit_chunk=config.logit_chunk,
    )
    loader = Loader(
        run.sources["train"], batch_size=config.prompts_per_step, seed=run.config.seed
    )
    sampling = run.replicate(Sampling.of(config.sampling))
    step_key = jax.jit(functools.partial(jax.random.fold_in, run.key("train")))
    with loop.steps("train", config.steps) as steps:
        steps.begin(
            lambda: updater.init(policy_after(loop, "warmup")),
            host={"doctor": doctor.new_state(), "speed": throughput.nothing()},
        )
        for step in steps:
            clock = Clock()
            experience = gather(
                run,
                loader.problems(step),
                steps.state,
                key=step_key(np.uint32(step)),
                sampling=sampling,
                clock=clock,
            )
            result = optimize(
                run.config,
                updater,
                steps.state,
                rollouts=experience.rollouts,
                advantages_PG=experience.advantages,
                reference=reference,
                sampling=sampling,
                place=run.place,
            )
            clock.lap("update")
            steps.state = result.state
            _end_step(
                loop, steps, step, experience=experience, result=result, clock=clock
            )
    speed = throughput.summary(
        steps.host["speed"],
        model=run.config.model,
        vocab_size=run.tokenizer.vocab_size,
    )
    loop.summarise({"stages": {"train": steps.seconds}, "throughput": speed})


def evaluation(loop: Loop) -> None:
    """Evaluates the policy before and after RL on the same problems and draws."""
    train = loop.run.config.train
    _check_ended(loop, "warmup", "train")
    done = loop.workdir.read_summary().get("eval", {})
    for name, stage in (("before", "warmup"), ("after", "train")):
        if name in done:
            continue
        loop.stop.check()
        params = policy_after(loop, stage)
        clock = Clock()
        summary, judged = _evaluated(
            loop,
            params,
            f"eval {name}",
            weight_version=train.optimizer_steps if stage == "train" else 0,
            between=loop.stop.check,
        )
        clock.lap("eval")
        _save_rollouts(loop, f"eval_{name}", 0, judged)
        loop.summarise(
            {
                "eval": {name: summary},
                "stages": {f"eval_{name}": clock.seconds["eval_s"]},
                "params": sum(leaf.size for leaf in jax.tree.leaves(params)),
                "params_sha256": digest(params),
            }
        )


def policy_after(loop: Loop, stage: str) -> Any:
    """Returns the parameters that a stage ended with.

    A stage of no steps leaves what was there before it: in the end, parameters drawn
    from the seed.
    """
    run, steps = loop.run, _steps(loop.run.config)
    if stage == "train" and steps["train"] == 0:
        stage = "warmup"
    if steps[stage] == 0:
        return run.initial_params()
    directory = loop.workdir.checkpoints / stage
    with StageCheckpoints(directory) as checkpoints:
        return checkpoints.restore_params(steps[stage], run.abstract_params())


def is_done(stage: str, *, config: Config, workdir: Workdir) -> bool:
    """Returns whether a stage has ended, with what it left still in the workdir."""
    summary = workdir.read_summary()
    if stage == "eval":
        return summary.get("eval", {}).keys() >= {"before", "after"}
    saved = latest_step(workdir.checkpoints / stage) or 0
    return saved == _steps(config)[stage] and stage in summary.get("stages", {})


def _check_ended(loop: Loop, *stages: str) -> None:
    """Raises ConfigError where one of the stages has not done all its steps."""
    for stage in stages:
        directory = loop.workdir.checkpoints / stage
        total, done = _steps(loop.run.config)[stage], latest_step(directory) or 0
        if done != total:
            raise ConfigError(
                f"stage {stage} has done {done} of {total} steps in {directory}; run "
                f"--stage={stage} or --stage=all first"
            )


def _steps(config: Config) -> dict[str, int]:
    return {"warmup": config.warmup.steps, "train": config.train.steps}


def _solutions(run: Run, loader: Loader, step: int) -> Batch:
    problems = loader.problems(step)
    prompts = encode_prompts(problems, run.tokenizer, bucket=run.config.prompt_bucket)
    tokens_BT, lengths_B = pad_rows(
        [
            [*run.tokenizer.encode(p.solution or ""), run.tokenizer.eos_id]
            for p in problems
        ],
        bucket=run.config.completion_bucket,
    )
    return solution_batch(prompts, tokens_BT, lengths_B)


def _end_step(
    loop: Loop,
    steps: StageSteps,
    step: int,
    *,
    experience: Experience,
    result: Optimized,
    clock: Clock,
) -> None:
    """Logs a training step, asks the doctor, and keeps what has to be kept."""
    config = loop.run.config
    tokens = int(experience.rollouts.lengths.sum())
    metrics = result.metrics | rollout_metrics(
        experience.judged,
        rewards_PG=experience.rewards,
        advantages_PG=experience.advantages,
        split_P=experience.split,
    )
    if config.eval.every and (step + 1) % config.eval.every == 0:
        summary, _ = _evaluated(
            loop,
            steps.state.params,
            f"eval at {step + 1}",
            weight_version=int(steps.state.step),
            between=lambda: None,  # a step that has begun is ended and saved
        )
        metrics |= {
            f"eval/pass@{k}": found["mean"] for k, found in summary["pass@k"].items()
        }
    steps.host["doctor"], alarms = doctor.examine(
        steps.host["doctor"],
        step,
        metrics,
        window=config.log.alarm_window,
        max_logprob_gap=config.train.max_logprob_gap,
    )
    for alarm in alarms:
        steps.say(str(alarm))
    if step > steps.first:  # the first step compiles
        steps.host["speed"] = throughput.add(steps.host["speed"], clock, tokens)
    if step % config.log.rollouts_every == 0 or step + 1 == config.train.steps:
        _save_rollouts(loop, "train", step, experience.judged)
    timings = {f"time/{name}": value for name, value in clock.seconds.items()}
    steps.end(
        step,
        metrics | timings,
        shown=("reward/mean", "groups/split", "rollout/length_mean"),
        tokens=tokens,
        skipped=bool(metrics["optimizer/skipped"]),
    )


def _evaluated(
    loop: Loop,
    params: Any,
    name: str,
    *,
    weight_version: int,
    between: Callable[[], None],
) -> tuple[dict[str, Any], list[Judged]]:
    config = loop.run.config
    problems = loop.run.problems("eval", config.eval.problems)
    progress = Progress(name, len(problems), every=1)

    def on_batch(done: int, tokens: int) -> None:
        progress.update(done, {}, tokens=tokens)
        between()

    found = evaluate_policy(
        loop.run, params, problems, weight_version=weight_version, on_batch=on_batch
    )
    progress.close()
    return found


def _save_rollouts(loop: Loop, stage: str, step: int, judged: list[Judged]) -> None:
    loop.workdir.write_rollouts(stage, step, (one.row(stage, step) for one in judged))
