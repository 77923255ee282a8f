"""Splicing costs equal the costs from whole-vocabulary passes over each text."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from scipy.special import log_softmax

from rlvr_jax.probe.latent_stats import measure_fidelity
from rlvr_jax.probe.reference_texts import ReferenceTexts
from rlvr_jax.probe.splice import measure_texts
from sae_jax.sae import NO_THRESHOLD, TSAE
from tests.support.policies import TINY, VOCAB_SIZE, tiny_policy

F, S, T, D, LAYER = 3, 4, 6, TINY.hidden_size, 0
RNG = np.random.default_rng(0)
LENGTHS = np.int32([6, 4, 3])
TEXTS = ReferenceTexts(
    problem_ids=("a", "b", "c"),
    prompt_tokens=RNG.integers(2, VOCAB_SIZE, (F, S)).astype(np.int32),
    prompt_lengths=np.full(F, S, np.int32),
    tokens=RNG.integers(2, VOCAB_SIZE, (F, T)).astype(np.int32),
    lengths=LENGTHS,
    bands=np.int32([0, 0, 2]),
    outcomes=np.int32([0, 1, 1]),
)
COUNTED = (np.arange(T) > 0) & (np.arange(T) < LENGTHS[:, None])
EYE = np.eye(D, dtype=np.float32)
COPY = TSAE(
    encoder=jnp.concatenate([EYE, -EYE], axis=1),
    encoder_bias=jnp.zeros(2 * D),
    decoder=jnp.concatenate([EYE, -EYE]),
    decoder_bias=jnp.zeros(D),
    threshold=jnp.full(2 * D, NO_THRESHOLD),
    group_sizes=(2 * D,),
)
ROUGH = dataclasses.replace(COPY, threshold=jnp.full(2 * D, 0.8))


@pytest.fixture(scope="module")
def policy():
    return tiny_policy()


@pytest.fixture(scope="module")
def measure(policy):
    graphdef, params = nnx.split(policy)

    def measured(tsae, texts=TEXTS):
        run = jax.jit(measure_texts, static_argnames=("graphdef", "layer"))
        return jax.device_get(run(graphdef, params, tsae, texts, layer=LAYER))

    return measured


def passed(policy, replace=None):
    """Returns log-probabilities [F, T, V] of the completions, and their stream."""
    tokens = np.concatenate([TEXTS.prompt_tokens, TEXTS.tokens], axis=1)

    class Edit:
        layer = LAYER

        def __call__(self, x, /):
            return jnp.concatenate([x[:, :S], replace(x[:, S:])], axis=1)

    found, _ = policy.prefill(
        jnp.asarray(tokens),
        jnp.ones(tokens.shape, bool),
        interventions=() if replace is None else (Edit(),),
        capture_layers=(LAYER,),
    )
    logits = np.asarray(policy.logits(found.hidden), np.float64)
    stream = np.asarray(found.captured[0], np.float64)[:, S:]
    return log_softmax(logits[:, S - 1 : -1], axis=-1), stream


def test_tokens_of_an_environment_are_not_counted(measure, tmp_path):
    """They count as the tokens beyond a text's end do: not at all."""
    replied = np.zeros((F, T), bool)
    replied[0, 3:] = replied[1, 2:] = True
    masked = dataclasses.replace(TEXTS, policy_mask=~replied)
    shorter = dataclasses.replace(TEXTS, lengths=np.int32([3, 2, 3]))
    found, expected = measure(ROUGH, masked), measure(ROUGH, shorter)
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    assert (found.splice.kl != measure(ROUGH).splice.kl).any()
    masked.save(tmp_path / "texts.npz")
    read = ReferenceTexts.load(tmp_path / "texts.npz")
    np.testing.assert_array_equal(read.policy_mask, ~replied)
    TEXTS.save(tmp_path / "texts.npz")
    assert ReferenceTexts.load(tmp_path / "texts.npz").policy_mask is None


def test_nats_and_divergences_are_those_of_three_full_passes(policy, measure):
    """In float64 from logits; prompts and the first token keep their stream.

    Nothing reads the stream of a text's last token.
    """
    clean, stream = passed(policy)
    reads = np.arange(T) < LENGTHS[:, None] - 1
    mean = jnp.asarray(stream[reads].mean(axis=0), jnp.float32)
    arms = [
        clean,
        passed(policy, lambda x: ROUGH.decode(ROUGH.encode(x)))[0],
        passed(policy, lambda x: jnp.broadcast_to(mean, x.shape))[0],
    ]
    found = measure(ROUGH).splice
    for arm, logprobs in enumerate(arms):
        drawn = np.take_along_axis(logprobs, TEXTS.tokens[:, :, None], 2)[:, :, 0]
        kl = (np.exp(clean) * (clean - logprobs)).sum(axis=2)
        for ours, sums in ((found.cross_entropy, -drawn), (found.kl, kl)):
            expected = np.where(COUNTED, sums, 0).sum(axis=1)
            np.testing.assert_allclose(ours[arm], expected, rtol=1e-4, atol=1e-5)
    assert found.kl[1].max() > 1e-2


def lines_of(found):
    rows = measure_fidelity(
        found.latents,
        step=0,
        split="reference",
        bands=TEXTS.bands,
        splice=found.splice,
    )
    return {row["band"]: row for row in rows}


def test_a_perfect_copy_costs_nothing_and_one_that_knows_the_mean_what_it_costs(
    measure,
):
    copied = lines_of(measure(COPY))[""]
    assert copied["splice_nats"] == pytest.approx(0, abs=1e-5)
    assert copied["splice_kl"] == pytest.approx(0, abs=1e-5)
    rough = measure(ROUGH)
    sums = rough.latents.explained_variance
    mean = sums.sum_x.sum(axis=0) / sums.tokens.sum()
    silent = dataclasses.replace(
        COPY, decoder_bias=jnp.asarray(mean), threshold=jnp.full(2 * D, 1e6)
    )
    ablated = lines_of(measure(silent))[""]
    assert ablated["mean_ablation_kl"] > 0.1
    assert ablated["splice_kl"] == pytest.approx(ablated["mean_ablation_kl"], rel=1e-4)
    assert ablated["splice_nats"] == pytest.approx(
        ablated["mean_ablation_nats"], rel=1e-4
    )


def test_costs_are_by_token_and_by_band(measure):
    """Of 10 counted tokens, 8 are in the easy band and two in the hard."""
    found = measure(ROUGH)
    lines = lines_of(found)
    assert set(lines) == {"", "easy", "hard"}
    nats, kl = (np.float64(x) for x in (found.splice.cross_entropy, found.splice.kl))
    easy, hard = lines["easy"], lines["hard"]
    assert easy["cross_entropy"] == pytest.approx(nats[0, :2].sum() / 8)
    assert easy["splice_kl"] == pytest.approx(kl[1, :2].sum() / 8)
    assert hard["splice_nats"] == pytest.approx((nats[1, 2] - nats[0, 2]) / 2)
    cost = nats[1].sum() / nats[0].sum() - 1
    assert lines[""]["splice_cost"] == pytest.approx(cost)
    assert lines[""]["mean_ablation_kl"] == pytest.approx(kl[2].sum() / 10)


def test_what_lies_beyond_a_text_is_not_counted(measure):
    other = np.where(np.arange(T) < LENGTHS[:, None], TEXTS.tokens, 3)
    assert (other != TEXTS.tokens).any()
    changed = measure(ROUGH, dataclasses.replace(TEXTS, tokens=other))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6),
        changed.splice,
        measure(ROUGH).splice,
    )
