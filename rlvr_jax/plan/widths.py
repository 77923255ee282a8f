"""How wide a run's batches are: the padded tokens of prompts and worked solutions."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Self

from rlvr_jax.config import Config
from rlvr_jax.config.task import Stage
from rlvr_jax.data import encode_episode, encode_prompt
from rlvr_jax.run.setup import PROBLEM_STAGES, RunSetup
from rlvr_jax.types import Problem

_NUM_READ = 128  # problems of a stage, spread over its source


@dataclasses.dataclass(frozen=True, kw_only=True)
class Widths:
    """Tokens, padded: the longest prompt of each stage's problems, and solution."""

    prompts: Mapping[Stage, int]
    solution: int  # of stage sft
    completion: int  # in an update

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Returns the largest widths that the config allows."""
        longest = config.model.max_seq_len
        rooms = {
            stage: (config.eval if stage == "eval" else config.train).sampling
            for stage in PROBLEM_STAGES
        }
        completion = config.train.sampling.max_new_tokens
        return cls(
            prompts={
                stage: _pad(longest - room.max_new_tokens, config.prompt_pad_multiple)
                for stage, room in rooms.items()
            },
            solution=_pad(completion, config.completion_pad_multiple),
            completion=_pad(completion, config.completion_pad_multiple),
        )

    @classmethod
    def from_setup(cls, setup: RunSetup) -> Self:
        """Returns the widths of some of the run's problems, spread over its sources."""
        config, widths = setup.config, cls.from_config(setup.config)
        prompts = {
            stage: _pad(
                max(
                    len(encode_prompt(problem, setup.tokenizer))
                    for problem in _spread_problems(setup, stage)
                ),
                config.prompt_pad_multiple,
            )
            for stage in setup.sources
        }
        solutions = (
            len(encode_episode(problem, setup.tokenizer, config.environment)[0])
            for problem in _spread_problems(setup, "sft")
        )
        return dataclasses.replace(
            widths,
            prompts={**widths.prompts, **prompts},
            solution=_pad(max(solutions, default=1), config.completion_pad_multiple),
        )


def _spread_problems(setup: RunSetup, stage: Stage) -> Iterator[Problem]:
    """Yields a stage's problems at equal distances, at most `_NUM_READ`."""
    source = setup.sources.get(stage, ())
    stride = -(-len(source) // _NUM_READ) or 1
    for index in range(0, len(source), stride):
        yield source[index]


def _pad(length: int, multiple: int) -> int:
    return -(-length // multiple) * multiple
