"""Whole runs on custom tasks: a data set of the hub, a user's module."""

import datasets
import pytest

from tests.support.command import ROOT, TINY, summary

ROWS = [
    {"question": f"What is {a} plus {b}?", "answer": f"{a} + {b} = #### {a + b}"}
    for a in range(8)
    for b in range(8)
]
SMALL = (
    "--config.tokenizer.vocab_size=300",
    "--config.model.max_seq_len=96",
    "--config.sft.steps=1",
    "--config.train.steps=1",
    "--config.train.sampling.max_new_tokens=24",
    "--config.eval.sampling.max_new_tokens=16",
    "--config.eval.num_samples=2",
    "--config.eval.k=1,2",
    "--config.prompt_pad_multiple=16",
    "--config.completion_pad_multiple=16",
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A data set as a folder, instead of the hub."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "sums"
    path.mkdir()
    for split, rows in (("train", ROWS[:48]), ("test", ROWS[48:])):
        datasets.Dataset.from_list(rows).to_parquet(path / f"{split}.parquet")
    return path


def test_a_run_on_a_data_set_of_the_hub_ends_with_its_report(command, tmp_path, folder):
    workdir = tmp_path / "run"
    ended = command.run(
        f"--config={ROOT / 'configs' / 'hub.py'}",
        f"--workdir={workdir}",
        f"--config.task.path={folder}",
        "--config.task.subset=",
        *TINY,
        *SMALL,
    )
    assert ended.code == 0, ended.err
    page = (workdir / "report" / "index.html").read_text()
    assert f"rewards on problems of {folder}" in page
    assert summary(workdir)["task"] == f"problems of {folder}"
