"""Whether worked solutions of seen problems are likelier than of fresh ones."""

import jax
import numpy as np
import pytest
from flax import nnx

from job_jax.config import MeshConfig
from rlvr_jax.config import Config, EvalConfig, ModelConfig, OptimizerConfig
from rlvr_jax.data import encode_prompts
from rlvr_jax.learn.batches import batch_from_solutions, with_loss_weights
from rlvr_jax.learn.objectives import supervised_objective
from rlvr_jax.learn.update import Updater
from rlvr_jax.metrics.memorization import (
    gold_nll,
    pair_by_length,
    summarize_memorization,
)
from rlvr_jax.models.distribution import SamplingParams
from rlvr_jax.run.setup import open_setup
from rlvr_jax.tasks import ChainMix, FiniteFieldTask
from rlvr_jax.tokenizer import pad_rows
from rlvr_jax.types import Problem, length_mask

MIX = ChainMix(chain_lengths=(1, 3), strategies=("forward",))
CONFIG = Config(
    task=FiniteFieldTask(modulus=7, train=MIX, eval=MIX),
    model=ModelConfig(
        num_layers=1,
        hidden_size=32,
        intermediate_size=64,
        num_heads=2,
        num_kv_heads=1,
        head_dim=16,
    ),
    mesh=MeshConfig(cpu_devices=8),
    eval=EvalConfig(batch_size=8, bootstrap_resamples=200),
    prompt_pad_multiple=32,
    completion_pad_multiple=32,
)


@pytest.fixture(scope="module")
def setup(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "none"
    opened = open_setup(CONFIG, folder, stages=("train", "eval"))
    with jax.set_mesh(opened.mesh), opened.verifier:
        yield opened


def fitted(setup, problems, *, steps):
    """Returns the parameters after training on these problems' solutions."""
    updater = Updater(
        setup.graphdef,
        supervised_objective,
        optimizer=OptimizerConfig(learning_rate=2e-2, warmup_steps=1),
        total_steps=steps,
        logits_chunk_size=0,
        seed=0,
    )
    state = updater.init(setup.initial_params())
    prompts = encode_prompts(problems, setup.tokenizer, pad_multiple=32)
    tokens, lengths = pad_rows(
        [
            [*setup.tokenizer.encode(p.solution), setup.tokenizer.eos_id]
            for p in problems
        ],
        pad_multiple=32,
    )
    batch = with_loss_weights(
        batch_from_solutions(prompts, tokens, lengths),
        aggregation="token_mean",
        max_length=1,
    )
    sampling = setup.replicate(SamplingParams.unmodified())
    for _ in range(steps):
        state, *_ = updater.step(state, [setup.shard_batch(batch)], sampling)
    return state.params


def test_the_nll_is_that_of_each_token_given_what_stands_before_it(setup):
    """The reference is a softmax of the whole text's logits, in float64 NumPy."""
    params = setup.initial_params()
    problems = setup.problems("eval", 11)  # the last batch of 8 is not full
    policy = nnx.merge(setup.graphdef, params)
    prompts = [setup.tokenizer.encode_prompt(p.prompt) for p in problems]
    golds = [
        [*setup.tokenizer.encode(p.solution), setup.tokenizer.eos_id] for p in problems
    ]
    texts = [[*prompt, *gold] for prompt, gold in zip(prompts, golds, strict=True)]
    tokens, lengths = pad_rows([*texts, *texts[:5]], pad_multiple=64)
    logits = np.asarray(policy(tokens, length_mask(lengths, 64)), np.float64)
    logits = logits[:, :, : policy.num_real_tokens]
    logprobs = logits - np.log(np.exp(logits).sum(axis=2, keepdims=True))
    expected = [
        -logprobs[n, len(prompt) - 1 + np.arange(len(gold)), gold].mean()
        for n, (prompt, gold) in enumerate(zip(prompts, golds, strict=True))
    ]
    np.testing.assert_allclose(gold_nll(setup, params, problems), expected, rtol=1e-5)


def test_a_policy_fitted_to_a_few_problems_knows_these_and_no_others(setup):
    seen, fresh = setup.problems("train", 16), setup.problems("eval", 64)
    before = summarize_memorization(setup, setup.initial_params(), seen, fresh)
    assert before["problems"] == 16
    assert before["ratio"]["low"] < 1.05
    assert before["ratio"]["high"] > 0.95
    params = fitted(setup, seen, steps=100)
    after = summarize_memorization(setup, params, seen, fresh)
    assert after["perplexity_seen"] < 1.1
    assert after["ratio"]["low"] > 1.5
    assert after["ratio"]["mean"] == pytest.approx(
        after["perplexity_fresh"] / after["perplexity_seen"]
    )


def problem(name, type_=""):
    return Problem(id=name, prompt="", gold="", verifier="", source="", type=type_)


def test_partners_have_one_type_and_one_length_and_are_used_once():
    seen = [(problem("a"), 10), (problem("b"), 10), (problem("c"), 20)]
    fresh = [
        (problem("x"), 11),
        (problem("y"), 10),
        (problem("other", "inversion"), 10),
        (problem("z"), 23),
    ]
    named = [(one.id, other.id) for one, other in pair_by_length(seen, fresh)]
    assert named == [("a", "y"), ("b", "x")]  # 20 and 23 differ by over 10 % of 23
    assert pair_by_length([(problem("c"), 20)], [(problem("z"), 22)])
    assert pair_by_length([(problem("c", "inversion"), 20)], [(problem("z"), 20)]) == []


def test_golds_without_a_solution_are_not_scored(setup):
    bare = [problem("a")]
    assert summarize_memorization(setup, None, bare, setup.problems("eval", 4)) is None
