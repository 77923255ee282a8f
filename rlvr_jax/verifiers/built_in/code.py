"""The verifier `code`: a program is correct if it passes its problem's unit tests.

Programs run in the jail of `rlvr_jax.sandbox`, never in this process, and never in the
process that holds the tests. A policy may write programs that loop forever, use too
much memory or crash: they are `incorrect`. A verdict is `unverified` only if the
sandbox itself failed.
"""

import ast
import builtins
import dataclasses
import json
import re
from collections.abc import Sequence
from typing import ClassVar, Self

from job_jax.calls import CallLimits
from job_jax.closing import Closing
from job_jax.schema import ConfigError
from rlvr_jax.config import VerifierConfig
from rlvr_jax.sandbox.pool import Limits, Run, RunResult, Sandbox, SandboxError
from rlvr_jax.types import Problem, Verdict
from rlvr_jax.verifiers.answers.statements import Mark
from rlvr_jax.verifiers.base import GradingSession, Verifier

_FENCE = re.compile(r"```[\w+-]*[ \t\r]*\n(.*?)```", re.DOTALL)
_OPEN_FENCE = re.compile(r"```[\w+-]*[ \t\r]*\n")
# Seconds of wall time per second of CPU time: machines may be busy, but a program must
# not just wait.
_WALL_TO_CPU = 5
_DEFAULT = VerifierConfig()
_LAST_NUMBER = re.compile(r"[0-9](?=[^0-9]*\Z)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CodeTests:
    """The unit tests of a program; as JSON they are a problem's gold.

    `tests` is Python code that raises if a program is wrong. `functions` are the names
    in it that the program defines. `prefix` is the beginning of every program;
    completions continue it.
    """

    tests: str
    functions: tuple[str, ...]
    prefix: str = ""

    def to_gold(self) -> str:
        """Returns the tests as JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_gold(cls, gold: str) -> Self:
        """Returns the tests in a gold, which is JSON or Python like `assert f(1) == 2`.

        In Python, names that are neither builtins nor assigned belong to the program.
        Raises ConfigError if it is neither JSON nor Python.
        """
        try:
            data = json.loads(gold)
        except ValueError:
            data = None
        if not isinstance(data, dict):
            return cls(tests=gold, functions=tuple(sorted(_unbound_names(gold))))
        try:
            functions = tuple(map(str, data.pop("functions")))
            return cls(**data, functions=functions)
        except (KeyError, TypeError) as error:
            raise ConfigError(f"gold has no tests ({error})") from error


def parse_python(text: str, name: str) -> ast.Module:
    """Returns the syntax tree of Python code in the data. Raises ConfigError."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        place, what = "", type(error).__name__
        if isinstance(error, SyntaxError):
            place, what = f" at its line {error.lineno}", error.msg
        raise ConfigError(
            f"{name} is not valid Python{place} ({what}); fix or remove the record"
        ) from error


def extract_program(completion: str) -> str:
    r"""Returns the program in a completion: the last ``` block, or else the whole text.

    A block that the length limit cut off is read to the end.

    >>> extract_program("So:\n```python\nx = 1\n```\nDone.")
    'x = 1\n'
    """
    blocks = _FENCE.findall(completion)
    if blocks:
        return blocks[-1]
    start = _OPEN_FENCE.search(completion)
    return completion[start.end() :] if start else completion


class Code(Closing, Verifier):
    """Runs programs against unit tests in a jail, which starts with the first one."""

    is_bounded: ClassVar[bool] = False  # the jail has its own limits

    def __init__(self, config: VerifierConfig = _DEFAULT):
        limits = Limits(
            cpu_s=config.code_cpu_s,
            wall_s=_WALL_TO_CPU * config.code_cpu_s,
            memory_mb=config.code_memory_mb,
        )
        self._sandbox = Sandbox(limits, config.workers)

    def open(self, session: GradingSession) -> Verifier:
        """Returns a verifier with a jail of its own, by the session's settings."""
        return Code(session.config)

    def grade(self, problem: Problem, completion: str) -> Verdict:
        """Returns whether the completion's program passes the problem's tests."""
        return self.grade_batch([(problem, completion)])[0]

    def grade_batch(
        self, items: Sequence[tuple[Problem, str]], limits: CallLimits | None = None
    ) -> list[Verdict]:
        """Returns a verdict on each completion; equal programs run only once.

        The jail's own limits count. Raises ConfigError if this machine cannot jail
        programs.
        """
        runs: list[Run | str] = []
        for problem, completion in items:
            try:
                wanted = CodeTests.from_gold(problem.gold)
            except ConfigError as error:
                runs.append(str(error))
                continue
            program = wanted.prefix + extract_program(completion)
            runs.append(Run(program, wanted.tests, wanted.functions))
        outcomes = iter(self._run_all([run for run in runs if isinstance(run, Run)]))
        return [
            _to_verdict(next(outcomes), extract_program(completion))
            if isinstance(run, Run)
            else Verdict(status="unverified", reason=run)
            for run, (_, completion) in zip(runs, items, strict=True)
        ]

    def check_ready(self) -> None:
        """Starts the jail. Raises ConfigError if this machine does not support it."""
        self._run_all([Run(program="", tests="", functions=())])

    def _run_all(self, runs: Sequence[Run]) -> list[RunResult]:
        try:
            return self._sandbox.run_all(runs)
        except SandboxError as error:
            raise ConfigError(str(error)) from error

    def close(self) -> None:
        """Ends the jail."""
        self._sandbox.close()

    def state_gold(self, problem: Problem) -> str:
        """Returns the worked solution; if it fails its tests, these are useless."""
        return problem.solution or ""

    def is_well_formed(self, problem: Problem, completion: str) -> bool:
        """Returns whether there is any program; it is not parsed here."""
        return bool(extract_program(completion).strip())

    def find_mark(self, problem: Problem, completion: str) -> Mark | None:
        """Returns None, because programs have no mark."""
        return None

    def corrupt_gold(self, problem: Problem) -> str:
        """Returns tests with a different last digit, so they expect a false value."""
        wanted = CodeTests.from_gold(problem.gold)
        tests = _LAST_NUMBER.sub(lambda d: str((int(d[0]) + 1) % 10), wanted.tests)
        return dataclasses.replace(wanted, tests=tests).to_gold()


def _to_verdict(outcome: RunResult, program: str) -> Verdict:
    if outcome.passed is None:
        return Verdict(status="unverified", reason=outcome.reason)
    answer = program.strip() or None
    if outcome.passed:
        return Verdict(status="correct", answer=answer)
    return Verdict(status="incorrect", reason=outcome.reason, answer=answer)


def defined_names(module: ast.Module) -> set[str]:
    """Returns the names of functions, classes and values that a module defines."""
    names = set()
    for node in module.body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Assign(targets=targets):
                names |= {t.id for t in targets if isinstance(t, ast.Name)}
    return names


def used_names(module: ast.Module) -> set[str]:
    """Returns the names that a module reads."""
    return {
        node.id
        for node in ast.walk(module)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


def _unbound_names(tests: str) -> set[str]:
    module = parse_python(tests, "gold")
    bound = set(dir(builtins))
    for node in ast.walk(module):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                bound.add(name)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                bound.add(name)
            case ast.alias(name=name, asname=alias):
                bound.add((alias or name).partition(".")[0])
    return used_names(module) - bound
