"""Calibration of held-out completions, checked against values from plain NumPy."""

import dataclasses
import json

import numpy as np
import pytest

from rlvr_jax.analysis import read_run
from rlvr_jax.config import (
    Config,
    EvalConfig,
    RewardConfig,
    TokenizerConfig,
    TrainConfig,
)
from rlvr_jax.metrics.bootstrap import mean_interval
from rlvr_jax.metrics.calibration import summarize_calibration
from rlvr_jax.metrics.scores import summarize_completions
from rlvr_jax.report.page import render_page
from rlvr_jax.report.parts.calibration import calibration
from rlvr_jax.rollouts.graded import GradedCompletion
from rlvr_jax.tasks import FilesTask, RecordConfig
from rlvr_jax.types import Problem, Verdict
from tests.support.run_workdirs import make_workdir

OPTIONS = {"resamples": 200, "seed": 0}
STATUS = {"r": "correct", "w": "incorrect", "u": "unverified"}


def graded(**samples):
    """Returns completions of problems a=[("r", 0.8), ("w", None)], ..."""
    return [
        GradedCompletion(
            problem=Problem(id=name, prompt="", gold="", verifier="", source=""),
            completion="7" if q is None else f"7 <confidence>{q}</confidence>",
            verdict=Verdict(status=STATUS[letter]),
            length=4,
            finished=True,
            strategy=None,
            weight_version=0,
        )
        for name, each in samples.items()
        for letter, q in each
    ]


def reference(q, correct):
    """Returns the Brier score, ECE and AUROC, one sample, bin and pair at a time.

    The Brier score and AUROC are defined as in scikit-learn's brier_score_loss and
    roc_auc_score. ECE has 10 bins of equal width; the last one includes its upper end.
    """
    brier = sum((p - c) ** 2 for p, c in zip(q, correct, strict=True)) / len(q)
    ece = 0.0
    for low in range(10):
        inside = [
            i
            for i, p in enumerate(q)
            if low <= 10 * p < low + 1 or (p == 1 and low == 9)
        ]
        if inside:
            stated = np.mean([q[i] for i in inside])
            right = np.mean([correct[i] for i in inside])
            ece += len(inside) / len(q) * abs(stated - right)
    pairs = [
        1.0 if a > b else 0.5 if a == b else 0.0
        for a, c in zip(q, correct, strict=True)
        for b, d in zip(q, correct, strict=True)
        if c and not d
    ]
    return brier, ece, np.mean(pairs)


def test_calibration_by_hand():
    """.8 right, .8 wrong, .3 wrong: squares .04, .64, .09; |.8 - .5| 2/3 + .3 / 3."""
    found = summarize_calibration(
        graded(a=[("r", 0.8), ("w", 0.3)], b=[("w", 0.8), ("w", None), ("u", 1.0)]),
        **OPTIONS,
    )
    assert found["samples"] == 4  # the unverified one has nothing to be compared with
    assert found["stated"]["mean"] == pytest.approx(3 / 4)
    assert found["brier"]["mean"] == pytest.approx(0.77 / 3)
    assert found["ece"] == pytest.approx(0.3 * 2 / 3 + 0.3 / 3)
    assert found["auroc"] == pytest.approx(0.75)  # above .3, equal to .8
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_calibration_of_many_samples_is_the_references():
    rng = np.random.default_rng(0)
    q = np.round(rng.random((40, 8)), 2)
    correct = rng.random((40, 8)) < q**2
    found = summarize_calibration(
        graded(
            **{
                str(i): [
                    ("r" if c else "w", p)
                    for p, c in zip(q[i], correct[i], strict=True)
                ]
                for i in range(40)
            }
        ),
        **OPTIONS,
    )
    brier, ece, auroc = reference(q.ravel().tolist(), correct.ravel().tolist())
    assert found["brier"]["mean"] == pytest.approx(brier)
    assert found["ece"] == pytest.approx(ece)
    assert found["auroc"] == pytest.approx(auroc)
    assert found["brier"]["low"] < brier < found["brier"]["high"] < brier + 0.1


def test_intervals_are_over_problems_with_stated_and_verified_completions():
    """The expected interval is `mean_interval` of each problem's sums and counts."""
    rng = np.random.default_rng(1)
    letters = rng.choice(list("rwu"), size=(30, 6))
    q = np.where(rng.random((30, 6)) < 0.8, np.round(rng.random((30, 6)), 2), np.nan)
    found = summarize_calibration(
        graded(
            **{
                str(i): [
                    (letter, None if np.isnan(p) else p)
                    for letter, p in zip(letters[i], q[i], strict=True)
                ]
                for i in range(30)
            }
        ),
        **OPTIONS,
    )
    judged = letters != "u"
    stated = (judged & ~np.isnan(q)).sum(axis=1)
    squares = np.where(judged, (q - (letters == "r")) ** 2, np.nan)
    brier = mean_interval(np.nansum(squares, axis=1), denominators=stated, **OPTIONS)
    share = mean_interval(stated, denominators=judged.sum(axis=1), **OPTIONS)
    assert found["samples"] == judged.sum()
    assert found["brier"] == pytest.approx(brier.to_json())
    assert found["stated"] == pytest.approx(share.to_json())


def test_a_random_confidence_is_at_chance():
    """Verdicts are coin flips and confidences are uniform: (q - y)^2 has the mean 1/3.

    The mean of |q - 1/2| is 1/4, also over the centers of ten bins.
    """
    rng = np.random.default_rng(2)
    found = summarize_calibration(
        graded(
            **{
                str(i): [(rng.choice(["r", "w"]), round(rng.random(), 3))]
                for i in range(2000)
            }
        ),
        **OPTIONS,
    )
    assert found["auroc"] == pytest.approx(0.5, abs=0.04)
    assert found["brier"]["mean"] == pytest.approx(1 / 3, abs=0.025)
    assert found["ece"] == pytest.approx(1 / 4, abs=0.04)


def test_undefined_figures_are_null():
    silent = summarize_calibration(graded(a=[("r", None)], b=[("w", None)]), **OPTIONS)
    assert (silent["brier"], silent["ece"], silent["auroc"]) == (None, None, None)
    assert silent["stated"]["mean"] == 0 < silent["stated"]["high"]
    right = summarize_calibration(graded(a=[("r", 1.0)]), **OPTIONS)
    assert right["brier"] == {"mean": 0.0, "low": None, "high": None}  # one problem
    assert (right["ece"], right["auroc"]) == (0.0, None)
    assert summarize_calibration(graded(a=[("u", 1.0)]), **OPTIONS) is None


def test_calibration_is_told_where_a_confidence_is_rewarded():
    completions = graded(a=[("r", 0.8), ("w", 0.3)], b=[("w", 0.8), ("w", None)])
    config = Config(eval=EvalConfig(num_samples=2, bootstrap_resamples=20))
    assert "calibration" not in summarize_completions(config, completions)
    rlcr = RewardConfig(names=("correctness", "confidence"), weights=(1.0, 1.0))
    record = RecordConfig(ask_confidence=True)
    config = dataclasses.replace(
        config,
        task=FilesTask(train_path="a.jsonl", eval_path="b.jsonl", record=record),
        tokenizer=TokenizerConfig(kind="sentencepiece"),
        train=TrainConfig(reward=rlcr),
    )
    found = summarize_completions(config, completions)["calibration"]
    assert found["brier"]["mean"] == pytest.approx(0.77 / 3)


def test_the_report_has_calibration_before_and_after(tmp_path):
    workdir = make_workdir(tmp_path / "run", steps=2)
    assert calibration(read_run(workdir)) is None
    summary = json.loads((workdir / "summary.json").read_text())
    interval = {"mean": 0.25, "low": 0.2, "high": 0.3}
    for when, ece in (("before", 0.2), ("after", None)):
        summary["eval"][when]["calibration"] = {
            "samples": 960,
            "stated": interval,
            "brier": interval if ece else None,
            "ece": ece,
            "auroc": 0.5,
        }
    (workdir / "summary.json").write_text(json.dumps(summary))
    section = calibration(read_run(workdir))
    shown = "25\u00a0% (20\u201330\u00a0%)"
    assert section.table.rows == [
        ("before RL", "960", shown, shown, "0.200", "0.500"),
        ("after RL", "960", shown, "\u2013", "\u2013", "0.500"),
    ]
    assert "<h2>How well stated confidence fits the verdicts</h2>" in render_page(
        read_run(workdir)
    )
