"""Micro-batches by tokens and in packed rows: their contents, in few shapes."""

from pathlib import Path

import jax
import numpy as np
import pytest

from job_jax.command import load_config
from job_jax.config import MeshConfig
from job_jax.mesh import make_mesh
from job_jax.schema import ConfigError
from rlvr_jax.config import Config, ModelConfig, SamplingConfig, TrainConfig
from rlvr_jax.learn.activation_memory import ActivationLimit, activation_bytes
from rlvr_jax.learn.batches import make_batch
from rlvr_jax.learn.micro_batches import (
    MicroBatchCut,
    count_tokens,
    plan_micro_batches,
    score_micro_batches,
    split_micro_batches,
)
from rlvr_jax.run.checks import check_batch_sizes
from rlvr_jax.types import Prompts
from tests.support.policies import random_tokens

_RECIPES = Path(__file__).parents[2] / "configs"
P, G, S, T, MULTIPLE = 24, 4, 6, 32, 4


def _batch(seed=0, lengths=None):
    """Returns groups of random lengths; a row's advantage is its index."""
    if lengths is None:
        drawn = np.random.RandomState(seed).geometric(1 / 8, P * G)
        lengths = np.minimum(drawn, T).astype(np.int32)
    count = len(lengths) // G
    prompts = Prompts(
        tokens=random_tokens(count, S),
        lengths=np.full(count, S, np.int32),
        uid=np.arange(count, dtype=np.uint32),
    )
    mask = np.arange(T) < lengths[:, None]
    return make_batch(
        prompts,
        np.where(mask, random_tokens(count * G, T, seed=seed), 0),
        lengths,
        advantages=np.arange(count * G, dtype=np.float32),
        loss_weights=mask.astype(np.float32),
    )


def _cut(**settings):
    return MicroBatchCut(num_groups=P, pad_multiple=MULTIPLE, **settings)


def _shape(part):
    packed = part.packing
    return part.tokens.shape + (() if packed is None else packed.source.shape)


@pytest.mark.parametrize("packing", [False, True])
@pytest.mark.parametrize(("max_tokens", "shards"), [(300, 1), (600, 2), (2000, 4)])
def test_micro_batches_hold_every_token_once_within_their_number(
    max_tokens, shards, packing
):
    cut = _cut(max_tokens=max_tokens, group_multiple=shards, packing=packing)
    batch = _batch()
    seen, computed = [], []
    for part in split_micro_batches(batch, cut):
        true, all_ = count_tokens(part)
        computed.append(all_)
        assert all_ <= max_tokens
        assert len(part.prompt_lengths) % shards == 0
        assert true == part.lengths.sum() + S * (part.lengths.reshape(-1, G) > 0).any(
            axis=1
        ).sum(dtype=int)
        rows = part.advantages.astype(int)[part.lengths > 0]
        np.testing.assert_array_equal(
            part.lengths[part.lengths > 0], batch.lengths[rows]
        )
        assert not part.loss_weights[part.lengths == 0].any()
        seen += rows.tolist()
    assert sorted(seen) == list(range(P * G))
    # No cut needs fewer micro-batches than the computed tokens fill.
    assert len(computed) <= 2 * -(-sum(computed) // max_tokens) + 1


def test_fewer_tokens_are_computed_by_tokens_and_fewer_still_in_packed_rows():
    def padding(cut):
        counts = [count_tokens(part) for part in split_micro_batches(_batch(), cut)]
        true, computed = np.sum(counts, axis=0)
        return 1 - true / computed

    whole = padding(_cut())
    by_tokens = padding(_cut(max_tokens=600))
    packed = padding(_cut(max_tokens=600, packing=True))
    # 96 completions of 8 tokens on average in rows of up to 32, 24 prompts of 6.
    true, rows = _batch().lengths.sum() + P * S, P * (S + G * T)
    assert whole == pytest.approx(1 - true / rows)
    assert packed < 0.5 < by_tokens < 0.7 < whole


@pytest.mark.parametrize("packing", [False, True])
def test_shapes_are_few_over_many_batches(packing):
    """At most one per width, or rows per group, and the sizes of a last one."""
    cut = _cut(max_tokens=600, packing=packing)
    batches = [list(split_micro_batches(_batch(seed), cut)) for seed in range(40)]
    own_rows = {_shape(part) for parts in batches for part in parts if not part.packing}
    packed = {_shape(part) for parts in batches for part in parts if part.packing}
    widths = T // MULTIPLE
    assert len(own_rows) <= 2 * widths
    assert len(packed) <= 2 * (G - 1)
    assert {shape[1] for shape in packed} <= {T}
    assert bool(packed) == packing


def test_rows_are_packed_where_that_saves_a_quarter_of_the_tokens():
    def packed(*lengths):
        lengths = np.array([lengths] * P, np.int32)
        return _cut(packing=True).rows_and_width(lengths, T)

    assert packed(32, 16, 16, 1) == (3, 32)  # 96 tokens instead of 128
    assert packed(28, 16, 16, 5) == (4, 28)  # 96 instead of 112
    assert packed(8, 8, 8, 8) == (4, 8)  # 32 in both
    assert packed(9, 8, 8, 7) == (1, 32)  # 32 instead of 48
    assert _cut().rows_and_width(np.array([[9, 8, 8, 7]]), T) == (4, 12)


def test_groups_that_pack_into_fewer_rows_come_first():
    """Two groups: 48 tokens need two rows of 32; 23 tokens, one longer, need one.

    Unpacked, a group is as wide as its longest completion, and the order is reversed.
    """
    batch = _batch(lengths=np.array([12, 12, 12, 12, 20, 1, 1, 1], np.int32))
    for packing, order in [(True, [1, 0]), (False, [0, 1])]:
        cut = MicroBatchCut(num_groups=1, pad_multiple=MULTIPLE, packing=packing)
        assert np.ravel(plan_micro_batches(batch, cut)).tolist() == order


def test_equal_lengths_are_not_packed_and_make_one_shape():
    batch = _batch(lengths=np.full(P * G, T, np.int32))
    parts = list(split_micro_batches(batch, _cut(packing=True)))
    assert [part.packing for part in parts] == [None]
    assert parts[0].advantages.tolist() == list(range(P * G))


@pytest.mark.parametrize("packing", [False, True])
@pytest.mark.parametrize("max_tokens", [0, 500])
def test_scores_return_to_the_positions_of_their_tokens(max_tokens, packing):
    """Two passes at once; scores of filler are dropped."""
    cut = _cut(max_tokens=max_tokens, group_multiple=4, packing=packing)
    batch = _batch()

    def score(part):
        told = 100 * part.advantages[:, None] + np.arange(part.tokens.shape[1]) + 1
        told = np.where(part.mask, told, 0).astype(np.float32)
        return told, -told

    told = 100 * np.arange(P * G)[:, None] + np.arange(T) + 1
    expected = np.where(batch.mask, told, 0)
    for sign, found in zip(
        (1, -1), score_micro_batches(score, batch, cut), strict=True
    ):
        np.testing.assert_array_equal(found, sign * expected)


def test_the_order_of_one_micro_batch_is_kept_and_of_several_is_by_length():
    batch = _batch()
    longest = batch.lengths.reshape(P, G).max(axis=1)
    (whole,) = plan_micro_batches(batch, _cut())
    assert whole.tolist() == list(range(P))
    plan = plan_micro_batches(batch, _cut(max_tokens=600))
    groups = np.concatenate(plan)
    assert (np.diff(longest[groups[groups >= 0]]) >= 0).all()


def _config(*, model=None, **train):
    sampling = SamplingConfig(max_new_tokens=60)
    return Config(
        model=model or ModelConfig(max_seq_len=100),
        train=TrainConfig(group_size=G, batch_size=8, sampling=sampling, **train),
    )


def test_a_recipe_says_how_it_is_cut():
    cut = MicroBatchCut.from_config(_config(num_minibatches=2, grad_accum_steps=2))
    assert (cut.num_groups, cut.max_tokens, cut.packing) == (2, 0, False)
    with jax.set_mesh(make_mesh(MeshConfig(data=2, fsdp=2, tensor=2))):
        cut = MicroBatchCut.from_config(_config(micro_batch_tokens=999, packing=True))
    assert (cut.max_tokens, cut.group_multiple, cut.packing) == (999, 4, True)


def test_a_cut_by_tokens_is_refused_together_with_one_by_groups():
    with pytest.raises(ConfigError, match="grad_accum_steps=2 by groups"):
        _config(micro_batch_tokens=999, grad_accum_steps=2)


@pytest.mark.parametrize(
    ("axes", "devices"),
    [({"data": 2, "tensor": 4}, 2), ({"data": 2, "fsdp": 2, "tensor": 2}, 4)],
)
def test_a_micro_batch_has_room_for_the_longest_group_on_each_device(axes, devices):
    # Four completions of 60, padded to 64, and a prompt of 40, padded to 48.
    need = devices * (4 * 64 + 48)
    mesh = make_mesh(MeshConfig(**axes))

    def check(tokens):
        config = _config(micro_batch_tokens=tokens)
        check_batch_sizes(config, mesh, mesh, ["train"])

    with pytest.raises(ConfigError, match=f"micro_batch_tokens={need - 1} .*{need}"):
        check(need - 1)
    check(need)
    check(0)


_POLICY = ModelConfig(num_layers=2, hidden_size=64)


def _limit(groups, devices=1):
    """Returns a limit that exactly fits this number of `_batch` groups per device."""
    group = activation_bytes(_POLICY, rows=G, prompt_width=S, width=T)
    return ActivationLimit(
        model=_POLICY, gib=(groups * group + 1) / 2**30, devices=devices
    )


@pytest.mark.parametrize(
    ("limit", "devices", "groups"),
    [
        (24, 1, 24),
        (23, 1, 12),  # the largest divisor of 24 below it
        (5, 1, 4),
        (5, 2, 8),  # each device has a part of the groups
        (0.5, 1, 1),  # one does not fit, but is computed anyway
        (0.5, 4, 4),
    ],
)
def test_micro_batches_stay_within_the_memory_of_activations(limit, devices, groups):
    batch, memory = _batch(), _limit(limit, devices)
    plan = plan_micro_batches(batch, _cut(memory=memory))
    assert [len(part) for part in plan] == [groups] * (P // groups)
    assert sorted(np.concatenate(plan)) == list(range(P))
    if groups < P:  # from the shortest to the longest
        longest_P = batch.lengths.reshape(P, G).max(axis=1)
        assert (np.diff(longest_P[np.concatenate(plan)]) >= 0).all()


def test_the_limit_is_the_config_s_and_0_is_none():
    def sizes(gib):
        train = TrainConfig(batch_size=P, group_size=G, activation_gib=gib)
        cut = MicroBatchCut.from_config(Config(model=_POLICY, train=train))
        return {len(part) for part in plan_micro_batches(_batch(), cut)}

    assert sizes(TrainConfig().activation_gib) == {P}
    assert sizes(0.0) == {P}
    assert sizes(1e-9) == {1}


@pytest.mark.parametrize("name", ["smoke", "quickstart"])
@pytest.mark.parametrize("devices", [1, 2])
def test_the_small_recipes_are_computed_in_one_piece_as_before(name, devices):
    """With prompts of 64 tokens, twice their length, because bits depend on it."""
    config = load_config(_RECIPES / f"{name}.py", Config)
    train, sft = config.train, config.sft
    memory = ActivationLimit(
        model=config.model, gib=train.activation_gib, devices=devices
    )
    length = train.sampling.max_new_tokens
    groups = train.groups_per_micro_batch
    assert memory.fit(groups, train.rows_per_group, 64, length) == groups
    rows = sft.batch_size // sft.grad_accum_steps
    assert memory.fit(rows, 1, 64, length) == rows
