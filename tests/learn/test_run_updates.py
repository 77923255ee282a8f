"""Optimizer steps of one rollout batch: order, metrics, refusals."""

import dataclasses
import math

import numpy as np
import pytest

from rlvr_jax.config import Config, LossConfig, SamplingConfig, TrainConfig
from rlvr_jax.learn.batches import batch_from_rollouts
from rlvr_jax.learn.optimizer import DivergedError, OptimizerMetrics
from rlvr_jax.learn.run_updates import (
    LogprobMismatchError,
    StaleRolloutsError,
    loss_metrics,
    run_updates,
)
from rlvr_jax.learn.update import TrainState
from rlvr_jax.models.distribution import SamplingParams
from rlvr_jax.types import LossAux, Prompts, Rollouts

P, G, T = 4, 2, 4
LENGTHS = np.array([4, 1, 2, 3, 4, 4, 1, 2], np.int32)
MASK = np.arange(T) < LENGTHS[:, None]
LOGPROBS = np.where(MASK, np.float32(-1.0), np.float32(0.0))
ADVANTAGES = np.arange(P * G, dtype=np.float32).reshape(P, G)
# Every true token has a different one: 0.1, 0.2, ... 2.1 in order.
ENTROPIES = np.where(MASK, (0.1 * MASK.cumsum().reshape(MASK.shape)), 0.0)
VERSION = 3


class Recorder:
    """A fake Updater: records its inputs, moves logprobs by 0.25 a step.

    Its scores are `offset` above the sampler's.
    """

    def __init__(self, *, offset: float = 0.0, skipped: tuple[int, ...] = ()):
        self.steps, self.scored = [], []
        self.offset = offset
        self.skipped = skipped

    def score(self, params, batch, sampling, *, with_entropies=False):
        self.scored.append((params, batch.tokens.shape, with_entropies))
        moved = np.where(batch.mask, batch.old_logprobs + np.float32(self.offset), 0.0)
        rows, width = batch.advantages.astype(int), batch.tokens.shape[1]
        return moved, ENTROPIES[rows, :width] if with_entropies else None

    def step(self, state, micro_batches, sampling, *, probe=None):
        parts, number = list(micro_batches), len(self.steps)
        self.steps.append(parts)
        tokens = float(sum(part.lengths.sum() for part in parts))
        gap = self.offset + 0.25 * number
        losses = LossAux(
            loss=float(number),
            tokens=tokens,
            scalars={"ratio": tokens, "entropy": 2.0 * tokens / (number + 1)},
            logprob_mismatch=gap * tokens,
            logprob_mismatch_max=2 * gap,
            token_stats=np.full((1, 1, 1), tokens),
            by_band=np.outer([0, 1, 0, 3], [tokens, number, 1, 0.5 * tokens]),
        )
        report = OptimizerMetrics(
            grad_norm=1.0,
            learning_rate=0.1,
            consecutive_nonfinite=int(number in self.skipped),
        )
        return dataclasses.replace(state, step=state.step + 1), losses, report


def _rollouts() -> Rollouts:
    prompts = Prompts(
        tokens=np.ones((P, 2), np.int32),
        lengths=np.full(P, 2, np.int32),
        uid=np.arange(P, dtype=np.uint32),
    )
    return Rollouts(
        prompts=prompts,
        tokens=np.where(MASK, 5, 0).astype(np.int32),
        lengths=LENGTHS,
        logprobs=LOGPROBS,
        finished=np.ones(P * G, bool),
        weight_version=np.int32(VERSION),
    )


def _optimize(
    updater: Recorder,
    *,
    version: int = VERSION,
    state_version: int | None = None,
    seed: int = 0,
    advantages=ADVANTAGES,
    finished=None,
    **train,
):
    config = Config(
        seed=seed,
        train=TrainConfig(
            batch_size=P,
            group_size=G,
            sampling=SamplingConfig(max_new_tokens=T),
            **train,
        ),
        completion_pad_multiple=1,
    )
    return run_updates(
        config,
        updater,
        TrainState(
            params="own",
            opt_state=None,
            step=version if state_version is None else state_version,
            consecutive_nonfinite=0,
        ),
        batch=batch_from_rollouts(
            _rollouts()
            if finished is None
            else dataclasses.replace(_rollouts(), finished=finished),
            advantages,
            mask_truncated=finished is not None,
        ),
        weight_version=np.int32(version),
        ref_params="reference",
        sampling=SamplingParams.unmodified(),
        to_device=lambda batch: batch,
    )


def test_each_epoch_passes_every_group_once_a_minibatch_at_a_time():
    updater = Recorder()
    result = _optimize(updater, num_minibatches=2, num_epochs=2, grad_accum_steps=2)
    rows = [[p.advantages.astype(int).tolist() for p in step] for step in updater.steps]
    # Within a minibatch the group with the shorter longest completion goes first.
    for epoch in (rows[:2], rows[2:]):
        assert sorted(row for step in epoch for part in step for row in part) == [
            *range(P * G)
        ]
    longest = {0: 4, 2: 3, 4: 4, 6: 2}  # by the group's first row
    for step in rows:
        lengths = [longest[row] for part in step for row in part[::G]]
        assert lengths == sorted(lengths)
    assert result.state.step == VERSION + 4
    for step in updater.steps:
        assert sum(part.loss_weights.sum() for part in step) == pytest.approx(1.0)


def test_the_share_that_is_left_out_is_logged_and_every_minibatch_weighs_the_rest():
    """Three of eight; a minibatch's weights over ended completions sum to 1."""
    finished = np.array([True, False, True, True, False, False, True, True])
    updater = Recorder()
    result = _optimize(updater, finished=finished, num_minibatches=2)
    assert result.metrics["loss/left_out"] == pytest.approx(3 / 8)
    for step in updater.steps:
        assert sum(part.loss_weights.sum() for part in step) == pytest.approx(1.0)
        for part in step:
            learns = finished[part.advantages.astype(int)]
            np.testing.assert_array_equal(part.loss_weights.any(axis=1), learns)
    assert "loss/left_out" not in _optimize(Recorder()).metrics


def test_a_batch_of_which_nothing_is_left_is_a_step_without_weights():
    updater = Recorder()
    result = _optimize(
        updater,
        finished=np.zeros(P * G, bool),
        old_logprobs="trainer",
        loss=LossConfig(top_entropy_quantile=0.5),
    )
    assert result.metrics["loss/left_out"] == 1.0
    assert result.metrics["top_entropy/fraction"] == 0.0
    assert not any(part.loss_weights.any() for step in updater.steps for part in step)


def _groups_by_step(version=VERSION, **config):
    updater = Recorder()
    _optimize(updater, version=version, **config)
    return [
        [int(row) // G for part in step for row in part.advantages[::G]]
        for step in updater.steps
    ]


def test_minibatches_are_cut_at_random_not_in_the_order_of_the_curriculum():
    """Groups 0 and 1 are in one band, 2 and 3 in another: a step sees both bands.

    Two random groups of four are in different bands in 2 of 3 cases.
    """
    cuts = [
        _groups_by_step(version, seed=seed, num_minibatches=2)
        for version in range(20)
        for seed in range(10)
    ]
    mixed = [len({group // 2 for group in step}) == 2 for step, _ in cuts]
    assert np.mean(mixed) == pytest.approx(2 / 3, abs=0.1)
    assert all(sorted(first + second) == [0, 1, 2, 3] for first, second in cuts)


def test_a_cut_is_a_function_of_seed_step_and_epoch():
    """A resumed run makes the same cut; another seed, step or epoch a different one."""
    settings = {"num_minibatches": 4, "num_epochs": 6}
    found = {
        (seed, version): _groups_by_step(version, seed=seed, **settings)
        for seed in (0, 1)
        for version in (3, 4)
    }
    assert found[0, 3] == _groups_by_step(3, seed=0, **settings)
    assert len({str(steps) for steps in found.values()}) == 4
    epochs = np.reshape(found[0, 3], (6, 4))
    assert len({str(epoch) for epoch in epochs}) > 1


def test_one_minibatch_stays_in_the_order_in_which_it_was_sampled():
    assert _groups_by_step(num_epochs=2) == [[0, 1, 2, 3]] * 2


def test_metrics_are_means_over_the_steps_and_skips_add_up():
    metrics = _optimize(Recorder(skipped=(1,)), num_minibatches=4).metrics
    assert metrics["loss/total"] == pytest.approx((0 + 1 + 2 + 3) / 4)
    assert metrics["optimizer/skipped"] == 1
    assert metrics["optimizer/learning_rate"] == pytest.approx(0.1)
    # Entropy per token by step: 2, 1, 2/3, 1/2. The first is the sampling policy's.
    assert metrics["loss/entropy"] == pytest.approx(25 / 24)
    assert metrics["rollout/entropy"] == pytest.approx(2.0)


def test_rollouts_of_other_weights_are_refused():
    updater = Recorder()
    with pytest.raises(StaleRolloutsError, match=r"version 2, but .* version 3"):
        _optimize(updater, version=2, state_version=3)
    assert not updater.steps


TIS = LossConfig(tis_cap=2.0)


@pytest.mark.parametrize(
    ("staleness", "minibatches", "version", "expected"),
    [
        (1, 1, 0, 0),  # no older weights before the first step
        (1, 1, 1, 0),
        (1, 1, 7, 6),
        (2, 1, 1, 0),
        (2, 1, 7, 5),
        (1, 4, 4, 0),  # a step is four versions
        (2, 4, 12, 4),
    ],
)
def test_rollouts_are_of_the_version_that_staleness_asks_for_and_of_no_other(
    staleness, minibatches, version, expected
):
    settings = {
        "staleness": staleness,
        "num_minibatches": minibatches,
        "old_logprobs": "trainer",
        "loss": TIS,
    }
    for offered in {0, expected - 1, expected, expected + 1, version} - {-1}:
        updater = Recorder()
        if offered == expected:
            metrics = _optimize(
                updater, version=offered, state_version=version, **settings
            ).metrics
            assert metrics["staleness/versions_behind"] == version - expected
        else:
            with pytest.raises(StaleRolloutsError, match=f"needs version {expected};"):
                _optimize(updater, version=offered, state_version=version, **settings)
            assert not updater.steps


def test_the_change_since_old_rollouts_is_not_a_mismatch():
    """At the first step the weights are the sampler's, so the limit applies."""
    settings = {"staleness": 1, "loss": TIS, "max_logprob_mismatch": 0.2}
    updater = Recorder(offset=0.3)
    metrics = _optimize(updater, version=3, state_version=4, **settings).metrics
    assert metrics["staleness/logprob_change/mean"] == pytest.approx(0.3)
    assert metrics["staleness/logprob_change/max"] == pytest.approx(0.6)
    assert not [name for name in metrics if name.startswith("logprob_mismatch")]
    with pytest.raises(LogprobMismatchError, match=r"0\.3 nats"):
        _optimize(Recorder(offset=0.3), version=0, **settings)


def test_on_policy_runs_say_nothing_of_staleness():
    metrics = _optimize(Recorder()).metrics
    assert not [name for name in metrics if name.startswith("staleness")]


@pytest.mark.parametrize("old_logprobs", ["sampler", "trainer"])
def test_the_gap_is_that_of_the_weights_that_sampled(old_logprobs):
    """Later minibatches differ because the policy moved, so they do not count."""
    metrics = _optimize(
        Recorder(offset=0.125), num_minibatches=4, old_logprobs=old_logprobs
    ).metrics
    assert metrics["logprob_mismatch/mean"] == pytest.approx(0.125)
    assert metrics["logprob_mismatch/max"] == pytest.approx(0.25)


def test_a_sampler_of_nan_stops_the_run_where_the_update_is_finite():
    with pytest.raises(LogprobMismatchError, match="differ by nan nats a token"):
        _optimize(Recorder(offset=math.nan), old_logprobs="trainer")


@pytest.mark.parametrize("old_logprobs", ["sampler", "trainer"])
def test_a_gap_beyond_the_limit_stops_the_run(old_logprobs):
    with pytest.raises(
        LogprobMismatchError, match=r"0\.3 nats.*max_logprob_mismatch=0\.2"
    ):
        _optimize(
            Recorder(offset=0.3), max_logprob_mismatch=0.2, old_logprobs=old_logprobs
        )


def test_the_ratio_divides_by_what_the_config_names():
    for name, expected in (("sampler", -1.0), ("trainer", -0.75)):
        updater = Recorder(offset=0.25)
        _optimize(updater, old_logprobs=name, num_epochs=2)
        for (batch,) in updater.steps:
            assert (batch.old_logprobs[MASK] == expected).all()
            assert not batch.old_logprobs[~MASK].any()
            sampler = batch.sampler_logprobs
            sampler = batch.old_logprobs if sampler is None else sampler
            np.testing.assert_array_equal(sampler, LOGPROBS)


def test_every_micro_batch_of_the_first_step_is_on_policy_and_no_other():
    for cut in (
        {"num_epochs": 2, "num_minibatches": 2, "grad_accum_steps": 2},
        {"num_epochs": 3, "grad_accum_steps": 4},
        {"grad_accum_steps": 2},
    ):
        updater = Recorder()
        _optimize(updater, old_logprobs="trainer", **cut)
        for number, parts in enumerate(updater.steps):
            for part in parts:
                assert part.on_policy.tolist() == [number == 0] * len(part.lengths)


@pytest.mark.parametrize(
    ("steps", "scored"), [(1, ["reference"]), (2, ["reference", "own"])]
)
def test_old_scores_are_of_the_own_parameters_and_made_where_a_step_reads_them(
    steps, scored
):
    updater = Recorder()
    loss = LossConfig(kl_coef=0.1)
    _optimize(updater, old_logprobs="trainer", loss=loss, num_epochs=steps)
    assert [params for params, *_ in updater.scored] == scored


@pytest.mark.parametrize("cut", ["grad_accum_steps", "num_minibatches"])
def test_passes_are_cut_as_the_update_and_their_scores_put_back_in_order(cut):
    """One group a micro-batch: its longest completion has 2, 3, 4 or 4 tokens.

    The scorer's log-probabilities encode their row and column.
    """

    class Telling(Recorder):
        def score(self, params, batch, sampling, **settings):
            super().score(params, batch, sampling, **settings)
            columns = np.arange(batch.tokens.shape[1], dtype=np.float32)
            told = -(10 * batch.advantages[:, None] + columns + 1)
            return np.where(batch.mask, told, np.float32(0)), None

    updater = Telling()
    loss = LossConfig(kl_coef=0.1)
    _optimize(updater, loss=loss, max_logprob_mismatch=1e9, **{cut: P})
    shapes = [shape for _, shape, _ in updater.scored]
    assert shapes == [(G, 2), (G, 3), (G, 4), (G, 4)]
    parts = [part for step in updater.steps for part in step]
    assert sorted(part.tokens.shape for part in parts) == shapes
    for part in parts:
        width = part.tokens.shape[1]
        expected = 10 * part.advantages[:, None] + np.arange(width) + 1
        np.testing.assert_array_equal(part.ref_logprobs, -expected * part.mask)


def test_entropies_are_computed_where_tokens_are_chosen_by_them_alone():
    loss = LossConfig(kl_coef=0.1, top_entropy_quantile=0.5)
    for settings, expected in (
        ({"loss": loss}, [("reference", False), ("own", True)]),
        ({"num_epochs": 2}, [("own", False)]),
    ):
        updater = Recorder()
        _optimize(updater, old_logprobs="trainer", **settings)
        found = [(params, entropies) for params, _, entropies in updater.scored]
        assert found == expected


@pytest.mark.parametrize("steps", [1, 2])
def test_clipping_by_mismatch_is_reported_if_later_steps_use_it(steps):
    class Clipping(Recorder):
        def step(self, *args, **settings):
            state, losses, report = super().step(*args, **settings)
            clipped = 0.25 * losses.tokens * len(self.steps)
            scalars = losses.scalars | {"mismatch_clipped": clipped}
            return state, dataclasses.replace(losses, scalars=scalars), report

    metrics = _optimize(Clipping(), num_epochs=steps).metrics
    expected = {1: None, 2: pytest.approx(0.25)}[steps]
    assert metrics.get("logprob_mismatch/clipped") == expected


def test_groups_without_an_advantage_can_be_left_out_of_the_divisor():
    """Rows 2 and 3 have none: 21 tokens minus their 5."""
    silent = ADVANTAGES.copy()
    silent[1] = 0.0
    for excluded, count in ((False, 21), (True, 16)):
        updater = Recorder()
        loss = LossConfig(exclude_zero_variance=excluded)
        _optimize(updater, advantages=silent, loss=loss)
        (batch,) = updater.steps[0]
        learns = MASK & ~(excluded & np.isin(np.arange(P * G), [2, 3]))[:, None]
        np.testing.assert_allclose(batch.loss_weights, learns / count, rtol=1e-6)
        np.testing.assert_array_equal(batch.lengths, LENGTHS)


def test_the_forks_of_the_whole_batch_learn_however_it_is_cut():
    """Of 21 tokens, the four with most entropy, 2.1 .. 1.8, are in the last 2 rows."""
    loss = LossConfig(top_entropy_quantile=0.2)
    for cut in ({}, {"grad_accum_steps": 2}, {"num_minibatches": 2, "num_epochs": 2}):
        updater = Recorder()
        result = _optimize(updater, old_logprobs="trainer", loss=loss, **cut)
        assert result.metrics["top_entropy/fraction"] == pytest.approx(4 / 21)
        assert result.metrics["top_entropy/threshold"] == pytest.approx(1.8)
        for step in updater.steps:
            kept = {
                (int(part.advantages[row]), int(column))
                for part in step
                for row, column in zip(*np.nonzero(part.loss_weights), strict=True)
            }
            assert kept <= {(5, 3), (6, 0), (7, 0), (7, 1)}
            assert all(part.loss_mask is None for part in step)
            weights = np.concatenate([part.loss_weights.ravel() for part in step])
            forks = weights[weights > 0]
            np.testing.assert_allclose(forks * len(forks), np.ones(len(forks)))


def _learning_tokens(choice: str, **given) -> set[tuple[int, int]]:
    """Returns row and column of the tokens with a weight, when a fifth learns."""
    updater = Recorder()
    loss = LossConfig(top_entropy_quantile=0.2, token_choice=choice)
    result = _optimize(updater, old_logprobs="trainer", loss=loss, **given)
    assert result.metrics["top_entropy/fraction"] == pytest.approx(4 / 21)
    assert "top_entropy/threshold" not in result.metrics
    return {
        (int(part.advantages[row]), int(column))
        for step in updater.steps
        for part in step
        for row, column in zip(*np.nonzero(part.loss_weights), strict=True)
    }


def test_the_controls_of_forking_tokens_choose_as_many_others():
    """The four with least entropy are row 0; random ones differ by batch."""
    assert _learning_tokens("lowest_entropy") == {(0, 0), (0, 1), (0, 2), (0, 3)}
    first = _learning_tokens("random")
    assert len(first) == 4
    assert all(MASK[token] for token in first)
    assert _learning_tokens("random", num_minibatches=2, num_epochs=2) == first
    others = [
        _learning_tokens("random", **given)
        for given in ({"seed": 1}, {"version": VERSION + 1}, {"seed": 2})
    ]
    assert all(other != first for other in others)
    assert others[0] != others[1] != others[2]


def test_all_tokens_learn_by_default_and_nothing_is_said_of_forks():
    one, other = Recorder(), Recorder()
    plain = _optimize(one, old_logprobs="trainer")
    _optimize(other, old_logprobs="trainer", loss=LossConfig(top_entropy_quantile=1.0))
    np.testing.assert_array_equal(
        one.steps[0][0].loss_weights, other.steps[0][0].loss_weights
    )
    assert not [name for name in plain.metrics if name.startswith("top_entropy")]


def test_a_reference_is_scored_only_where_the_loss_reads_it():
    for kl_coef, expected in ((0.0, 0.0), (0.1, -0.75)):
        updater = Recorder(offset=0.25)
        _optimize(updater, loss=LossConfig(kl_coef=kl_coef))
        (batch,) = updater.steps[0]
        assert (batch.ref_logprobs[MASK] == expected).all()


def test_too_many_skipped_steps_end_the_run():
    config = TrainConfig().optimizer
    with pytest.raises(DivergedError):
        _optimize(
            Recorder(skipped=(0,)),
            optimizer=dataclasses.replace(config, max_consecutive_nonfinite=0),
        )


def test_metrics_are_means_over_tokens():
    parts = LossAux(
        loss=0.5,
        tokens=4.0,
        scalars={
            **{"ratio": 4.4, "clip_low": 1.0, "clip_high": 2.0},
            **{"kl": 0.2, "entropy": 8.0},
        },
        logprob_mismatch=1.0,
        logprob_mismatch_max=1.0,
        by_band=np.zeros((4, 4)),
        token_stats=np.zeros((5, 18, 5)),
    )
    assert loss_metrics(parts) == pytest.approx(
        {
            "loss/total": 0.5,
            "loss/ratio": 1.1,
            "loss/clip_low": 0.25,
            "loss/clip_high": 0.5,
            "loss/kl": 0.05,
            "loss/entropy": 2.0,
        }
    )


def test_padding_is_of_the_tokens_that_the_update_computes():
    """21 tokens of completions and 4 prompts of 2: in 8 rows of 4, and trimmed.

    Groups have 4 and 1, 2 and 3, 4 and 4, 1 and 2 tokens. Alone, their rows have width
    4, 3, 4 and 2, and both completions fit into none of them.
    """
    for cut, computed in (
        ({}, 8 * 4),
        ({"grad_accum_steps": 4}, 2 * (4 + 3 + 4 + 2)),
        ({"num_epochs": 2}, 8 * 4),
    ):
        metrics = _optimize(Recorder(), **cut).metrics
        padding = 1 - (21 + 4 * 2) / (computed + 4 * 2)
        assert metrics["update/padding"] == pytest.approx(padding)


def test_a_weight_is_divided_by_the_most_tokens_of_training_not_of_evaluation():
    assert Config().eval.sampling.max_new_tokens != T
    updater = Recorder()
    _optimize(updater, loss=LossConfig(aggregation="seq_mean_token_sum_norm"))
    (batch,) = updater.steps[0]
    np.testing.assert_allclose(batch.loss_weights, MASK / (P * G * T), rtol=1e-6)


def test_a_probes_sums_are_of_the_steps_of_the_first_epoch():
    """Step n of four adds 10**n; the first epoch has steps 0 and 1."""

    class Summing(Recorder):
        def step(self, *args, **settings):
            sums = 10 ** len(self.steps)
            state, losses, report = super().step(*args, **settings)
            losses = dataclasses.replace(losses, feature_sums=sums, latent_sums=-sums)
            return state, losses, report

    result = _optimize(Summing(), num_minibatches=2, num_epochs=2)
    assert (result.feature_sums, result.latent_sums) == (11, -11)
