"""Warnings before a run: settings that can run but are known not to work well.

Settings that cannot run at all are refused elsewhere (`run.checks`, the sections of the
config). A check here is a function of an opened run. It yields a line, with the fix,
for each bad setting. To add a check, add a function to `_CHECKS`. `run.data_warnings`
checks the problems.
"""

import math
from collections.abc import Callable, Iterator

import jax

from rlvr_jax.config import OptimizerConfig, SFTConfig, TokenizerConfig, TrainConfig
from rlvr_jax.config.environment import REPLY, Environment
from rlvr_jax.data.loader import encode_solution
from rlvr_jax.run.checkpoint_settings import checkpoint_sampling, describe_sampling
from rlvr_jax.run.data_warnings import data_warnings
from rlvr_jax.run.lineage import Lineage
from rlvr_jax.run.setup import RunSetup
from rlvr_jax.tasks.records.layout import ANSWER_REQUESTS
from rlvr_jax.tasks.records.task import RecordTask
from rlvr_jax.tokenizer import HuggingFaceTokenizer, chat_template, tokenizer_directory
from rlvr_jax.tokenizer.chat import ChatTemplateError, render_chat
from rlvr_jax.types import AnswerFormat, Problem

# The learning rates between which we expect RL from published weights to work. The
# limits are our reading. TRL's GRPO and verl's examples of 0.5B to 7B train all weights
# at 1e-6. Adapters do best at ten times the rate (Thinking Machines, LoRA Without
# Regret), and a model of 135M learned with adapters at 5e-4 (ours).
_LARGE = 300_000_000  # parameters
_RATES = {True: (1e-7, 1e-5), False: (1e-6, 1e-4)}  # by whether a model is large
_OF_LORA = 10.0
# New weights: our recipes use 1e-4 to 5e-4 in RL and up to 4e-3 in SFT. The limits are
# far outside, so that they find slips such as 10 and 1e-12.
_RATES_OF_NEW = (1e-6, 1e-1)
_OF_SFT = 10.0  # TRL's SFT default is 2e-5; SmolLM2 of 135M and 360M used 1e-3

# Models below this size often write noise at temperature 1: SmolLM2-135M-Instruct
# solved 2 % of single-digit sums at 1, and wrote sensible text at 0.5 (ours).
_SMALL = 1_000_000_000
_KNOWN_TEMPERATURE = 0.7  # at which it solved 21 %, and 84 % after 11 steps of RL
_MAX_TEMPERATURE = 2.0
_MAX_WARMUP = 4  # x the optimizer steps; a short trial may also keep the default

_MARKS: dict[AnswerFormat, str] = {"boxed": "boxed", "tagged": "<answer>"}
_NUM_PROBLEMS = 64  # the first ones, as a sample
_STEPS, _ROOM_FOR_STEPS = "step by step", 128  # tokens; a short solution of GSM8K's
_MAX_LEFT_OUT = 0.1  # share of a stage's problems
_GOLD_IS_ANSWER = ("math", "numeric", "exact")  # verifiers that compare with the gold
_TURN = "ANSWER"  # a dummy assistant turn, to find the text after it


def describe_start(setup: RunSetup, lineage: Lineage | None = None) -> list[str]:
    """Returns the lines printed before a run: sampling, left-out problems, warnings."""
    return [
        *describe_sampling(setup.config),
        *setup.dropped_report(),
        *(f"warning: {line}" for line in start_warnings(setup, lineage)),
    ]


def start_warnings(setup: RunSetup, lineage: Lineage | None = None) -> list[str]:
    """Returns a line for each setting that is known not to work, with the fix.

    `lineage` is the checkpoint of another run that this run continues.
    """
    checks = [line for check in _CHECKS for line in check(setup, lineage)]
    return [*checks, *data_warnings(setup)]


def _warn_of_learning_rate(setup: RunSetup, _: Lineage | None) -> Iterator[str]:
    config = setup.config
    count = _count_params(setup)
    is_new = not config.pretrained.path
    low, high = _RATES_OF_NEW if is_new else _RATES[count >= _LARGE]
    weights = f"{_format_count(count)} weights"
    model = "policy without pretrained weights" if is_new else "pretrained model"
    if config.sft.steps:
        yield from _compare_rate(
            "sft.optimizer.learning_rate",
            config.sft.optimizer.learning_rate,
            (low, high) if is_new else (0.0, high * _OF_SFT),
            what=f"all {weights} of a {model}",
            advice=SFTConfig().optimizer.learning_rate if is_new else high,
        )
    if config.train.steps:
        factor = _OF_LORA if config.train.lora.rank else 1.0
        what = f"adapters of {weights}" if factor > 1 else f"all {weights}"
        default = TrainConfig().optimizer.learning_rate
        yield from _compare_rate(
            "train.optimizer.learning_rate",
            config.train.optimizer.learning_rate,
            (low * factor, high * factor),
            what=f"{what} of a {model}",
            advice=default if is_new else high * factor / 10,
        )


def _compare_rate(
    field: str, rate: float, bounds: tuple[float, float], *, what: str, advice: float
) -> Iterator[str]:
    low, high = bounds
    if rate > high:
        limit, effect = f"over {high:g}", "models tend to break"
    elif rate < low:
        limit, effect = f"under {low:g}", "models learn almost nothing"
    else:
        return
    yield (
        f"{field}={rate:g} for {what} is {limit}, a rate at which {effect}; try "
        f"--config.{field}={advice:g}"
    )


def _warn_of_temperature(setup: RunSetup, _: Lineage | None) -> Iterator[str]:
    config, count = setup.config, _count_params(setup)
    if not config.pretrained.path or count >= _SMALL:
        return
    if "temperature" in checkpoint_sampling(config):
        return
    sections = {"train": config.train.sampling, "eval": config.eval.sampling}
    hot = [stage for stage, one in sections.items() if one.temperature >= 1]
    if hot:
        flags = (f"--config.{s}.sampling.temperature={_KNOWN_TEMPERATURE}" for s in hot)
        yield (
            f"temperature {sections[hot[0]].temperature:g} in stage {', '.join(hot)}: "
            f"the checkpoint gives no temperature, and a pretrained model of "
            f"{_format_count(count)} weights often writes noise at 1; try "
            f"{' '.join(flags)}"
        )


def _warn_of_odd_temperature(setup: RunSetup, _: Lineage | None) -> Iterator[str]:
    config = setup.config
    sections = {"train": config.train.sampling, "eval": config.eval.sampling}
    for name, sampling in sections.items():
        if sampling.temperature > _MAX_TEMPERATURE:
            yield (
                f"{name}.sampling.temperature={sampling.temperature:g} draws "
                "tokens nearly at random; published runs use 0.6 to 1.2; try "
                f"--config.{name}.sampling.temperature=1"
            )


def _warn_of_warmup(setup: RunSetup, lineage: Lineage | None) -> Iterator[str]:
    config = setup.config
    stages = {"train": (config.train.optimizer, config.train.optimizer_steps)}
    if not lineage:  # else SFT is skipped
        stages["sft"] = (config.sft.optimizer, config.sft.steps)
    for name, (optimizer, steps) in stages.items():
        warmup = optimizer.warmup_steps
        if steps and warmup > max(_MAX_WARMUP * steps, OptimizerConfig().warmup_steps):
            yield (
                f"{name}.optimizer.warmup_steps={warmup} is longer than the {steps} "
                f"optimizer steps of {name}, so the learning rate rises only to "
                f"{steps / warmup:.0%} of {name}.optimizer.learning_rate; try "
                f"--config.{name}.optimizer.warmup_steps={max(1, steps // 10)}"
            )


def _warn_of_lora_rank(setup: RunSetup, _: Lineage | None) -> Iterator[str]:
    config = setup.config
    rank, hidden = config.train.lora.rank, config.model.hidden_size
    if rank > hidden:
        yield (
            f"train.lora.rank={rank} is more than model.hidden_size={hidden}, so the "
            "adapters are larger than the weights; try --config.train.lora.rank=16, or "
            "train all weights with --config.train.lora.rank=0"
        )


def _warn_of_reward_weights(setup: RunSetup, _: Lineage | None) -> Iterator[str]:
    reward = setup.config.train.reward
    weight = dict(zip(reward.names, reward.weights, strict=True)).get("correctness", 0)
    if weight < 0:
        yield (
            f"train.reward.weights pays {weight:g} for a correct completion, so RL "
            "learns wrong answers; give correctness a positive weight"
        )


def _warn_of_random_weights(setup: RunSetup, lineage: Lineage | None) -> Iterator[str]:
    config = setup.config
    if config.pretrained.path or lineage or config.sft.steps or not config.train.steps:
        return
    yield (
        "sft.steps=0 and no pretrained.path: RL starts from random weights, which "
        "solve nothing that could be rewarded; set sft.steps, such as "
        "--config.sft.steps=300, or pretrained.path, or --continue_from"
    )


def _warn_of_answer_format(setup: RunSetup, lineage: Lineage | None) -> Iterator[str]:
    config = setup.config
    if not config.pretrained.path or lineage or config.sft.steps:
        return
    for problem in _first_problems(setup)[:1]:
        mark = _MARKS.get(problem.answer_format)
        if mark is None or mark in problem.prompt:
            continue
        request = ANSWER_REQUESTS[problem.answer_format]
        fix = "say so in the prompt"
        if isinstance(config.task, RecordTask):
            fix = (
                f"end task.record.prompt_template in {request!r}, or set "
                "--config.task.record.answer_format=any"
            )
        yield (
            f"answer_format={problem.answer_format} counts an answer only if "
            f"{mark!r} marks it, but the prompts do not say so; {fix}"
        )


def _warn_of_short_completions(setup: RunSetup, _: Lineage | None) -> Iterator[str]:
    room = setup.config.train.sampling.max_new_tokens
    problems = _first_problems(setup)
    field = f"train.sampling.max_new_tokens={room}"
    lengths = [_answer_length(setup, problem) for problem in problems]
    if needed := sorted(filter(None, lengths)):
        middle = needed[len(needed) // 2]
        if middle > room:
            yield (
                f"{field} cuts completions off before the answer: half of the "
                f"first train problems take {middle} tokens or more; try "
                f"--config.train.sampling.max_new_tokens={2 * middle}"
            )
            return
    asks_for_steps = any(_STEPS in problem.prompt for problem in problems[:1])
    if setup.config.pretrained.path and asks_for_steps and room < _ROOM_FOR_STEPS:
        yield (
            f"{field} leaves little room for an answer that is worked out step by "
            "step, as the prompts ask; try --config.train.sampling.max_new_tokens=512 "
            "and model.max_seq_len to match"
        )


def _answer_length(setup: RunSetup, problem: Problem) -> int | None:
    """Returns the tokens that an answer needs, None if unknown."""
    if problem.solution:
        return len(encode_solution(problem, setup.tokenizer))
    if problem.verifier in _GOLD_IS_ANSWER:
        return len(setup.tokenizer.encode(problem.gold))
    return None


def _warn_of_long_prompts(setup: RunSetup, _: Lineage | None) -> Iterator[str]:
    for stage, source in setup.sources.items():
        if stage == "sft":
            continue
        long = setup.too_long[stage]
        share = long / (long + len(source))
        if share > _MAX_LEFT_OUT:
            yield (
                f"{share:.0%} of the {stage} problems have a prompt that does not fit "
                f"into model.max_seq_len={setup.config.model.max_seq_len} together "
                "with max_new_tokens; raise model.max_seq_len"
            )


def _warn_of_turn_end(setup: RunSetup, _: Lineage | None) -> Iterator[str]:
    tokenizer = setup.tokenizer
    if not isinstance(tokenizer, HuggingFaceTokenizer):
        return
    behind = tokenizer.encode(_behind_a_turn(setup).lstrip())
    if behind and behind[0] in tokenizer.special_ids - {*tokenizer.eos_ids}:
        name = tokenizer.show(behind[:1])
        directory = tokenizer_directory(setup.config)
        yield (
            f"the chat template ends a turn with {name}, but completions do not end "
            f"there; add --config.tokenizer.stop_strings='{name}', or its id to "
            f"eos_token_id in {directory / 'generation_config.json'}"
        )


def _warn_of_reply_template(setup: RunSetup, _: Lineage | None) -> Iterator[str]:
    environment, tokenizer = setup.config.environment, setup.tokenizer
    if not isinstance(environment, Environment) or environment.reply_template != REPLY:
        return
    if not isinstance(tokenizer, HuggingFaceTokenizer):
        return
    reply = {"role": "user", "content": REPLY}
    behind = _behind_a_turn(setup, reply)
    if REPLY not in behind:
        return
    for end in tokenizer.eos_ids:  # the policy writes it itself
        behind = behind.removeprefix(tokenizer.show([end]))
    yield (
        f"environment.reply_template={REPLY} puts replies outside any turn of the "
        f"chat; set it to {behind!r}"
    )


def _behind_a_turn(setup: RunSetup, *messages: dict[str, str]) -> str:
    """Returns the text that the chat template writes after an assistant's turn.

    The messages follow that turn. "" without the tokenizer's template, and if the
    template refuses the messages.
    """
    task = setup.config.task
    if not task.needs_tokenizer_template:
        return ""
    directory = tokenizer_directory(setup.config)
    template = chat_template(directory, field=task.chat_template_field)
    turns = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": _TURN},
        *messages,
    ]
    try:
        return render_chat(template, turns).rpartition(_TURN)[2]
    except ChatTemplateError:
        return ""


def _warn_of_vocab_size(setup: RunSetup, _: Lineage | None) -> Iterator[str]:
    tokenizer = setup.config.tokenizer
    if tokenizer.vocab_size != TokenizerConfig().vocab_size and (
        not tokenizer.trained_in_run
    ):
        yield (
            f"tokenizer.vocab_size={tokenizer.vocab_size} does nothing: the tokenizer "
            f"(kind={tokenizer.kind}) has its own vocabulary of "
            f"{setup.tokenizer.vocab_size}; leave it out"
        )


_CHECKS: tuple[Callable[[RunSetup, Lineage | None], Iterator[str]], ...] = (
    _warn_of_learning_rate,
    _warn_of_temperature,
    _warn_of_odd_temperature,
    _warn_of_warmup,
    _warn_of_lora_rank,
    _warn_of_reward_weights,
    _warn_of_random_weights,
    _warn_of_answer_format,
    _warn_of_short_completions,
    _warn_of_long_prompts,
    _warn_of_turn_end,
    _warn_of_reply_template,
    _warn_of_vocab_size,
)


def _first_problems(setup: RunSetup) -> list[Problem]:
    return setup.problems("train", _NUM_PROBLEMS) if "train" in setup.sources else []


def _count_params(setup: RunSetup) -> int:
    leaves = jax.tree.leaves(setup.abstract_params())
    return sum(math.prod(leaf.shape) for leaf in leaves)


def _format_count(count: int) -> str:
    """Returns a number of parameters in short form: 494M, 1.5B."""
    for size, unit in ((1_000_000_000, "B"), (1_000_000, "M"), (1_000, "k")):
        if count >= size:
            return f"{count / size:.3g}{unit}"
    return str(count)
