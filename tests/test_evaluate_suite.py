"""`python -m rlvr_jax.evaluate --suite`: scores by hand, resuming, refusals.

The policy is a fake that answers each problem right as often as the test says. The
setup, the verifiers, the files and the command are real.
"""

import dataclasses
import json
import types

import pytest

from job_jax.config_io import override
from job_jax.flags import UsageError
from rlvr_jax import evaluate
from rlvr_jax.config import Config, TokenizerConfig
from rlvr_jax.metrics import suite_run
from rlvr_jax.rollouts.graded import GradedCompletion
from rlvr_jax.run.workdir import read_rollouts
from rlvr_jax.tasks.public.suite import SuiteTask
from rlvr_jax.types import Problem
from tests.support.checkpoints import write_checkpoint

MATH500 = [
    {
        "problem": f"{n} halves?",
        "answer": f"\\frac{{{n}}}{{2}}",
        "level": 1 + (n > 1),
        "unique_id": f"test/{n}.json",
    }
    for n in (1, 3, 5)
]
AIME24 = [
    {"id": 60, "problem": "Find m + n.", "answer": "033"},
    {"id": 61, "problem": "Find it. " * 60, "answer": "7"},  # too long for a prompt
]
# How many of two samples the fake answers right, by id; at first 0.
RIGHT = {"math500/test/1.json": 2, "math500/test/3.json": 1, "aime24/60": 1}

RECIPE = """
from rlvr_jax.config import Config, EvalConfig, LogConfig, ModelConfig, MeshConfig
from rlvr_jax.config import PretrainedConfig, SamplingConfig, TokenizerConfig
from rlvr_jax.tasks import FilesTask, FiniteFieldTask, RecordConfig

def get_config():
    sampling = SamplingConfig(max_new_tokens=16)
    return Config(
        task=FilesTask(record=RecordConfig(prompt_template="Q: {prompt}\\nA:")),
        tokenizer=TokenizerConfig(kind="huggingface", path="unused"),
        model=ModelConfig(max_seq_len=128),
        mesh=MeshConfig(cpu_devices=8),
        eval=EvalConfig(
            num_problems=1, num_samples=2, k=(1, 2), batch_size=8,
            bootstrap_resamples=100, sampling=sampling,
        ),
    )
"""


def write(path, records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


@pytest.fixture
def place(tmp_path):
    """Returns a folder with a suite, a recipe and weights."""
    write(tmp_path / "suite/math500.jsonl", MATH500)
    write(tmp_path / "suite/aime24/data/train-0.jsonl", AIME24)
    (tmp_path / "recipe.py").write_text(RECIPE)
    write_checkpoint(tmp_path / "policy")
    return tmp_path


@pytest.fixture
def asked(monkeypatch):
    """Returns the problems given to the fake, in order."""
    seen = []

    def evaluate_policy(setup, params, problems, *, weight_version, on_batch):
        seen.extend(problems)
        assert params is not None
        texts = [
            f"so \\boxed{{{problem.gold}}}" if j < RIGHT.get(problem.id, 0) else "0"
            for problem in problems
            for j in range(2)
        ]
        doubled = [problem for problem in problems for _ in range(2)]
        verdicts = setup.verifier(doubled, texts)
        on_batch(len(problems), 10)
        return [
            GradedCompletion(
                problem=problem,
                completion=text,
                verdict=verdict,
                length=5,
                finished=True,
                strategy=None,
                weight_version=weight_version,
            )
            for problem, text, verdict in zip(doubled, texts, verdicts, strict=True)
        ]

    monkeypatch.setattr(suite_run, "evaluate_policy", evaluate_policy)
    return seen


def run(place, *args):
    base = [f"--config={place / 'recipe.py'}", f"--suite_dir={place / 'suite'}"]
    base += [f"--checkpoint={place / 'policy'}", "--suite=math500,aime24"]
    return evaluate.main([*base, *args])


def test_a_hugging_face_directory_is_scored_kept_and_gone_on_with(place, asked, capsys):
    out = f"--out={place / 'out'}"
    assert run(place, out) == 0
    summary = json.loads(capsys.readouterr().out)
    math500, aime24 = (summary["benchmarks"][n] for n in ("math500", "aime24"))
    assert math500["mean@2"]["mean"] == pytest.approx(3 / 6)
    assert math500["pass@k"]["2"]["mean"] == pytest.approx(2 / 3)
    assert math500["by_level"]["2"]["pass@k"]["1"]["mean"] == pytest.approx(1 / 4)
    assert (math500["count"], math500["verifier"]) == ("3", "math")
    # One of two samples is right, for the one problem that fits.
    assert aime24["mean@2"] == {"mean": 0.5, "low": None, "high": None}
    assert (aime24["count"], aime24["verifier"]) == ("1 of 2", "numeric")
    assert aime24["left_out"] == {"invalid_golds": {}, "too_long": 1}
    assert summary["average"]["mean@2"]["mean"] == pytest.approx(0.5)
    assert summary["average"]["pass@k"]["2"]["mean"] == pytest.approx((2 / 3 + 1) / 2)
    # eval.num_problems=1 does not cut a suite; prompts come from the recipe.
    assert [problem.id for problem in asked] == [
        *(f"math500/test/{n}.json" for n in (1, 3, 5)),
        "aime24/60",
    ]
    assert asked[0].prompt == (
        "<|im_start|>user\nQ: 1 halves?\nA:<|im_end|>\n<|im_start|>assistant\n"
    )
    kept = json.loads((place / "out/scores.json").read_text())
    assert kept == summary
    assert "| AIME 2024 | 1 of 2 | 50.0 |" in (place / "out/table.md").read_text()
    rows = read_rollouts(place / "out/rollouts/math500_000000.jsonl.gz")
    assert [row["verdict"] for row in rows] == [
        *("correct", "correct", "correct", "incorrect", "incorrect", "incorrect")
    ]
    # Stopped before the second set was done: the first is not sampled again.
    asked.clear()
    (place / "out/rollouts/aime24_000000.jsonl.gz").unlink()
    assert run(place, out, "--table=tex") == 0
    assert [problem.id for problem in asked] == ["aime24/60"]
    ended = capsys.readouterr()
    assert "math500: read from " in ended.err
    assert r"AIME 2024 & 1 of 2 & 50.0 &  & 100.0 & 50.0 \\" in ended.out
    assert json.loads((place / "out/scores.json").read_text()) == summary


def test_a_policy_of_a_hugging_face_directory_answers(place):
    """A real model: its samples are random, and the same each time."""
    outs = [place / "one", place / "two"]
    for out in outs:
        assert run(place, f"--out={out}") == 0
    name = "rollouts/math500_000000.jsonl.gz"
    assert (outs[0] / name).read_bytes() == (outs[1] / name).read_bytes()
    rows = read_rollouts(outs[0] / name)
    assert [row["id"] for row in rows[::2]] == [
        f"math500/test/{n}.json" for n in (1, 3, 5)
    ]
    assert len({row["completion"] for row in rows}) > 1
    assert all(row["length"] <= 16 for row in rows)


def test_another_setting_or_file_is_another_evaluation(tmp_path):
    request, files = {"step": 0, "eval": {"seed": 1}}, {"amc": {"a": "0"}}
    suite_run.open_directory(tmp_path, request, files)
    suite_run.open_directory(tmp_path, request, {"minerva": {"b": "1"}})
    suite_run.open_directory(tmp_path, request, files)
    with pytest.raises(UsageError, match="evaluation: step was 0, is 1; eval was"):
        suite_run.open_directory(tmp_path, {"step": 1, "eval": {"seed": 2}}, files)
    for name, path in (("amc", "a"), ("minerva", "b")):
        with pytest.raises(UsageError, match=f"files of {name} have changed; give"):
            suite_run.open_directory(tmp_path, request, {name: {path: "2"}})


@pytest.mark.parametrize(
    "changed",
    [
        {"model.max_seq_len": "256"},
        {"model.compute_dtype": "bfloat16"},
        {"eval.sampling.temperature": "0.3"},
        {"seed": "4"},
        {"environment.name": "calculator"},
    ],
)
def test_completions_depend_on_these_settings(changed):
    task = SuiteTask(benchmarks=("math500",), directory="suite")
    config = Config(task=task, tokenizer=TokenizerConfig(kind="sentencepiece"))
    first, second = (
        suite_run.describe_request(
            types.SimpleNamespace(config=override(config, fields)),
            "checkpoint",
            3,
            0,
        )
        for fields in ({}, changed)
    )
    assert first != second


def test_completions_of_other_problems_are_not_used(tmp_path):
    rows = [{"id": "a"}, {"id": "a"}, {"id": "b"}]
    problems = [
        Problem(id=name, prompt="", gold="1", verifier="math", source="test")
        for name in "abc"
    ]
    suite_run._check_same_problems(rows, problems[:2], tmp_path)
    for some in (problems, problems[1:]):
        with pytest.raises(UsageError, match="of other problems than the"):
            suite_run._check_same_problems(rows, some, tmp_path)


def test_only_the_first_problems_of_each_set(place):
    task = SuiteTask(
        benchmarks=("math500", "aime24"), directory=str(place / "suite"), first=1
    )
    problems = task.problems("eval", seed=0)
    assert [problem.id for problem in problems] == ["math500/test/1.json", "aime24/60"]
    assert [problem.level for problem in problems] == [1, 0]


def test_a_problem_that_occurs_32_times_is_sampled_once(tmp_path):
    rows = [
        {
            "prompt": [{"content": "Be brief."}, {"content": f"{n}?"}],
            "reward_model": {"ground_truth": f"{n}.0"},
            "extra_info": {"index": n},
        }
        for n in (1, 1, 2, 2)
    ]
    same = rows[0] | {"reward_model": {"ground_truth": "3.0"}}
    write(tmp_path / "amc.jsonl", [*rows, same])
    task = SuiteTask(benchmarks=("amc",), directory=str(tmp_path))
    asked = task.problems("eval", seed=0)
    assert [problem.id for problem in asked] == ["amc/1", "amc/2", "amc/1#"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--suite=math6"], "unknown suite or evaluation set 'math6'; did you mean 'm"),
        (["--suite=deepscaler"], "deepscaler is a training set"),
        (["--suite_dir="], "--suite needs --suite_dir=DIR"),
        (["--suite=", "--table=md", "--suite_dir="], "--table needs --suite=NAME"),
        (["--table=html"], "--table expects one of md, tex, got 'html'"),
        (["--first=-1"], "first"),
        (["--out=gs://mine/out"], "--out=gs://mine/out is in a bucket"),
        (["--config.task.source=finite_field"], "task.source=finite_field"),
        (["--checkpoint=nowhere"], "checkpoint in nowhere, which does not exist"),
    ],
)
def test_what_cannot_be_scored_is_refused_before_anything_is_sampled(
    place, asked, capsys, args, message
):
    assert run(place, *args) == 2
    error = capsys.readouterr().err
    assert message in error
    assert all(line.startswith("error: ") for line in error.splitlines())
    assert asked == []


def test_everything_missing_is_reported_at_once(place, asked, capsys):
    assert run(place, "--suite=math5") == 2
    lines = capsys.readouterr().err.splitlines()
    folder = place / "suite"
    assert lines == [
        f"error: {title} is missing: put it at {folder / name}.jsonl (.json, "
        f".parquet), or run hf download {hub} --repo-type dataset --local-dir "
        f"{folder / name}"
        for title, name, hub in (
            ("AMC", "amc", "AI-MO/aimo-validation-amc"),
            ("Minerva Math", "minerva", "math-ai/minervamath"),
            ("OlympiadBench", "olympiadbench", "Hothan/OlympiadBench"),
        )
    ]


def test_files_that_do_not_fit_are_refused(place, asked, capsys):
    write(place / "suite/math500.jsonl", [{"question": "?", "result": 1}])
    assert run(place) == 2
    assert "not the layout of MATH-500: expected 'problem'" in capsys.readouterr().err
    write(place / "suite/math500.jsonl", [dataclasses.asdict(_Empty())])
    assert run(place) == 2
    assert "math500.jsonl, line 1: no answer; complete" in capsys.readouterr().err
    write(place / "suite/math500.json", MATH500)
    assert run(place) == 2
    assert "are both math500; delete one" in capsys.readouterr().err


@dataclasses.dataclass
class _Empty:
    problem: str = "2?"
    answer: str | None = None
