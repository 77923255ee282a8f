"""bash launch/reproduce.sh: which experiments it starts, and where."""

import shutil
import subprocess

import pytest

from tests.support.launchers import ROOT, launch, script, stand_in


@pytest.fixture
def house(tmp_path, monkeypatch):
    """A copy of the files that the launcher reads, with a fake Python."""
    for name in ("reproduce.sh", "lib.sh"):
        (tmp_path / "launch").mkdir(exist_ok=True)
        shutil.copy(ROOT / "launch" / name, tmp_path / "launch" / name)
    (tmp_path / "launch/venv.sh").write_text("")
    shutil.copytree(ROOT / "configs/paper", tmp_path / "configs/paper")
    (tmp_path / ".venv/bin").mkdir(parents=True)
    stand_in(tmp_path / ".venv/bin", "python")
    monkeypatch.setenv("STAGE", str(tmp_path))
    return tmp_path


def started(house):
    return (house / "log").read_text().splitlines()


def run(house, *args):
    return launch(house / "launch/reproduce.sh", *args)


def test_all_experiments_that_a_laptop_can_run_are_run(house):
    assert run(house).returncode == 0
    assert started(house) == [
        f"python -m rlvr_jax.experiment --config=configs/paper/{name}.py "
        f"--workdir=runs/paper/{name}"
        for name in (
            *("advantages", "coin_and_fifths", "composition"),
            *("composition_new_seeds", "confidence"),
            *("features_by_band", "inverted_u", "luck_dose"),
            *("one_change", "one_sample", "problem_influence"),
            *("reformulation", "reformulation_medium", "rfgo", "rfgo_new_seeds"),
            *("selection", "wrong_majority"),
        )
    ]


def test_names_and_options_in_any_order(house):
    done = run(house, "--seeds=0,1", "full_size/math_bands", "--reduced", "--dry_run")
    assert done.returncode == 0
    assert started(house) == [
        "python -m rlvr_jax.experiment --config=configs/paper/full_size/math_bands.py "
        "--workdir=runs/paper_reduced/full_size/math_bands --seeds=0,1 --reduced "
        "--dry_run"
    ]


def test_an_experiment_that_there_is_not_is_refused_before_any_is_run(house):
    done = run(house, "selection", "inverted")
    assert done.returncode == 2
    assert done.stderr == (
        "error: no experiment inverted; choose from advantages coin_and_fifths "
        "composition composition_new_seeds confidence features_by_band "
        "full_size/math_bands "
        "inverted_u luck_dose one_change one_sample problem_influence reformulation "
        "reformulation_medium rfgo rfgo_new_seeds selection wrong_majority\n"
    )
    assert not (house / "log").exists()


def test_the_first_that_fails_is_the_last_that_is_run(house):
    script(house, "python.-m", "exit 75")
    assert run(house).returncode == 75
    assert len(started(house)) == 1


def test_help_is_printed_from_anywhere(house):
    bash = shutil.which("bash")
    done = subprocess.run(
        [bash, "reproduce.sh", "--help"],
        cwd=house / "launch",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.startswith("bash launch/reproduce.sh [NAME ...]")
