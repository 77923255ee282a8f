"""Which latents are chosen, where the truth was planted in the activations."""

import dataclasses
import json

import jax.numpy as jnp
import numpy as np
import pytest

from job_jax.schema import ConfigError
from rlvr_jax.config import FeatureSelectionConfig
from rlvr_jax.probe.feature_selection import (
    FeatureSelection,
    check_named_features,
    select_features,
)
from rlvr_jax.probe.labeled_corpus import LabeledCorpus
from sae_jax.data.corpus import open_corpus
from sae_jax.data.shards import ShardWriter
from sae_jax.sae import TSAE

D, DOCUMENTS, T = 8, 24, 12
WAIT = 77
# Latent z is coordinate z. 0 fires more where right, 1 where wrong (and a third as
# clearly), 2 near the word, 3 elsewhere, 4 to 6 by chance, and 7 never.
TSAE_ = TSAE(
    encoder=jnp.eye(D),
    encoder_bias=jnp.zeros(D),
    decoder=jnp.eye(D),
    decoder_bias=jnp.zeros(D),
    threshold=jnp.full(D, 0.5),
    group_sizes=(D,),
)
OUTCOMES = np.arange(DOCUMENTS) % 3  # wrong, right, unverified


@pytest.fixture(scope="module")
def completions(tmp_path_factory):
    """Twenty-four completions of twelve tokens behind a prompt of one."""
    path, rng = tmp_path_factory.mktemp("corpus") / "activations", np.random
    rng = rng.default_rng(0)
    with ShardWriter(
        path,
        width=D,
        layer=1,
        hook="blocks.1.hook_resid_post",
        model="toy",
        roles=("prompt", "response"),
        dtype="float32",
    ) as out:
        for number in range(DOCUMENTS):
            x = 1 + 0.5 * rng.random((1 + T, D))
            x[:, 0] += 4 * (OUTCOMES[number] == 1) + rng.random()
            x[:, 1] += 4 * (OUTCOMES[number] == 0) + 3 * rng.random()
            near = np.isin(np.arange(1 + T), [5, 6, 7, 8])
            x[:, 2] = np.where(near, 2.0, 0.0)
            x[:, 3] = np.where(near, 0.0, 2.0)
            x[:, 4:7] *= rng.random((1 + T, 3)) < 0.5
            x[:, 7] = 0.0
            tokens = np.arange(1 + T)
            tokens[6] = WAIT
            out.add(x, token_ids=tokens, roles=np.minimum(np.arange(1 + T), 1))
    return LabeledCorpus(
        corpus=open_corpus(path, TSAE_, roles=("response",)),
        problem_index=np.arange(DOCUMENTS) // 4,
        outcomes=OUTCOMES,
    )


def tokenize(text):
    """A closed vocabulary of one word."""
    return [{"wait": WAIT}[word] for word in text.split()]


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


def test_contrast_finds_what_tells_right_from_wrong_and_which_way(completions):
    found = chosen(completions, method="contrast", num_features=2)
    assert found.latents == (0, 1)
    assert found.weights == (0.5, -0.5)
    assert found.scores[0] > -found.scores[1] > 0
    assert (found.dead, found.num_completions, found.layer) == ((), DOCUMENTS, 1)


def test_reason_score_finds_what_fires_near_the_words(completions):
    found = chosen(completions, method="reason_score", words=("wait",), num_features=1)
    assert found.latents == (2,)
    assert found.weights == (1.0,)


def test_sigma_is_the_root_mean_square_over_the_completions(completions):
    # Latent 2 reads 2 on 4 of the 12 tokens of a completion.
    found = chosen(completions, method="list", latents=(2,))
    assert found.rms == pytest.approx(((4 * 4 / 12) ** 0.5,))


def test_a_list_is_taken_as_it_stands_dead_latents_and_all(completions):
    found = chosen(completions, method="list", latents=(7, 3), stability=np.zeros(D))
    assert found.latents == (7, 3)
    assert found.weights == (0.5, 0.5)
    assert (found.dead, found.rms[0], found.seed_cosine) == ((7,), 1.0, (0.0, 0.0))


def test_a_pack_brings_its_weights(completions, tmp_path):
    path = tmp_path / "pack.json"
    entries = [{"feature_id": 4, "weight": 3.0}, {"feature_id": 1, "weight": -1.0}]
    path.write_text(json.dumps({"features": entries}))
    found = chosen(completions, method="weights_file", weights_file=str(path))
    assert (found.latents, found.weights) == ((4, 1), (0.75, -0.25))


def test_no_latent_is_chosen_that_other_seeds_do_not_find(completions):
    stability = np.ones(D)
    stability[0] = 0.4
    found = chosen(completions, method="contrast", num_features=1, stability=stability)
    assert found.latents == (1,)
    assert found.num_unstable == 1
    assert found.seed_cosine == (1.0,)
    with pytest.raises(ConfigError, match=r"min_seed_cosine=0\.5"):
        chosen(completions, method="contrast", stability=np.zeros(D))


def test_the_random_arm_takes_as_many_others_that_live(completions):
    found = [
        chosen(
            completions,
            method="contrast",
            num_features=2,
            control="random_latents",
            seed=seed,
        )
        for seed in range(8)
    ]
    for each in found:
        assert len(set(each.latents)) == 2
        assert not {0, 1, 7} & set(each.latents)
        assert each.weights == (0.5, -0.5)
    assert len({each.latents for each in found}) > 1
    with pytest.raises(ConfigError, match="3 other latents fire: too few to match 4"):
        chosen(
            completions, method="list", latents=(0, 1, 2, 3), control="random_latents"
        )


def test_the_direction_arm_points_from_wrong_to_right(completions):
    found = chosen(completions, method="contrast", control="direction")
    direction = np.array(found.direction)
    assert np.linalg.norm(direction) == pytest.approx(1)
    assert direction[0] > 0.5
    assert direction[1] < -0.5
    assert np.abs(direction[2:]).max() < 0.2
    assert (found.weights, len(found.rms)) == ((1.0,), 1)


def test_too_few_right_completions_are_told_of(completions):
    alone = dataclasses.replace(
        completions, outcomes=np.eye(1, DOCUMENTS)[0].astype(int)
    )
    with pytest.raises(ConfigError, match="1 correct and 23 incorrect"):
        chosen(alone, method="contrast")


def test_names_are_checked_before_any_work():
    config = FeatureSelectionConfig(method="list", latents=(0, 8))
    with pytest.raises(ConfigError, match=r"latent 8 of an autoencoder with .* 0\.\.7"):
        check_named_features(config, 8, tokenize=tokenize)
    check_named_features(config, 9, tokenize=tokenize)
    config = FeatureSelectionConfig(method="reason_score", words=("hmm",))
    with pytest.raises(ConfigError, match="makes no token of 'hmm'"):
        check_named_features(config, 8, tokenize=tokenize)


def test_a_selection_comes_back_as_it_was_written(completions, tmp_path):
    found = chosen(completions, method="contrast", control="direction")
    found.save(tmp_path / "s.json")
    assert FeatureSelection.load(tmp_path / "s.json") == found
