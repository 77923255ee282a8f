"""The report on tokens, from a run's files."""

import pathlib

import numpy as np
import pytest

from rlvr_jax.analysis import read_run, write_report
from rlvr_jax.config import Config
from rlvr_jax.report.parts.tokens import token_section
from rlvr_jax.run.workdir import TOKENS_DIR, Workdir, token_stats_file
from rlvr_jax.types import BANDS, NUM_DECILES, TOKEN_CLASSES, TOKEN_STATS
from tests.support.run_workdirs import make_workdir

NUMBER, END = TOKEN_CLASSES.index("number"), TOKEN_CLASSES.index("end")


def _sums(*, entropy: float, bands=("easy", "hard")) -> np.ndarray:
    """Returns sums of 90 numbers and 10 ends per band.

    A number has `entropy` and a push of 3; an end has entropy and push 0.
    """
    sums = np.zeros(
        (len(BANDS) + 1, NUM_DECILES + len(TOKEN_CLASSES), len(TOKEN_STATS))
    )
    for band in bands:
        row = sums[(*BANDS, "none").index(band)]
        row[:NUM_DECILES] = (10, 9 * entropy, 10, 27, 0)
        row[NUM_DECILES + NUMBER] = (90, 90 * entropy, 90, 270, 0)
        row[NUM_DECILES + END] = (10, 0, 10, 0, 0)
    return sums.astype(np.float32)


def _run(path: pathlib.Path, logged: dict[int, np.ndarray]):
    make_workdir(path, steps=30, evals=None)
    (path / TOKENS_DIR).mkdir()
    writer = Workdir(path.with_name("writer"), Config())
    for step, sums in logged.items():
        writer.write_token_stats(step, sums)
        source = token_stats_file(writer.path, step)
        source.rename(token_stats_file(path, step))
    return read_run(path)


def test_first_steps_stand_against_last_ones_by_class(tmp_path):
    logged = {0: _sums(entropy=2.0), 10: _sums(entropy=9.0), 20: _sums(entropy=0.5)}
    section = token_section(_run(tmp_path / "run", logged))
    number, end = section.table.rows
    assert number == [
        "number",
        "90\u00a0% \u2192 90\u00a0%",
        "2.00 \u2192 0.50",
        "90\u00a0% \u2192 90\u00a0%",
        "100\u00a0% \u2192 100\u00a0%",
        "100\u00a0%",
        "100\u00a0%",
    ]
    assert end[:3] == ["end", "10\u00a0% \u2192 10\u00a0%", "0.00 \u2192 0.00"]
    assert section.table.head[-2:] == [
        "gradient proxy, easy, last",
        "gradient proxy, hard, last",
    ]
    assert section.text.endswith("Steps 0 against 20.")
    assert len(section.figures) == 6
    assert section.legend.keys() == {"first", "last", "easy", "hard"}
    assert (
        "Which tokens get the credit</h2>" in write_report(tmp_path / "run").read_text()
    )


def test_twenty_logged_steps_are_pooled_by_tenths(tmp_path):
    """Steps 0 and 1 have a mean entropy of 2, the last two steps 4."""
    entropy = {0: 1.0, 1: 3.0, 18: 4.0, 19: 4.0}
    logged = {s: _sums(entropy=entropy.get(s, 9.0)) for s in range(20)}
    section = token_section(_run(tmp_path / "run", logged))
    assert section.table.rows[0][2] == "2.00 \u2192 4.00"


@pytest.mark.parametrize("band", ["easy", "unknown", "none"])
def test_one_band_is_not_split_and_silence_has_no_shares(tmp_path, band):
    sums = _sums(entropy=1.0, bands=(band,))
    sums[:, :, 2:] = 0.0
    section = token_section(_run(tmp_path / "run", {0: sums}))
    assert section.legend.keys() == {"first", "last"}
    assert section.table.rows[0][3:] == ["0\u00a0% \u2192 0\u00a0%"] * 2


def test_a_run_without_the_files_shows_nothing(tmp_path):
    assert token_section(read_run(make_workdir(tmp_path / "run", steps=3))) is None
