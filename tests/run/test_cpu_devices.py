"""The number of CPU devices follows the policy's size, and a run keeps its number."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import jax
import pytest

import rlvr_jax
from job_jax import mesh
from job_jax.config import MeshConfig
from rlvr_jax import pipeline
from rlvr_jax.config import Config, ModelConfig, PretrainedConfig, SamplerConfig
from rlvr_jax.run import cpu_devices
from rlvr_jax.run.cpu_devices import choose_mesh, describe_choice
from rlvr_jax.run.workdir import Workdir
from tests.support.checkpoints import write_checkpoint

_SMOKE = Path(__file__).parents[2] / "configs/smoke.py"
# A layer of width 1,000 with one head of 2: 1,000 x (4 x 2 + 3 x intermediate_size).
_SHAPE = {"num_layers": 1, "hidden_size": 1000, "head_dim": 2}
_SMALL, _LARGE = 21_330, 21_331  # 63,998,000 and 64,001,000 weights


def _config(intermediate_size, **sections):
    model = ModelConfig(
        **_SHAPE, num_heads=1, num_kv_heads=1, intermediate_size=intermediate_size
    )
    return Config(model=model, **sections)


@pytest.mark.parametrize(("size", "count"), [(_SMALL, -1), (_LARGE, 1)])
def test_a_policy_of_more_than_64_million_weights_gets_one_device(size, count):
    assert choose_mesh(_config(size)) == MeshConfig(cpu_devices=count)


@pytest.mark.parametrize(("rows", "count"), [(63_000, -1), (65_000, 1)])
def test_the_output_layer_of_a_checkpoint_counts(rows, count):
    """Its vocabulary is known beforehand: 1,000 numbers per row, and a thin layer."""
    start = PretrainedConfig(path="not/there", vocab_size=rows)
    assert choose_mesh(_config(1, pretrained=start)).cpu_devices == count


def test_a_checkpoint_is_counted_by_its_own_config(tmp_path):
    """The recipe's model is a default that differs from the checkpoint."""
    directory = write_checkpoint(tmp_path / "hf")
    start = PretrainedConfig(path=str(directory))
    config = Config(model="pretrained", pretrained=start)
    assert choose_mesh(config).cpu_devices == -1


@pytest.mark.parametrize(
    "sections",
    [
        {"mesh": MeshConfig(cpu_devices=4)},
        {"mesh": MeshConfig(data=2)},
        {"mesh": MeshConfig(fsdp=2)},
        {"sampler": SamplerConfig(devices=1, tensor_parallel=1)},
        {"sampler": SamplerConfig(tensor_parallel=2)},
    ],
)
def test_a_split_that_the_config_gives_stays(sections):
    """A single device would refuse the split or compute something else."""
    config = _config(_LARGE, **sections)
    assert choose_mesh(config) == config.mesh


def test_a_run_keeps_the_number_it_began_with(tmp_path):
    """A run of an earlier version had one device per core at any size."""
    record, large = tmp_path / "config.json", _config(_LARGE)
    assert choose_mesh(large, tmp_path).cpu_devices == 1
    record.write_text(json.dumps({"cpu_devices": 3}))
    assert choose_mesh(large, tmp_path).cpu_devices == 3
    assert choose_mesh(_config(_SMALL), tmp_path).cpu_devices == 3
    given = dataclasses.replace(large, mesh=MeshConfig(cpu_devices=2))
    assert choose_mesh(given, tmp_path).cpu_devices == 2
    record.write_text("{}")
    assert choose_mesh(large, tmp_path).cpu_devices == -1


def test_several_processes_keep_no_number(tmp_path, monkeypatch):
    """Their devices follow from how many of them share the machine this time."""
    (tmp_path / "config.json").write_text(json.dumps({"cpu_devices": 3}))
    monkeypatch.setattr(cpu_devices, "asks_for_several", lambda: True)
    assert choose_mesh(_config(_SMALL), tmp_path).cpu_devices == -1
    assert choose_mesh(_config(_LARGE), tmp_path).cpu_devices == 1
    monkeypatch.setattr(cpu_devices, "process_count", lambda: 2)
    assert cpu_devices.record() == {}
    assert describe_choice(Config(), tmp_path) == []


class _StartedError(Exception):
    """Raised where JAX would have started; `args` has the number of CPU devices."""


def test_a_run_starts_with_the_number_in_its_record(tmp_path, monkeypatch):
    def start(config, **_):
        raise _StartedError(config.cpu_devices)

    monkeypatch.setattr(pipeline, "start_jax", start)
    config = Config()
    workdir = Workdir(tmp_path / "run", config)
    workdir.write_config(config, device="abacus", more={"cpu_devices": 5})
    with pytest.raises(_StartedError) as started:
        rlvr_jax.train(config, workdir=tmp_path / "run")
    assert started.value.args == (5,)


def _lines(tmp_path, began, *, given=-1):
    """Returns the lines of a run that began with `began` devices, on this process's."""
    (tmp_path / "config.json").write_text(json.dumps({"cpu_devices": began}))
    return describe_choice(Config(mesh=MeshConfig(cpu_devices=given)), tmp_path)


def test_a_line_says_when_the_number_is_not_what_one_expects(tmp_path, monkeypatch):
    count = jax.local_device_count()
    monkeypatch.setattr(mesh, "_num_cores", lambda: count)
    assert _lines(tmp_path, began=count) == []  # one per core
    (line,) = _lines(tmp_path, began=count + 1)
    assert f"mesh.cpu_devices={count + 1} to get the same bits" in line
    monkeypatch.setattr(mesh, "_num_cores", lambda: 1)
    (line,) = _lines(tmp_path, began=count)
    assert "one per core would be 1 (mesh.cpu_devices=1)" in line
    assert _lines(tmp_path, began=count, given=count) == []


def test_the_record_has_this_process_s_devices():
    assert cpu_devices.record() == {"cpu_devices": jax.local_device_count()}


@pytest.mark.parametrize(
    ("size", "shown"), [("21330", "2 x cpu"), ("21331", "1 x cpu")]
)
def test_the_command_chooses_before_jax_starts(size, shown, tmp_path):
    """On two cores: a dry run never makes the policy, but names its devices."""
    shape = {**_SHAPE, "num_heads": 1, "num_kv_heads": 1, "intermediate_size": size}
    flags = [f"--config.model.{name}={value}" for name, value in shape.items()]
    two_cores = (
        "import job_jax.mesh as mesh, sys; mesh._num_cores = lambda: 2; "
        "from rlvr_jax.main import main; sys.exit(main(sys.argv[1:]))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", two_cores, f"--config={_SMOKE}", "--dry_run", *flags],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    ).stdout
    assert shown in printed
