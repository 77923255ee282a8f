"""The recorder counts reads of the program, except reads of every field alike."""

import copy
import dataclasses

import pytest

from job_jax.config_io import diff, override, to_json
from rlvr_jax.config import Config, OptimizerConfig, TrainConfig
from tests.support.recording import JOBS, RLVR, knobs, record_reads


def _read_in(filename: str, expression: str) -> object:
    """Returns the expression's value, evaluated as if that file contained it."""
    code = compile(expression, filename, "eval")
    return eval(code, {"config": Config()})


@pytest.mark.parametrize("module", ["loop.py", "learn/update.py"])
def test_a_read_in_the_program_counts(module):
    with record_reads() as reads:
        assert _read_in(str(RLVR / module), "config.train.steps") == 200
    assert reads == {("Config", "train"), ("TrainConfig", "steps")}


@pytest.mark.parametrize(
    "filename",
    [
        str(RLVR / "config" / "run.py"),
        *(str(JOBS / f"{n}.py") for n in ("schema", "config_io", "hints", "command")),
        "<string>",
        __file__,
    ],
)
def test_a_read_elsewhere_does_not_count(filename):
    with record_reads() as reads:
        assert _read_in(filename, "config.train.steps") == 200
    assert reads == set()


def test_validation_copies_comparison_and_json_do_not_count():
    config = Config()
    with record_reads() as reads:
        other = override(config, {"train.steps": "3"})
        assert copy.deepcopy(other) == other != config
        assert dataclasses.replace(other, seed=1) != other
        assert hash(other) != hash(config)
        assert repr(other) != repr(config)
        assert to_json(other) != to_json(config)
        assert diff(config, other) == ["train.steps: 200 -> 3"]
    assert reads == set()


def test_methods_are_no_fields():
    with record_reads() as reads:
        _read_in(str(RLVR / "loop.py"), "config.__post_init__()")
    assert reads == set()


def test_recording_ends_with_the_context():
    with pytest.raises(ZeroDivisionError), record_reads() as reads:
        _read_in(str(RLVR / "loop.py"), "1 / config.mesh.fsdp / 0")
    assert reads == {("Config", "mesh"), ("MeshConfig", "fsdp")}
    _read_in(str(RLVR / "loop.py"), "config.train.steps")
    assert reads == {("Config", "mesh"), ("MeshConfig", "fsdp")}


def test_knobs_are_the_fields_that_hold_values():
    optimizer = {
        ("OptimizerConfig", field.name) for field in dataclasses.fields(OptimizerConfig)
    }
    assert optimizer < knobs(TrainConfig())
    assert ("TrainConfig", "steps") in knobs(TrainConfig())
    assert ("TrainConfig", "optimizer") not in knobs(TrainConfig())
