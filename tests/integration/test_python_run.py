"""`rlvr_jax.train`: the command line's run, from a notebook."""

import dataclasses
import json
import pathlib
import signal

import pytest

import rlvr_jax
from job_jax.command import StoppedError, load_config
from job_jax.config import MeshConfig
from job_jax.metrics import Progress
from job_jax.schema import ConfigError
from rlvr_jax.config import Config

_SMOKE = pathlib.Path(__file__).parents[2] / "configs/smoke.py"


def _config(**changes):
    smoke = load_config(_SMOKE, Config)
    return dataclasses.replace(
        smoke,
        mesh=MeshConfig(cpu_devices=8),
        sft=dataclasses.replace(smoke.sft, steps=2),
        train=dataclasses.replace(smoke.train, steps=2),
        **changes,
    )


def test_an_unknown_stage_is_refused_before_anything_is_made(tmp_path):
    with pytest.raises(ConfigError, match="stage='trian' is not one of all, sft"):
        rlvr_jax.train(_config(), workdir=tmp_path / "run", stage="trian")
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("restored_signals")
def test_a_run_is_cut_by_an_interruption_goes_on_and_leaves_signals_alone(
    tmp_path, monkeypatch
):
    workdir, handler = tmp_path / "run", signal.getsignal(signal.SIGINT)
    update = Progress.update

    def interrupt(progress, done, *args, **kwargs):
        update(progress, done, *args, **kwargs)
        if done == 1:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "update", interrupt)
        with pytest.raises(StoppedError):
            rlvr_jax.train(_config(), workdir=str(workdir))
    assert signal.getsignal(signal.SIGINT) == handler
    assert (workdir / "checkpoints/sft/1").exists()
    assert not (workdir / "checkpoints/train").exists()

    summary = rlvr_jax.train(_config(), workdir=workdir)
    assert summary == json.loads((workdir / "summary.json").read_text())
    assert 0 <= summary["eval"]["after"]["pass@k"]["1"]["mean"] <= 1
    assert summary["stages"].keys() >= {"sft", "train"}
    assert list((workdir / "report").iterdir())
    assert signal.getsignal(signal.SIGINT) == handler
    with pytest.raises(ConfigError, match=r"workdir.*another config|config"):
        rlvr_jax.train(_config(seed=1), workdir=workdir)
