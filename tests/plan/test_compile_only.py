"""Compiled for a slice that is not there: what is counted, refused and reported."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from job_jax.command import UsageError
from rlvr_jax.config import Config
from rlvr_jax.plan.compile_only import compile_report, suggest_shrink
from rlvr_jax.run.cli import parse

ROOT = Path(__file__).parents[2]


def test_what_does_not_fit_says_what_to_shrink():
    """The largest part of the tightest phase; a program that failed comes first."""
    phases = {
        "sampler": {"parameters": 5, "temporaries": 3},
        "gradient": {"parameters": 5, "temporaries": 4},
    }
    assert suggest_shrink(phases, [], limit=9) is None
    found = suggest_shrink(phases, [], limit=8)
    assert (found["phase"], found["part"]) == ("gradient", "parameters")
    assert "mesh.fsdp" in found["by"]
    found = suggest_shrink(phases, ["sampler"], limit=9)
    assert (found["phase"], found["part"]) == ("sampler", "temporaries")
    assert "train.sampling.max_new_tokens" in found["by"]
    found = suggest_shrink({"scorer": {"temporaries": 9}}, [], limit=8)
    assert "train.grad_accum_steps" in found["by"]


@pytest.mark.parametrize("topology", ["v5e", "v5e:4", "h100:2x2", "v5e:4x", ""])
def test_what_is_no_slice_is_refused(topology):
    with pytest.raises(UsageError, match="such as v5e:4x4"):
        compile_report(Config(), topology)


@pytest.mark.parametrize("flag", ["--compile_only", "--topology=v5e:2x2"])
def test_one_flag_without_the_other_is_refused(flag):
    recipe = f"--config={ROOT / 'configs/smoke.py'}"
    with pytest.raises(UsageError, match="--topology"):
        parse([recipe, flag])


@pytest.mark.exhaustive
@pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="needs the extra [tpu]"
)
@pytest.mark.parametrize(("mesh", "share"), [("data=4", 1), ("fsdp=4", 4)])
def test_the_smoke_recipe_fits_four_chips(mesh, share):
    found = _compile_smoke("v5e:2x2", f"mesh.{mesh}")
    assert found["fits"] is True
    assert set(found["programs"]) == {"sampler", "gradient", "update"}
    for phase in found["phases"].values():
        assert phase["peak_bytes"] >= sum(found["resident_bytes"].values())
    # 22,240 parameters in float32, every one of which divides over four chips.
    assert found["resident_bytes"]["parameters"] == 4 * 22_240 // share


@pytest.mark.exhaustive
@pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="needs the extra [tpu]"
)
def test_half_of_the_chips_can_be_the_samplers_alone():
    """There the update's state is not; two copies of 22,240 weights in bfloat16 are.

    The last norm's 32 are float32, as every pass reads it.
    """
    found = _compile_smoke(
        "v5e:4x4",
        "sampler.devices=8",
        "sampler.tensor_parallel=1",
        "mesh.fsdp=8",
        "train.staleness=2",
        "train.loss.tis_cap=2",
        "model.compute_dtype=bfloat16",
    )
    assert found["fits"] is True
    assert found["mesh"] == {"data": 1, "fsdp": 8, "tensor": 1}
    assert found["sampler_mesh"] == {"data": 8, "fsdp": 1, "tensor": 1}
    assert found["resident_bytes"]["parameters"] == 4 * 22_240 // 8
    phases = found["phases"]
    assert phases["sampler"]["sampler_weights"] == 2 * (2 * 22_240 + 2 * 32)
    assert not found["resident_bytes"].keys() & phases["sampler"].keys()
    assert found["resident_bytes"].keys() < phases["update"].keys()


def _compile_smoke(topology: str, *settings: str) -> dict[str, Any]:
    """Returns the report of configs/smoke.py.

    By a process of its own: this one has eight CPU devices, and no TPU.
    """
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "rlvr_jax.main", "--config=configs/smoke.py"),
            *("--compile_only", f"--topology={topology}"),
            *(f"--config.{setting}" for setting in settings),
        ],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(ended.stdout)
