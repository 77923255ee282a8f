"""Two outcomes of a policy on held-out problems, and the gradient of the smooth one.

pass@1 comes from sampled answers, with keys that are the same for every policy. A
single update hardly changes it. The log-probability of worked solutions is smooth: it
moves with every weight.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Float

from job_jax.working import working
from rlvr_jax.analysis.gradients.batches import add
from rlvr_jax.data import encode_episode, encode_prompt
from rlvr_jax.learn.activation_memory import ActivationLimit
from rlvr_jax.learn.batches import batch_from_solutions, with_loss_weights
from rlvr_jax.learn.micro_batches import (
    MicroBatchCut,
    score_micro_batches,
    split_micro_batches,
)
from rlvr_jax.learn.objectives import supervised_objective
from rlvr_jax.learn.update import Updater
from rlvr_jax.metrics.scores import evaluate_policy
from rlvr_jax.models.distribution import SamplingParams
from rlvr_jax.run.setup import RunSetup
from rlvr_jax.sampler import pad_prompts
from rlvr_jax.stages.trainer import Trainer
from rlvr_jax.tokenizer import pad_mask, pad_rows
from rlvr_jax.types import Batch, Problem


class Outcome(NamedTuple):
    """A policy's outcomes: one number per held-out problem, or None if not measured.

    `logprobs` are over the M problems with a worked solution: the mean log-probability
    of its tokens, in nats.
    """

    pass_at_1: Float[np.ndarray, " N"] | None
    logprobs: Float[np.ndarray, " M"] | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeldOut:
    """The held-out problems of a run, and the batch of their worked solutions.

    Made by `open_held_out`. `solutions` is None if no problem has a worked solution.
    """

    trainer: Trainer
    problems: Sequence[Problem]
    samples: bool  # whether answers are sampled
    solutions: Batch | None
    num_solutions: int
    updater: Updater
    sampling: SamplingParams  # the policy's own distribution
    cut: MicroBatchCut

    def measure(self, params: nnx.State) -> Outcome:
        """Returns the outcomes of the policy with these trained parameters."""
        pass_at_1 = self._sample_answers(params) if self.samples else None
        logprobs = None if self.solutions is None else self.score_solutions(params)
        return Outcome(pass_at_1, logprobs)

    def with_problems(self, problems: Sequence[Problem]) -> "HeldOut":
        """Returns a copy with other problems, and with their worked solutions."""
        solutions, count = _encode_solutions(self.trainer.setup, problems)
        return dataclasses.replace(
            self, problems=problems, solutions=solutions, num_solutions=count
        )

    def gradient(self, params: nnx.State) -> nnx.State:
        """Returns the gradient of minus the mean log-probability of the solutions."""
        assert self.solutions is not None
        parts = (
            self.updater.gradient(
                params, self.trainer.setup.shard_batch(part), self.sampling, None
            )[0]
            for part in split_micro_batches(self.solutions, self.cut)
        )
        return functools.reduce(add, parts)

    def _sample_answers(self, params: nnx.State) -> Float[np.ndarray, " N"]:
        """Returns each problem's share of correct answers."""
        with working("answering held-out problems"):
            graded = evaluate_policy(
                self.trainer.setup,
                self.trainer.trainable.merge_frozen(params),
                self.problems,
                weight_version=0,
                on_batch=lambda done, tokens: None,
            )
        correct = [one.verdict.status == "correct" for one in graded]
        return np.array(correct, np.float64).reshape(len(self.problems), -1).mean(1)

    def score_solutions(self, params: nnx.State) -> Float[np.ndarray, " M"]:
        """Returns each worked solution's mean log-probability per token."""
        assert self.solutions is not None
        shard: Callable[[Batch], Batch] = self.trainer.setup.shard_batch
        with working("scoring worked solutions"):
            logprob_BT, _ = score_micro_batches(
                lambda part: self.updater.score(params, shard(part), self.sampling),
                self.solutions,
                self.cut,
            )
        return self.mean_over_tokens(logprob_BT)

    def mean_over_tokens(
        self, values: Float[np.ndarray, " B T"]
    ) -> Float[np.ndarray, " M"]:
        """Returns each worked solution's mean of a number for each of its tokens."""
        assert self.solutions is not None
        mask_MT = np.asarray(self.solutions.mask)[: self.num_solutions]
        value_MT = values[: self.num_solutions].astype(np.float64)
        return np.where(mask_MT, value_MT, 0.0).sum(1) / mask_MT.sum(1)


def open_held_out(trainer: Trainer, num_problems: int, *, samples: bool) -> HeldOut:
    """Returns the first held-out problems of the run, at most `num_problems`."""
    setup = trainer.setup
    config = setup.config
    problems = setup.problems("eval", num_problems)
    solutions, count = _encode_solutions(setup, problems)
    return HeldOut(
        trainer=trainer,
        problems=problems,
        samples=samples,
        solutions=solutions,
        num_solutions=count,
        updater=Updater(
            setup.graphdef,
            supervised_objective,
            optimizer=config.train.optimizer,
            total_steps=1,
            logits_chunk_size=config.train.logits_chunk_size,
            frozen=trainer.trainable.frozen,
        ),
        sampling=setup.replicate(SamplingParams.unmodified()),
        cut=MicroBatchCut(
            num_groups=config.eval.batch_size,
            pad_multiple=config.completion_pad_multiple,
            memory=ActivationLimit.from_config(config),
        ),
    )


def _has_solution(setup: RunSetup, problem: Problem) -> bool:
    """Returns whether a problem has a worked solution that fits the model."""
    if not problem.solution:
        return False
    config = setup.config
    solution, _ = encode_episode(problem, setup.tokenizer, config.environment)
    prompt = encode_prompt(problem, setup.tokenizer)
    return len(prompt) + len(solution) <= config.model.max_seq_len


def _encode_solutions(
    setup: RunSetup, problems: Sequence[Problem]
) -> tuple[Batch | None, int]:
    """Returns the worked solutions with equal weight, and their number.

    They are filled up to whole batches. Filler rows have length 0, so they weigh
    nothing. None if no problem has a worked solution.
    """
    having = [problem for problem in problems if _has_solution(setup, problem)]
    if not having:
        return None, 0
    config, tokenizer, count = setup.config, setup.tokenizer, len(having)
    size = config.eval.batch_size
    rows = [*having, *[having[-1]] * (-count % size)]
    prompts = pad_prompts(
        [encode_prompt(problem, tokenizer) for problem in rows],
        uids=range(len(rows)),
        pad_multiple=config.prompt_pad_multiple,
    )
    encoded = [encode_episode(one, tokenizer, config.environment) for one in rows]
    ids, by_policy = zip(*encoded, strict=True)
    tokens_BT, lengths_B = pad_rows(ids, pad_multiple=config.completion_pad_multiple)
    lengths_B = np.where(np.arange(len(rows)) < count, lengths_B, 0).astype(np.int32)
    policy_mask = None
    if config.environment.enabled:
        policy_mask = pad_mask(by_policy, tokens_BT.shape[1])
    batch = with_loss_weights(
        batch_from_solutions(prompts, tokens_BT, lengths_B, policy_mask),
        aggregation="seq_mean_token_mean",
        max_length=1,
    )
    return batch, count


@jax.jit
def dot(gradient: nnx.State, other: nnx.State) -> jax.Array:
    """Returns the dot product of two gradients, in float32."""
    parts = jax.tree.map(jnp.vdot, gradient, other)
    return jnp.stack(jax.tree.leaves(parts)).sum()
