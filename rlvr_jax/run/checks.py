"""Checks that a run's batches and problems fit, before anything is compiled."""

from collections.abc import Iterable, Mapping, Sequence

from jax.sharding import Mesh

from job_jax.mesh import check_batch
from job_jax.schema import ConfigError, check
from rlvr_jax.config import Config
from rlvr_jax.config.task import Stage
from rlvr_jax.data.loader import (
    encode_solution,
    num_checked,
)
from rlvr_jax.rewards.parts import verifiers_of_rewards
from rlvr_jax.tokenizer import Tokenizer, UnknownWordError
from rlvr_jax.types import ProblemSource
from rlvr_jax.verifiers.base import get_verifier
from rlvr_jax.verifiers.thinking import THINK_CLOSE, THINK_OPEN

_NUM_READ_PROBLEMS = 16  # problems whose answer formats are checked


def check_batch_sizes(
    config: Config, mesh: Mesh, own_mesh: Mesh, stages: Sequence[Stage]
) -> None:
    """Raises ConfigError if a stage's rows do not divide over its mesh.

    Prompts are sampled on `own_mesh`, the sampler's.
    """
    sft, train = config.sft, config.train
    parts = {
        "sft": (
            sft.batch_size // sft.grad_accum_steps,
            "sft.batch_size / sft.grad_accum_steps",
        ),
        "train": (
            train.groups_per_micro_batch,
            "train.batch_size / (train.num_minibatches x train.grad_accum_steps)",
        ),
        "eval": (config.eval.batch_size, "eval.batch_size"),
    }
    prompts = {
        "train": (train.batch_size, "train.batch_size"),
        "eval": parts["eval"],
    }
    for stage in stages:
        rows, what = parts[stage]
        check_batch(rows, mesh, what)
        if stage in prompts:
            rows, what = prompts[stage]
            check_batch(rows, own_mesh, what)
    check_batch(config.sampler.slots, own_mesh, "sampler.slots")
    if "train" in stages:
        _check_micro_batch_tokens(config, mesh)
        for what, rows in config.probe.batch_sizes().items():
            check_batch(rows, mesh, what)


def check_new_run(
    config: Config, sources: Mapping[Stage, ProblemSource], verifiers: Iterable[str]
) -> None:
    """Raises ConfigError for a setting with which no new run should start.

    `sources` are the problems that are left, and `verifiers` those that they name. Runs
    that have started are not checked, so that a newer version can continue them.
    """
    if "train" in sources:
        check_batch_problems(config, sources["train"])
    check_judge_is_used(config, verifiers)


def check_batch_problems(config: Config, source: ProblemSource) -> None:
    """Raises ConfigError if a training batch is larger than the problems to draw from.

    `source` holds the train problems that are left after filtering. A curriculum that
    repeats problems on purpose may have batches of any size.
    """
    size, count = config.train.batch_size, len(source)
    available = min(config.difficulty.pool_size or count, count)
    what = "train problems"
    if available < count:
        what = f"problems of difficulty.pool_size={available}"
    check(
        not config.train.steps
        or size <= available
        or config.curriculum.repeats_problems,
        f"train.batch_size={size} is more than the {available:,} {what}, so each "
        f"step would repeat some; lower it to at most {available}, or give more "
        "problems",
    )


def check_judge_is_used(config: Config, verifiers: Iterable[str]) -> None:
    """Raises ConfigError if a judge is configured and nothing asks it.

    `verifiers` are those that the problems name.
    """
    judge = config.judge
    is_set = {n: v for n in ("url", "model") if (v := getattr(judge, n))}
    used = {*verifiers, *verifiers_of_rewards(config.train.reward)}
    if not is_set or "judge" in used:
        return
    name, value = next(iter(is_set.items()))
    raise ConfigError(
        f"judge.{name}={value!r}, but nothing uses a judge; name it in "
        "train.reward.names or as the verifier (task.record.verifier=judge)"
    )


def _check_micro_batch_tokens(config: Config, mesh: Mesh) -> None:
    """Raises ConfigError if a micro-batch cannot hold a group on each device."""
    budget = config.train.micro_batch_tokens
    devices = mesh.shape["data"] * mesh.shape["fsdp"]
    needed = devices * config.tokens_per_group
    check(
        not 0 < budget < needed,
        f"train.micro_batch_tokens={budget} is below the {needed} tokens that the "
        f"mesh's {devices} data x fsdp devices need for one group each (a prompt and "
        f"{config.train.rows_per_group} completions of maximal length); raise it to "
        f"{needed}, or split over fewer devices (mesh.tensor)",
    )


def check_has_traces(
    config: Config, source: ProblemSource, tokenizer: Tokenizer
) -> None:
    """Raises ConfigError if no train problem has a worked solution that fits.

    Only the first problems of a generated source are checked.
    """
    room = config.train.sampling.max_new_tokens
    count = num_checked(source)
    solved = (p for p in (source[i] for i in range(count)) if p.solution)
    check(
        any(len(encode_solution(problem, tokenizer)) <= room for problem in solved),
        f"train.loss.external_traces={config.train.loss.external_traces} learns from "
        f"worked solutions, but none of {count} train problems has one of at most "
        f"train.sampling.max_new_tokens={room} tokens; name the field with solutions "
        "(task.record.solution_field), or set external_traces=off",
    )


def check_marks(
    config: Config, tokenizer: Tokenizer, sources: Iterable[ProblemSource]
) -> None:
    """Raises ConfigError if the tokenizer loses a mark that the run reads.

    Only the first problems are checked. `tokenizer.thinking` must be resolved.
    """
    readers: dict[str, tuple[str, ...]] = {
        f"answer_format={name}": marks
        for source in sources
        for name, marks in _answer_marks(source).items()
    }
    environment = config.environment
    readers[f"environment.name={environment.tags()[environment.tag]}"] = (
        environment.marks
    )
    if config.tokenizer.thinks:
        readers["tokenizer.thinking=on"] = (THINK_OPEN, THINK_CLOSE)
    for reader, marks in readers.items():
        for mark in marks:
            text = _round_trip(mark, tokenizer)
            check(
                mark in text,
                f"{reader} reads the mark {mark!r}, but the tokenizer decodes it as "
                f"{text!r}; do not use it as a special token (eos, bos, pad, unk) or a "
                "role of the chat template, or choose another setting",
            )


def _answer_marks(source: ProblemSource) -> dict[str, tuple[str, ...]]:
    """Returns the marks that the answers of a source's first problems must carry."""
    marks = {"tagged": ("<answer>", "</answer>"), "boxed": ("\\boxed{",)}
    problems = [source[i] for i in range(min(len(source), _NUM_READ_PROBLEMS))]
    return {
        problem.answer_format: marks[problem.answer_format]
        for problem in problems
        if problem.answer_format in marks
        and get_verifier(problem.verifier).reads_answer_format
    }


def _round_trip(mark: str, tokenizer: Tokenizer) -> str:
    try:
        return tokenizer.decode(tokenizer.encode(mark))
    except UnknownWordError:
        return ""
