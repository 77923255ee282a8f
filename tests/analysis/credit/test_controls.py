"""The controls of token weights differ from the weights under test.

Here the latents are the coordinates of the stream, and each latent jumps at a different
token. The heaviest token therefore shows which latents made the weights.
"""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from rlvr_jax.analysis.credit import measure
from rlvr_jax.analysis.credit.measure import compare_weights
from rlvr_jax.analysis.credit.weights import (
    FEATURES,
    SURPRISE,
    TokenWeights,
    weigh_by_surprise,
)
from rlvr_jax.config import RFGOConfig
from rlvr_jax.probe.selection import FeatureSelection
from rlvr_jax.types import Prompts, Rollouts
from sae_jax.sae import TSAE

B, T, D = 3, 16, 12
LENGTHS = np.array([16, 16, 12], np.int32)
CONFIG = RFGOConfig(lambda_w=0.5)


def coordinates(width):
    """Returns a dictionary whose latents are the coordinates of the stream."""
    return dataclasses.replace(
        TSAE.init(0, width=width, latents=width),
        encoder=jnp.eye(width),
        encoder_bias=jnp.zeros(width),
        decoder_bias=jnp.zeros(width),
        threshold=jnp.full(width, 0.25),
    )


TSAE_ = coordinates(D)
SELECTION = FeatureSelection(
    latents=(0,),
    weights=(1.0,),
    rms=(1.0,),
    scores=(0.5,),
    effects=(0.5,),
    effect_errors=(0.1,),
    q_values=None,
    seed_cosine=None,
    method="list",
    control="none",
    layer=0,
    dead=(),
    num_alive=D,
    num_stable=None,
    num_completions=B,
    halves=None,
)


def stream():
    """Returns a stream in which latent z is 0 up to token z and 1 from then on."""
    return 1.0 * (np.arange(T)[None, :, None] > np.arange(D)) * np.ones((B, 1, 1))


def rollouts():
    """Returns rollouts whose most surprising token is number 9."""
    logprobs = np.where(np.arange(T) == 9, -5.0, -0.5) * np.ones((B, 1))
    return Rollouts(
        prompts=Prompts(
            tokens=np.ones((B, 1), np.int32),
            lengths=np.ones(B, np.int32),
            uid=np.arange(B, dtype=np.uint32),
        ),
        tokens=np.ones((B, T), np.int32),
        lengths=LENGTHS,
        logprobs=logprobs.astype(np.float32),
        finished=np.ones(B, bool),
        weight_version=np.int32(0),
    )


def test_each_control_is_made_of_its_own_latents():
    """The heaviest token of each control is where its own latent jumps."""
    weights = TokenWeights(
        tsae=TSAE_, selection=SELECTION, config=CONFIG, draws=[(4,), (7,)]
    )
    kinds, draws = weights.weigh(stream(), rollouts())
    assert (kinds[FEATURES].argmax(axis=1) == 1).all()
    assert [draw.argmax(axis=1).tolist() for draw in draws] == [[5] * B, [8] * B]
    assert (kinds[SURPRISE].argmax(axis=1) == 9).all()
    for draw in draws:
        assert np.abs(draw - kinds[FEATURES]).max() > 0.1


def test_controls_do_not_depend_on_the_features():
    """Other features with the same draws leave every bit of the controls as it was."""
    found = [
        TokenWeights(
            tsae=TSAE_,
            selection=dataclasses.replace(SELECTION, latents=latents),
            config=CONFIG,
            draws=[(4,), (7,)],
        ).weigh(stream(), rollouts())
        for latents in ((0,), (2,))
    ]
    np.testing.assert_array_equal(found[0][1], found[1][1])
    surprise = [kinds[SURPRISE] for kinds, _ in found]
    np.testing.assert_array_equal(*surprise)
    expected = weigh_by_surprise(rollouts().logprobs, LENGTHS, CONFIG)
    np.testing.assert_array_equal(surprise[0], expected)
    assert np.abs(found[0][0][FEATURES] - found[1][0][FEATURES]).max() > 0.1


def test_drawn_controls_contain_no_feature_and_differ():
    selection = dataclasses.replace(SELECTION, latents=(0, 3), weights=(0.5, 0.5))
    drawn = TokenWeights.draw(
        TSAE_, selection, CONFIG, stream(), rollouts(), num_draws=10
    ).draws
    assert len({frozenset(each) for each in drawn}) == 10
    assert all(len(set(each)) == 2 for each in drawn)
    assert not {0, 3} & {latent for each in drawn for latent in each}


def test_controls_fire_as_often_on_the_tokens_that_are_weighed():
    """Padding and last tokens do not count, because they have no activation.

    Latent 0 fires on 4 tokens that count and on all 7 that do not. Latents 1 to 17 also
    fire on 4 that count. The others fire on 11, which is latent 0's total.
    """
    rng = np.random.default_rng(0)
    width, last_match = 36, 17
    read_BT = np.arange(T) < LENGTHS[:, None] - 1
    read, others = np.argwhere(read_BT), np.argwhere(~read_BT)
    assert len(others) == 7
    x = np.zeros((B, T, width))
    for z in range(width):
        b, t = read[rng.permutation(len(read))[: 4 if z <= last_match else 11]].T
        x[b, t, z] = 1.0
    b, t = others.T
    x[b, t, 0] = 1.0
    drawn = TokenWeights.draw(
        coordinates(width), SELECTION, CONFIG, x, rollouts(), num_draws=8
    ).draws
    assert {latent for (latent,) in drawn} <= set(range(1, last_match + 1))


def test_a_control_that_never_moves_has_even_weights():
    """Every token has the weight 1, while the features' weights still differ."""
    still = stream()
    still[:, :, 4] = 1.0
    weights = TokenWeights(tsae=TSAE_, selection=SELECTION, config=CONFIG, draws=[(4,)])
    kinds, (draw,) = weights.weigh(still, rollouts())
    inside = np.arange(T) < LENGTHS[:, None]
    assert draw[inside] == pytest.approx(1.0)
    assert kinds[FEATURES][inside].max() > 1.2


def test_random_weights_lie_on_the_changes_as_often_as_even_ones(monkeypatch):
    """300 kinds of random weights: each side of their intervals misses 2.5 %.

    Both the ratio, whose truth is 1, and its difference from even weights, which is 0.
    """
    monkeypatch.setattr(measure, "_RESAMPLES", 400)
    rng = np.random.default_rng(0)
    problems, tokens = 120, 12
    changes = [rng.gamma(2.0, size=tokens) for _ in range(problems)]
    weights = rng.gamma(4.0, size=(300, problems, tokens))
    weights /= weights.mean(axis=2, keepdims=True)
    found = compare_weights(
        {str(i): each for i, each in enumerate(weights)},
        [np.ones((problems, tokens))],
        changes,
    )
    for truth, intervals in (
        (1.0, [kind.ratio for kind in found.kinds.values()]),
        (0.0, [kind.beyond_controls for kind in found.kinds.values()]),
    ):
        _, low, high = np.transpose(intervals)
        for share in (np.mean(high < truth), np.mean(low > truth)):
            assert 0.006 <= share <= 0.055
    assert found.controls == pytest.approx((1.0, 1.0, 1.0))
