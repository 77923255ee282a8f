"""Problems from Hugging Face data sets, from folders on this machine."""

import subprocess
import sys

import datasets
import pytest

from job_jax.schema import ConfigError
from rlvr_jax.tasks import HubTask, RecordConfig

ROWS = [{"question": f"{n}+{n}?", "answer": f"#### {2 * n}"} for n in range(5)]


@pytest.fixture(params=["saved", "files"])
def folder(request, tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    path = tmp_path / "sums"
    splits = {"train": ROWS[:3], "test": ROWS[3:]}
    tables = {name: datasets.Dataset.from_list(rows) for name, rows in splits.items()}
    if request.param == "saved":
        datasets.DatasetDict(tables).save_to_disk(str(path))
    else:
        path.mkdir()
        for name, table in tables.items():
            table.to_parquet(path / f"{name}.parquet")
    return path


def test_a_folder_gives_its_splits(folder):
    task = HubTask(path=str(folder))
    train, heldout = (task.problems(s, seed=0) for s in ("train", "eval"))
    assert [p.gold for p in train] == ["0", "2", "4"]
    assert [p.gold for p in heldout] == ["6", "8"]
    assert (heldout[1].source, heldout[1].id) == (f"{folder}:test", f"{folder}:test:2")


def test_an_unknown_split_is_refused(folder):
    task = HubTask(path=str(folder), train_split="trian")
    with pytest.raises(ConfigError, match=r"split 'trian'"):
        task.problems("train", seed=0)


def test_a_record_is_named_by_its_row(folder):
    task = HubTask(path=str(folder), record=RecordConfig(answer_field="anwser"))
    with pytest.raises(ConfigError, match=r"train, row 1: no field 'anwser'.*'answer'"):
        task.problems("train", seed=0)


def test_a_data_set_that_is_nowhere_is_refused(tmp_path):
    task = HubTask(path=str(tmp_path / "missing"))
    with pytest.raises(ConfigError, match=r"cannot load split 'train' of the data set"):
        task.problems("train", seed=0)


def test_the_library_is_loaded_only_for_such_a_source():
    code = "import sys, rlvr_jax.tasks; print({'datasets', 'pyarrow'} & {*sys.modules})"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
