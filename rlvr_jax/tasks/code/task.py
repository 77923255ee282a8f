"""The task `code`: programming problems from files, graded by their unit tests."""

import dataclasses
import hashlib
from pathlib import Path

from job_jax.schema import ConfigError, NonNegativeInt, check
from rlvr_jax.config.task import Behavior, Stage
from rlvr_jax.tasks.code.records import parse_code_record
from rlvr_jax.tasks.prompted import PromptedTask
from rlvr_jax.tasks.records.files import read_records
from rlvr_jax.types import Problem


class CodeSource:
    """The problems of one file in order, all read and checked when it is opened."""

    def __init__(self, problems: list[Problem], name: str):
        self._problems = problems
        content = "".join(map(repr, problems)).encode()
        self._name = f"{name}, sha256 {hashlib.sha256(content).hexdigest()[:12]}"

    def __repr__(self) -> str:
        """Returns the text that grain compares before it resumes from a position."""
        return f"CodeSource({self._name})"

    def __len__(self) -> int:
        """Returns the number of problems."""
        return len(self._problems)

    def __getitem__(self, index: int) -> Problem:
        """Returns problem `index`."""
        return self._problems[index]


@dataclasses.dataclass(frozen=True, kw_only=True)
class CodeTask(PromptedTask):
    """Programming problems from files in the MBPP or HumanEval layout."""

    train_path: str = ""  # also the source of worked solutions for stage sft
    eval_path: str = ""  # held-out problems
    num_shown_tests: NonNegativeInt = 1  # MBPP tests in the prompt; all grade

    def problems(self, stage: Stage, *, seed: int) -> CodeSource:
        """Returns the problems of the stage's file. Raises ConfigError."""
        side = "eval" if stage == "eval" else "train"
        named = self.eval_path if side == "eval" else self.train_path
        check(bool(named), f"task.{side}_path is empty; name a file of problems")
        path = Path(named)
        problems: list[Problem] = []
        places: dict[str, str] = {}
        formatter = self.formatter()
        for place, record in read_records(path):
            name = f"{path.name}:{place.rpartition(' ')[2]}"
            try:
                fields = parse_code_record(record, name=name)
                shown = fields.shown_tests[: self.num_shown_tests]
                prompt, literal = formatter.write_prompt(
                    "\n".join((fields.question, *shown))
                )
                problem = Problem(
                    id=fields.id,
                    prompt=prompt,
                    literal=literal,
                    gold=fields.wanted.to_gold(),
                    verifier="code",
                    source=path.name,
                    solution=fields.solution,
                )
                check(
                    problem.id not in places,
                    f"task_id {problem.id!r} is already used by "
                    f"{places.get(problem.id)}; give each record its own",
                )
            except ConfigError as error:
                raise ConfigError(f"{place}: {error}") from error
            places[problem.id] = place
            problems.append(problem)
        return CodeSource(problems, path.name)

    def describe(self) -> str:
        """Returns a phrase that names the file of train problems."""
        return f"programs for {self.train_path}"

    def behavior(
        self, problem: Problem, completion: str, *, is_correct: bool
    ) -> Behavior:
        """Returns no strategy and no flags: the defaults are meant for free text."""
        return Behavior(strategy=None, flags={})
