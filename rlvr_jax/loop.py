"""The loop: the stages whose steps learn, every part of a step named in order.

warmup  worked solutions -> a policy that solves some problems
train   problems -> rollouts -> verdicts -> advantages -> optimizer steps

The others: `estimate.estimation` and `tsae` between these two, `held_out.evaluation`
after them.
"""

from collections.abc import Sequence

from job_jax.processes import divided, on_host
from rlvr_jax import throughput
from rlvr_jax.data import Loader
from rlvr_jax.estimate import known_before_rl, learnt, restored, write_difficulty
from rlvr_jax.experience import gather
from rlvr_jax.learn.batches import micro_batches, solution_batch, weighted
from rlvr_jax.learn.objectives import supervised_objective
from rlvr_jax.learn.update import Updater, check_finite
from rlvr_jax.models.distribution import Sampling
from rlvr_jax.run import Run
from rlvr_jax.sampler import pad_prompts
from rlvr_jax.stage import Loop, check_ended
from rlvr_jax.throughput import Clock
from rlvr_jax.tokenizer import pad_rows
from rlvr_jax.training import Training, end_step, learn
from rlvr_jax.types import Batch


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
    check_ended(loop, "warmup", "difficulty", "tsae")
    training = Training.open(loop)
    run, watcher = training.run, training.watcher
    with loop.steps("train", run.config.train.steps) as steps:
        steps.begin(training.new_state, host=training.new_host_state())
        known = restored(steps) or known_before_rl(loop, training.pool)
        for step in steps:
            clock = Clock()
            experience = gather(
                run,
                training.learner.acting(steps.state),
                training.pool,
                known,
                step=step,
                draw_key=training.draw_key,
                sampling=training.sampling,
                clock=clock,
            )
            result = learn(training, steps, step, experience, clock=clock)
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
            end_step(
                training,
                steps,
                step,
                experience,
                result=result,
                known=known,
                watched=watched,
                clock=clock,
            )
        if watcher:
            watcher.finish(steps, training.updater, training.sampling)
    write_difficulty(loop, training.pool, known)
    speed = throughput.summary(
        steps.host["speed"],
        model=run.config.model,
        vocab_size=run.vocab_size,
        frozen=bool(training.learner.frozen),
    )
    loop.summarise({"stages": {"train": steps.seconds}, "throughput": speed})


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
