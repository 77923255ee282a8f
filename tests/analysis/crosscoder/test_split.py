"""Measured problems are not trained on, and the two halves share no problem."""

import itertools

import numpy as np
import pytest

from rlvr_jax.analysis.crosscoder import command
from rlvr_jax.analysis.crosscoder.fit import open_measured, split_problems
from rlvr_jax.analysis.crosscoder.summary import BASE, HALVES, OTHER_SEED, RANDOM, RL
from rlvr_jax.analysis.crosscoder.texts import CheckpointTexts
from sae_jax.data.shards import ShardWriter


@pytest.mark.parametrize("size", [40, 41, 42, 43])
def test_the_three_parts_share_no_problem_and_contain_all_of_them(size):
    numbers = np.arange(size) * 3 + 1
    split = split_problems(numbers)
    parts = [set(part.tolist()) for part in (*split.halves, split.measured)]
    for one, other in itertools.combinations(parts, 2):
        assert not one & other
    assert set.union(*parts) == set(numbers.tolist())
    assert set(split.trained.tolist()) == parts[0] | parts[1]
    assert len(parts[2]) == size // 4
    assert abs(len(parts[0]) - len(parts[1])) <= 1
    # The measured problems are random: not the first or the last ones.
    assert parts[2] != set(numbers[: size // 4].tolist())
    assert parts[2] != set(numbers[-(size // 4) :].tolist())


def test_only_texts_of_measured_problems_are_measured(tmp_path):
    """Two texts of each of 40 problems, problem by problem in turn."""
    path = tmp_path / "before"
    with ShardWriter(
        path,
        width=4,
        layer=0,
        hook="h",
        model="m",
        roles=("prompt", "response"),
        dtype="float32",
    ) as out:
        for text in range(80):
            x = np.random.default_rng(text).normal(size=(3, 4))
            out.add(
                x.astype(np.float32),
                token_ids=3 * text + np.arange(3),
                roles=np.ones(3, int),
                problem=str(text % 40),
            )
    corpus = open_measured([path])
    problem = corpus.shards.column("problem")
    sequence = corpus.shards.column("sequence")
    split = split_problems(np.unique(problem))
    read = set(problem[np.isin(sequence, corpus.document_ids)].tolist())
    assert read == set(split.measured.tolist())
    assert not read & set(split.trained.tolist())
    assert len(corpus.document_ids) == 2 * len(split.measured)


def test_each_control_is_fitted_to_its_own_activations(monkeypatch, tmp_path):
    """No two crosscoders share their directory, data, half and seed."""
    asked = []

    def fit(paths, directory, settings, *, stop, half=None, num_seeds=1):
        asked.append(([path.name for path in paths], directory, half, num_seeds))
        return [
            f"{directory.parents[1].name}/{directory.name}/{n}"
            for n in range(num_seeds)
        ]

    monkeypatch.setattr(command, "fit_crosscoders", fit)
    texts = {
        name: CheckpointTexts(
            activations={each: tmp_path / name / each for each in ("before", "step_4")},
            noise=tmp_path / name / "before_with_noise",
            bands={},
        )
        for name in (RL, RANDOM)
    }
    runs = {RL: tmp_path / "rl", RANDOM: tmp_path / "random"}
    fitted = command._fit_all(texts, runs, None, None)
    assert [*fitted] == [RL, OTHER_SEED, *HALVES, BASE, RANDOM]
    assert len(set(fitted.values())) == len(fitted)
    trained = {directory.name: (names, half) for names, directory, half, _ in asked[:4]}
    both = ["before", "step_4"]
    assert trained == {
        "rl": (both, None),
        "half_0": (both, 0),
        "half_1": (both, 1),
        "base": (["before", "before_with_noise"], None),
    }
    assert asked[0][3] == 2  # RL's seed and another seed
    names, directory, half, _ = asked[4]
    assert (names, half) == (both, None)
    assert directory.is_relative_to(runs[RANDOM])
    assert texts[RANDOM].activations["before"].parent != texts[RL].noise.parent
