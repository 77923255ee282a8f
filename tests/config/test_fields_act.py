"""Each field of the config changes the result that it should change.

Every field of a section is in the section's table, with another value and the place
where it acts. The result there must change. (test_no_silent_knobs checks only that a
field is read.)
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlvr_jax.config import (
    AdvantageConfig,
    Config,
    DifficultyConfig,
    LossConfig,
    OptimizerConfig,
    SamplingConfig,
    TrainConfig,
)
from rlvr_jax.data import Pool, ProblemOutcome, difficulty
from rlvr_jax.learn.batches import batch_from_rollouts
from rlvr_jax.learn.logprobs import TokenScores
from rlvr_jax.learn.objectives import policy_objective
from rlvr_jax.learn.optimizer import (
    DivergedError,
    OptimizerMetrics,
    check_not_diverged,
    make_optimizer,
)
from rlvr_jax.learn.run_updates import _add_scores, _optimizer_steps
from rlvr_jax.learn.update import Updater
from rlvr_jax.models.distribution import SamplingParams, sampling_logits
from rlvr_jax.rollouts.step_rewards import _rewards_and_advantages
from rlvr_jax.stages.difficulty import update_difficulty
from rlvr_jax.types import ExternalTraces, Prompts, Rollouts

P, G, T = 4, 4, 6
TOKENS = np.random.default_rng(0).integers(2, 90, (P * G, T)).astype(np.int32)
LENGTHS = np.array([6, 5, 4, 6, 3, 6, 2, 6, 5, 5, 4, 3, 6, 6, 6, 2], np.int32)


def _acts(base, changes, place):
    """Asserts that each field's other value changes the result of `place`."""
    first = np.asarray(place(base))
    again = np.asarray(place(dataclasses.replace(base)))
    np.testing.assert_array_equal(first, again)
    for name, value in changes.items():
        assert getattr(base, name) != value
        found = np.asarray(place(dataclasses.replace(base, **{name: value})))
        assert not np.array_equal(first, found), name


def _fields(section):
    return {field.name for field in dataclasses.fields(section)}


SAMPLING = SamplingConfig(max_new_tokens=8, temperature=0.8, top_p=0.9, top_k=4)


def test_each_field_of_sampling_acts_on_the_distribution():
    logits = jnp.linspace(-1.0, 2.0, 9, dtype=jnp.float32)[None]

    def place(config):
        found = sampling_logits(
            logits,
            jnp.array([2]),
            SamplingParams.from_config(config),
            eos_ids=(8,),
        )
        return np.append(jax.nn.softmax(found), config.max_new_tokens)

    changes = {
        "max_new_tokens": 9,  # the shape itself: tests/integration/test_settings.py
        "temperature": 1.2,
        "top_p": 0.5,
        "top_k": 2,
        "min_new_tokens": 3,
    }
    assert changes.keys() == _fields(SamplingConfig)
    _acts(SAMPLING, changes, place)


def test_each_field_of_the_optimizer_acts_on_the_third_step():
    base = OptimizerConfig(
        learning_rate=0.1,
        warmup_steps=1,
        schedule="cosine",
        weight_decay=0.1,
        clip_norm=2.0,
    )
    gradients = [jnp.array([[3.0, -1.0]]), jnp.array([[0.1, 2.0]]), jnp.ones((1, 2))]

    def place(config):
        params = {"w": jnp.array([[1.0, -2.0]])}
        optimizer = make_optimizer(config, 4)
        state = optimizer.init(params)
        with jax.numpy_dtype_promotion("standard"):  # as Updater calls optax
            for gradient in gradients:
                updates, state = optimizer.update({"w": gradient}, state, params)
        return updates["w"]

    changes = {
        "learning_rate": 0.2,
        "warmup_steps": 2,
        "schedule": "constant",
        "end_lr_fraction": 0.5,
        "b1": 0.5,
        "b2": 0.5,
        "eps": 0.1,
        "weight_decay": 0.2,
        "clip_norm": 1.0,
    }
    elsewhere = {"moments_dtype", "max_consecutive_nonfinite"}
    assert changes.keys() | elsewhere == _fields(OptimizerConfig)
    _acts(base, changes, place)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_moments_are_kept_as_the_optimizer_says(dtype):
    updater = Updater(
        None,
        lambda *_: None,
        optimizer=OptimizerConfig(moments_dtype=dtype),
        total_steps=1,
        logits_chunk_size=0,
    )
    shapes = jax.eval_shape(updater._init_state, {"w": jnp.ones((2, 2))})
    kept = {leaf.dtype for leaf in jax.tree.leaves(shapes.opt_state) if leaf.ndim}
    assert kept == {jnp.dtype(dtype)}


@pytest.mark.parametrize("limit", [0, 2])
def test_so_many_steps_in_a_row_may_fail(limit):
    def report(count):
        return OptimizerMetrics(
            grad_norm=0.0, learning_rate=0.0, consecutive_nonfinite=count
        )

    check_not_diverged(report(limit), limit)
    with pytest.raises(DivergedError):
        check_not_diverged(report(limit + 1), limit)


def _rewarded(config):
    """Returns the advantages of four groups, the first two of over-hard problems."""
    correct = np.zeros((P, G), bool)
    correct[[0, 1, 1, 2, 2, 2], [0, 1, 2, 0, 1, 2]] = True
    found = _rewards_and_advantages(
        (correct, np.ones((P, G), bool)),
        {},
        LENGTHS,
        {
            "pass_rate": np.array([0.1, 0.2, 0.5, 0.5], np.float32),
            "overhard": np.array([True, True, False, False]),
            "confidence": np.array([0.25, 0.5, 1.0, 1.0], np.float32),
        },
        config=config,
    )
    return found.advantages


@pytest.mark.parametrize(
    ("base", "changes"),
    [
        (AdvantageConfig(), {"baseline": "rloo"}),
        (AdvantageConfig(), {"normalize": "batch"}),
        (AdvantageConfig(normalize="batch"), {"normalize": "none"}),
        (AdvantageConfig(), {"overhard_advantage": "clip"}),
        (AdvantageConfig(), {"overhard_advantage": "shrink"}),
        (AdvantageConfig(overhard_advantage="clip"), {"overhard_clip": 0.5}),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_each_field_of_the_advantage_acts_on_the_advantages(base, changes):
    # Dividing by a group's deviation would undo RLOO's other scale.
    if "baseline" in changes:
        base = dataclasses.replace(base, normalize="none")
    _acts(base, changes, lambda config: _rewarded(TrainConfig(advantage=config)))


def test_no_field_of_the_advantage_is_forgotten():
    assert _fields(AdvantageConfig) == {
        "baseline",
        "normalize",
        "overhard_advantage",
        "overhard_clip",
    }


class StandIn:
    """Scores that depend only on the token, shifted for the reference policy."""

    def score(self, params, batch, sampling, *, with_entropies=False):
        shift = {"policy": 0.0, "reference": 0.4}[params]
        logprobs = np.where(batch.mask, -1.0 - 0.01 * batch.tokens + shift, 0.0)
        entropies = np.where(batch.mask, 0.2 + 0.01 * batch.tokens, 0.0)
        return logprobs.astype(np.float32), (
            entropies.astype(np.float32) if with_entropies else None
        )


def _loss(config):
    """Returns loss and slopes for all optimizer steps of one batch."""
    train = TrainConfig(
        batch_size=P,
        group_size=G,
        num_minibatches=2,
        old_logprobs="trainer",
        loss=config,
        sampling=SamplingConfig(max_new_tokens=T),
    )
    run = Config(train=train)
    rollouts = Rollouts(
        prompts=Prompts(
            tokens=np.ones((P, 1), np.int32),
            lengths=np.ones(P, np.int32),
            uid=np.arange(P, dtype=np.uint32),
        ),
        tokens=TOKENS,
        lengths=LENGTHS,
        logprobs=np.full((P * G, T), -1.3, np.float32),
        finished=LENGTHS < T,
        weight_version=np.int32(0),
    )
    advantages = np.tile(np.float32([-1.5, 0.5, -0.5, 1.5]), (P, 1))
    advantages[1] = 0.0  # a group without a preference
    external = None
    if config.has_external_traces:
        external = ExternalTraces(
            tokens=TOKENS[:P],
            lengths=np.full(P, T, np.int32),
            advantages=np.ones(P, np.float32),
        )
    batch = batch_from_rollouts(
        rollouts,
        advantages,
        external=external,
        mask_truncated=config.mask_truncated,
    )
    batch, _ = _add_scores(
        StandIn(),
        "policy",
        batch,
        config=run,
        version=0,
        ref_params="reference",
        sampling=None,
        to_device=lambda part: part,
        probe=None,
    )
    objective = policy_objective(config, np.zeros(100, np.int32))
    found = []
    for _, parts in _optimizer_steps(run, batch, version=0):
        for part in parts:

            def value(logprobs, part=part):
                scores = TokenScores(
                    logprobs=logprobs,
                    entropies=jnp.asarray(0.2 + 0.01 * part.tokens, jnp.float32),
                )
                return objective(scores, part)[0]

            moved = jnp.asarray(-0.5 - 0.02 * part.tokens, jnp.float32)
            loss, slopes = jax.value_and_grad(value)(moved)
            found += [float(loss), *np.ravel(slopes).tolist()]
    return found


LOSSES = [
    ({}, {"aggregation": "seq_mean_token_mean"}),
    ({"aggregation": "seq_mean_token_mean"}, {"aggregation": "seq_mean_token_sum"}),
    (
        {"aggregation": "seq_mean_token_sum"},
        {"aggregation": "seq_mean_token_sum_norm"},
    ),
    ({}, {"kl_coef": 0.1}),
    ({"kl_coef": 0.1}, {"kl_estimator": "k1"}),
    ({"kl_coef": 0.1}, {"kl_estimator": "k2"}),
    ({}, {"entropy_coef": 0.1}),
    ({}, {"top_entropy_quantile": 0.5}),
    ({"top_entropy_quantile": 0.5}, {"token_choice": "lowest_entropy"}),
    ({"top_entropy_quantile": 0.5}, {"token_choice": "random"}),
    ({"kl_coef": 0.1}, {"exclude_zero_variance": True}),
    ({}, {"mask_truncated": True}),
    ({}, {"tis_cap": 2.0}),
    ({}, {"external_traces": "rl_plus"}),
    ({}, {"importance_sampling_level": "sequence"}),
    ({}, {"importance_sampling_level": "trajectory"}),
    ({}, {"surrogate": "cispo"}),
    ({}, {"surrogate": "reinforce"}),
    ({}, {"clip_low": 0.1}),
    ({}, {"clip_high": 0.3}),
    ({}, {"clip_ratio_c": 1.3}),
]


@pytest.mark.parametrize(
    ("base", "changes"), LOSSES, ids=lambda value: "-".join(map(str, value.values()))
)
def test_each_field_of_the_loss_acts_on_a_batchs_loss_or_its_slopes(base, changes):
    first, found = (np.array(_loss(LossConfig(**x))) for x in (base, base | changes))
    assert first.shape != found.shape or not np.array_equal(first, found)
    assert np.isfinite(first).all()
    assert np.isfinite(found).all()


def test_no_field_of_the_loss_is_forgotten():
    assert {name for _, changes in LOSSES for name in changes} == _fields(LossConfig)


def _bands(config):
    """Returns bands and scores of five problems after two visits each."""
    run = Config(difficulty=config)
    estimates = difficulty.init_difficulty(5)
    for step, rights in enumerate(([0, 1, 4, 7, 8], [1, 2, 4, 8, 7])):
        outcomes = [
            ProblemOutcome(
                problem_index=n, num_correct=right, num_graded=8, answer_entropy=0.5
            )
            for n, right in enumerate(rights)
        ]
        estimates = update_difficulty(run, estimates, outcomes, step=step)
    return [
        *estimates.posterior_bands(config).tolist(),
        *estimates.mean.tolist(),
        *estimates.vcrl_score.tolist(),
    ]


def test_each_field_of_difficulty_acts_on_bands_and_scores():
    changes = {
        "hard_below": 0.3,
        "easy_above": 0.8,
        "min_posterior_mass": 0.99,
        "decay": 0.2,
        "variance_momentum": 0.1,
    }
    elsewhere = {"num_samples", "pool_size"}  # tests/stages/test_difficulty.py, below
    assert changes.keys() | elsewhere == _fields(DifficultyConfig)
    _acts(DifficultyConfig(), changes, _bands)


def test_the_pool_has_the_requested_size():
    source = Config().task.problems("train", seed=0)
    sizes = [
        Pool(source, Config(difficulty=DifficultyConfig(pool_size=size))).size
        for size in (3, 4)
    ]
    assert sizes == [3, 4]
