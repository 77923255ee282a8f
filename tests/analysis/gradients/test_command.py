"""`analysis gradients`: refusals."""

import dataclasses
import json

import pytest

from job_jax.config_io import to_json
from rlvr_jax.analysis.__main__ import main
from rlvr_jax.config import Config

BASE = Config()


@pytest.mark.parametrize(
    ("train", "said"),
    [
        (
            dataclasses.replace(
                BASE.train, lora=dataclasses.replace(BASE.train.lora, rank=4)
            ),
            "RL moved only adapters, but this measures",
        ),
        (BASE.train, "has no sae/selection.json: give a run whose stage probe"),
    ],
)
def test_a_run_that_has_no_such_gradient_is_refused(tmp_path, capsys, train, said):
    config = dataclasses.replace(BASE, train=train)
    (tmp_path / "config.json").write_text(json.dumps({"config": to_json(config)}))
    assert main(["gradients", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err
