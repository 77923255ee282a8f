"""The audit finds planted faults and reports them in its tables."""

import dataclasses
import json
import os

import pytest

from rlvr_jax.metrics.statistics import ProblemResult, summarize_results
from rlvr_jax.tasks.reasoning_gym import audit as audit_module
from rlvr_jax.tasks.reasoning_gym.__main__ import main
from rlvr_jax.tasks.reasoning_gym.audit import (
    Row,
    audit,
    find_disagreements,
    find_faults,
)
from rlvr_jax.tasks.reasoning_gym.audit_table import format_tables, read_pass_rates
from rlvr_jax.tasks.reasoning_gym.audit_worker import Measured, measure

SOUND = Measured(
    name="sums", num_items=20, own_gold=1.0, constant=0.1, digests=("a", "b")
)


def _change(**fields):
    return dataclasses.replace(SOUND, **fields)


@pytest.mark.parametrize(
    ("measured", "fault"),
    [
        (_change(error="it raises E"), "it raises E"),
        (_change(num_items=7, item_s=3.0), "a problem takes 3.0 s to make"),
        (_change(digests=("a", "c")), "another process makes other problems"),
        (_change(own_gold=0.75), "rejects its own answer to 25% of its problems"),
        (_change(nonsense=("qzx",)), "accepts nonsense, such as 'qzx'"),
        (_change(copied=0.55), "accepts a line of its own question for 55%"),
        (_change(constant=0.95, best_constant="on"), "one answer, 'on', fits 95%"),
    ],
)
def test_each_fault_is_reported_but_not_its_neighbor(measured, fault):
    (found,) = find_faults(measured, SOUND)
    assert found.startswith(fault)
    close = _change(
        num_items=8, constant=0.9, best_constant="on", hedged=1.0, copied=0.5
    )
    assert find_faults(close, SOUND) == ()
    assert find_faults(_change(no_gold=1.0, own_gold=0.0), SOUND) == ()


@pytest.mark.usefixtures("stand_in")
def test_generators_are_measured():
    sums = measure("sums", 40, 5.0)
    assert (sums.own_gold, sums.nonsense, sums.no_gold, sums.hedged) == (1, (), 0, 0)
    assert (sums.num_items, sums.num_levels, sums.bad_levels) == (40, 3, ())
    assert sums.constant < 0.5
    assert (sums.copied, measure("copied", 10, 5.0).copied) == (0, 1)
    assert measure("tiny", 10, 5.0).repeated == 1.0
    assert find_faults(measure("generous", 10, 5.0), SOUND)
    strict = measure("strict", 10, 5.0)
    assert (strict.own_gold, strict.constant) == (0, 0)
    unstated = measure("unstated", 10, 5.0)
    assert (unstated.no_gold, unstated.best_constant) == (1, "0")  # even
    assert find_faults(unstated, unstated) == (
        "one answer, '0', fits 100% of its problems",
    )


def test_tables_name_working_and_refused_ones():
    rows = [
        Row(measured=_change(num_levels=3, bad_levels=(2,), item_s=0.05), faults=()),
        Row(measured=_change(name="half", no_gold=1.0, hedged=0.5), faults=()),
        Row(measured=_change(name="bad"), faults=("accepts | nonsense",)),
    ]
    text = format_tables(rows, {})
    assert "| `sums` | 0..1 | 50 | 0.0 | 10% |  |  |" in text
    assert "| `half`* |  | 0.0 | 0.0 | 10% | 50% |  |" in text
    assert "| `bad` | accepts \\| nonsense |" in text
    assert "| `codeio` | it runs programs" in text
    assert find_disagreements(rows) == ["bad is not refused: accepts | nonsense"]
    rates = format_tables(rows, {"half": "25% of 8", "bad": "0% of 8"}).splitlines()
    assert rates[0].endswith("| repeated | pass@1 |")
    assert rates[2:4] == [
        "| `sums` | 0..1 | 50 | 0.0 | 10% |  |  |  |",
        "| `half`* |  | 0.0 | 0.0 | 10% | 50% |  | 25% of 8 |",
    ]
    assert rates[4:] == text.splitlines()[4:]
    kept = Row(measured=_change(name="codeio"), faults=())
    assert "codeio is refused" in find_disagreements([kept])[0]


def test_planted_faults_are_found_by_processes_of_its_own(
    stand_in, monkeypatch, capsys
):
    # The fourth hangs, so its process is replaced.
    hanging = "while True: pass\n"
    factory = stand_in / "reasoning_gym" / "factory.py"
    text = factory.read_text() + (
        "class Hanging(Sums):\n    def __getitem__(self, index):\n"
        f"        {hanging}DATASETS['hanging'] = Hanging, Config\n"
    )
    factory.write_text(text)
    path = os.pathsep.join([str(stand_in), os.getcwd()])
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.setattr(audit_module, "_START_S", 60.0)
    monkeypatch.setattr(audit_module, "_PATIENCE", 5)
    names = ["sums", "broken", "hashed", "hanging", "drawn"]
    told = []
    rows = audit(names, num_items=10, limit_s=1.0, on_row=told.append)
    assert rows == told
    faults = {row.name: row.faults for row in rows}
    assert faults["sums"] == faults["drawn"] == ()
    assert "RuntimeError: no problem" in faults["broken"][0]
    assert faults["hashed"] == (
        "another process makes other problems in the same places",
    )
    assert faults["hanging"] == ("it hangs, or ends its process",)
    out = stand_in / "audit.json"
    code = main(["audit", "--names=sums", "--items=8", f"--out={out}"])
    assert (code, capsys.readouterr().out.splitlines()[-1]) == (0, "1/1 sums: works")
    content = json.loads(out.read_text())
    assert content["reasoning-gym"] == "9.9"
    assert [row["measured"]["name"] for row in content["generators"]] == ["sums"]


def test_pass_rates_are_those_that_evaluate_prints(tmp_path):
    results = [
        ProblemResult(
            id=f"{name} {i}",
            level=0,
            type=name,
            statuses=("correct", "correct" if i < num_easy else "incorrect"),
            answers=("1", "2"),
            lengths=(3, 3),
            finished=(True, True),
        )
        for name, num_easy in (("sums", 1), ("gcd", 3))
        for i in range(4)
    ]
    file = tmp_path / "scores.json"
    file.write_text(json.dumps(summarize_results(results, k=(1,), resamples=2, seed=0)))
    assert read_pass_rates(file) == {"sums": "62% of 8", "gcd": "88% of 8"}
    file.write_text("[1]")
    with pytest.raises(ValueError, match=r"scores.json is not what .*evaluate prints"):
        read_pass_rates(file)


@pytest.mark.usefixtures("stand_in")
def test_the_command_names_what_it_does_not_know(capsys):
    assert main(["list", "sums"]) == 0
    line = capsys.readouterr().out.strip()
    assert line == (
        "sums levels=0..2 max_value=50 signs=+ spell=false limit=none table=none"
    )
    assert main(["audit", "--names=sum"]) == 2
    assert "no generator 'sum'; did you mean 'sums'?" in capsys.readouterr().err
    assert main(["adit"]) == 2
    assert "no command 'adit'; did you mean 'audit'?" in capsys.readouterr().err
