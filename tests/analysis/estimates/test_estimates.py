"""`analysis estimates`: rank correlations over the steps and seeds of several files."""

import json

import numpy as np
import pytest
from scipy import stats

from rlvr_jax.analysis.__main__ import main

LOGPROB = "log-probability"


@pytest.fixture
def write(tmp_path):
    """Returns a function that writes a result of `analysis influence`."""

    def make(seed, step, **correlations):
        problems = [{"has_signal": p < 7 + seed} for p in range(16)]
        found = {
            name: {"mean": value, "low": None, "high": None}
            for name, value in correlations.items()
        }
        data = {
            "run": f"runs/{seed}",
            "step": step,
            "seed": seed,
            "problems": problems,
            "correlations": {LOGPROB: found} if found else {},
        }
        path = tmp_path / f"{seed}_{step}.json"
        path.write_text(json.dumps(data))
        return str(path)

    return make


def test_steps_are_averaged_within_a_seed_and_then_seeds(write, tmp_path, capsys):
    files = [
        write(0, 20, dot=0.9, EL2N=-0.5),
        write(0, 60, dot=0.7, EL2N=0.1),
        write(1, 20, dot=0.6, EL2N=0.3),
        write(2, 20, dot=0.4),  # here EL2N did not vary
    ]
    out = tmp_path / "out.json"
    assert main(["estimates", *files, f"--out={out}"]) == 0
    printed = capsys.readouterr().out
    assert "4 steps of 3 seeds, 7 to 9 problems with a signal" in printed
    dot, el2n = json.loads(out.read_text())["estimates"]
    assert (dot["estimate"], el2n["estimate"]) == ("dot", "EL2N")
    values = np.array([0.8, 0.6, 0.4])
    assert [*dot["over_seeds"]["by_seed"].values()] == pytest.approx(values)
    expected = stats.ttest_1samp(values, 0)
    assert dot["p"] == pytest.approx(expected.pvalue)
    assert dot["p_holm"] == pytest.approx(2 * expected.pvalue)
    ends = expected.confidence_interval(0.95)
    low, high = dot["over_seeds"]["interval"][1:]
    assert (low, high) == pytest.approx((ends.low, min(ends.high, 1)))
    assert [*el2n["over_seeds"]["by_seed"].values()] == pytest.approx([-0.2, 0.3])
    assert f"+0.60 [{ends.low:+.2f}, +1.00]" in printed
    assert "0: +0.80  1: +0.60  2: +0.40" in printed


def test_one_seed_has_no_interval_and_no_step_no_correlation(write, capsys):
    assert main(["estimates", write(0, 20, dot=0.9)]) == 0
    printed = capsys.readouterr().out
    assert "+0.90" in printed
    assert "[" not in printed
    assert main(["estimates", write(0, 20)]) == 0
    assert "no correlations" in capsys.readouterr().out


def test_a_file_that_cannot_be_used_is_named(write, tmp_path, capsys):
    good, other = write(0, 20, dot=0.9), tmp_path / "other.json"
    other.write_text('{"run": "a", "step": 3}')

    def refused(*given):
        assert main(["estimates", *given]) == 2
        return capsys.readouterr().err

    assert "FILE.json missing" in refused()
    assert f"there is no file {tmp_path}/none.json" in refused(f"{tmp_path}/none.json")
    assert "other.json is not a result of this version's" in refused(good, str(other))
    assert "KeyError: 'seed'" in refused(str(other))
    other.write_text(tmp_path.joinpath("0_20.json").read_text())
    assert "runs/0@20 is in two of the files" in refused(good, str(other))
    other.write_text(other.read_text().replace("runs/0", "runs/a"))
    assert "runs/0 and" in (said := refused(good, str(other)))
    assert "runs/a both have seed 0; give one run a seed" in said
