"""The problems of a step, and their rows: a function of (source, seed, step)."""

import collections

import numpy as np
import pytest

from job_jax.schema import ConfigError
from rlvr_jax.data import loader
from rlvr_jax.data.loader import Loader, encode_prompts, filter_by_length
from rlvr_jax.tasks import ChainMix, FiniteFieldTask
from rlvr_jax.tasks.finite_field.source import ChainSource, vocabulary
from rlvr_jax.tokenizer import WordLevelTokenizer, pad_rows
from rlvr_jax.types import Problem

TOKENIZER = WordLevelTokenizer(vocabulary(7))


def problem(index, *, words=3, solution=2):
    return Problem(
        id=f"p{index}",
        prompt=" ".join(["="] * words),
        gold="e0",
        verifier="exact",
        source="test",
        solution=" ".join([";"] * solution),
    )


TEN = [problem(i) for i in range(10)]


def ids(loader, steps):
    return [p.id for step in steps for p in loader.next_batch(step)]


def test_a_step_does_not_depend_on_the_steps_before_it():
    straight = Loader(TEN, batch_size=3, seed=5)
    in_order = {step: ids(straight, [step]) for step in range(12)}
    for step in (11, 0, 7, 7, 3):
        assert ids(Loader(TEN, batch_size=3, seed=5), [step]) == in_order[step]
        assert ids(straight, [step]) == in_order[step]


def test_every_epoch_shows_every_problem_once_in_another_order():
    # 4 does not divide 10: steps 0..4 are exactly two epochs.
    seen = ids(Loader(TEN, batch_size=4, seed=0), range(10))
    epochs = [tuple(seen[start : start + 10]) for start in range(0, 40, 10)]
    assert all(sorted(epoch) == [p.id for p in TEN] for epoch in epochs)
    assert len(set(epochs)) == 4


def test_seeds_give_other_orders():
    orders = {tuple(ids(Loader(TEN, batch_size=10, seed=s), [0])) for s in range(5)}
    assert len(orders) == 5


def test_a_generated_source_is_read_at_random_places():
    config = FiniteFieldTask(modulus=7)
    source = ChainSource(config, ChainMix(), split="train", seed=0)
    loader = Loader(source, batch_size=64, seed=0)
    assert len(set(ids(loader, range(4)))) == 256
    assert ids(loader, [10**6]) == ids(Loader(source, batch_size=64, seed=0), [10**6])


def test_a_batch_larger_than_the_source_repeats_problems():
    batch = Loader(TEN[:3], batch_size=7, seed=0).next_batch(0)
    counts = collections.Counter(p.id for p in batch)
    assert sorted(counts.values()) == [2, 2, 3]


def test_a_uid_names_the_draw_in_any_batch():
    alone = encode_prompts([TEN[1]], TOKENIZER, pad_multiple=4).uid
    batch = encode_prompts(
        [TEN[0], TEN[1], TEN[2], TEN[1]], TOKENIZER, pad_multiple=4
    ).uid
    assert batch[1] == alone[0]
    # A problem that occurs twice in a step gets two independent answers.
    assert len(set(batch.tolist())) == 4
    assert batch.dtype == np.uint32


def test_rows_are_padded_on_the_right_to_a_bucket():
    tokens, lengths = pad_rows([[5, 6, 7], [8] * 5], pad_multiple=4)
    assert tokens.tolist() == [[5, 6, 7, 0, 0, 0, 0, 0], [8, 8, 8, 8, 8, 0, 0, 0]]
    assert lengths.tolist() == [3, 5]
    assert pad_rows([[5] * 4], pad_multiple=4)[0].shape == (1, 4)


@pytest.mark.parametrize("rows", [[], [[1], []]])
def test_an_empty_row_has_no_last_token_to_go_on_from(rows):
    with pytest.raises(ValueError, match="at least one token"):
        pad_rows(rows, pad_multiple=4)


def fit(source, **limits):
    return filter_by_length(
        source,
        TOKENIZER,
        **{"max_prompt_tokens": 3, "max_solution_tokens": None} | limits,
        name="train problems",
    )


def test_problems_too_long_are_left_out_whole_and_counted():
    source = [problem(0), problem(1, words=4), problem(2), problem(3, words=50)]
    kept, dropped = fit(source)
    assert [kept[i].id for i in range(len(kept))] == ["p0", "p2"]
    assert dropped == 2
    assert kept[1] == source[2]


def test_worked_solutions_need_room_for_their_end():
    source = [problem(0, solution=2), problem(1, solution=3)]
    assert fit(source)[1] == 0
    kept, dropped = fit(source, max_solution_tokens=3)
    assert (len(kept), dropped) == (1, 1)
    assert fit(source, max_solution_tokens=4)[1] == 0


def test_a_solution_too_long_names_the_setting_that_limits_it():
    with pytest.raises(
        ConfigError,
        match=r"the first has a worked solution of 4 tokens, more than "
        r"train.sampling.max_new_tokens=3; raise that",
    ):
        fit([problem(0, solution=3)], max_solution_tokens=3)


def test_a_source_of_which_nothing_is_left_is_refused():
    with pytest.raises(
        ConfigError,
        match=r"train problems: none of 2 problems fits: the first has a prompt of 5 "
        r"tokens where 3 fit; raise model.max_seq_len",
    ):
        fit([problem(0, words=5), problem(1, words=9)])


class Generated:
    """A source that makes its problems when they are read."""

    def __init__(self, problems):
        self._problems = problems

    def __len__(self):
        return len(self._problems)

    def __getitem__(self, index):
        return self._problems[index]


def test_a_list_is_read_whole_however_long(monkeypatch):
    """Long problems are left out anywhere in it, also after another filter."""
    monkeypatch.setattr(loader, "MAX_SCANNED_PROBLEMS", 3)
    monkeypatch.setattr(loader, "NUM_CHECKED_PROBLEMS", 2)
    problems = [problem(0), problem(1), problem(2), problem(3, words=50), problem(4)]
    kept, dropped = fit(problems)
    assert ([kept[i].id for i in range(len(kept))], dropped) == (
        ["p0", "p1", "p2", "p4"],
        1,
    )
    generated = Generated(problems)
    again, dropped = fit(loader.FilteredSource(generated, [0, 1, 3, 4]))
    assert (len(again), dropped) == (3, 1)
    assert fit(generated) == (generated, 0)  # only the first two are checked


def test_a_generated_source_with_long_problems_is_refused_at_once():
    config = FiniteFieldTask(modulus=7)
    source = ChainSource(config, ChainMix(chain_lengths=(2, 9)), split="train", seed=0)
    with pytest.raises(ConfigError, match=r"problem gf7\S+ has a prompt of \d+"):
        fit(source, max_prompt_tokens=20)
    kept, dropped = fit(source, max_prompt_tokens=200)
    assert (kept[10**9], dropped) == (source[10**9], 0)
