"""Changes in speed against a stored table of ratios, on constructed files."""

import io
import json

import pytest

from benchmarks.compare import Ratio, compare_ratios, main, read_table

MACHINE = {
    "cpu": "AMD EPYC",
    "cores": 2,
    "python": "3.11.7",
    "commit": "0123",
    "load": 0,
}
KEY = ("3M", "hf float32", "rollout_s")


def ratio(low, high, *, rounds=7):
    return Ratio(ratio=(low + high) / 2, interval=(low, high), rounds=rounds)


def side(low, high, *, size="3M", name="hf float32", scale=1.0, rounds=7, **facts):
    """Returns a line of results: a peer's, at `scale` seconds a rollout of ours."""
    middle = (low + high) / 2
    return {
        "size": size,
        "side": name,
        "versions": {"torch": "2.13.0"},
        "repeats": rounds,
        "rollout_s": scale * middle,
        "times_ours": {"rollout_s": middle, "peak_rss_bytes": 0.5},
        "times_ours_interval": {"rollout_s": [low, high]},
        **facts,
    }


def write(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


@pytest.fixture
def stored(tmp_path):
    """The option for a table with one ratio, 2.0 to 2.2 times ours."""
    results = write(tmp_path / "old.jsonl", MACHINE, side(2.0, 2.2))
    option = f"--against={tmp_path / 'ratios.json'}"
    assert main([results, option, "--store"]) == 0
    return option


@pytest.mark.parametrize(
    ("low", "high", "found"),
    [
        (1.8, 1.99, "slower"),
        (1.8, 2.0, "the same, within the spread"),
        (2.05, 2.1, "the same, within the spread"),
        (1.0, 3.0, "the same, within the spread"),
        (2.2, 2.4, "the same, within the spread"),
        (2.21, 2.4, "faster"),
    ],
)
def test_a_ratio_has_moved_where_the_intervals_lie_apart(low, high, found):
    old, new = {KEY: ratio(2.0, 2.2)}, {KEY: ratio(low, high)}
    assert compare_ratios(old, new) == {KEY: found}


@pytest.mark.parametrize(("before", "now"), [(4, 7), (7, 4), (5, 5)])
def test_few_rounds_are_not_judged(before, now):
    old, new = {KEY: ratio(2, 2.2, rounds=before)}, {KEY: ratio(1, 1.1, rounds=now)}
    expected = "slower" if before == now else "under 5 rounds, not judged"
    assert compare_ratios(old, new) == {KEY: expected}


@pytest.mark.parametrize(
    ("low", "high", "code"), [(1.8, 1.99, 1), (1.8, 2.0, 0), (2.3, 2.4, 0)]
)
def test_the_exit_code_says_whether_something_is_slower(
    tmp_path, capsys, stored, low, high, code
):
    new = write(tmp_path / "new.jsonl", MACHINE, side(low, high))
    assert main([new, stored]) == code
    lines = capsys.readouterr().out.splitlines()
    assert ("slower" in lines[-2]) == (code == 1)
    assert "rollout: 2.10 [2.00, 2.20] -> " in lines[-2]
    assert lines[-1].endswith("peak memory: 0.50 -> 0.50: taken once, not judged")


def test_entries_missing_on_one_side_are_reported_without_failure(
    tmp_path, capsys, stored
):
    other = side(1.0, 1.1, size="24M")
    new = write(tmp_path / "new.jsonl", MACHINE, side(2.0, 2.2), other)
    assert main([new, stored]) == 0
    out = capsys.readouterr().out
    assert "24M, hf float32, rollout: ? -> 1.05 [1.00, 1.10]: new" in out
    # The other way: the table has entries that were not measured.
    assert main([new, stored, "--store"]) == 0
    assert main([write(tmp_path / "few.jsonl", MACHINE, side(2.0, 2.2)), stored]) == 0
    out = capsys.readouterr().out
    assert "24M, hf float32, rollout: 1.05 [1.00, 1.10] -> ?: not measured" in out


def test_seconds_are_never_compared(tmp_path, capsys, stored):
    """Ten times the seconds on another kind of machine, at the same ratio."""
    other = MACHINE | {"cpu": "ARM"}
    slow = side(2.0, 2.2, scale=10.0)
    assert main([write(tmp_path / "new.jsonl", other, slow), stored]) == 0
    out = capsys.readouterr().out
    assert "another kind of machine: AMD EPYC, 2 cores -> ARM, 2 cores" in out
    # Ratios count there, too.
    fast = side(1.0, 1.1, scale=0.1)
    assert main([write(tmp_path / "new.jsonl", other, fast), stored]) == 1


def test_possible_explanations_of_a_change_are_reported(tmp_path, capsys, stored):
    newer = side(2.0, 2.2, versions={"torch": "2.14.0"})
    new = write(tmp_path / "new.jsonl", MACHINE | {"load": 2.04}, newer)
    assert main([new, stored]) == 0
    out = capsys.readouterr().out
    assert "another version of torch: 2.13.0 -> 2.14.0" in out
    assert "busy (load 2.0)" in out


def test_our_own_sides_and_free_grading_are_left_out(tmp_path):
    graded = side(2.0, 2.2)
    graded["times_ours"]["verify_s"] = 9.0
    ours = side(1.0, 1.0, name="ours float32")
    path = tmp_path / "ratios.json"
    new = write(tmp_path / "new.jsonl", MACHINE, ours, graded)
    assert main([new, f"--against={path}", "--store"]) == 0
    assert {key[1:] for key in read_table(path).ratios} == {
        ("hf float32", "rollout_s"),
        ("hf float32", "peak_rss_bytes"),
    }
    assert read_table(path).machine == {
        "cpu": "AMD EPYC",
        "cores": 2,
        "python": "3.11.7",
    }


@pytest.mark.parametrize(
    ("records", "table", "message"),
    [
        ([MACHINE], True, "no results beside a peer"),
        ([side(2.0, 2.2)], True, "no results beside a peer"),
        ([MACHINE, side(1, 2, name="ours float32")], True, "no results beside a peer"),
        ([MACHINE, MACHINE | {"cores": 8}], True, "two kinds of machine"),
        ([MACHINE, side(2.0, 2.2, size="7T")], True, "none of the results' jobs"),
        ([MACHINE, 3], True, "new.jsonl:2: not a JSON object"),
        ([MACHINE, side(2.0, 2.2)], False, "does not exist; --store writes it"),
    ],
)
def test_nothing_to_compare_is_bad_usage(
    tmp_path, capsys, stored, records, table, message
):
    against = stored if table else f"--against={tmp_path / 'nowhere.json'}"
    assert main([write(tmp_path / "new.jsonl", *records), against]) == 2
    assert message in capsys.readouterr().err


def test_results_come_from_standard_input_where_no_file_is_named(
    monkeypatch, capsys, stored
):
    text = "\n".join(json.dumps(record) for record in (MACHINE, side(1.0, 1.1)))
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert main([stored]) == 1
    assert main(["nowhere.jsonl", stored]) == 2
    assert "nowhere.jsonl: No such file" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["{", "[]", '{"ratios": [1]}', "{}"])
def test_a_broken_table_is_named(tmp_path, capsys, text):
    path = tmp_path / "ratios.json"
    path.write_text(text)
    new = write(tmp_path / "new.jsonl", MACHINE, side(2.0, 2.2))
    assert main([new, f"--against={path}"]) == 2
    assert f"{path} is no table of ratios" in capsys.readouterr().err
