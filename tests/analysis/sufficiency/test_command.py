"""What the command refuses before any work."""

import json

import pytest

from job_jax.config_io import to_json
from rlvr_jax.analysis.__main__ import main
from tests.support.policies import TINY_EVAL


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"config": to_json(TINY_EVAL)}))
    return f"--config={path}"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--out=."], "--out=. exists; remove it or name another"),
        (
            ["--out=new", "--config.environment.name=calculator"],
            "interventions work only on completions of one turn",
        ),
        (["--out=new"], "no complete checkpoint in none, which does not exist"),
    ],
)
def test_a_wrong_command_is_refused(config, given, said, capsys):
    assert main(["sufficiency", config, "--run=none", *given]) == 2
    assert said in capsys.readouterr().err
