"""`analysis credit`: what it refuses, and how its table reads."""

import dataclasses
import json

from job_jax.config_io import to_json
from rlvr_jax.analysis.__main__ import main
from rlvr_jax.analysis.credit.command import format_credit
from rlvr_jax.analysis.credit.measure import CreditComparison, WeightOnChange
from rlvr_jax.config import Config


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


def test_what_has_no_prefixes_to_sample_on_is_refused(tmp_path, capsys):
    base = Config()
    sampling = dataclasses.replace(base.train.sampling, min_new_tokens=3)
    rfgo = dataclasses.replace(base.train.rfgo, token_score="activation")
    for train, said in (
        (dataclasses.replace(base.train, sampling=sampling), "min_new_tokens would"),
        (dataclasses.replace(base.train, rfgo=rfgo), "token_score=activation"),
    ):
        config = dataclasses.replace(base, train=train)
        (tmp_path / "config.json").write_text(json.dumps({"config": to_json(config)}))
        assert main(["credit", str(tmp_path)]) == 2
        assert said in capsys.readouterr().err


def test_the_table_sets_weights_beside_their_controls():
    found = CreditComparison(
        kinds={
            "reasoning features": WeightOnChange(
                ratio=(1.25, 1.1, 1.4), beyond_controls=(0.2, 0.05, 0.3), num_as_high=1
            )
        },
        controls=(1.05, 0.95, 1.15),
        of_draws=[0.85, 1.25],
    )
    table = format_credit(found, 64)
    assert "1.25 [1.10, 1.40]" in table
    assert "+0.20 [+0.05, +0.30]" in table
    assert "1 of 2" in table
    assert "Draws of random latents: 0.85 to 1.25." in table
    assert "over 64 problems" in table
