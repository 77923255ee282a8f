"""`analysis credit`: refusals and the table."""

import copy
import dataclasses
import json

import pytest

from job_jax.config_io import to_json
from job_jax.resampling import Interval
from rlvr_jax.analysis.__main__ import main
from rlvr_jax.analysis.credit.command import format_credit
from rlvr_jax.analysis.credit.measure import CreditComparison, WeightOnChange
from rlvr_jax.config import Config
from rlvr_jax.probe import SAEProbeConfig


def selection(**changed):
    empty = ("latents", "weights", "rms", "scores", "effects", "effect_errors")
    return {
        **{name: [] for name in empty},
        "q_values": None,
        "seed_cosine": None,
        "method": "contrast",
        "control": "none",
        "layer": 0,
        "dead": [],
        "num_alive": 0,
        "num_stable": None,
        "num_completions": 0,
        "halves": None,
        **changed,
    }


def test_a_run_without_features_is_refused_with_the_reason(tmp_path, capsys):
    record = {"config": to_json(Config())}
    (tmp_path / "config.json").write_text(json.dumps(record))

    def refused():
        assert main(["credit", str(tmp_path)]) == 2
        return capsys.readouterr().err

    assert "has no sae/selection.json: give a run whose stage probe" in refused()
    (tmp_path / "sae").mkdir()
    for changed, said in (
        ({"refusal": "nothing was confirmed"}, "features: nothing was confirmed"),
        ({"control": "random_latents"}, "probe.features.control=random_latents"),
    ):
        file = tmp_path / "sae/selection.json"
        file.write_text(json.dumps(selection(**changed)))
        assert said in refused()


def test_completions_without_prefixes_are_refused(tmp_path, capsys):
    base = Config()
    sampling = dataclasses.replace(base.train.sampling, min_new_tokens=3)
    rfgo = dataclasses.replace(base.train.rfgo, token_score="activation")
    frozen = dataclasses.replace(base.train.rfgo, features_of="reference")
    for train, said in (
        (dataclasses.replace(base.train, sampling=sampling), "min_new_tokens=3 would"),
        (dataclasses.replace(base.train, rfgo=rfgo), "token_score=activation"),
        (dataclasses.replace(base.train, rfgo=frozen), "features_of=reference"),
    ):
        config = dataclasses.replace(base, train=train, probe=SAEProbeConfig())
        (tmp_path / "config.json").write_text(json.dumps({"config": to_json(config)}))
        assert main(["credit", str(tmp_path)]) == 2
        assert said in capsys.readouterr().err


def test_the_table_shows_weights_next_to_their_controls():
    found = CreditComparison(
        kinds={
            "reasoning features": WeightOnChange(
                ratio=Interval(1.25, 1.1, 1.4),
                beyond_controls=Interval(0.2, 0.05, 0.3),
                num_as_high=1,
            )
        },
        controls=Interval(1.05, 0.95, 1.15),
        of_draws=[0.85, 1.25],
        num_problems=64,
    )
    table = format_credit(found)
    assert "1.25 [1.10, 1.40]" in table
    assert "+0.20 [+0.05, +0.30]" in table
    assert "1 of 2" in table
    assert "Draws of random latents: 0.85 to 1.25." in table
    assert "over 64 problems" in table


ASKED = {"num_problems": 64, "num_samples": 16, "num_controls": 20, "lambda_w": 0.5}
MEASURED = {
    "kinds": {
        "reasoning features": {
            "ratio": [1.25, 1.1, 1.4],
            "beyond_controls": [0.2, 0.05, 0.3],
            "num_as_high": 1,
        }
    },
    "controls": [1.05, 0.95, 1.15],
    "of_draws": [0.85, 1.25],
    "num_problems": 60,
}


def probed_run(folder, found):
    """A run with features but no checkpoint, so it cannot be measured."""
    (folder / "sae").mkdir(parents=True)
    (folder / "sae/selection.json").write_text(json.dumps(selection()))
    (folder / "config.json").write_text(json.dumps({"config": to_json(Config())}))
    (folder / "credit.json").write_text(json.dumps(found))
    return str(folder)


def test_a_measured_policy_is_not_measured_again(tmp_path, capsys):
    second = copy.deepcopy(MEASURED)
    second["kinds"]["reasoning features"]["ratio"][0] = 1.45
    one = probed_run(tmp_path / "one", {"asked": ASKED, **MEASURED})
    two = probed_run(tmp_path / "two", {"asked": ASKED, **second})
    assert main(["credit", one, two]) == 0
    told = capsys.readouterr()
    assert told.err.count("remove it to measure again") == 2
    assert told.out.count("over 60 problems") == 2
    # 1.35 +- 12.706 x 0.1
    assert "1.35 [0.08, 2.62]" in told.out.split("Means over 2 policies")[1]
    assert "2 of 4" in told.out
    assert "over 2 policies." in told.out
    assert main(["credit", one]) == 0
    assert "policies" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "found",
    [
        {"asked": {**ASKED, "num_samples": 8}, **MEASURED},
        {"asked": ASKED, **MEASURED, "num_problems": None},
    ],
)
def test_another_question_is_measured_again(tmp_path, capsys, found):
    kept = {name: value for name, value in found.items() if value is not None}
    run = probed_run(tmp_path / "run", kept)
    assert main(["credit", run]) == 2
    told = capsys.readouterr()
    assert "no complete checkpoint in" in told.err  # it would have been sampled
    assert not told.out


def test_a_policy_counts_once(tmp_path, capsys):
    run = probed_run(tmp_path / "run", {"asked": ASKED, **MEASURED})
    assert main(["credit", run, f"{run}/../run"]) == 2
    assert "a run is given twice" in capsys.readouterr().err
