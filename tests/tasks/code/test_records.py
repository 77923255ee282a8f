"""The task `code`: records in two layouts, the policy's view of them, and refusals."""

import json

import pytest

from job_jax.schema import ConfigError
from rlvr_jax.config import VerifierConfig
from rlvr_jax.tasks import CodeTask
from rlvr_jax.verifiers.built_in.code import CodeTests
from rlvr_jax.verifiers.grader import Grader

MBPP = {
    "task_id": 11,
    "text": "Write a function to add.",
    "code": "import math\ndef helper(x): return x\ndef sum(a, b): return a + b",
    "test_list": ["assert sum(1, 2) == 3", "assert abs(sum(1, -4)) == 3"],
    "test_setup_code": "",
    "challenge_test_list": [],
}
HUMAN_EVAL = {
    "task_id": "HumanEval/0",
    "prompt": 'def double(x):\n    """ Doubles. """\n',
    "canonical_solution": "    return 2 * x\n",
    "test": "META = {}\n\ndef check(candidate):\n    assert candidate(2) == 4\n",
    "entry_point": "double",
}


def _task(path, *records, **options) -> CodeTask:
    file = path / "problems.jsonl"
    lines = [r if isinstance(r, str) else json.dumps(r) for r in records]
    file.write_text("\n".join(lines))
    return CodeTask(train_path=str(file), eval_path=str(file), **options)


def test_mbpp_shows_some_tests_and_grades_by_all(tmp_path):
    (problem,) = _task(tmp_path, MBPP).problems("train", seed=0)
    assert problem.id == "11"
    assert problem.prompt == "Write a function to add.\nassert sum(1, 2) == 3"
    assert problem.solution == MBPP["code"]
    # `abs` is built into Python; `helper` is in no test.
    assert CodeTests.from_gold(problem.gold) == CodeTests(
        tests="\n".join(MBPP["test_list"]), functions=("sum",)
    )
    for count, shown in ((0, []), (2, MBPP["test_list"]), (9, MBPP["test_list"])):
        task = _task(tmp_path, MBPP, num_shown_tests=count)
        (problem,) = task.problems("eval", seed=0)
        assert problem.prompt.splitlines()[1:] == shown


def test_human_eval_continues_its_prompt(tmp_path):
    (problem,) = _task(tmp_path, HUMAN_EVAL).problems("train", seed=0)
    assert problem.prompt == HUMAN_EVAL["prompt"]
    wanted = CodeTests.from_gold(problem.gold)
    assert wanted.prefix == HUMAN_EVAL["prompt"]
    assert wanted.functions == ("double",)
    assert wanted.tests.endswith("check(double)\n")


def test_tests_import_what_they_use_of_the_solutions_imports(tmp_path):
    record = {
        "text": "Write a function to find the size in bytes.",
        "code": "import sys \r\nimport re\r\ndef size(t):\r\n\treturn sys.getsizeof(t)",
        "task_id": 596,
        "test_setup_code": "",
        "test_list": ["assert size((1, 2)) == sys.getsizeof((1, 2)) "],
        "challenge_test_list": [],
    }
    (problem,) = _task(tmp_path, record).problems("train", seed=0)
    assert CodeTests.from_gold(problem.gold) == CodeTests(
        tests=f"import sys\n{record['test_list'][0]}", functions=("size",)
    )
    with Grader(VerifierConfig()) as grader:
        assert not grader.invalid_golds([problem])


def test_the_array_of_the_sanitized_mbpp_is_read(tmp_path):
    record = {
        "source_file": "Questions.ipynb",
        "task_id": 2,
        "prompt": "Write a function to round up.",
        "code": "import math\ndef up(x):\n  return math.ceil(x)",
        "test_imports": ["import math"],
        "test_list": ["assert up(math.pi) == 4"],
    }
    path = tmp_path / "sanitized.json"
    path.write_text(json.dumps([record, record | {"task_id": 3}], indent=4))
    source = CodeTask(train_path=str(path)).problems("train", seed=0)
    assert [source[i].id for i in range(len(source))] == ["2", "3"]
    assert source[0].prompt.startswith("Write a function to round up.\nassert up(")
    with Grader(VerifierConfig()) as grader:
        assert not grader.invalid_golds([source[0]])


def test_tests_have_their_own_of_what_the_prompt_defines(tmp_path):
    helper = "import math\n\ndef encode(s):\n    return s[::-1]\n\n"
    record = HUMAN_EVAL | {
        "prompt": f'{helper}def decode(s):\n    """ Undoes encode. """\n',
        "canonical_solution": "    return s[::-1]\n",
        "test": "def check(candidate):\n    assert candidate(encode('ab')) == 'ab'\n",
        "entry_point": "decode",
    }
    (problem,) = _task(tmp_path, record).problems("train", seed=0)
    assert problem.prompt == record["prompt"]
    assert CodeTests.from_gold(problem.gold).functions == ("decode",)
    forged = "    return s\n\ndef encode(s):\n    return s\n"
    with Grader(VerifierConfig()) as grader:
        assert not grader.invalid_golds([problem])
        [verdict] = grader([problem], [forged])
    assert verdict.status == "incorrect"
    assert "decode returned 'ba'" in verdict.reason


def test_templates_surround_the_question(tmp_path):
    chat = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    task = _task(
        tmp_path,
        HUMAN_EVAL,
        prompt_template="Finish:\n{prompt}",
        chat_template="tokenizer",
        system_prompt="Code.",
    )
    assert task.needs_tokenizer_template
    (problem,) = task.with_chat_template(chat).problems("train", seed=0)
    asked = f"Finish:\n{HUMAN_EVAL['prompt']}"
    assert problem.prompt == f"<system>Code.<user>{asked}"
    with pytest.raises(ConfigError, match=r"^task\.chat_template: .* undefined"):
        task.with_chat_template("{{ missing.field }}").problems("train", seed=0)


def test_solutions_that_fail_their_own_tests_are_listed(tmp_path):
    wrong = MBPP | {"task_id": 12, "code": "def sum(a, b):\n    return a - b"}
    empty = MBPP | {"task_id": 13, "test_list": ["sum"]}  # which any program passes
    foreign = MBPP | {"task_id": 14, "test_setup_code": "import numpy"}
    source = _task(tmp_path, MBPP, wrong, HUMAN_EVAL, empty, foreign).problems(
        "train", seed=0
    )
    with Grader(VerifierConfig()) as grader:
        invalid = grader.invalid_golds([source[i] for i in range(len(source))])
    assert invalid == {
        "12": "AssertionError at 'assert sum(1, 2) == 3'; sum returned -1",
        "13": "an empty completion is correct",
        "14": "ModuleNotFoundError: No module named 'numpy' at 'import numpy'",
    }


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ("{", "line 2: not JSON at column 2"),
        ("[1]", r"line 2: \[1\] is not a JSON object"),
        ({"text": "?"}, "line 2: no tests: expected .*'test_list' .* has 'text'"),
        (
            MBPP | {"test_list": ["assert sum(1"]},
            r"line 2: 'test_list'\[0\] is not valid Python at its line 1 \('\(' was ",
        ),
        (
            HUMAN_EVAL | {"test": "def check(candidate):\n    assert ="},
            "line 2: 'test' is not valid Python at its line 2 .* fix or remove the",
        ),
        (
            HUMAN_EVAL | {"canonical_solution": "  return )"},
            "'canonical_solution' is no",
        ),
        (
            MBPP | {"code": "def f(:"},
            "line 2: 'code' is not valid Python at its line 1",
        ),
        (MBPP | {"code": "x = 1"}, "line 2: the tests use nothing that 'code' defines"),
        (MBPP | {"test_list": []}, "line 2: 'test_list' is empty"),
        (MBPP | {"test_list": "assert"}, "'test_list' is 'assert'; give a list of"),
        (MBPP | {"code": None}, "line 2: 'code' is None; give a text"),
        ({"test_list": [], "cod": ""}, "no field 'code'; did you mean 'cod'?"),
        (MBPP | {"task_id": "HumanEval/0"}, "is already used by .*line 1"),
    ],
)
def test_a_record_that_cannot_be_used_is_one_line_with_its_place(
    tmp_path, record, message
):
    with pytest.raises(ConfigError, match=message) as caught:
        _task(tmp_path, HUMAN_EVAL, record).problems("train", seed=0)
    assert "\n" not in str(caught.value)
    assert "problems.jsonl, line 2" in str(caught.value)


def test_a_file_that_is_not_named_or_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"task\.eval_path is empty; name a file"):
        CodeTask(train_path="x").problems("eval", seed=0)
    with pytest.raises(ConfigError, match="cannot read the data file"):
        CodeTask(train_path=str(tmp_path / "no.jsonl")).problems("train", seed=0)


def test_templates_that_leave_the_question_out_are_refused():
    with pytest.raises(ConfigError, match="has no place for the question"):
        CodeTask(prompt_template="Go!")
    with pytest.raises(ConfigError, match="needs a chat_template; set one"):
        CodeTask(system_prompt="Code.", chat_template="")
    assert CodeTask(system_prompt="Code.").chat_template == "auto"
