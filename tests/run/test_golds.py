"""Golds that nothing can be graded by are left out, or refused where they cannot be."""

import pytest

from job_jax.schema import ConfigError
from rlvr_jax.config import VerifierConfig
from rlvr_jax.data import loader
from rlvr_jax.run import golds
from rlvr_jax.types import Problem
from rlvr_jax.verifiers.grader import Grader


class Endless:
    """A generated source that may be read only at its beginning."""

    def __init__(self, bad=()):
        self.bad = bad

    def __len__(self):
        return 2**31 - 1

    def __getitem__(self, index):
        assert index < loader.NUM_CHECKED_PROBLEMS
        gold = "" if index in self.bad else str(index)
        return Problem(id=f"p{index}", prompt="", gold=gold, verifier="math", source="")


@pytest.fixture(scope="module")
def grader():
    with Grader(VerifierConfig(workers=1, timeout_s=60.0)) as opened:
        yield opened


def test_of_a_generated_source_only_the_first_golds_are_read(grader, monkeypatch):
    monkeypatch.setattr(loader, "NUM_CHECKED_PROBLEMS", 4)
    source = Endless()
    valid, invalid = golds.filter_by_gold({"train": source}, grader)
    assert (valid["train"], invalid) == (source, {})
    with pytest.raises(ConfigError, match=r"train problems: the gold of 'p3'"):
        golds.filter_by_gold({"train": Endless(bad=[3, 4])}, grader)


def test_of_a_list_every_gold_is_read(grader):
    problems = [Endless(bad=[1])[index] for index in range(3)]
    valid, invalid = golds.filter_by_gold({"train": problems, "sft": problems}, grader)
    assert [valid["train"][i].id for i in range(len(valid["train"]))] == ["p0", "p2"]
    assert invalid == {"train": {"p1": "gold is empty"}}
    assert valid["sft"] == problems
