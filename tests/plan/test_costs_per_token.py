"""Costs of a completion token: from the compiled programs, and by hand."""

import dataclasses
from pathlib import Path

import jax
import pytest

from job_jax.command import load_config
from rlvr_jax.config import Config, LossConfig, ModelConfig, SamplingConfig
from rlvr_jax.models.distribution import (
    TRUNCATION_SCOPE,
    SamplingParams,
    sampling_logits,
)
from rlvr_jax.plan import compile_only
from rlvr_jax.plan.compile_only import compile_report
from rlvr_jax.plan.program_costs import program_costs
from rlvr_jax.plan.step_programs import StepPrograms, vocab_size
from rlvr_jax.sampler import update_mesh

ROOT = Path(__file__).parents[2]
P, G, S, T = 16, 2, 16, 8  # prompts, samples of each, prompt tokens, completion tokens
MODEL = ModelConfig(
    num_layers=2,
    hidden_size=32,
    intermediate_size=48,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    max_seq_len=S + T,
)
# FLOPs of one token. LAYER has 2 for each weight of a layer. KEY is for each key that
# the token attends to: 2 for the score and 2 for the value, for each number of each
# query head.
LAYER = 2 * (32 * 4 * 8 + 2 * 32 * 2 * 8 + 4 * 8 * 32 + 3 * 32 * 48)
KEY = 4 * 4 * 8


@pytest.fixture(scope="module")
def config():
    recipe = load_config(ROOT / "configs/smoke.py", Config)
    train = dataclasses.replace(
        recipe.train,
        batch_size=P,
        group_size=G,
        num_minibatches=2,
        loss=LossConfig(kl_coef=0.1),
        sampling=SamplingConfig(max_new_tokens=T),
    )
    return dataclasses.replace(
        recipe,
        model=MODEL,
        train=train,
        eval=dataclasses.replace(recipe.eval, sampling=train.sampling),
        prompt_pad_multiple=S,
        completion_pad_multiple=T,
    )


@pytest.fixture(scope="module")
def report(config):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compile_only, "_topology_devices", lambda _: jax.devices())
        return compile_report(config, "v5e:2x4")


def forward(tokens, keys):
    return 2 * tokens * (LAYER + KEY * keys)  # of two layers


def test_flops_of_a_token_are_those_of_its_weights_and_keys(config, report):
    """Half of the prompts are a minibatch, which is also a micro-batch."""
    logits = 2 * 32 * vocab_size(config)
    prompt = forward(S, keys=S) / (G * T)  # the share of one completion token
    sampled = prompt + forward(1, keys=S + T) + logits
    # The last token of a completion is scored, but no later score depends on it.
    scored = prompt + forward(T - 1, keys=S + T - 1) / T + logits
    found = {
        name: program["per_token"]["flops"]
        for name, program in report["programs"].items()
    }
    assert found == {
        "sampler": sampled,
        "scorer": scored,
        "gradient": 3 * scored,
        "update": 0,
    }


def test_bytes_per_token_include_all_chips(report):
    programs = report["programs"]
    for name, tokens in {"sampler": P * G * T, "gradient": P * G * T // 2}.items():
        spent, each = programs[name], programs[name]["per_token"]
        for part in ("hbm_bytes", "collective_bytes"):
            assert each[part] == pytest.approx(spent[part] * 8 / tokens)


def test_every_gradient_is_summed_over_the_chips(report):
    """A float32 per weight goes around twice: for the pass over prompts, and the other.

    The rest is the gradient of the embedding as an output layer, and counts.
    """
    weights = report["resident_bytes"]["parameters"]
    sent = report["programs"]["gradient"]["collective_bytes"]
    assert 2 * weights <= sent < 2.2 * 2 * weights


def test_tokens_are_cut_off_where_the_recipe_says_so(config):
    """Only then do the costs include the branch that sorts the logits."""

    def scopes(**sampling):
        settings = dataclasses.replace(config.train.sampling, **sampling)
        train = dataclasses.replace(config.train, sampling=settings)
        changed = dataclasses.replace(config, train=train)
        mesh = update_mesh(changed, jax.devices())
        with jax.set_mesh(mesh):
            return StepPrograms(changed, mesh, jax.devices()).skipped_scopes

    assert scopes() == (TRUNCATION_SCOPE,)
    assert scopes(top_k=5) == scopes(top_p=0.9) == ()


def test_the_branch_that_cuts_tokens_off_has_its_scope():
    def cut(logits, sampling):
        index = jax.numpy.zeros(4, int)
        return sampling_logits(logits, index, sampling, eos_ids=(0,))

    logits, sampling = jax.numpy.zeros((4, 512)), SamplingParams.unmodified()
    hlo = jax.jit(cut).lower(logits, sampling).compile().as_text()
    never = program_costs(hlo, skipped_scopes=(TRUNCATION_SCOPE,))
    assert 2 * never.hbm_bytes < program_costs(hlo).hbm_bytes
