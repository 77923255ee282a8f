"""Alarms have the config's own limits, in the run, its summary and its report."""

import pathlib
import types

import pytest

from job_jax.config_io import override, to_json
from rlvr_jax.config import Config
from rlvr_jax.metrics import doctor, rollouts
from rlvr_jax.report import run_files

LIMITS = {
    "train.steps": "5",
    "log.alarm_window": "9",
    "train.max_logprob_mismatch": "0.3",
    "probe.name": "sae",
    "probe.max_unexplained_growth": "0.4",
    "probe.max_splice_cost": "0.2",
}


@pytest.mark.parametrize("max_rounds", [0, 2])
def test_each_limit_of_an_alarm_is_the_configs_own(monkeypatch, max_rounds):
    replaced = {"dynamic_sampling.max_rounds": str(max_rounds)}
    if max_rounds:
        replaced["dynamic_sampling.name"] = "new_problems"
    config = override(Config(), LIMITS | replaced)
    monkeypatch.setattr(run_files, "check_run", lambda train, **limits: [limits])
    run = run_files.RunArtifacts(
        path=pathlib.Path(),
        metadata={"config": to_json(config)},
        metrics={},
        summary={},
    )
    assert run.alarms == [doctor.alarm_limits(config)]
    assert doctor.alarm_limits(config) == {
        "total_steps": 5,
        "window": 9,
        "max_logprob_mismatch": 0.3,
        "max_unexplained_growth": 0.4,
        "max_splice_cost": 0.2,
        "draws_alike": max_rounds == 0,
    }


def test_the_summary_has_the_alarms_of_the_whole_run(monkeypatch):
    config = override(Config(), LIMITS)
    train = types.SimpleNamespace(series=lambda name: ([], []))
    alarm = doctor.Alarm(code="no_signal", step=3, finding="f", advice="a")
    checked = []

    def check_run(train, **limits):
        checked.append((train, limits))
        return [alarm]

    monkeypatch.setattr(doctor, "check_run", check_run)
    (found,) = rollouts.run_summary(train, config)["alarms"]
    assert (found["code"], found["step"]) == ("no_signal", 3)
    assert checked == [(train, doctor.alarm_limits(config))]
