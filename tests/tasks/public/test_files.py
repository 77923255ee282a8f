"""Files of published data sets: which files of a folder are read, in which formats."""

import gzip
import json

import pyarrow
import pyarrow.parquet
import pytest

from job_jax.schema import ConfigError
from rlvr_jax.tasks.public.files import find_files
from rlvr_jax.tasks.public.layout import find_data_set
from rlvr_jax.tasks.public.suite import find_benchmarks
from rlvr_jax.tasks.records.files import iterate_records

ROWS = [{"question": "1?", "answer": "#### 1"}, {"question": "2?", "answer": "#### 2"}]


def make(root, *names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("{}")


def found(root, name, split=""):
    files = find_files(root, find_data_set(name), split)
    return [str(file.relative_to(root)) for file in files]


def test_every_form_of_file_gives_the_same_records(tmp_path):
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, ROWS)) + "\n\n")
    (tmp_path / "b.json").write_text("\n".join(map(json.dumps, ROWS)))
    (tmp_path / "c.json").write_text(json.dumps(ROWS, indent=2))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), tmp_path / "d.parquet")
    for name in ("a.jsonl", "c.json"):
        (tmp_path / f"{name}.gz").write_bytes(
            gzip.compress((tmp_path / name).read_bytes())
        )
    for name, place in (
        ("a.jsonl.gz", "line 2"),
        ("c.json.gz", "item 2"),
        ("a.jsonl", "line 2"),
        ("b.json", "line 2"),
        ("c.json", "item 2"),
        ("d.parquet", "row 2"),
    ):
        placed = [*iterate_records(tmp_path / name)]
        assert [record for _, record in placed] == ROWS
        assert placed[1][0] == f"{tmp_path / name}, {place}"
    (tmp_path / "e.json").write_text(json.dumps(ROWS[0], indent=2))  # MATH's own files
    assert next(iter(iterate_records(tmp_path / "e.json")))[1] == ROWS[0]


def test_of_a_folder_the_split_is_read(tmp_path):
    make(tmp_path, "train.jsonl", "test.jsonl", "LICENSE", ".cache/train.json")
    assert found(tmp_path, "gsm8k", "train") == ["train.jsonl"]
    assert found(tmp_path, "gsm8k", "test") == ["test.jsonl"]
    with pytest.raises(ConfigError, match="splits test, train; name one"):
        found(tmp_path, "gsm8k")
    with pytest.raises(ConfigError, match="but none for 'dev'"):
        found(tmp_path, "gsm8k", "dev")


def test_a_split_is_a_word_of_a_file_or_folder(tmp_path):
    make(
        tmp_path, "train/algebra/1.json", "train/algebra/10.json", "test/algebra/1.json"
    )
    assert found(tmp_path, "math", "train") == [
        "train/algebra/1.json",
        "train/algebra/10.json",
    ]
    make(tmp_path / "b", "data/train-00000-of-00001.parquet", "trained.json")
    assert found(tmp_path / "b", "gsm8k", "train") == [
        "data/train-00000-of-00001.parquet"
    ]


def test_files_that_name_no_split_are_all_read(tmp_path):
    make(tmp_path, "level2.jsonl", "level1.jsonl", "dataset_infos.json")
    assert found(tmp_path, "deepscaler", "train") == ["level1.jsonl", "level2.jsonl"]


def test_a_folder_of_another_split_alone_is_not_taken_for_the_one_asked(tmp_path):
    make(tmp_path, "test.jsonl")
    assert found(tmp_path, "gsm8k") == ["test.jsonl"]
    with pytest.raises(ConfigError, match="splits test, but none for 'train'"):
        found(tmp_path, "gsm8k", "train")


def test_a_benchmark_is_never_its_own_train_split(tmp_path):
    folder = tmp_path / "gsm8k" / "main"
    folder.mkdir(parents=True)
    (folder / "train.jsonl").write_text("{}\n")
    with pytest.raises(ConfigError):
        find_benchmarks(["gsm8k"], tmp_path)
    (folder / "test.jsonl").write_text("{}\n")
    (found,) = find_benchmarks(["gsm8k"], tmp_path)
    assert [path.name for path in found.files] == ["test.jsonl"]


def test_only_the_sets_own_subset_is_read(tmp_path):
    make(
        tmp_path,
        "main/train-0.parquet",
        "main/test-0.parquet",
        "socratic/train-0.parquet",
    )
    assert found(tmp_path, "gsm8k", "train") == ["main/train-0.parquet"]
    folder = "OlympiadBench/{0}/{0}.parquet"
    make(tmp_path / "o", *map(folder.format, ["OE_TO_maths_en_COMP", "TP_TO_maths"]))
    name = folder.format("OE_TO_maths_en_COMP")
    assert found(tmp_path / "o", "olympiadbench") == [name]


def test_one_file_in_two_forms_is_not_read_twice(tmp_path):
    make(tmp_path, "test.json", "test.jsonl", "train.jsonl", "train-2.json")
    with pytest.raises(ConfigError, match=r"test.json and test.jsonl are one file in"):
        found(tmp_path, "olympiadbench", "train")
    (tmp_path / "test.json").unlink()
    assert found(tmp_path, "olympiadbench", "train") == ["train-2.json", "train.jsonl"]


def test_files_without_records_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="there is no "):
        found(tmp_path / "nowhere", "gsm8k")
    with pytest.raises(ConfigError, match="has no file of records"):
        found(tmp_path, "gsm8k")
    make(tmp_path, "gsm8k/a.csv")
    with pytest.raises(ConfigError, match=r"did you mean '.*/gsm8k'\?"):
        found(tmp_path / "gsmk", "gsm8k")
    with pytest.raises(ConfigError, match=r"there is no '.*/nowhere'$"):
        found(tmp_path / "nowhere", "gsm8k")
    make(tmp_path, "a.xlsx")
    with pytest.raises(ConfigError, match="has an unknown suffix"):
        find_files(tmp_path / "a.xlsx", find_data_set("gsm8k"))
    (tmp_path / "a.parquet").write_text("no")
    with pytest.raises(ConfigError, match="is not a parquet file"):
        [*iterate_records(tmp_path / "a.parquet")]
