"""The scores of one run: which evaluation counts, and which golds."""

import json

from rlvr_jax.analysis.compare import run_metrics
from rlvr_jax.report.run_files import read_run
from tests.support.run_workdirs import BEFORE, contender


def test_the_rollouts_of_an_evaluation_of_fewer_steps_do_not_count(tmp_path):
    """A run that continues drops its evaluation, but its old completions stay."""
    path = tmp_path / "run"
    contender(path, BEFORE)
    assert run_metrics.measure_run(read_run(str(path))).after
    file = path / "summary.json"
    summary = json.loads(file.read_text())
    del summary["eval"]["after"]
    file.write_text(json.dumps(summary))
    young = run_metrics.measure_run(read_run(str(path)))
    assert (young.after, bool(young.before)) == ({}, True)
    assert "no evaluation after RL" in young.missing


def test_lenient_accuracy_counts_every_gold():
    row = {"completion": "it is 13", "gold": "12", "verdict": "incorrect"}
    also = row | {"other_golds": ["13"]}
    shares = run_metrics._stated_by_problem({"one": [row, also], "two": [also]})
    assert shares == {"one": 0.5, "two": 1.0}
