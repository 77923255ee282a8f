"""Forks: the parent's bits if nothing changes; else a difference from that step on."""

import json

import numpy as np
import pytest

from rlvr_jax import fork
from rlvr_jax.run import fork as make
from tests.integration.test_probe_runs import GUIDED, PROBED
from tests.support.command import (
    completions,
    files,
    metrics,
    outcome,
    overrides,
    summary,
    tiny,
)


def steps(workdir):
    """Returns the metrics of RL's steps."""
    return [line for line in metrics(workdir) if line["stage"] == "train"]


def go_on(command, workdir):
    ended = command.run(f"--config={workdir}/config.json", f"--workdir={workdir}")
    assert ended.code == 0, ended.err
    return ended


def test_a_fork_that_changes_nothing_ends_with_its_parents_bits(
    command, whole, tmp_path, capsys
):
    before, workdir = files(whole), tmp_path / "fork"
    assert fork.main([f"--run={whole}@2", f"--workdir={workdir}"]) == 0
    assert f"{workdir} is {whole} after step 2; no change" in capsys.readouterr().out
    assert [line["step"] for line in steps(workdir)] == [0, 1]
    assert not (workdir / "rollouts/train_000002.jsonl.gz").exists()
    assert "after" not in summary(workdir)["eval"]
    ended = go_on(command, workdir)
    assert "train  3/4" in ended.err
    assert "\ntrain  2/4" not in ended.err
    assert "\nsft  " not in ended.err  # no step of it
    assert outcome(workdir) == outcome(whole)
    assert files(whole) == before


def test_a_fork_of_before_rl_shares_what_the_stages_before_it_did(
    command, whole, tmp_path
):
    """At step 0 it copies no checkpoint of RL, and needs none."""
    workdir = tmp_path / "fork"
    assert fork.main([f"--run={whole}@0", f"--workdir={workdir}"]) == 0
    assert steps(workdir) == []
    assert not (workdir / "checkpoints/train").exists()
    assert not [*workdir.glob("rollouts/train_*")]
    ended = go_on(command, workdir)
    assert "train  1/4" in ended.err
    assert "\nsft  " not in ended.err  # no step of it
    assert outcome(workdir) == outcome(whole)


def test_what_came_of_the_parents_rl_stays_behind(command, tmp_path):
    """A probed run with difficulties and other files: the same bits again."""
    probed, workdir = tmp_path / "run", tmp_path / "fork"
    bands = overrides(difficulty__num_samples=2, difficulty__pool_size=16)
    ended = command.run(*tiny(probed, *PROBED, *GUIDED, *bands))
    assert ended.code == 0, ended.err
    for name in ("crosscoder/crosscoder.json", "notes.txt", "probe/x.partial"):
        (probed / name).parent.mkdir(exist_ok=True)
        (probed / name).write_text("{}")
    assert fork.main([f"--run={probed}@2", f"--workdir={workdir}"]) == 0
    assert not {"crosscoder", "notes.txt"} & {p.name for p in workdir.iterdir()}
    assert not (workdir / "probe/x.partial").exists()
    assert "posterior_by_initial" in summary(probed)["difficulty"]
    assert "posterior_by_initial" not in summary(workdir)["difficulty"]
    assert summary(workdir)["eval"].keys() == {"before"}
    later = {"step_000004.npz", "noise_000004.npz"}
    assert later <= {p.name for p in (probed / "features").iterdir()}
    assert not later & {p.name for p in (workdir / "features").iterdir()}
    fidelity = (probed / "features/sae_fidelity.jsonl").read_text().splitlines()
    kept = [line for line in fidelity if json.loads(line)["step"] <= 2]
    assert json.loads(kept[-1])["step"] == 2
    assert len(kept) < len(fidelity)
    assert (workdir / "features/sae_fidelity.jsonl").read_text().splitlines() == kept
    go_on(command, workdir)
    assert outcome(workdir) == outcome(probed)
    for name in ("features/sae_fidelity.jsonl", "difficulty.jsonl"):
        assert (workdir / name).read_bytes() == (probed / name).read_bytes()
    for file in (probed / "features").glob("*.npz"):
        with np.load(file) as theirs, np.load(workdir / "features" / file.name) as ours:
            assert theirs.files == ours.files
            assert all((theirs[n] == ours[n]).all() for n in theirs.files)


def test_files_of_done_steps_come_along(tmp_path):
    """Some are named after finished steps, others after the step's index."""
    done = {
        *("checkpoints/train/2/params", "rollouts/train_000001.jsonl.gz"),
        *("tokens/step_000001.npz", "features/step_000002.npz"),
    }
    later = {
        *("checkpoints/train/3/params", "rollouts/train_000002.jsonl.gz"),
        *("tokens/step_000002.npz", "features/step_000003.npz"),
    }
    for name in done | later:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert {*make._files_of(tmp_path, 2)} == done


def test_a_torn_line_is_no_line(tmp_path):
    """The parent is still writing, or its disk was full."""
    file = tmp_path / "metrics.jsonl"
    file.write_text('{"step": 1, "text": "a\\u2028b"}\n{"step": 2}\n{"step": 3')
    make._cut_lines(file, lambda row: row["step"] < 2)
    assert file.read_text() == '{"step": 1, "text": "a\\u2028b"}\n'


def test_memorization_is_of_what_rl_asked_and_is_measured_anew():
    before = {"pass@k": {"1": 0.5}, "memorization": {"seen": 1.0}}
    assert "eval" not in make._before_rl({"eval": {"before": before, "after": {}}})


def test_stages_before_rl_stay_done():
    stages = {"sft": 1.0, "difficulty": 2.0, "train": 3.0, "eval": 4.0}
    found = make._before_rl({"stages": stages})["stages"]
    assert found == {"sft": 1.0, "difficulty": 2.0}


def test_what_a_fork_changes_begins_at_its_step(command, whole, tmp_path):
    workdir, rate = tmp_path / "fork", "--config.train.optimizer.learning_rate=0.01"
    assert fork.main([f"--run={whole}@2", f"--workdir={workdir}", rate]) == 0
    go_on(command, workdir)
    theirs, ours = steps(whole), steps(workdir)
    assert ours[:2] == theirs[:2]
    assert all(a != b for a, b in zip(ours[2:], theirs[2:], strict=True))
    # Step 2 is sampled from the same weights, step 3 from different ones.
    for step, is_shared in ((2, True), (3, False)):
        name = f"train_{step:06d}.jsonl.gz"
        ours, theirs = completions(workdir, name), completions(whole, name)
        assert [row["id"] for row in ours] == [row["id"] for row in theirs]
        assert (ours == theirs) is is_shared
    assert summary(workdir)["params_sha256"] != summary(whole)["params_sha256"]
    assert summary(workdir)["eval"]["before"] == summary(whole)["eval"]["before"]
    origin = json.loads((workdir / "config.json").read_text())["forked_from"]
    assert (origin["workdir"], origin["step"]) == (str(whole.resolve()), 2)
    (change,) = origin["changes"]
    assert change.startswith("train.optimizer.learning_rate: ")
    report = (workdir / "report/index.html").read_text()
    assert f"Up to step 2 it is {whole.resolve()}; changed after that: train" in report
    compared = command.run("compare", whole, workdir, module="rlvr_jax.analysis")
    assert compared.code == 0, compared.err


def test_a_change_for_one_step_is_two_forks(command, whole, tmp_path):
    once, back = tmp_path / "once", tmp_path / "back"
    for_one = ("--config.train.steps=3", "--config.train.optimizer.learning_rate=0.01")
    assert fork.main([f"--run={whole}@2", f"--workdir={once}", *for_one]) == 0
    go_on(command, once)
    saved = json.loads((whole / "config.json").read_text())["config"]["train"]
    rate = saved["optimizer"]["learning_rate"]
    as_before = (
        "--config.train.steps=4",
        f"--config.train.optimizer.learning_rate={rate}",
    )
    assert fork.main([f"--run={once}@3", f"--workdir={back}", *as_before]) == 0
    go_on(command, back)
    assert steps(back)[:3] == steps(once)
    records = [json.loads((w / "config.json").read_text()) for w in (whole, back)]
    assert records[0]["config"] == records[1]["config"]
    assert records[0]["cpu_devices"] == records[1]["cpu_devices"]
    origin = records[1]["forked_from"]
    assert (origin["step"], origin["earlier"]["step"]) == (3, 2)
    assert summary(back)["params_sha256"] != summary(whole)["params_sha256"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--run={run}@3",), "no checkpoint of RL step 3 (there are 2, 4, and 0 for"),
        (("--run={run}",), "give WORKDIR@STEP, a step of RL with a checkpoint"),
        (("--run={tmp}@2",), "config.json; give a run's workdir"),
        ((), "--run=RUN@STEP is missing"),
        (("--run={run}@2", "--config=a.py"), "--run brings the config"),
        (("--run={run}@2", "--config.seed=7"), "seed: 0 -> 7: the run before step 2"),
        (("--run={run}@2", "--config.train.lora.rank=4"), "train.lora.rank: 0 -> 4"),
        (("--run={run}@2", "--config.train.batch_size=16"), "but not train's sampling"),
        (("--run={run}@2", "--config.train.sampling.top_p=0.5"), "but not train's"),
        (("--run={run}@2", "--config.train.steps=2"), "leaves no step after 2"),
        (("--run={run}@2", "--workdir={tmp}"), "exists already; a fork needs a new"),
        (("--run={run}@2", "--workdir=gs://b/x"), "is in a bucket; give a directory"),
        (("--run={run}@2", "--config.train.stps=3"), "train.steps"),
    ],
)
def test_what_cannot_be_forked_is_refused(whole, tmp_path, capsys, args, said):
    named = [arg.format(run=whole, tmp=tmp_path) for arg in args]
    assert fork.main([f"--workdir={tmp_path}/fork", *named]) == 2
    assert said in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]
