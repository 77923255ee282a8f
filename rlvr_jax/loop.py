"""The loop: the stages of a run, in order.

warmup      worked solutions -> a policy that solves some problems
difficulty  that policy's completions of the train problems -> how hard each is for it
tsae        its completions -> an autoencoder of it, and the features chosen of that
train       problems -> rollouts -> verdicts -> advantages -> optimizer steps
eval        held-out problems, before (warmup's policy) and after (train's)
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from job_jax.checkpoint import digest
from job_jax.metrics import Progress
from job_jax.processes import divided, from_primary, on_host
from job_jax.steps import StageSteps
from rlvr_jax import doctor, throughput
from rlvr_jax.adapters import Learner, learner
from rlvr_jax.data import Difficulty, Loader, Pool, difficulty
from rlvr_jax.estimate import known_before_rl, learnt, restored, write_difficulty
from rlvr_jax.evaluate import (
    Judged,
    Verdicts,
    bands,
    evaluate_policy,
    initial_verdicts,
    score,
)
from rlvr_jax.experience import Experience, gather
from rlvr_jax.learn.batches import (
    micro_batches,
    rollout_batch,
    solution_batch,
    weighted,
)
from rlvr_jax.learn.objectives import policy_objective, supervised_objective
from rlvr_jax.learn.optimize import Optimized, optimize
from rlvr_jax.learn.update import (
    Updater,
    check_finite,
)
from rlvr_jax.models.distribution import Sampling
from rlvr_jax.run import Run
from rlvr_jax.sampler import pad_prompts
from rlvr_jax.stage import Loop, check_ended, policy_after
from rlvr_jax.telemetry import rollout_metrics
from rlvr_jax.throughput import Clock
from rlvr_jax.token_classes import token_classes
from rlvr_jax.tokenizer import pad_rows
from rlvr_jax.types import Batch
from rlvr_jax.watching import Watcher


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
        seed=run.config.seed,
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
            losses, report = on_host((losses, report))
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
    config = loop.run.config.train
    check_ended(loop, "warmup", "difficulty", "tsae")
    trained = learner(loop.run, lambda: policy_after(loop, "warmup"))
    run = trained.run
    # Updates donate their state, so a reference is an array of its own.
    needs_reference = config.loss.kl_coef > 0 or config.rfgo.reads_reference
    reference = trained.start() if needs_reference else None
    watcher = Watcher.open(loop, trained)
    updater = _policy_updater(trained, watcher)
    pool = Pool(run.sources["train"], run.config)
    sampling = run.replicate(Sampling.of(config.sampling))
    draw_key = jax.jit(functools.partial(jax.random.fold_in, run.key("train")))
    with loop.steps("train", config.steps) as steps:
        steps.begin(
            lambda: updater.init(trained.start()),
            host={
                "doctor": doctor.new_state(),
                "speed": throughput.nothing(),
                "rfgo": watcher.new_state() if watcher else None,
            },
        )
        known = restored(steps) or known_before_rl(loop, pool)
        for step in steps:
            clock = Clock()
            experience = gather(
                run,
                trained.acting(steps.state),
                pool,
                known,
                step=step,
                draw_key=draw_key,
                sampling=sampling,
                clock=clock,
            )
            result = _learn(
                run,
                updater,
                steps,
                step,
                experience=experience,
                reference=reference,
                sampling=sampling,
                watcher=watcher,
                clock=clock,
            )
            steps.state = result.state
            watched = watcher.after(steps, step, experience, result) if watcher else {}
            clock.lap("probe")
            known = learnt(
                loop,
                steps,
                known,
                experience.visits,
                step=step,
                draws=experience.draws,
            )
            _end_step(
                dataclasses.replace(loop, run=run),
                steps,
                step,
                trained=trained,
                known=known,
                experience=experience,
                result=result,
                watched=watched,
                clock=clock,
            )
        if watcher:
            watcher.finish(steps, updater, sampling)
    write_difficulty(loop, pool, known)
    speed = throughput.summary(
        steps.host["speed"],
        model=run.config.model,
        vocab_size=run.vocab_size,
        frozen=bool(trained.frozen),
    )
    loop.summarise({"stages": {"train": steps.seconds}, "throughput": speed})


def _policy_updater(trained: Learner, watcher: Watcher | None) -> Updater:
    run, config = trained.run, trained.run.config.train
    return Updater(
        run.graphdef,
        policy_objective(config.loss, token_classes(run.tokenizer)),
        optimizer=config.optimizer,
        total_steps=config.optimizer_steps,
        logit_chunk=config.logit_chunk,
        seed=run.config.seed,
        probing=watcher.probing if watcher else None,
        frozen=trained.frozen,
    )


def _learn(
    run: Run,
    updater: Updater,
    steps: StageSteps,
    step: int,
    *,
    experience: Experience,
    reference: Any,
    sampling: Sampling,
    watcher: Watcher | None,
    clock: Clock,
) -> Optimized:
    """Returns what a step's optimizer steps made of its experience."""
    rollouts = experience.groups.rollouts
    batch = rollout_batch(rollouts, experience.advantages, bands_P=experience.bands)
    watch = None
    if watcher:
        batch, watch = watcher.before(steps, step, experience, batch)
    clock.lap("probe")
    result = optimize(
        run.config,
        updater,
        steps.state,
        batch=batch,
        weight_version=rollouts.weight_version,
        reference=reference,
        sampling=sampling,
        place=run.place,
        watch=watch,
    )
    clock.lap("update")
    return result


def evaluation(loop: Loop) -> None:
    """Evaluates the policy before and after RL on the same problems and draws.

    Both are cut by what the first made of the problems, as its file tells.
    """
    train = loop.run.config.train
    check_ended(loop, "warmup", "train")
    done = from_primary(lambda: loop.workdir.read_summary().get("eval", {}))
    for name, stage in (("before", "warmup"), ("after", "train")):
        if name in done:
            continue
        loop.stop.check()
        params = policy_after(loop, stage)
        clock = Clock()
        judged = _evaluated(
            loop,
            params,
            f"eval {name}",
            weight_version=train.optimizer_steps if stage == "train" else 0,
            between=loop.stop.check,
        )
        clock.lap("eval")
        initial = _save_evaluated(loop, name, judged)
        loop.summarise(
            {
                "eval": {name: score(loop.run.config, judged, initial)},
                "stages": {f"eval_{name}": clock.seconds["eval_s"]},
                "params": sum(leaf.size for leaf in jax.tree.leaves(params)),
                "params_sha256": digest(params),
            }
        )


def _solutions(run: Run, loader: Loader, step: int) -> Batch:
    """Returns a step's worked solutions, each read by one process and told to all."""
    tokenizer, config = run.tokenizer, run.config

    def read(rows: Sequence[int]) -> list[tuple[list[int], list[int]]]:
        return [
            (
                list(tokenizer.encode_prompt(problem.prompt)),
                [*tokenizer.encode(problem.solution or ""), tokenizer.eos_id],
            )
            for problem in loader.problems(step, rows)
        ]

    asked, solved = zip(*divided(loader.rows, read), strict=True)
    uids = range(len(asked))  # nothing is drawn from these prompts
    prompts = pad_prompts(asked, uids=uids, bucket=config.prompt_bucket)
    tokens_BT, lengths_B = pad_rows(solved, bucket=config.completion_bucket)
    return solution_batch(prompts, tokens_BT, lengths_B)


def _end_step(
    loop: Loop,
    steps: StageSteps,
    step: int,
    *,
    trained: Learner,
    known: Difficulty,
    experience: Experience,
    result: Optimized,
    watched: Mapping[str, float],
    clock: Clock,
) -> None:
    """Logs a training step, asks the doctor, and keeps what has to be kept."""
    config = loop.run.config
    metrics = result.metrics | rollout_metrics(
        experience.groups.judged,
        rewards_PG=experience.rewards,
        advantages_PG=experience.advantages,
        split_P=experience.split,
        k=config.eval.k,
    )
    metrics |= {**watched, **experience.notes}
    metrics |= difficulty.drift(known, config.difficulty)
    if len(experience.reward_parts) > 1:
        metrics |= {
            f"reward/{name}": float(part_PG.mean())
            for name, part_PG in experience.reward_parts.items()
        }
    if config.eval.every and (step + 1) % config.eval.every == 0:
        judged = _evaluated(
            loop,
            trained.whole(steps.state.params),
            f"eval at {step + 1}",
            weight_version=int(steps.state.step),
            between=lambda: None,  # a step that has begun is ended and saved
        )
        passed = score(config, judged)["pass@k"]
        metrics |= {f"eval/pass@{k}": found["mean"] for k, found in passed.items()}
    steps.host["doctor"], alarms = doctor.examine(
        steps.host["doctor"],
        step,
        metrics,
        window=config.log.alarm_window,
        max_logprob_gap=config.train.max_logprob_gap,
        max_fve_drop=config.probe.max_fve_drop,
    )
    for alarm in alarms:
        steps.say(str(alarm))
    if step > steps.first:  # the first step compiles
        steps.host["speed"] = throughput.add(
            steps.host["speed"],
            clock,
            sampled=experience.sampled,
            learnt=int(experience.groups.rollouts.lengths.sum()),
        )
    if step % config.log.rollouts_every == 0 or step + 1 == config.train.steps:
        _save_rollouts(loop, "train", step, experience.groups.judged)
        loop.workdir.write_token_sums(step, result.by_cell)
    timings = {f"time/{name}": value for name, value in clock.seconds.items()}
    steps.end(
        step,
        metrics | timings,
        shown=("reward/mean", "groups/split", "rollout/length_mean"),
        tokens=experience.sampled,
        skipped=bool(metrics["optimizer/skipped"]),
    )


def _evaluated(
    loop: Loop,
    params: Any,
    name: str,
    *,
    weight_version: int,
    between: Callable[[], None],
) -> list[Judged]:
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


def _save_evaluated(loop: Loop, when: str, judged: Sequence[Judged]) -> Verdicts:
    """Saves the completions with their bands; returns what the bands were made of."""
    stage = f"eval_{when}"
    rows = [one.row(stage, 0) for one in judged]
    initial: Verdicts = initial_verdicts(rows)
    if when != "before":
        read = functools.partial(loop.workdir.read_rollouts, "eval_before", 0)
        initial = from_primary(lambda: initial_verdicts(read()))
    cut = bands(initial, loop.run.config.difficulty)
    loop.workdir.write_rollouts(
        stage, 0, ({**row, "band": cut.get(row["id"], "unknown")} for row in rows)
    )
    return initial


def _save_rollouts(loop: Loop, stage: str, step: int, judged: list[Judged]) -> None:
    loop.workdir.write_rollouts(stage, step, (one.row(stage, step) for one in judged))
