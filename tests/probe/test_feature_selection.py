"""Which latents are chosen when the truth is planted in the activations."""

import dataclasses
import json
import re

import jax.numpy as jnp
import numpy as np
import pytest

from job_jax.schema import ConfigError
from rlvr_jax.config import FeatureSelectionConfig
from rlvr_jax.probe.control_features import draw_matched_latents
from rlvr_jax.probe.feature_selection import select_features
from rlvr_jax.probe.labeled_corpus import LabeledCorpus
from rlvr_jax.probe.named_features import check_named_features
from rlvr_jax.probe.sae_probe import SAEProbe, make_reader
from rlvr_jax.probe.selection import FeatureSelection
from rlvr_jax.tokenizer import UnknownWordError
from rlvr_jax.types import Outcome
from sae_jax.data.corpus import open_corpus
from sae_jax.data.shards import ShardWriter
from sae_jax.sae import TSAE
from sae_jax.stats.features import cohens_d, outcome_moments

D, P, G, T = 12, 60, 8, 6
WAIT = 77
# Latent z is coordinate z. Latent 0 fires more in a problem's correct completions, and
# latent 1 in its incorrect ones, half as clearly. Latent 2 fires in all completions of
# hard problems, 3 near the word, 4 elsewhere, 5 to 10 by chance, and 11 never.
SIGNAL, AGAINST, MARKER, NEAR, ELSEWHERE, DEAD = 0, 1, 2, 3, 4, 11
TSAE_ = TSAE(
    encoder=jnp.eye(D),
    encoder_bias=jnp.zeros(D),
    decoder=jnp.eye(D),
    decoder_bias=jnp.zeros(D),
    threshold=jnp.full(D, 0.5),
    group_sizes=(D,),
)
RATE = np.random.default_rng(1).random(P)
DRAWN = np.random.default_rng(2).random((P, G)) < RATE[:, None]
OUTCOMES = np.where(DRAWN, Outcome.correct, Outcome.incorrect)
OUTCOMES[:, -1] = Outcome.unverified
OUTCOMES = OUTCOMES.ravel()


def activations(rng, number):
    """Returns the activations [1 + T, D] of a completion."""
    x = 1 + 0.5 * rng.random((1 + T, D))
    x[:, SIGNAL] += 0.8 * (OUTCOMES[number] == Outcome.correct) + 2 * rng.random()
    x[:, AGAINST] += 0.4 * (OUTCOMES[number] == Outcome.incorrect) + 2 * rng.random()
    x[:, MARKER] += 6 * (1 - RATE[number // G])
    near = np.isin(np.arange(1 + T), [2, 3, 4, 5])
    x[:, NEAR] = np.where(near, 2.0, 0.0)
    x[:, ELSEWHERE] = np.where(near, 0.0, 2.0)
    x[:, 5:11] *= rng.random((1 + T, 6)) < 0.5
    x[:, DEAD] = 0.0
    return x


@pytest.fixture(scope="module")
def completions(tmp_path_factory):
    """Returns completions of six tokens after a one-token prompt, eight per problem."""
    path = tmp_path_factory.mktemp("corpus") / "activations"
    rng = np.random.default_rng(0)
    with ShardWriter(
        path,
        width=D,
        layer=1,
        hook="blocks.1.hook_resid_post",
        model="toy",
        roles=("prompt", "response"),
        dtype="float32",
    ) as out:
        for number in range(P * G):
            tokens = np.arange(1 + T)
            tokens[3] = WAIT
            out.add(
                activations(rng, number),
                token_ids=tokens,
                roles=np.minimum(np.arange(1 + T), 1),
            )
    return LabeledCorpus(
        corpus=open_corpus(path, TSAE_, roles=("response",)),
        problem_index=np.arange(P * G) // G,
        outcomes=OUTCOMES,
    )


def tokenize(text):
    """Tokenizes with a closed vocabulary of one word."""
    if unknown := {*text.split()} - {"wait"}:
        raise UnknownWordError(f"{unknown}")
    return [WAIT for _ in text.split()]


def chosen(completions, *, stability=None, seed=0, **settings):
    return select_features(
        FeatureSelectionConfig(**settings),
        TSAE_,
        completions,
        layer=1,
        seed_cosine=stability,
        tokenize=tokenize,
        seed=seed,
    )


def test_a_marker_of_hard_problems_is_not_chosen_but_a_signal_within_is(
    completions,
):
    """The marker has the largest Cohen's d, but is uninformative within a problem."""
    means = np.stack([x[:, :12].mean(axis=0) for x in _all_activations()])
    verified = Outcome.unverified != OUTCOMES
    pooled = cohens_d(
        outcome_moments(
            means,
            correct=Outcome.correct == OUTCOMES,
            verified=verified,
            prompts=np.arange(P * G) // G,
            num_prompts=P,
        )
    )
    assert np.abs(pooled).argmax() == MARKER
    found = chosen(completions, num_features=3)
    assert found.latents == (SIGNAL, AGAINST)
    assert found.weights[0] > 0.5 > -found.weights[1] > 0
    assert (found.dead, found.num_completions, found.layer) == ((), P * G, 1)
    assert (found.num_alive, found.num_stable, found.refusal) == (11, None, "")


def _all_activations():
    rng = np.random.default_rng(0)
    return [activations(rng, number)[1:] for number in range(P * G)]


def test_the_halves_of_the_problems_are_kept_apart(completions):
    found = chosen(completions, num_features=3)
    both = 0
    for outcomes in OUTCOMES.reshape(P, G):
        both += (outcomes == Outcome.correct).any() and (outcomes == 0).any()
    halves = found.halves
    assert halves.num_problems == (both // 2, both - both // 2)
    assert (halves.num_candidates, halves.num_confirmed) == (3, 2)
    assert halves.sign_agreement in (2 / 3, 1.0)
    assert halves.correlation > 0.9
    assert max(found.q_values) < 0.05
    # Effects on the second half, near those on the half that chose, with their errors.
    np.testing.assert_allclose(found.effects, found.scores, atol=0.2)
    assert 0 < min(found.effect_errors) < max(found.effect_errors) < 0.1
    shrunken = [
        effect * (1 - (error / effect) ** 2)
        for effect, error in zip(found.effects, found.effect_errors, strict=True)
    ]
    expected = np.array(shrunken) / np.abs(shrunken).sum()
    np.testing.assert_allclose(found.weights, expected)


@pytest.mark.parametrize("seed", range(4))
def test_without_a_signal_nothing_is_chosen_and_the_reason_is_given(completions, seed):
    rng = np.random.default_rng(seed)
    shuffled = rng.permuted(OUTCOMES.reshape(P, G), axis=1).ravel()
    found = chosen(
        dataclasses.replace(completions, outcomes=shuffled), num_features=4, seed=seed
    )
    assert (found.latents, found.weights, found.rms) == ((), (), ())
    assert re.match(
        r"none of 4 latents chosen on \d+ problems .* \(probe\.features\.fdr=0\.05\)",
        found.refusal,
    )
    assert found.summary()["refusal"] == found.refusal
    assert found.summary()["halves"]["num_confirmed"] == 0


def test_too_few_problems_of_both_outcomes_are_a_reason(completions):
    alone = dataclasses.replace(
        completions, outcomes=np.eye(1, P * G)[0].astype(np.int64)
    )
    found = chosen(alone)
    assert found.latents == ()
    assert found.refusal.startswith("1 problems have both correct and incorrect")
    assert found.halves is None


def test_reason_score_finds_what_fires_near_the_words(completions):
    found = chosen(completions, method="reason_score", words=("wait",), num_features=1)
    assert found.latents == (NEAR,)
    assert found.weights == (1.0,)
    assert (found.q_values, found.halves) == (None, None)


def test_sigma_is_the_root_mean_square_over_the_completions(completions):
    # Latent 3 reads 2 on 4 of the 6 tokens of a completion.
    found = chosen(completions, method="list", latents=(NEAR,))
    assert found.rms == pytest.approx(((4 * 4 / 6) ** 0.5,))


def test_a_given_list_is_kept_and_its_effects_are_reported(completions):
    found = chosen(
        completions, method="list", latents=(DEAD, SIGNAL), stability=np.zeros(D)
    )
    assert found.latents == (DEAD, SIGNAL)
    assert found.weights == (0.5, 0.5)
    assert (found.dead, found.rms[0], found.seed_cosine) == ((DEAD,), 1.0, (0.0, 0.0))
    assert found.effects[0] == 0.0
    assert found.effects[1] > 0.4
    assert found.q_values is None


def test_a_pack_brings_its_weights(completions, tmp_path):
    path = tmp_path / "pack.json"
    entries = [{"feature_id": 4, "weight": 3.0}, {"feature_id": 1, "weight": -1.0}]
    path.write_text(json.dumps({"features": entries}))
    found = chosen(completions, method="weights_file", weights_file=str(path))
    assert (found.latents, found.weights) == ((4, 1), (0.75, -0.25))


def test_no_latent_is_chosen_that_other_seeds_do_not_find(completions):
    stability = np.ones(D)
    stability[SIGNAL] = 0.4
    found = chosen(completions, num_features=3, stability=stability)
    assert found.latents == (AGAINST,)
    assert (found.num_alive, found.num_stable) == (11, 10)
    assert found.seed_cosine == (1.0,)
    found = chosen(completions, stability=np.zeros(D))
    assert found.refusal.startswith(
        "none of 11 latents that fire has a seed cosine of "
        "probe.features.min_seed_cosine=0.5 or more"
    )
    assert (found.latents, found.num_stable) == ((), 0)


def test_the_random_arm_has_other_signs_and_the_sizes_of_the_features(completions):
    features = chosen(completions, num_features=3)
    sizes = [abs(weight) for weight in features.weights]
    signs = set()
    for seed in range(12):
        found = chosen(completions, num_features=3, control="random_latents", seed=seed)
        assert len(set(found.latents)) == len(found.latents) > 0
        assert not {SIGNAL, AGAINST, DEAD} & set(found.latents)
        of_features = chosen(completions, num_features=3, seed=seed)
        np.testing.assert_allclose(np.abs(found.weights), np.abs(of_features.weights))
        assert (np.array(found.weights) * found.scores >= 0).all()
        assert found.q_values is None
        signs.add(tuple(np.sign(found.weights)))
    assert len(signs) > 1
    assert sizes[0] > sizes[1]
    named = {"method": "list", "latents": (0, 1, 2, 3, 4, 5)}
    with pytest.raises(ConfigError, match="5 other latents fire and are stable"):
        chosen(completions, control="random_latents", **named)


def test_the_random_arm_is_as_stable_as_the_features(completions):
    stability = np.where(np.isin(np.arange(D), [SIGNAL, AGAINST, 5, 6]), 0.9, 0.1)
    for seed in range(6):
        found = chosen(
            completions,
            num_features=2,
            control="random_latents",
            stability=stability,
            seed=seed,
        )
        assert set(found.latents) <= {5, 6}


@pytest.mark.parametrize("name", ["rate", "norm", "stability"])
def test_each_property_alone_decides_the_nearest(name):
    """Two crowds of a hundred differ in one property; the draw is from one's crowd."""
    rng = np.random.default_rng(0)
    crowd = np.arange(200) % 2
    properties = rng.normal(size=(200, 3))
    properties[:, ["rate", "norm", "stability"].index(name)] += 60 * crowd
    for seed in range(8):
        drawn = draw_matched_latents(
            properties, np.array([4, 7]), usable=np.ones(200, bool), seed=seed
        )
        assert crowd[drawn].tolist() == [0, 1]
        assert not {4, 7} & set(drawn.tolist())


def test_the_direction_arm_points_from_wrong_to_right_and_not_to_easy(completions):
    found = chosen(completions, num_features=3, control="direction")
    (direction,) = np.array(found.directions)
    assert np.linalg.norm(direction) == pytest.approx(1)
    assert direction[SIGNAL] > 0.5
    assert direction[AGAINST] < -0.5
    assert np.abs(direction[2:]).max() < 0.15
    assert (found.weights, len(found.rms), found.bounds) == ((1.0,), 1, ())


def test_random_directions_fire_as_often_as_the_latents_they_replace(completions):
    found = chosen(completions, method="list", latents=(SIGNAL, 5, MARKER))
    drawn = chosen(
        completions,
        method="list",
        latents=(SIGNAL, 5, MARKER),
        control="random_directions",
    )
    assert drawn.latents == found.latents
    x = np.stack(_all_activations())
    fires = np.array(TSAE_.encode(x))[:, :, found.latents] > 0
    rates = fires.mean(axis=(0, 1))
    assert 0.2 < rates[1] < 0.8 < rates[2]
    f = np.array(make_reader(TSAE_, drawn).features(jnp.array(x)))
    assert (f > 0).mean(axis=(0, 1)) == pytest.approx(rates, abs=2e-3)
    assert np.sqrt((f**2).mean(axis=(0, 1))) == pytest.approx(drawn.rms, rel=1e-4)
    # All differ, and none is a latent, which would be a coordinate.
    cosines = np.array(drawn.directions) @ np.array(drawn.directions).T
    assert np.diag(cosines) == pytest.approx(1)
    assert np.abs(cosines - np.eye(3)).max() < 0.9 > np.abs(drawn.directions).max()
    # A direction gains from firing more in a problem's correct completions.
    for k, effect in enumerate(_effects_within_problems(f.mean(axis=1))):
        assert drawn.effects[k] == pytest.approx(effect, abs=1e-4)
        assert drawn.weights[k] == pytest.approx(np.sign(effect) / 3)


def test_random_directions_depend_only_on_the_seed(completions):
    drawn = [
        chosen(completions, num_features=3, control="random_directions", seed=seed)
        for seed in (0, 0, 1)
    ]
    assert drawn[0] == drawn[1]
    names = SAEProbe.of_selection(TSAE_, drawn[0]).feature_names
    assert names == ("direction_0", "direction_1")
    assert np.abs(np.subtract(drawn[0].directions[0], drawn[2].directions[0])).max() > 0


def _effects_within_problems(means_SK):
    """Returns the correlation of each column with the outcome, within problems.

    Both are deviations from the problem's mean. Plain loops over problems compute it;
    unverified completions do not count.
    """
    columns, outcomes = [], []
    for p in range(P):
        rows = [s for s in range(p * G, p * G + G) if OUTCOMES[s] != Outcome.unverified]
        correct = np.array([OUTCOMES[s] == Outcome.correct for s in rows], float)
        if 0 < correct.sum() < len(rows):
            columns.append(means_SK[rows] - means_SK[rows].mean(axis=0))
            outcomes.append(correct - correct.mean())
    columns, outcomes = np.concatenate(columns), np.concatenate(outcomes)
    return [np.corrcoef(column, outcomes)[0, 1] for column in columns.T]


def test_names_are_checked_before_any_work():
    config = FeatureSelectionConfig(method="list", latents=(0, 8))
    with pytest.raises(ConfigError, match=r"latent 8 does not exist; .* 0\.\.7"):
        check_named_features(config, 8, tokenize=tokenize)
    check_named_features(config, 9, tokenize=tokenize)
    config = FeatureSelectionConfig(method="reason_score", words=("hmm",))
    with pytest.raises(ConfigError, match="makes no token of 'hmm'"):
        check_named_features(config, 8, tokenize=tokenize)


@pytest.mark.parametrize("control", ["none", "direction", "random_directions"])
def test_a_selection_comes_back_as_it_was_written(completions, tmp_path, control):
    found = chosen(completions, num_features=3, control=control)
    found.save(tmp_path / "s.json")
    assert FeatureSelection.load(tmp_path / "s.json") == found


@pytest.mark.parametrize("control", ["none", "direction"])
def test_a_selection_is_read_as_it_was_once_written(completions, tmp_path, control):
    """An older file has `direction`, one or none, and no random directions."""
    found = chosen(completions, num_features=3, control=control)
    values = dataclasses.asdict(found)
    directions, _ = values.pop("directions"), values.pop("bounds")
    values["direction"] = [x for direction in directions for x in direction]
    (tmp_path / "s.json").write_text(json.dumps(values))
    assert FeatureSelection.load(tmp_path / "s.json") == found
