"""Records of programming problems, in the layouts of MBPP and HumanEval.

MBPP: `text` (or `prompt`), `code`, `test_list`, and optionally `task_id`,
`test_setup_code` and `test_imports`. HumanEval: `prompt` (completions continue it),
`canonical_solution`, `test` (it defines `check`), `entry_point` and `task_id`.
"""

import ast
import dataclasses
from collections.abc import Mapping

from job_jax.schema import ConfigError, did_you_mean
from rlvr_jax.verifiers.built_in.code import (
    CodeTests,
    defined_names,
    parse_python,
    used_names,
)

_LAYOUTS = {
    "test_list": ("code", "test_list"),
    "test": ("prompt", "canonical_solution", "test", "entry_point"),
}

_WHOLE_PROGRAM = "'prompt' + 'canonical_solution'"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CodeRecord:
    """The content of a record; `shown_tests` are the tests that a prompt may show."""

    id: str
    question: str
    solution: str
    wanted: CodeTests
    shown_tests: tuple[str, ...] = ()


def parse_code_record(record: object, *, name: str) -> CodeRecord:
    """Returns the content of a record; `name` becomes its id if it has none.

    Raises ConfigError if it has neither layout, or its Python does not parse.
    """
    if not isinstance(record, Mapping):
        raise ConfigError(f"{record!r:.40} is not a JSON object")
    layout = next((fields for key, fields in _LAYOUTS.items() if key in record), None)
    if layout is None:
        raise ConfigError(
            "no tests: expected a field 'test_list' (MBPP's layout) or 'test' "
            f"(HumanEval's); the record has {', '.join(map(repr, record))}"
        )
    for field in layout:
        if field not in record:
            raise ConfigError(f"no field {field!r}{did_you_mean(field, record)}")
    name = str(record.get("task_id", name))
    return (_read_mbpp if "test_list" in record else _read_human_eval)(record, name)


def _read_mbpp(record: Mapping[str, object], name: str) -> CodeRecord:
    question = _read_text(record, "text" if "text" in record else "prompt")
    solution = _read_text(record, "code")
    tests = _read_texts(record, "test_list")
    if not tests:
        raise ConfigError("'test_list' is empty; complete or remove the record")
    for number, test in enumerate(tests):
        parse_python(test, f"'test_list'[{number}]")
    setup = _read_texts(record, "test_imports")
    if record.get("test_setup_code"):
        setup = (*setup, _read_text(record, "test_setup_code"))
    return CodeRecord(
        id=name,
        question=question,
        solution=solution,
        wanted=_make_tests("\n".join((*setup, *tests)), "", solution, "'code'"),
        shown_tests=tests,
    )


def _read_human_eval(record: Mapping[str, object], name: str) -> CodeRecord:
    prompt = _read_text(record, "prompt")
    solution = _read_text(record, "canonical_solution")
    tests, entry_point = _read_text(record, "test"), _read_text(record, "entry_point")
    helpers = _find_helpers(
        parse_python(prompt + solution, _WHOLE_PROGRAM),
        num_lines=prompt.count("\n"),
        besides=entry_point,
    )
    if defined_names(helpers) & used_names(parse_python(tests, "'test'")):
        tests = f"{ast.unparse(helpers)}\n\n{tests}"
    tests = f"{tests}\n\ncheck({entry_point})\n"
    return CodeRecord(
        id=name,
        question=prompt,
        solution=solution,
        wanted=_make_tests(tests, prompt, solution, _WHOLE_PROGRAM),
    )


def _find_helpers(program: ast.Module, *, num_lines: int, besides: str) -> ast.Module:
    """Returns the code of a prompt except the function that the policy must write.

    Tests that call these helpers get their own copy, which a program cannot replace.
    """

    def is_asked(node: ast.stmt) -> bool:
        return isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == besides

    body = [
        node
        for node in program.body
        if (node.end_lineno or 0) <= num_lines and not is_asked(node)
    ]
    return ast.Module(body=body, type_ignores=[])


def _make_tests(tests: str, prefix: str, solution: str, name: str) -> CodeTests:
    """Returns the tests, with the names they use that only the solution defines.

    Imports of the solution that the tests rely on are copied into the tests.
    """
    program = parse_python(prefix + solution, name)
    parsed = parse_python(tests, "the tests together")
    functions = defined_names(program) & used_names(parsed) - defined_names(parsed)
    imports = [
        ast.unparse(node)
        for node in program.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        and not used_names(parsed).isdisjoint(_imported_names(node))
    ]
    tests = "\n".join((*imports, tests))
    if not functions:
        raise ConfigError(f"the tests use nothing that {name} defines")
    return CodeTests(tests=tests, functions=tuple(sorted(functions)), prefix=prefix)


def _imported_names(node: ast.Import | ast.ImportFrom) -> set[str]:
    return {each.asname or each.name.partition(".")[0] for each in node.names}


def _read_text(record: Mapping[str, object], field: str) -> str:
    value = record.get(field)
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{field!r} is {value!r:.40}; give a text")
    return value


def _read_texts(record: Mapping[str, object], field: str) -> tuple[str, ...]:
    values = record.get(field) or []
    if not isinstance(values, list) or not all(isinstance(v, str) for v in values):
        raise ConfigError(f"{field!r} is {values!r:.40}; give a list of texts")
    return tuple(values)
