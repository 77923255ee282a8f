"""Which experiments are valid, and that JSON keeps them."""

import json

import pytest

from job_jax.schema import ConfigError
from rlvr_jax.config import Arm, Experiment, Slope

GOOD = {
    "question": "q",
    "reference": "r",
    "arms": {"plain": Arm(), "hard": Arm(overrides={"curriculum.band": "hard"})},
    "baseline": "plain",
    "outcomes": ("pass@1",),
    "seed_sd": 0.1,
    "seed_sd_source": "s",
}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"baseline": "plane"},
            r"baseline='plane' is not an arm; did you mean 'plain'\?",
        ),
        ({"arms": {"plain": Arm(start="fb")}}, "arm plain starts from 'fb', which is"),
        ({"arms": {"plain": Arm(), "a/b": Arm()}}, "'a/b' cannot name an arm"),
        ({"arms": {"plain": Arm(), "..": Arm()}}, "'..' cannot name an arm"),
        ({"arms": {"plain": Arm(), "result": Arm()}}, "'result' cannot name an arm"),
        ({"arms": {"plain": Arm(), "start": Arm()}}, "start: names a start and an arm"),
        (
            {"arms": {"plain": Arm(start="", overrides={"x": "{start}/sae"})}},
            "plain uses {start} but starts from none",
        ),
        ({"starts": {"start": {"x": "{start}/sae"}}}, "start uses {start} but starts"),
        ({"arms": {"plain": Arm(overrides={"seed": "3"})}}, "plain sets the seed"),
        ({"seed_sd": 0.0}, "seed_sd=0.0; give a number above 0"),
        ({"outcomes": ()}, "outcomes is empty"),
        ({"start_stages": ("probe",)}, r"start_stages=\('probe',\); give sft, or the"),
        ({"feature_arms": ("hart",)}, "'hart' is not an arm; did you mean 'hard'"),
        ({"arms": {"plain": Arm(start="start@x")}}, "'start@x'; after the @ give a"),
        ({"arms": {"plain": Arm(start="start@")}}, "'start@'; after the @ give a"),
        ({"arms": {"plain": Arm(start="start@-1")}}, "after the @ give a step of RL"),
        (
            {"arms": {"plain": Arm(start="start@4")}},
            "'start@4', which is not an earlier arm",
        ),
        (
            {"arms": {"plain": Arm(), "fork": Arm(start="plain@0")}},
            "'plain@0', which is not a start",
        ),
        (
            {"arms": {"fork": Arm(start="plain@4"), "plain": Arm()}},
            "arm fork starts from 'plain@4', which is not an earlier arm",
        ),
        (
            {"slopes": {"luck": Slope(dose_by_arm={"plain": 0, "hart": 1})}},
            "slope luck: 'hart' is not an arm; did you mean 'hard'",
        ),
        (
            {"slopes": {"luck": Slope(dose_by_arm={"plain": 1, "hard": 1})}},
            "slope luck: dose_by_arm={'plain': 1, 'hard': 1}; give two different doses",
        ),
        (
            {"slopes": {"luck": Slope(dose_by_arm={})}},
            "dose_by_arm={}; give two different doses",
        ),
        (
            {
                "slopes": {
                    "luck": Slope(dose_by_arm={"plain": 0, "hard": 1}, minus="luck")
                }
            },
            "slope luck: minus='luck' is not an earlier slope",
        ),
        (
            {"corrected": ("pass@2",)},
            "'pass@2' is not an outcome; did you mean 'pass@1'",
        ),
        (
            {"pairs": (("pass@1", "pass@2"),)},
            "pairs: 'pass@2' is not an outcome; did you mean 'pass@1'",
        ),
        ({"seeds": ()}, r"seeds=\(\); give one or more, each once"),
        ({"seeds": (1, 1)}, "give one or more, each once"),
    ],
)
def test_what_does_not_go_together_is_refused(changed, said):
    with pytest.raises(ConfigError, match=said):
        Experiment(**{**GOOD, **changed})


def test_json_keeps_an_experiment():
    made = Experiment(
        **{**GOOD, "arms": {**GOOD["arms"], "b": Arm(start="b_only", published="+1")}},
        starts={"start": {}, "b_only": {"task.sft.strategies": "backward"}},
        seeds=(3, 1),
        start_stages=("sft", "difficulty"),
        reduced={"train.steps": "2"},
        feature_arms=("plain", "b"),
        corrected=("pass@1",),
        pairs=(("pass@1", "pass@1"),),
        slopes={
            "dose": Slope(dose_by_arm={"plain": 0.0, "b": 0.5}),
            "other": Slope(dose_by_arm={"plain": 0.0, "hard": 1.0}, minus="dose"),
        },
    )
    assert Experiment.from_json(json.loads(json.dumps(made.to_json()))) == made


def test_a_fork_names_its_parent_and_a_step():
    arms = (Arm(start=start) for start in ("", "fb", "start@0", "medium@40"))
    assert [(arm.parent, arm.fork_step) for arm in arms] == [
        ("", None),
        ("fb", None),
        ("start", 0),
        ("medium", 40),
    ]
