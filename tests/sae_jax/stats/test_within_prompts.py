"""Effects within prompts: their meaning, and that chance confirms none."""

import numpy as np
import pytest

from sae_jax.stats.confirmation import confirm_effects
from sae_jax.stats.features import cohens_d, outcome_moments
from sae_jax.stats.within_prompts import WithinPromptSums, within_prompts

P, G = 80, 8


def moments(means, right):
    """Returns the moments of activations [P, G, Z] and outcomes [P, G]."""
    return outcome_moments(
        means.reshape(-1, means.shape[-1]),
        correct=right.ravel(),
        verified=np.ones(right.size, bool),
        prompts=np.repeat(np.arange(len(right)), right.shape[1]),
        num_prompts=len(right),
    )


def outcomes(rng, prompts=P):
    """Returns outcomes [P, G] of prompts of all pass rates, and their rates [P, 1]."""
    rate = rng.random((prompts, 1))
    return rng.random((prompts, G)) < rate, rate


def test_an_effect_is_the_correlation_of_what_the_prompt_leaves():
    rng = np.random.default_rng(0)
    right, rate = outcomes(rng)
    means = (
        rng.gamma(1.0, size=(P, G, 3)) + 0.5 * right[..., None] - 2 * rate[..., None]
    )
    found = within_prompts(moments(means, right)).effect()
    both = right.any(axis=1) & ~right.all(axis=1)
    y = (right - right.mean(axis=1, keepdims=True))[both].ravel()
    m = (means - means.mean(axis=1, keepdims=True))[both].reshape(len(y), -1)
    expected = [np.corrcoef(m[:, z], y)[0, 1] for z in range(3)]
    np.testing.assert_allclose(found.value, expected, rtol=1e-9)


def test_its_error_is_what_leaving_prompts_out_one_by_one_says():
    rng = np.random.default_rng(1)
    right, _ = outcomes(rng)
    means = rng.gamma(1.0, size=(P, G, 4)) + np.array([0, 0.3, 1, 3]) * right[..., None]
    sums = within_prompts(moments(means, right))
    N = len(sums.outcome_scatter)
    left_out = np.array(
        [sums.take(np.delete(np.arange(N), i)).effect().value for i in range(N)]
    )
    spread = ((left_out - left_out.mean(axis=0)) ** 2).sum(axis=0)
    jackknife = np.sqrt((N - 1) / N * spread)
    np.testing.assert_allclose(sums.effect().error, jackknife, rtol=0.06)


def test_an_interval_of_two_errors_holds_the_truth_as_often_as_it_says():
    """In 800 worlds of 60 prompts it holds the effect that 100,000 prompts have."""
    rng = np.random.default_rng(2)

    def effect(prompts):
        right, _ = outcomes(rng, prompts)
        means = rng.gamma(1.0, size=(prompts, G, 1)) + 0.6 * right[..., None]
        return within_prompts(moments(means, right)).effect()

    truth = effect(100_000).value[0]
    inside = [
        abs(found.value[0] - truth) < 1.96 * found.error[0]
        for found in (effect(60) for _ in range(800))
    ]
    assert 0.92 < np.mean(inside) < 0.97


def test_a_mark_of_hard_prompts_has_no_effect_however_large_it_looks():
    rng = np.random.default_rng(3)
    right, rate = outcomes(rng, 400)
    means = -3 * rate[..., None] + 0.2 * rng.normal(size=(400, G, 1))
    pooled = moments(means, right)
    assert cohens_d(pooled)[0] < -1 or cohens_d(pooled)[0] > 1
    found = within_prompts(pooled).effect()
    assert abs(found.value[0]) < 2.5 * found.error[0] < 0.1


@pytest.mark.parametrize("constant", [0.0, 0.7])
def test_a_constant_has_no_effect_though_rounding_has(constant):
    right, _ = outcomes(np.random.default_rng(4))
    found = within_prompts(moments(np.full((P, G, 1), constant), right)).effect()
    assert (found.value[0], found.error[0]) == (0, 0)


def test_prompts_of_one_outcome_say_nothing():
    rng = np.random.default_rng(5)
    right = np.repeat([[True], [False]], G, axis=1)
    sums = within_prompts(moments(rng.random((2, G, 3)), right))
    assert sums.covariance.shape == (0, 3)
    assert not sums.effect().value.any()
    usable = np.ones(3, bool)
    assert confirm_effects(sums, usable, num_candidates=2, seed=0) is None


def confirmed(means, right, *, seed, num_candidates=16):
    found = confirm_effects(
        within_prompts(moments(means, right)),
        np.ones(means.shape[-1], bool),
        num_candidates=num_candidates,
        seed=seed,
    )
    return found, found.latents[found.confirmed(0.05)]


def test_outcomes_shuffled_within_prompts_confirm_nothing():
    """There are 300 latents, many of them sparse and in few prompts; 60 shuffles."""
    rng = np.random.default_rng(6)
    right, rate = outcomes(rng)
    fires = rng.random((P, G, 300)) < rng.choice([0.02, 0.2, 1.0], size=300)
    means = np.where(fires, rng.gamma(0.5, size=fires.shape), 0.0)
    means *= rng.gamma(1.0, size=(P, 1, 300)) * (1 + rate[..., None])
    counts, agreements = [], []
    for seed in range(60):
        shuffled = rng.permuted(right, axis=1)
        found, latents = confirmed(means, shuffled, seed=seed)
        counts.append(len(latents))
        agreements.append(found.sign_agreement)
    assert np.mean(counts) < 0.15
    assert abs(np.mean(agreements) - 0.5) < 0.06


def test_what_the_second_half_confirms_is_there_and_not_flattered():
    rng = np.random.default_rng(7)
    counts, false = [], 0
    first, second, shrunken, truth = [], [], [], []
    gain = np.zeros(300)
    gain[:6] = [0.6, -0.6, 0.5, -0.5, 0.4, -0.4]

    def world(prompts, latents=300):
        right, rate = outcomes(rng, prompts)
        means = rng.normal(size=(prompts, G, latents))
        means += gain[:latents] * right[..., None]
        means[..., 6] -= 4 * rate  # marks hard prompts
        return means, right

    true = np.zeros(300)
    true[:6] = within_prompts(moments(*world(30_000, 7))).effect().value[:6]
    for seed in range(40):
        found, latents = confirmed(*world(P), seed=seed)
        counts.append(len(latents))
        false += (latents >= 6).sum()
        sign = np.sign(found.first[found.latents])
        first += list(sign * found.first[found.latents])
        second += list(sign * found.second.value)
        shrunken += list(sign * found.shrunken)
        truth += list(sign * true[found.latents])
    assert np.mean(counts) > 4
    assert false <= 0.1 * sum(counts)
    # The half that chose them overstates effects, the other does not; shrinkage helps.
    assert np.mean(first) > 1.5 * np.mean(truth)
    assert abs(np.mean(second) / np.mean(truth) - 1) < 0.1
    raw, less = (np.square(np.subtract(x, truth)).mean() for x in (second, shrunken))
    assert less < 0.85 * raw


def test_an_effect_that_turns_round_on_the_second_half_is_not_confirmed():
    """Latent 0 keeps its sign on both halves, and latent 1 flips; both are clear."""
    rng = np.random.default_rng(8)
    covariance = 2.0 + rng.normal(size=(60, 2))
    for seed in range(20):
        order = np.random.default_rng(seed).permutation(60)
        turned = covariance.copy()
        turned[order[30:], 1] *= -1
        found = confirm_effects(
            WithinPromptSums(
                covariance=turned,
                activation_scatter=np.full((60, 2), 8.0),
                outcome_scatter=np.full(60, 2.0),
            ),
            np.ones(2, bool),
            num_candidates=2,
            seed=seed,
        )
        assert found.latents[found.confirmed(0.05)].tolist() == [0]
        assert found.sign_agreement == 0.5
