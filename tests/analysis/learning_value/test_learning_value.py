"""How much runs on one problem teach, and which property of it predicts that."""

import gzip
import itertools
import json
import math

import numpy as np
import pytest

from rlvr_jax.analysis.__main__ import main
from rlvr_jax.analysis.learning_value.measure import (
    OneSampleRun,
    average_by_band,
    correlate_ranks,
    describe_problem,
    read_one_sample_run,
)
from rlvr_jax.report.run_files import read_run
from tests.support.run_workdirs import config

VERDICTS = {"r": "correct", "l": "correct", "w": "incorrect", "u": "unverified"}


def row(letter, *, problem="p", band="medium", level=4, answer=None, length=10):
    """Returns a completion: right, lucky, wrong or unverified."""
    told = {"flags": ["skipped_steps"]} if letter == "l" else {}
    return {
        "strategy": "forward",
        "id": problem,
        "band": band,
        "level": level,
        "answer": letter if answer is None else answer,
        "verdict": VERDICTS[letter],
        "length": length,
        **told,
    }


def write_run(path, *, first, last="rrrr", gained=0.1, seed=0, step=0, index=0, **how):
    """Returns the workdir of a run on one problem, answered `first` before RL."""
    (path / "rollouts").mkdir(parents=True)
    asked = {"name": "one_sample", "problem_index": index}
    record = config(4) | {"seed": seed, "curriculum": asked}
    (path / "config.json").write_text(json.dumps({"config": record}))
    for at, letters in ((step, first), (39, last)):
        with gzip.open(path / f"rollouts/train_{at:06d}.jsonl.gz", "wt") as lines:
            rows = (
                row(letter, problem=f"p{seed}-{index}", **how) for letter in letters
            )
            lines.writelines(json.dumps(each) + "\n" for each in rows)
    scores = {
        when: {"pass@k": {"1": {"mean": mean}}}
        for when, mean in (("before", 0.5), ("after", 0.5 + gained))
    }
    (path / "summary.json").write_text(json.dumps({"eval": scores}))
    return path


def read(path):
    return read_one_sample_run(read_run(path), name=path.name)


def test_a_problem_is_described_by_its_answers():
    rows = [
        row("r", answer="1", length=8),
        row("l", answer="1", length=16),
        row("w", answer="2", length=12),
        row("w", answer=None, length=12) | {"answer": None},
    ]
    assert describe_problem(rows) == pytest.approx(
        {
            "pass rate": 0.5,
            "p (1 - p)": 0.25,
            "luck": 0.25,
            # Half of the answers are "1", a quarter "2"; a quarter have none.
            "answer entropy": 1.5 * math.log(2),
            "length": 12.0,
            "level": 4.0,
        }
    )
    guessed = row("r") | {"flags": ["guessed_start"]}
    wrong = row("w") | {"flags": ["bare_answer"]}  # no luck without success
    other = row("r") | {"flags": ["repetition"]}
    assert describe_problem([other, guessed, wrong, wrong])["luck"] == 0.25
    del other["strategy"]  # no reader of steps
    assert "luck" not in describe_problem([other, guessed])


def test_values_that_differ_by_rounding_are_equal():
    """1/10 (1 - 1/10) and 9/10 (1 - 9/10); entropy of answers in any order."""
    few = describe_problem([row(letter) for letter in "r" + 9 * "w"])
    most = describe_problem([row(letter) for letter in 9 * "r" + "w"])
    assert few["p (1 - p)"] == most["p (1 - p)"]
    answers = ["1", "1", "1", "2", "2", "3", "4", "4", "4", "4"]
    told = {
        describe_problem([row("w", answer=each) for each in order])["answer entropy"]
        for order in itertools.islice(itertools.permutations(answers), 0, 10**6, 9_973)
    }
    assert len(told) == 1


def test_the_learning_value_is_the_gain_on_held_out_problems(tmp_path):
    path = write_run(tmp_path / "a", first="rwww", last="rrru", gained=-0.2, seed=3)
    run = read(path)
    assert run.value == pytest.approx(-0.2)
    assert run.learned == pytest.approx(0.5)
    assert (run.seed, run.problem, run.band) == (3, "p3-0", "medium")
    assert run.properties["pass rate"] == 0.25  # before any update


def test_ranks_are_correlated_within_seeds(tmp_path):
    """Two seeds: in one, a higher pass rate teaches far more; the other has a tie.

    Seed 1: pass rates 0, 1/4, 1/2 and values 2, 2, 3 have ranks 1, 2, 3 and 1.5, 1.5,
    3. Their Pearson correlation is 1.5 / sqrt(2 * 1.5) = 0.866. Across seeds it would
    differ, because every problem of the second seed teaches less.
    """
    taught = {0: (0.01, 0.02, 0.4), 1: (-0.98, -0.98, -0.97)}
    runs = [
        read(write_run(tmp_path / f"{seed}{at}", first=first, gained=gain, seed=seed))
        for seed, gains in taught.items()
        for at, (first, gain) in enumerate(
            zip(("wwww", "rwww", "rrww"), gains, strict=True)
        )
    ]
    found = correlate_ranks(runs)
    assert found["pass rate"].by_seed == pytest.approx({0: 1.0, 1: math.sqrt(3) / 2})
    assert found["pass rate"].interval.value == pytest.approx(0.9330, abs=1e-4)
    # Student's t with one degree of freedom, 12.706, times half the difference.
    half = 12.7062 * (1 - math.sqrt(3) / 2) / 2
    assert found["pass rate"].interval.low == pytest.approx(0.9330 - half, abs=1e-3)
    assert found["pass rate"].interval.high == 1.0  # no correlation is larger
    assert "level" not in found  # the same everywhere
    assert "luck" not in found
    assert correlate_ranks(runs[:2]) == {}  # two problems of one seed


def test_bands_are_averaged_over_seeds_not_problems(tmp_path):
    """Seed 0 has two hard problems, with 2 and 6 points; seed 1 has one, with 10."""
    runs = [
        read(write_run(tmp_path / name, first="w", band=band, gained=gain, seed=seed))
        for name, band, gain, seed in (
            ("a", "hard", 0.02, 0),
            ("b", "hard", 0.06, 0),
            ("c", "hard", 0.10, 1),
            ("d", "easy", 0.5, 1),
        )
    ]
    found = average_by_band(runs)
    assert [*found] == ["easy", "hard"]
    hard, learned = found["hard"]
    assert hard.by_seed == pytest.approx({0: 0.04, 1: 0.10})
    assert hard.interval.value == pytest.approx(0.07)
    assert learned.by_seed == {0: 1.0, 1: 1.0}
    easy, _ = found["easy"]
    assert easy.interval.value == pytest.approx(0.5)
    assert math.isnan(easy.interval.low)


def drawn(rng, *, seeds=40, problems=10):
    """Returns runs with independent property and value within a seed.

    Seeds differ in both, so a correlation over all runs would be large.
    """
    runs = []
    for seed in range(seeds):
        level = rng.normal()
        for at in range(problems):
            rate, value = level + 0.1 * rng.normal(size=2)
            runs.append(
                OneSampleRun(
                    name=f"{seed}-{at}",
                    seed=seed,
                    problem=f"p{at}",
                    band="hard",
                    properties={"pass rate": rate},
                    learned=0.0,
                    value=value,
                )
            )
    return runs


def test_random_properties_predict_nothing():
    """A correlation of 10 problems has error 1/3; a mean over 40 seeds, 0.05."""
    found = correlate_ranks(drawn(np.random.default_rng(0)))["pass rate"]
    assert len(found.by_seed) == 40
    assert abs(found.interval.value) < 0.15
    assert found.interval.low < 0 < found.interval.high


def test_runs_may_be_in_any_order():
    runs = drawn(np.random.default_rng(1), seeds=4)
    order = np.random.default_rng(2).permutation(len(runs))
    again = correlate_ranks([runs[i] for i in order])["pass rate"]
    found = correlate_ranks(runs)["pass rate"]
    assert again.by_seed == pytest.approx(found.by_seed)
    assert again.interval == pytest.approx(found.interval)
    (bands,), (turned,) = (
        average_by_band(each).values() for each in (runs, [runs[i] for i in order])
    )
    assert turned[0].by_seed == pytest.approx(bands[0].by_seed)


def test_the_command_prints_and_writes(tmp_path, capsys):
    paths = [
        str(
            write_run(
                tmp_path / f"{seed}{at}",
                first=first,
                gained=at / 10,
                seed=seed,
                index=at,
            )
        )
        for seed in (0, 1)
        for at, first in enumerate(("wwww", "lwww", "lrww", "rrrw"))
    ]
    assert main(["learning_value", *paths, f"--out={tmp_path / 'out'}"]) == 0
    out = capsys.readouterr().out
    assert "medium          8         +15.0           6 of 8   +62.5" in out
    assert "pass rate       +1.00             0: +1.00  1: +1.00" in out
    assert f"{tmp_path}/out/learning_value.svg" in out
    found = json.loads((tmp_path / "out/learning_value.json").read_text())
    assert len(found["runs"]) == 8
    assert found["rank_correlations"]["pass rate"]["by_seed"] == {"0": 1.0, "1": 1.0}
    assert found["by_band"]["medium"]["learning_value"]["mean"] == pytest.approx(0.15)
    assert (tmp_path / "out/learning_value.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (
            "two problems",
            "a trains on 2 problems; give runs with curriculum.name=one_sample",
        ),
        ("late", "a/rollouts has no completions of the first step of RL"),
        ("none saved", "a/rollouts has no completions of the first step of RL"),
        ("unfinished", "a/summary.json has no held-out pass@1 after RL; let"),
        ("other k", "a/summary.json has no held-out pass@1 after RL; let"),
        ("twice", "a run is given twice"),
        ("same problem", "a and {b} have the same problem and the same seed"),
        (
            "other recipe",
            "{b} differs from {a} in more than its problem: train.steps: 4",
        ),
    ],
)
def test_unsuitable_runs_are_refused(tmp_path, capsys, fault, told):
    path = write_run(tmp_path / "a", first="rw", step=10 if fault == "late" else 0)
    other = write_run(tmp_path / "b", first="rw", index=int(fault == "other recipe"))
    given = [path]
    if fault == "two problems":
        with gzip.open(path / "rollouts/train_000039.jsonl.gz", "at") as lines:
            lines.write(json.dumps(row("r", problem="q")) + "\n")
    elif fault == "none saved":
        for file in (path / "rollouts").iterdir():
            file.unlink()
    elif fault == "unfinished":
        (path / "summary.json").unlink()
    elif fault == "other k":
        scores = json.loads((path / "summary.json").read_text())
        scores["eval"]["after"]["pass@k"] = {"2": {"mean": 1.0}}
        (path / "summary.json").write_text(json.dumps(scores))
    elif fault == "twice":
        given = [path, path]
    else:
        given = [path, other]
    if fault == "other recipe":
        record = json.loads((other / "config.json").read_text())
        record["config"]["train"]["steps"] = 5
        (other / "config.json").write_text(json.dumps(record))
    assert main(["learning_value", *map(str, given)]) == 2
    assert told.format(a=path, b=other) in capsys.readouterr().err
