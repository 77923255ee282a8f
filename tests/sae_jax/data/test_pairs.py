"""Pairs stay within document and role, and a step determines its batch."""

import dataclasses

import numpy as np
import pytest

from job_jax.schema import ConfigError
from sae_jax.config import PairsConfig
from sae_jax.data.pairs import ShuffledPairs, find_positives
from sae_jax.data.shards import ActivationShards, ShardWriter
from sae_jax.data.tokens import (
    TokenArrays,
    filter_tokens,
    iter_documents,
    mark_duplicates,
)

ROLES = ("prompt", "response")


def tokens(sequence, role, *, special=None, activations=None):
    """Returns tokens whose rows are almost unit vectors: [token number + 1, 1]."""
    count = len(sequence)
    if activations is None:
        activations = np.stack([np.arange(count) + 1, np.ones(count)], axis=1)
    return TokenArrays(
        activations=activations.astype(np.float32),
        columns={
            "sequence": np.array(sequence),
            "role": np.array(role),
            "special": np.zeros(count, bool) if special is None else np.array(special),
        },
        role_names=ROLES,
        data_hash="toy",
    )


def corpus(count=8, length=12):
    """Returns `count` documents: half prompt, half response. x[:, 0] is the token."""
    sequence_N = np.repeat(np.arange(count), length)
    role_N = np.tile(np.arange(length) >= length // 2, count).astype(int)
    rows_ND = np.stack([np.arange(len(role_N)), np.full(len(role_N), 1e3)], axis=1)
    return tokens(sequence_N, role_N, activations=rows_ND)


def with_columns(data, **columns):
    return dataclasses.replace(data, columns={**data.columns, **columns})


def config(**changes):
    return PairsConfig(**{"batch_size": 8, "eval_fraction": 0.2, **changes})


def seen(pairs):
    """Returns the (token, positive) numbers of a batch's valid rows."""
    valid = pairs.valid
    return list(
        zip(
            pairs.x[valid, 0].astype(int),
            pairs.positive[valid, 0].astype(int),
            strict=True,
        )
    )


def all_pairs(found):
    """Returns every (anchor, positive) that a draw can give."""
    return {
        (int(anchor), int(found.candidates[first + i]))
        for anchor, first, choices in zip(
            found.anchors, found.candidate_start, found.num_candidates, strict=True
        )
        for i in range(choices)
    }


# Two documents: prompt, response, response | response, prompt, response.
SEQUENCE, ROLE = [0, 0, 0, 1, 1, 1], [0, 1, 1, 1, 0, 1]


def test_the_previous_token_is_a_positive_only_within_document_and_role():
    data = tokens(SEQUENCE, ROLE)
    found = find_positives(data, np.ones(6, bool), positive="previous")
    # 1 follows a prompt, 3 another document (of the same role), 5 a prompt.
    assert all_pairs(found) == {(2, 1)}


def test_any_earlier_token_is_a_positive_only_within_document_and_role():
    data = tokens(SEQUENCE, ROLE)
    found = find_positives(data, np.ones(6, bool), positive="random")
    assert all_pairs(found) == {(2, 1), (5, 3)}


def test_neither_end_of_a_pair_is_unusable():
    data = tokens([0] * 5, [1] * 5)
    usable_N = np.array([True, True, False, True, True])
    previous = find_positives(data, usable_N, positive="previous")
    assert all_pairs(previous) == {(1, 0), (4, 3)}
    earlier = find_positives(data, usable_N, positive="random")
    assert all_pairs(earlier) == {(1, 0), (3, 0), (3, 1), (4, 0), (4, 1), (4, 3)}


@pytest.mark.parametrize("positive", ["previous", "random"])
def test_no_usable_token_is_no_pair(positive):
    data = tokens([0, 0], [1, 1])
    assert (
        all_pairs(find_positives(data, np.zeros(2, bool), positive=positive)) == set()
    )


def test_every_earlier_token_is_drawn_alike():
    found = find_positives(
        tokens([0] * 4, [1] * 4), np.ones(4, bool), positive="random"
    )
    pair = np.flatnonzero(found.anchors == 3)
    draws = (np.arange(300) + 0.5) / 300
    picked = found.draw_positives(np.repeat(pair, 300), draws)
    np.testing.assert_array_equal(np.bincount(picked), [100, 100, 100])
    # The largest draw below 1 still selects an earlier token.
    assert found.draw_positives(pair, np.array([np.nextafter(1.0, 0.0)])) == 2


def test_each_token_left_out_is_counted_once_under_its_first_reason():
    rows_ND = np.ones((10, 2))
    rows_ND[2] = np.nan  # in a prompt: counted as another role
    rows_ND[3] = np.nan  # also special
    rows_ND[4, 1] = np.inf
    rows_ND[5] = 11.0  # 11 times the median of the remaining ones
    rows_ND[6] = 9.0  # is kept
    data = tokens(
        [0] * 10,
        [0, 1, 0, 1, 1, 1, 1, 1, 1, 1],
        special=[1, 0, 0, 1, 0, 0, 0, 0, 0, 0],
        activations=rows_ND,
    )
    usable_N, skipped = filter_tokens(data, config())
    assert skipped == {"role": 2, "special": 1, "non_finite": 1, "high_norm": 1}
    np.testing.assert_array_equal(np.flatnonzero(usable_N), [1, 6, 7, 8, 9])


def test_the_median_norm_is_over_the_selected_tokens():
    """Prompts that are a hundred times as long must not let a long response pass."""
    rows_ND = np.ones((6, 2))
    rows_ND[:2], rows_ND[5] = 100.0, 50.0
    data = tokens([0] * 6, [0, 0, 1, 1, 1, 1], activations=rows_ND)
    usable_N, skipped = filter_tokens(data, config())
    assert skipped["high_norm"] == 1
    assert not usable_N[5]


@pytest.mark.parametrize("roles", [("answer",), ("response", "answer")])
def test_a_role_without_tokens_names_those_that_have(roles):
    data = tokens([0, 0], [0, 1])
    with pytest.raises(ConfigError, match=r"'answer'; the data have \['prompt', 'resp"):
        filter_tokens(data, config(roles=roles))


def test_a_role_that_is_named_but_empty_is_no_role():
    with pytest.raises(ConfigError, match=r"'response'; the data have \['prompt'\]"):
        filter_tokens(tokens([0, 0], [0, 0]), config())


def test_too_few_pairs_for_a_batch_say_where_the_tokens_went():
    data = tokens([0] * 4 + [1] * 4 + [2] * 4, [0, 1, 1, 1] * 3)
    with pytest.raises(ConfigError, match="exceeds the 2 pairs") as caught:
        ShuffledPairs(data, config(), seed=0)
    said = str(caught.value)
    assert "high_norm 0, duplicate 0, eval 6, no_positive 1" in said
    assert "role 3, special 0, non_finite 0" in said
    assert "prompt 3, response 9" in said


def counted(blocks):
    """Returns the numbers of the tokens that the documents count, in order."""
    return [int(x) for block in blocks for x in block.x[block.mask][:, 0]]


def test_an_epoch_is_every_pair_of_the_training_documents_once():
    source = ShuffledPairs(corpus(), config(), seed=3)
    # 8 documents, 2 of them (0.2 rounded up) held out; 5 response pairs each.
    assert source.num_pairs == 30
    assert source.skipped["eval"] == 12
    assert source.skipped["no_positive"] == 6
    calibrates, measures = (
        {token // 12 for token in counted(blocks)}
        for blocks in (source.calibration_documents(), source.eval_documents())
    )
    assert len(calibrates) == len(measures) == 1
    held = calibrates | measures
    assert len(held) == 2
    every = {(12 * d + t, 12 * d + t - 1) for d in range(8) for t in range(7, 12)}
    trained = {pair for pair in every if pair[0] // 12 not in held}
    rows = [pair for step in range(15) for pair in seen(source[step])]
    for epoch in range(4):
        assert set(rows[30 * epoch : 30 * (epoch + 1)]) == trained
    assert rows[:30] != rows[30:60]


@pytest.mark.parametrize("seed", range(5))
def test_no_problem_is_trained_on_and_held_out_calibrated_on_and_measured(seed):
    """There are ten problems of four completions each, scattered in the data."""
    data = with_columns(corpus(count=40), problem=np.repeat(np.arange(40) % 10, 12))
    source = ShuffledPairs(data, config(eval_fraction=0.4), seed=seed)
    rows = [pair for step in range(24) for pair in seen(source[step])]
    problems = [
        {token // 12 % 10 for token in tokens_}
        for tokens_ in (
            [token for token, _ in rows],
            counted(source.calibration_documents()),
            counted(source.eval_documents()),
        )
    ]
    assert [len(each) for each in problems] == [6, 2, 2]
    assert set.union(*problems) == set(range(10))
    assert source.skipped["eval"] == 4 * 4 * 6


def test_a_document_that_another_repeats_is_left_out_and_counted():
    """Documents 1 and 5 repeat 0. Document 2 has another last token, 3 another role."""
    token_S12 = np.tile(np.arange(12), (8, 1))
    token_S12[4:] += 100 * np.arange(4)[:, None] + 100
    token_S12[5] = token_S12[0]
    token_S12[2, -1] = 99
    data = with_columns(corpus(), token_id=token_S12.reshape(-1))
    data.columns["role"][3 * 12 + 11] = 0
    copies = mark_duplicates(data).reshape(8, 12)
    np.testing.assert_array_equal(copies.all(axis=1), copies.any(axis=1))
    assert np.flatnonzero(copies.all(axis=1)).tolist() == [1, 5]
    source = ShuffledPairs(data, config(), seed=3)
    assert source.skipped["duplicate"] == 2 * 6  # responses
    rows = [pair for step in range(8) for pair in seen(source[step])]
    read = {token // 12 for token, _ in rows}
    for blocks in (source.calibration_documents(), source.eval_documents()):
        read |= {token // 12 for token in counted(blocks)}
    assert not read & {1, 5}


def test_held_out_documents_are_a_function_of_the_seed_alone():
    def held(**changes):
        source = ShuffledPairs(corpus(), config(**changes), seed=3)
        return counted(source.eval_documents())

    assert held(positive="random") == held() == held(batch_size=4)


def test_holding_out_documents_without_a_usable_token_is_refused():
    special = np.ones((8, 12), bool)
    whole = corpus()
    source = ShuffledPairs(whole, config(), seed=3)
    for document in {t // 12 for t in range(96)} - {
        t // 12 for t in counted(source.eval_documents())
    }:
        special[document] = False
    spoilt = with_columns(whole, special=special.reshape(-1))
    with pytest.raises(ConfigError, match="leaves 1 problems to measure on, and no"):
        ShuffledPairs(spoilt, config(), seed=3)


def test_documents_come_whole_in_blocks_of_one_shape():
    """Lengths are 3 and 500: a block of about 1,000 holds two; the last is padded."""
    lengths = [3, 500, 2, 500]
    sequence_N = np.repeat(np.arange(4), lengths)
    data = tokens(sequence_N, np.ones(1005, int))
    usable_N = np.arange(1005) != 1
    blocks = list(iter_documents(data, usable_N, np.array([3, 0, 1])))
    assert [block.x.shape for block in blocks] == [(2, 500, 2)] * 2
    np.testing.assert_array_equal(blocks[0].token_index[0], np.arange(505, 1005))
    np.testing.assert_array_equal(blocks[0].token_index[1], [0, 1, 2] + [-1] * 497)
    np.testing.assert_array_equal(np.flatnonzero(blocks[0].mask[1]), [0, 2])
    np.testing.assert_array_equal(blocks[0].x[1, :3, 0], [1, 2, 3])
    assert blocks[1].mask[0].all()
    assert not blocks[1].mask[1].any()


@pytest.mark.parametrize("positive", ["previous", "random"])
def test_a_step_determines_its_batch(positive):
    """Resuming anywhere, also in another epoch, gives the same stream."""
    asked = config(positive=positive)
    whole = list(ShuffledPairs(corpus(), asked, seed=5).iter_batches(0, 9))
    for cut in (1, 4, 8):
        rest = list(ShuffledPairs(corpus(), asked, seed=5).iter_batches(cut, 9))
        assert len(rest) == 9 - cut
        for one, other in zip(whole[cut:], rest, strict=True):
            np.testing.assert_array_equal(one.x, other.x)
            np.testing.assert_array_equal(one.positive, other.positive)


def test_another_seed_is_another_order():
    first, other = (ShuffledPairs(corpus(), config(), seed=s)[0] for s in (0, 1))
    assert seen(first) != seen(other)


def test_random_positives_change_every_epoch():
    source = ShuffledPairs(corpus(), config(positive="random"), seed=0)
    first = dict(pair for step in range(4) for pair in seen(source[step]))
    later = dict(pair for step in range(15, 19) for pair in seen(source[step]))
    common = first.keys() & later.keys()
    assert any(first[token] != later[token] for token in common)
    for token, positive in [*first.items(), *later.items()]:
        assert token // 12 == positive // 12  # one document
        assert 6 <= positive % 12 < token % 12  # an earlier response


def test_a_batch_mixes_corpus():
    source = ShuffledPairs(corpus(count=40), config(batch_size=16), seed=0)
    batch = [token // 12 for token, _ in seen(source[0])]
    assert len(set(batch)) > 8


def test_shards_and_arrays_give_the_same_batches(tmp_path):
    data = corpus()
    with ShardWriter(
        tmp_path / "data",
        width=2,
        layer=0,
        hook="h",
        model="toy",
        roles=ROLES,
        dtype="float32",
        shard_tokens=30,
    ) as out:
        for document in range(8):
            part = slice(12 * document, 12 * (document + 1))
            out.add(
                data.activations[part],
                token_ids=12 * document + np.arange(12),
                roles=data.columns["role"][part],
            )
    on_disk = ShuffledPairs(ActivationShards(tmp_path / "data"), config(), seed=1)
    in_memory = ShuffledPairs(data, config(), seed=1)
    for step in range(5):
        np.testing.assert_array_equal(on_disk[step].x, in_memory[step].x)
        np.testing.assert_array_equal(on_disk[step].positive, in_memory[step].positive)
    assert on_disk.skipped == in_memory.skipped
