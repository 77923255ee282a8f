"""The stage `sft`: fits the policy to worked solutions."""

from collections.abc import Sequence

from job_jax.processes import device_get, map_across_processes
from job_jax.working import working
from rlvr_jax.data import Loader, encode_episode, encode_prompt
from rlvr_jax.learn.activation_memory import ActivationLimit
from rlvr_jax.learn.batches import (
    batch_from_solutions,
    with_loss_weights,
)
from rlvr_jax.learn.micro_batches import MicroBatchCut, split_micro_batches
from rlvr_jax.learn.objectives import supervised_objective
from rlvr_jax.learn.optimizer import check_not_diverged
from rlvr_jax.learn.update import Updater
from rlvr_jax.models.distribution import SamplingParams
from rlvr_jax.run.setup import RunSetup
from rlvr_jax.sampler import pad_prompts
from rlvr_jax.stages.context import RunContext, describe_update
from rlvr_jax.tokenizer import pad_mask, pad_rows
from rlvr_jax.types import Batch


def sft(ctx: RunContext) -> None:
    """Fits the policy to worked solutions; `train` starts from its last checkpoint.

    Does nothing with sft.steps=0.
    """
    setup, config = ctx.setup, ctx.setup.config.sft
    if config.steps == 0:
        ctx.update_summary({"stages": {"sft": 0.0}})
        return
    loader = Loader(
        setup.sources["sft"], batch_size=config.batch_size, seed=setup.config.seed
    )
    updater = Updater(
        setup.graphdef,
        supervised_objective,
        optimizer=config.optimizer,
        total_steps=config.steps,
        logits_chunk_size=setup.config.train.logits_chunk_size,
        seed=setup.config.seed,
    )
    sampling = setup.replicate(SamplingParams.unmodified())
    cut = MicroBatchCut(
        num_groups=config.batch_size // config.grad_accum_steps,
        pad_multiple=setup.config.completion_pad_multiple,
        memory=ActivationLimit.from_config(setup.config),
    )
    with ctx.stage_steps("sft", config.steps) as steps:
        state, _ = steps.resume_or_init(
            init=lambda: updater.init(setup.initial_params()),
            abstract=lambda: updater.abstract_state(setup.abstract_params()),
        )
        for step in steps:
            batch = _load_solutions(setup, loader, step)
            parts = split_micro_batches(
                with_loss_weights(batch, aggregation="token_mean", max_length=1),
                cut,
            )
            with working(describe_update(is_first=step == steps.start_step)):
                state, losses, report = updater.step(
                    state, map(setup.shard_batch, parts), sampling
                )
                losses, report = device_get((losses, report))
            check_not_diverged(report, config.optimizer.max_consecutive_nonfinite)
            steps.commit(
                step,
                state,
                {
                    "loss/total": float(losses.loss),
                    "loss/entropy": float(losses.scalars["entropy"] / losses.tokens),
                    **report.to_metrics(),
                },
                displayed={"loss": "loss/total"},
                tokens=int(batch.lengths.sum()),
                skipped=bool(report.consecutive_nonfinite),
            )
    ctx.update_summary({"stages": {"sft": steps.seconds}})


def _load_solutions(setup: RunSetup, loader: Loader, step: int) -> Batch:
    """Returns a step's worked solutions; each process reads an equal share."""
    tokenizer, config = setup.tokenizer, setup.config

    def encode(rows: Sequence[int]) -> list[tuple[list[int], list[int], list[bool]]]:
        return [
            (
                encode_prompt(problem, tokenizer),
                *encode_episode(problem, tokenizer, config.environment),
            )
            for problem in loader.next_batch(step, rows)
        ]

    encoded = map_across_processes(loader.rows, encode)
    prompt_ids, solution_ids, by_policy = zip(*encoded, strict=True)
    uids = range(len(prompt_ids))  # nothing is sampled from these prompts
    prompts = pad_prompts(
        prompt_ids, uids=uids, pad_multiple=config.prompt_pad_multiple
    )
    tokens_BT, lengths_B = pad_rows(
        solution_ids, pad_multiple=config.completion_pad_multiple
    )
    if not config.environment.enabled:
        return batch_from_solutions(prompts, tokens_BT, lengths_B)
    return batch_from_solutions(
        prompts, tokens_BT, lengths_B, pad_mask(by_policy, tokens_BT.shape[1])
    )
