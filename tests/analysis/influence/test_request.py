"""`analysis influence`: one clear error before any work starts."""

import dataclasses
import json

import pytest

from job_jax.config_io import to_json
from rlvr_jax.analysis.__main__ import main
from rlvr_jax.analysis.influence.request import parse_request
from rlvr_jax.config import Config, RewardConfig, RFGOConfig
from rlvr_jax.probe import SAEProbeConfig

BASE = Config()
TRAIN = dataclasses.replace(
    BASE.train,
    steps=6,
    reward=RewardConfig(names=("correctness", "format"), weights=(1.0, 0.5)),
)


@pytest.fixture
def run(tmp_path):
    """Returns a function that makes a run with checkpoints of RL steps 2 and 4."""

    def make(probe=BASE.probe, **train):
        workdir = tmp_path / "run"
        for step in (2, 4):
            (workdir / f"checkpoints/train/{step}").mkdir(parents=True)
        train = dataclasses.replace(TRAIN, **train)
        config = dataclasses.replace(BASE, train=train, probe=probe)
        record = {"config": to_json(config)}
        (workdir / "config.json").write_text(json.dumps(record))
        return workdir

    return make


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ((), "--run is missing"),
        (("--run={run}",), "give WORKDIR@STEP, a step of RL with a checkpoint"),
        (("--run={run}@3",), "no checkpoint of RL step 3 (there are 2, 4, and 0 for"),
        (("--run={run}/none@2",), "config.json; give a run's workdir"),
        (("--run={run}@2", "--problems=0,99"), "'99' is no place in the batch, which"),
        (("--run={run}@2", "--problems=x"), "'x' is no place in the batch"),
        (("--run={run}@2", "--reward=formt"), "it has correctness, format; did you"),
        (("--run={run}@2", "--out=x.txt"), "--out=x.txt has the ending '.txt'"),
        (("--run={run}@2", "--out={run}/none/x.json"), "does not exist; make it"),
        (("--run={run}@2", "--probelms=0"), "did you mean '--problems'?"),
        (("--run={run}@2", "more"), "unexpected argument 'more'"),
    ],
)
def test_bad_usage_is_one_line(run, capsys, flags, said):
    workdir = run()
    assert main(["influence", *(flag.format(run=workdir) for flag in flags)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert {path.name for path in workdir.iterdir()} == {"checkpoints", "config.json"}


@pytest.mark.parametrize(
    ("changes", "flags", "said"),
    [
        ({"steps": 4}, (), "the run ends at step 4 (train.steps)"),
        (
            {"staleness": 1, "loss": dataclasses.replace(TRAIN.loss, tis_cap=2.0)},
            (),
            "give a run with staleness=0",
        ),
        (
            {"rfgo": RFGOConfig(lambda_w=0.5), "probe": SAEProbeConfig()},
            (),
            "lambda_w=0 and lambda_p=0",
        ),
        (
            {"reward": RewardConfig()},
            ("--reward=correctness",),
            "is the only part of the reward; use --batch",
        ),
    ],
)
def test_a_run_that_cannot_be_replayed_is_refused(run, capsys, changes, flags, said):
    workdir = run(**changes)
    assert main(["influence", f"--run={workdir}@4", *flags]) == 2
    assert said in capsys.readouterr().err


def test_by_default_the_batch_and_every_problem_are_removed(run):
    workdir = run()
    found = parse_request([f"--run={workdir}@2"])
    assert found.batch
    assert found.problems == tuple(range(TRAIN.batch_size))
    assert found.rewards == ()
    assert found.out == workdir / "influence_2.json"
    assert found.num_held_out == BASE.eval.num_problems
    assert found.samples


@pytest.mark.parametrize(
    ("flags", "batch", "problems", "rewards"),
    [
        (("--batch",), True, (), ()),
        (("--problems=3,0,3",), False, (0, 3), ()),
        (("--reward=format",), False, (), ("format",)),
        (("--reward=format", "--batch"), True, (), ("format",)),
    ],
)
def test_only_the_named_things_are_removed(run, flags, batch, problems, rewards):
    found = parse_request([f"--run={run()}@2", *flags])
    assert (found.batch, found.problems, found.rewards) == (batch, problems, rewards)
