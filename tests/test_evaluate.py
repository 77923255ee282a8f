"""Held-out scores by band: how problems are cut, and how that biases the scores."""

import dataclasses
import gzip
import json
import random

import pytest

from rlvr_jax.config import Config, DifficultyConfig, EvalConfig
from rlvr_jax.evaluate import _load_initial_verdicts
from rlvr_jax.metrics.scores import (
    bands_from_verdicts,
    summarize_completions,
)
from rlvr_jax.rollouts.graded import GradedCompletion, verdicts_by_problem
from rlvr_jax.types import Problem, Verdict

TO_128 = (1, 2, 4, 8, 16, 32, 64, 128)
STATUS = {"r": "correct", "w": "incorrect", "u": "unverified"}


def judged(**letters):
    """Returns the completions of problems a="rw", b="ww", ..."""
    return [
        GradedCompletion(
            problem=Problem(id=name, prompt="", gold="", verifier="", source=""),
            completion="",
            verdict=Verdict(status=STATUS[letter], answer=letter),
            length=10,
            finished=True,
            strategy=None,
            weight_version=0,
        )
        for name, each in letters.items()
        for letter in each
    ]


def initial(found):
    return verdicts_by_problem(one.to_json("eval_before", 0) for one in found)


def config(n, k, resamples=50):
    return Config(eval=EvalConfig(num_samples=n, k=k, bootstrap_resamples=resamples))


def test_bands_are_the_papers_at_eight_samples():
    found = judged(
        a="r" * 8, b="rrrrrrrw", c="rwwwwwww", d="w" * 8, e="rrrrrrru", f="u" * 8
    )
    # Completions that could not be judged count for no band.
    assert bands_from_verdicts(initial(found), DifficultyConfig()) == {
        "a": "easy",
        "b": "medium",
        "c": "medium",
        "d": "hard",
        "e": "easy",
        "f": "unknown",
    }


def test_a_completion_without_a_strategy_counts_as_none():
    """A task may recognize the strategy of some completions of a problem only."""
    found = judged(a="rw", b="rr")
    known = [dataclasses.replace(one, strategy="f") for one in found[:1]]
    scores = summarize_completions(config(2, (1,)), known + found[1:])["strategies"]
    (by_strategy,) = scores.values()
    assert {*by_strategy} == {"f", "none"}
    assert by_strategy["f"]["pass"]["mean"] == 1
    assert by_strategy["none"]["pass"]["mean"] == pytest.approx(2 / 3)
    assert summarize_completions(config(2, (1,)), found)["strategies"] == {}


def test_bands_by_a_policys_own_answers_return_those_answers():
    before = judged(a="rrrr", b="rrrw", c="wwww", d="wwww")
    found = summarize_completions(config(4, (1, 4)), before, initial(before))
    passed = {
        band: [point["mean"] for point in each["pass@k"].values()]
        for band, each in found["by_band"].items()
    }
    assert passed == {"easy": [1, 1], "medium": [0.75, 1], "hard": [0, 0]}
    assert found["by_band"]["hard"]["problems"] == 2
    assert list(found["by_band"]) == ["easy", "medium", "hard"]


def test_fresh_scores_are_of_the_half_that_did_not_choose_the_band():
    before = judged(a="rrww", b="wwrr", c="wwrw")
    after = judged(a="rrrr", b="wwrr", c="wwww")
    for found, easy, hard in ((before, 0.0, 0.75), (after, 1.0, 0.5)):
        fresh = summarize_completions(config(4, (1, 2, 4)), found, initial(before))[
            "by_band_fresh"
        ]
        assert fresh["easy"]["pass@k"]["1"]["mean"] == easy
        assert fresh["hard"]["pass@k"]["1"]["mean"] == hard
        # Two of four samples are left: no pass@4 without the two that set the band.
        assert list(fresh["hard"]["pass@k"]) == ["1", "2"]
        assert fresh["hard"]["samples"] == 4


def test_equal_problems_seem_unequal_by_band_but_not_on_fresh_samples():
    """All problems pass at 0.3; with 4000 of them, chance moves less than 0.02."""
    rng = random.Random(0)
    letters = {
        str(i): "".join("r" if rng.random() < 0.3 else "w" for _ in range(8))
        for i in range(4000)
    }
    before = judged(**letters)
    found = summarize_completions(config(8, (1,), resamples=2), before, initial(before))
    one = {
        cut: {band: each["pass@k"]["1"]["mean"] for band, each in found[cut].items()}
        for cut in ("by_band", "by_band_fresh")
    }
    assert one["by_band"]["hard"] == 0
    # (0.3 - 0) / (1 - 0.7^8): the mean rate, given that it is not 0 of 8.
    assert one["by_band"]["medium"] == pytest.approx(0.3 / (1 - 0.7**8), abs=0.02)
    for band in ("medium", "hard"):
        assert one["by_band_fresh"][band] == pytest.approx(0.3, abs=0.02)


def test_problems_without_samples_of_the_first_policy_have_no_known_band():
    found = summarize_completions(
        config(2, (1,)), judged(a="rr", b="rw"), initial(judged(a="rr"))
    )
    assert found["by_band"].keys() == {"easy", "unknown"}
    assert found["by_band"]["unknown"]["problems"] == 1


def test_without_the_first_policys_answers_nothing_is_cut_by_band():
    found = summarize_completions(config(2, (1,)), judged(a="rr"))
    assert not {"by_band", "by_band_fresh"} & found.keys()


def test_one_sample_leaves_no_fresh_half():
    before = judged(a="r")
    assert "by_band_fresh" not in summarize_completions(
        config(1, (1,)), before, initial(before)
    )


@pytest.mark.parametrize(
    ("num_samples", "ks"),
    [(1, (1,)), (8, (1, 2, 4, 8)), (12, (1, 2, 4, 8, 12)), (256, (*TO_128, 256))],
)
def test_ks_reach_as_far_as_the_samples(num_samples, ks):
    assert EvalConfig(num_samples=num_samples).ks == ks
    assert EvalConfig(num_samples=num_samples, k=(1,)).ks == (1,)


def test_cuts_are_the_configs():
    found = judged(a="rrrw")
    strict = dataclasses.replace(DifficultyConfig(), easy_above=0.7)
    assert bands_from_verdicts(initial(found), strict) == {"a": "easy"}


@pytest.mark.parametrize(
    ("known", "says"), [("ab", ""), ("a", "1 of 2 problems"), ("", "2 of 2 problems")]
)
def test_the_first_policys_answers_are_read_from_the_workdir(
    tmp_path, capsys, known, says
):
    (tmp_path / "rollouts").mkdir()
    rows = (
        json.dumps(one.to_json("eval_before", 0))
        for one in judged(**dict.fromkeys(known, "rw"))
    )
    with gzip.open(tmp_path / "rollouts/eval_before_000000.jsonl.gz", "wt") as file:
        file.writelines(f"{row}\n" for row in rows)
    problems = [one.problem for one in judged(a="r", b="r")]
    found = _load_initial_verdicts(tmp_path, problems)
    assert found == ({name: ["correct", "incorrect"] for name in known} or None)
    assert capsys.readouterr().err.startswith(says)
