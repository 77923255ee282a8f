"""The task `programs`: small programs described step by step in a closed vocabulary.

    half up , at most 9 .   ->   x = ( x + 1 ) // 2 ; x = min ( x , 9 ) ; return x

The completion is the body of `def f ( x , b ) :`. Unit tests run it on numbers that the
policy does not see. Some phrases have a twin that reads almost the same: `half up` and
`half down`, `sum below` and `sum to`, ... Worked solutions often confuse the two,
because all code that policies are trained on has bugs. Only the tests show which
program a phrase means.
"""

import dataclasses
import hashlib
import random
from collections.abc import Callable
from typing import Annotated, ClassVar

from job_jax.schema import ConfigError, Constraint, PositiveInt, UnitInterval
from rlvr_jax.config.task import Behavior, Stage, Task
from rlvr_jax.types import Problem
from rlvr_jax.verifiers.built_in.code import CodeTests

_PREFIX = "def f ( x , b ) : "
_CONSTANTS = tuple(range(2, 10))
_INPUTS = range(-6, 13)
_HELDOUT_MODULUS = 8  # one program in 8 is held out
_NUM_TESTS = 6  # by default
_MAX_DRAWS = 1000
_EVAL_SEED = 0  # the held-out set does not depend on the run's seed


@dataclasses.dataclass(frozen=True)
class _Step:
    """A phrase, its code, and the same step as a Python function; n is a constant."""

    phrase: str
    code: str
    run: Callable[[int, int, int], int]  # of x, b, n


_PLAIN = (
    _Step("plus n", "x = x + n", lambda x, b, n: x + n),
    _Step("plus b", "x = x + b", lambda x, b, n: x + b),
    _Step("times b", "x = x * b", lambda x, b, n: x * b),
    _Step("negate", "x = - x", lambda x, b, n: -x),
)
_TWINS = (
    (
        _Step("less n", "x = x - n", lambda x, b, n: x - n),
        _Step("from n", "x = n - x", lambda x, b, n: n - x),
    ),
    (
        _Step("at most n", "x = min ( x , n )", lambda x, b, n: min(x, n)),
        _Step("at least n", "x = max ( x , n )", lambda x, b, n: max(x, n)),
    ),
    (
        _Step("half down", "x = x // 2", lambda x, b, n: x // 2),
        _Step("half up", "x = ( x + 1 ) // 2", lambda x, b, n: (x + 1) // 2),
    ),
    (
        _Step("sum below", "x = sum ( range ( x ) )", lambda x, b, n: sum(range(x))),
        _Step(
            "sum to", "x = sum ( range ( x + 1 ) )", lambda x, b, n: sum(range(x + 1))
        ),
    ),
    (
        _Step("remainder n", "x = x % n", lambda x, b, n: x % n),
        _Step("quotient n", "x = x // n", lambda x, b, n: x // n),
    ),
)
_TWIN_OF = {a: b for pair in _TWINS for a, b in (pair, pair[::-1])}
_STEPS = (*_PLAIN, *_TWIN_OF)
_MAX_VALUE = 1000  # of x on the way: sums of sums grow

_Program = tuple[tuple[_Step, int], ...]  # steps and their constants


def _compute(program: _Program, x: int, b: int) -> int | None:
    """Returns f(x, b), None if x grows beyond _MAX_VALUE on the way."""
    for step, n in program:
        x = step.run(x, b, n)
        if abs(x) > _MAX_VALUE:
            return None
    return x


def _write(text: str, n: int) -> str:
    return " ".join(str(n) if word == "n" else word for word in text.split())


def _write_body(program: _Program) -> str:
    lines = [_write(step.code, n) for step, n in program]
    return " ; ".join((*lines, "return x"))


def vocabulary() -> tuple[str, ...]:
    """Returns every word of prompts and programs, `<pad>` and `<eos>` first."""
    texts = [*(f"{step.phrase} {step.code}" for step in _STEPS), ". , ; return x 1"]
    words = {word for text in texts for word in text.split()} - {"n"}
    return ("<pad>", "<eos>", *sorted(words | set(map(str, _CONSTANTS))))


class ProgramSource:
    """Programs on one side of the split, each determined by its number and the seed.

    A hash of the phrases, in order, decides the side.
    """

    def __init__(self, task: "ProgramsTask", *, is_held_out: bool, seed: int):
        """Refuses a length for which this side has no program."""
        self._task = task
        self._is_held_out = is_held_out
        side = "heldout" if is_held_out else "train"
        steps = ".".join(map(str, task.num_steps))
        # Their number decides which programs are drawn after them.
        tests = "" if task.num_tests == _NUM_TESTS else f"-{task.num_tests}tests"
        self._id = f"programs-{steps}{tests}-{side}-{seed}"
        for length in task.num_steps:
            self._draw(random.Random(0), length)

    def __repr__(self) -> str:
        """Returns the text that grain compares before it resumes from a position."""
        task = self._task
        return f"ProgramSource({self._id}, {task.num_tests} tests, {task.error_rate})"

    def __len__(self) -> int:
        """Returns how many problems there are: more than any run reads."""
        return 2**31 - 1

    def __getitem__(self, index: int) -> Problem:
        """Returns problem `index`; IndexError outside 0 .. len - 1."""
        if not 0 <= index < len(self):
            raise IndexError(f"problem {index} lies outside 0..{len(self) - 1}")
        name = f"{self._id}-{index}"
        rng = random.Random(name)
        program, tests = self._draw(rng, rng.choice(self._task.num_steps))
        rate = self._task.error_rate
        shown = tuple(
            (_TWIN_OF[step] if step in _TWIN_OF and rng.random() < rate else step, n)
            for step, n in program
        )
        twins = sum(step in _TWIN_OF for step, _ in program)
        return Problem(
            id=name,
            prompt=_write_prompt(program),
            gold=CodeTests(tests=tests, functions=("f",), prefix=_PREFIX).to_gold(),
            verifier="code",
            source="programs",
            level=len(program),
            type=f"twins_{twins}",
            solution=_write_body(shown),
        )

    def _draw(self, rng: random.Random, length: int) -> tuple[_Program, str]:
        """Returns a program on this side, and tests that catch each swapped twin."""
        for _ in range(_MAX_DRAWS):
            steps = (_draw_step(rng) for _ in range(length))
            program = tuple((step, rng.choice(_CONSTANTS)) for step in steps)
            if _is_held_out(program) == self._is_held_out:
                tests = _draw_tests(rng, program, self._task.num_tests)
                if tests:
                    return program, tests
        raise ConfigError(
            f"num_steps={self._task.num_steps}: too few programs with {length} steps "
            "exist; use more steps"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProgramsTask(Task):
    """Small generated programs, described in words and graded by unit tests."""

    checks_golds: ClassVar[bool] = False

    # Steps of a program
    num_steps: Annotated[
        tuple[int, ...],
        Constraint(
            "hold at least one number of steps, each within 1..20",
            lambda steps: bool(steps) and all(1 <= n <= 20 for n in steps),
        ),
    ] = (1, 2, 3, 4)
    # Per program, on inputs that the prompt does not show
    num_tests: PositiveInt = _NUM_TESTS
    error_rate: UnitInterval = 0.4  # how often a worked solution swaps a twin

    def problems(self, stage: Stage, *, seed: int) -> ProgramSource:
        """Returns the stage's problems; in `eval` they are the same for every seed."""
        is_held_out = stage == "eval"
        return ProgramSource(
            self, is_held_out=is_held_out, seed=_EVAL_SEED if is_held_out else seed
        )

    def describe(self) -> str:
        """Returns a phrase with the lengths of the programs."""
        return f"programs of {self.num_steps} steps"

    def vocabulary(self) -> tuple[str, ...]:
        """Returns every word of prompts and programs."""
        return vocabulary()

    def behavior(
        self, problem: Problem, completion: str, *, is_correct: bool
    ) -> Behavior:
        """Returns no strategy and no flags: the defaults are meant for free text."""
        return Behavior(strategy=None, flags={})


def _draw_step(rng: random.Random) -> _Step:
    """Returns a random step; two times in three it has a twin."""
    return (
        rng.choice(rng.choice(_TWINS)) if rng.random() < 2 / 3 else rng.choice(_PLAIN)
    )


def _write_prompt(program: _Program) -> str:
    return " , ".join(_write(step.phrase, n) for step, n in program) + " ."


def _is_held_out(program: _Program) -> bool:
    digest = hashlib.blake2b(_write_prompt(program).encode(), digest_size=1).digest()
    return digest[0] % _HELDOUT_MODULUS == 0


def _draw_tests(rng: random.Random, program: _Program, count: int) -> str:
    """Returns `count` asserts, "" if they would miss one swapped twin."""
    inputs = [(rng.choice(_INPUTS), rng.choice(_CONSTANTS)) for _ in range(count)]
    outputs = [_compute(program, x, b) for x, b in inputs]
    if None in outputs:
        return ""
    for place, (step, n) in enumerate(program):
        if step in _TWIN_OF:
            other = (*program[:place], (_TWIN_OF[step], n), *program[place + 1 :])
            if [_compute(other, x, b) for x, b in inputs] == outputs:
                return ""
    lines = zip(inputs, outputs, strict=True)
    return "\n".join(f"assert f({x}, {b}) == {output}" for (x, b), output in lines)
