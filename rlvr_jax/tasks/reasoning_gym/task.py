"""The task `reasoning_gym`: a mixture of problems from the library's generators."""

import dataclasses
from typing import Annotated, ClassVar

from job_jax.config import NON_EMPTY
from job_jax.schema import NonNegativeInt
from rlvr_jax.config.task import Stage
from rlvr_jax.tasks.prompted import PromptedTask
from rlvr_jax.tasks.reasoning_gym.entries import parse_entry
from rlvr_jax.tasks.reasoning_gym.library import expand_all
from rlvr_jax.tasks.reasoning_gym.source import GymSource
from rlvr_jax.types import AnswerFormat

_EVAL_SEED = 0  # every run has the same held-out set, so runs can be compared


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReasoningGymTask(PromptedTask):
    """Problems from the library reasoning-gym, chosen by generator names."""

    checks_golds: ClassVar[bool] = False

    # Each: "NAME levels=0;1 weight=2 OPTION=VALUE" (docs/use/reasoning_gym.md);
    # "all": every generator that works
    generators: Annotated[tuple[str, ...], NON_EMPTY] = ("chain_sum",)
    eval_generators: tuple[str, ...] = ()  # for held-out problems; (): generators
    num_problems: NonNegativeInt = 0  # distinct ones, repeated in epochs; 0: unlimited
    answer_format: AnswerFormat = "tagged"  # each question ends with a request for it

    def __post_init__(self) -> None:
        """Refuses entries that cannot be parsed.

        Names and options are checked against the library later, in `problems`.
        """
        super().__post_init__()
        for text in (*self.generators, *self.eval_generators):
            parse_entry(text)

    def problems(self, stage: Stage, *, seed: int) -> GymSource:
        """Returns the stage's problems; in `eval` they are the same for every seed."""
        is_eval = stage == "eval"
        texts = self.eval_generators if is_eval else ()
        return GymSource(
            [
                entry
                for text in texts or self.generators
                for entry in expand_all(parse_entry(text))
            ],
            self.formatter(),
            answer_format=self.answer_format,
            num_problems=self.num_problems,
            stage=stage,
            seed=_EVAL_SEED if is_eval else seed,
        )

    def describe(self) -> str:
        """Returns a phrase that names the generators."""
        names = dict.fromkeys(parse_entry(text).name for text in self.generators)
        return f"problems of reasoning-gym: {', '.join(names)}"
