"""What RL amplified, doses of it before RL, and shares of RL's change."""

import dataclasses
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from job_jax.schema import ConfigError
from rlvr_jax.analysis.sufficiency import measure
from rlvr_jax.analysis.sufficiency.measure import (
    Amplification,
    measure_amplification,
    measure_shares,
    with_lenient_metrics,
)
from rlvr_jax.analysis.sufficiency.text import describe_shares, format_shares
from rlvr_jax.metrics.bootstrap import RatioStatistic
from rlvr_jax.probe.intervene import ArmResult, Calibration, EditArm
from rlvr_jax.types import Verdict
from sae_jax.edits import FiringStats, make_latent_edit
from sae_jax.sae import TSAE

D, Z, T = 4, 8, 5
TSAE_ = TSAE.init(jax.random.key(0), width=D, latents=Z)


def amplification(change, rate=None):
    rate = np.ones(len(change)) if rate is None else np.array(rate)
    return Amplification(
        change=np.array(change),
        before=Calibration(
            np.zeros((3, D), np.float32),
            FiringStats(rate=rate, mean_when_active=np.full(len(change), 7.0)),
        ),
    )


def test_the_latents_that_rose_most_are_chosen_if_they_fired_before():
    found = amplification([0.1, -5.0, 0.9, 3.0, 0.4], rate=[1, 1, 0.5, 0.0, 0.2])
    assert found.choose(2) == (2, 4)
    assert found.choose(3) == (2, 4, 0)
    with pytest.raises(ConfigError, match="top=4, but RL amplified only 3 latents"):
        found.choose(4)


def test_strength_1_adds_what_rl_added_on_average():
    found = amplification([0.0, 0.25, 0.0, 1.5, *[0.0] * 4])
    calibration = found.in_units_of_change((3, 1))
    edit = make_latent_edit(
        TSAE_,
        (3, 1),
        layer=0,
        mode="add",
        strength=1.0,
        mean_when_active=calibration.firing.mean_when_active,
    )
    x = np.random.default_rng(0).normal(size=(6, D)).astype(np.float32)
    decoder = np.asarray(TSAE_.decoder)
    expected = 1.5 * decoder[3] + 0.25 * decoder[1]
    np.testing.assert_allclose(
        edit.delta(x), np.tile(expected, (6, 1)), rtol=1e-4, atol=1e-6
    )
    others = [z for z in range(Z) if z not in (1, 3)]
    assert (calibration.firing.mean_when_active[others] == 7.0).all()


def test_a_limit_of_tokens_is_spread_over_all_problems():
    masks = [np.ones((2, 6), bool), np.zeros((1, 6), bool), np.ones((3, 6), bool)]
    masks[0][0, 3:] = False  # 9, 0 and 18 tokens
    thin = measure.thin_out(masks, 9)
    assert [kept.sum() for kept in thin] == [3, 0, 6]
    assert not any((kept & ~mask).any() for kept, mask in zip(thin, masks, strict=True))
    assert thin[2].any(axis=1).all()  # each row of the last part
    for kept, mask in zip(measure.thin_out(masks, 100), masks, strict=True):
        np.testing.assert_array_equal(kept, mask)


def test_both_policies_read_the_tokens_that_either_wrote(monkeypatch):
    """The last token of a row predicts nothing; the last row fills up the batch."""
    rng = np.random.default_rng(1)
    lengths = {"before": np.array([3, 5, 4]), "after": np.array([2, 4, 5])}
    stream = {
        (reader, writer): rng.normal(size=(3, T, D)).astype(np.float32)
        for reader in lengths
        for writer in lengths
    }

    def sample_edited(policy, problems, intervention):
        assert intervention is None
        rollouts = SimpleNamespace(
            lengths=lengths[policy],
            tokens=np.zeros((3, T), int),
            prompts=SimpleNamespace(lengths=np.ones(3)),
            writer=policy,
        )
        yield problems, rollouts

    def clean_residuals(policy, rollouts, *, layer):
        assert layer == 1
        return stream[policy, rollouts.writer]

    monkeypatch.setattr(measure, "sample_edited", sample_edited)
    monkeypatch.setattr(measure, "clean_residuals", clean_residuals)
    found = measure_amplification("before", "after", TSAE_, ["a", "b"], layer=1)
    tokens = {
        reader: np.concatenate(
            [
                stream[reader, writer][row, : lengths[writer][row] - 1]
                for writer in lengths
                for row in range(2)
            ]
        )
        for reader in lengths
    }
    mean = {
        name: np.asarray(TSAE_.encode(x)).mean(axis=0) for name, x in tokens.items()
    }
    np.testing.assert_allclose(found.change, mean["after"] - mean["before"], atol=1e-6)
    np.testing.assert_array_equal(found.before.residuals, tokens["before"])


def result(values, kind="target", strength=1.0, draw=0):
    """Returns an arm with this share of right answers for each problem."""
    right = RatioStatistic(
        numerator=np.array(values, float), denominator=np.ones(len(values))
    )
    return ArmResult(
        arm=EditArm(kind=kind, strength=strength, control_index=draw),
        metrics={"pass@1": right},
        correct=np.zeros((len(values), 1)),
        tokens=np.zeros((len(values), 1)),
    )


def shares(after, *edited):
    clean = result(np.linspace(0, 0.5, 40), kind="clean")
    return measure_shares(clean, after, edited, ["pass@1"], resamples=500, seed=0)


def test_a_share_is_the_edits_change_over_rls():
    before = np.linspace(0, 0.5, 40)
    gained = np.linspace(0.5, 0.1, 40)
    (half, none, more) = shares(
        result(before + gained),
        result(before + 0.5 * gained),
        result(before, kind="random latents"),
        result(before + 2 * gained, strength=4.0),
    )
    assert half.share.value == pytest.approx(0.5)
    assert half.share.low == pytest.approx(0.5)  # of each problem, so of any others
    assert none.share.value == pytest.approx(0.0)
    assert more.share.value == pytest.approx(2.0)
    assert half.to_json()["share"]["mean"] == pytest.approx(0.5)
    text = format_shares([half, none, more])
    assert "0.50 [0.50, 0.50]" in text
    assert text.count("\n") == 2  # the heading and two strengths; controls share rows
    (said,) = describe_shares([half, none, more], [])
    assert "strength 4 brings the largest share, 2.00" in said
    assert "not shown to be specific" in said


def test_worked_examples_have_a_row_and_a_part_of_the_sentence():
    """A random latent has strength 1 there; the row of examples has no controls."""
    before = np.linspace(0, 0.5, 40)
    gained = np.linspace(0.5, 0.1, 40)
    found = shares(
        result(before + gained),
        result(before + 0.5 * gained),
        result(before + 0.25 * gained, kind="random latents"),
        result(before + 0.75 * gained, kind="few-shot", strength=0.0),
        result(before + 0.25 * gained, kind="random latents", strength=0.0),
    )
    row = next(line for line in format_shares(found).splitlines() if "few-shot" in line)
    assert row.split()[-4:] == ["[0.75,", "0.75]", "-", "-"]
    (said,) = describe_shares(found, [])
    assert said.endswith("; worked examples bring 0.75 [0.75, 0.75]")
    (said,) = describe_shares(found[:2], [])
    assert "worked examples" not in said


def test_an_edit_that_moves_other_problems_has_a_wide_share():
    before, gained = np.linspace(0, 0.5, 40), np.tile([0.4, 0.0], 20)
    (share,) = shares(result(before + gained), result(before + gained[::-1]))
    assert share.share.value == pytest.approx(1.0)
    assert share.share.high - share.share.low > 0.3


def test_resamples_that_rl_does_not_change_are_left_out():
    """Five problems, of which RL changes three: a resample may hold none of them."""
    before = np.zeros(5)
    (share,) = measure_shares(
        result(before, kind="clean"),
        result([1, 1, 1, 0, 0]),
        [result([0, 1, 0, 0, 0])],
        ["pass@1"],
        resamples=2000,
        seed=0,
    )
    assert share.share.value == pytest.approx(1 / 3)
    assert 0 <= share.share.low < share.share.high <= 1


def test_there_is_no_share_of_a_change_that_could_be_chance():
    before = np.linspace(0, 0.5, 40)
    (share,) = shares(result(before + np.tile([0.3, -0.3], 20)), result(before + 0.1))
    assert share.share is None
    assert share.to_json()["share"] is None
    assert "could be chance" in describe_shares([share], [])[0]


def test_lenient_accuracy_and_answers_are_counted_by_problem():
    def graded(status, answer, text, gold="12"):
        return SimpleNamespace(
            problem=SimpleNamespace(gold=gold, golds=(gold,)),
            completion=text,
            verdict=Verdict(status=status, answer=answer),
        )

    rows = (
        graded("correct", "12", "12"),
        graded("incorrect", None, "it is 12, I think"),
        graded("incorrect", "7", "7"),
        graded("incorrect", None, "120"),
    )
    arm = dataclasses.replace(result([1, 0]), graded=rows)
    found = with_lenient_metrics(arm, num_samples=2).metrics
    assert found["lenient"].numerator.tolist() == [2.0, 0.0]
    assert found["answered"].numerator.tolist() == [1.0, 1.0]
    assert found["answered"].denominator.tolist() == [2.0, 2.0]
    words = (*rows[:3], graded("incorrect", None, "x", gold="a formula"))
    arm = dataclasses.replace(result([1, 0]), graded=words)
    assert "lenient" not in with_lenient_metrics(arm, num_samples=2).metrics
