"""Stated confidence: how it is read, and its calibration by hand."""

import math

import pytest

from rlvr_jax.verifiers.confidence import calibration_metrics, parse_confidence


@pytest.mark.parametrize(
    ("text", "q"),
    [
        ("<confidence>0.8</confidence>", 0.8),
        ("<confidence> 80% </confidence>", 0.8),
        (r"Confidence: 75\%.", 0.75),
        ("my confidence is .5", 0.5),
        ("confidence = 1", 1.0),
        ("Confidence: 0.25.", 0.25),
        ("<confidence>0.1</confidence> rather <confidence>0.9</confidence>", 0.9),
        ("<confidence>80</confidence>", None),
        ("<confidence>1.01</confidence>", None),
        ("<confidence>1.2.3</confidence>", None),
        ("<confidence>\u0665</confidence>", None),
        ("<confidence>high</confidence>", None),
        ("sure", None),
        ("", None),
        ("<confidence>" * 100_000, None),
    ],
)
def test_the_last_statement_within_0_and_1_is_the_confidence(text, q):
    assert parse_confidence(text) == q


def test_calibration_on_paper_values():
    """Gaps are .8-1, .6-0, .6-1 and .2-0; the bins are 8, 6 (twice) and 2."""
    found = calibration_metrics([0.8, 0.6, 0.6, 0.2], [True, False, True, False])
    assert found == pytest.approx(
        {
            "stated": 1.0,
            "brier": (0.04 + 0.36 + 0.16 + 0.04) / 4,
            "ece": (0.2 + abs(1.2 - 1) + 0.2) / 4,
            "auroc": (1 + 1 + 0.5 + 1) / 4,
        }
    )


def test_the_true_chance_is_calibrated():
    right = [True] * 7 + [False] * 3
    found = calibration_metrics([0.7] * 10, right)
    assert found["ece"] == pytest.approx(0)
    assert found["brier"] == pytest.approx(0.21)
    assert found["auroc"] == pytest.approx(0.5)


def test_undefined_figures_are_absent():
    assert calibration_metrics([math.nan] * 2, [True, False]) == {"stated": 0.0}
    assert calibration_metrics([0.5, math.nan], [True, False]) == {
        "stated": 0.5,
        "brier": 0.25,
        "ece": 0.5,
    }
