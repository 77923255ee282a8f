"""The activations written for a dictionary are those the policy computes."""

import contextlib
import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from job_jax.flags import UsageError
from rlvr_jax.activations import main
from rlvr_jax.config import Config, EvalConfig, SamplingConfig, TrainConfig
from rlvr_jax.probe.capture import write_activations
from rlvr_jax.run.load import LoadedPolicy
from rlvr_jax.run.setup import open_setup
from rlvr_jax.tasks import ChainMix, FiniteFieldTask
from rlvr_jax.tasks.finite_field.chains import parse_prompt
from rlvr_jax.tasks.finite_field.traces import label_words
from sae_jax.data.shards import ActivationShards
from tests.support.policies import TINY_EVAL

SEQUENCES = 11  # the last batch of 8 is not full
SHORT = SamplingConfig(max_new_tokens=12)
CONFIG = Config(
    task=FiniteFieldTask(modulus=5, train=ChainMix(chain_lengths=(1, 2))),
    model=dataclasses.replace(TINY_EVAL.model, num_layers=3),
    mesh=TINY_EVAL.mesh,
    train=TrainConfig(batch_size=8, sampling=SHORT),
    eval=EvalConfig(num_problems=8, batch_size=8, sampling=SHORT),
)


@pytest.fixture(scope="module")
def restored(tmp_path_factory):
    run = open_setup(CONFIG, tmp_path_factory.mktemp("run") / "none", stages=("train",))
    with jax.set_mesh(run.mesh):
        yield LoadedPolicy(run, run.initial_params(), 0)


@pytest.fixture(scope="module")
def written(restored, tmp_path_factory):
    directory = tmp_path_factory.mktemp("out") / "acts"
    tokens = write_activations(
        restored, directory, layer=1, num_problems=SEQUENCES, dtype="float32"
    )
    shards = ActivationShards(directory)
    assert len(shards.column("sequence")) == tokens
    return shards


def sequences(shards):
    """Yields each sequence's columns."""
    owner = shards.column("sequence")
    for number in range(SEQUENCES):
        at = np.flatnonzero(owner == number)
        names = ("token_id", "role", "special", *shards.index.factors)
        columns = {name: shards.column(name)[at] for name in names}
        yield columns | {"rows": shards.rows(at)}


def test_each_row_is_the_stream_after_its_layer_when_the_whole_is_read(
    restored, written
):
    policy = nnx.merge(restored.setup.graphdef, restored.params)

    @jax.jit
    def stream(tokens, mask):
        return policy.prefill(tokens, mask, capture_layers=(1,))[0].captured[0]

    width = written.index.context_size
    for one in sequences(written):
        length = len(one["token_id"])
        tokens = np.zeros((8, width), np.int32)
        tokens[0, :length] = one["token_id"]
        mask = np.arange(width)[None] < np.array([length] + [1] * 7)[:, None]
        expected = stream(jnp.asarray(tokens), jnp.asarray(mask))[0, :length]
        np.testing.assert_allclose(one["rows"], expected, rtol=0, atol=1e-5)


def test_roles_special_tokens_and_factors_match_the_problem(restored, written):
    run = restored.setup
    problems = run.problems("train", SEQUENCES)
    for problem, one in zip(problems, sequences(written), strict=True):
        prompt, response = (one["token_id"][one["role"] == role] for role in (0, 1))
        assert run.tokenizer.decode(prompt.tolist()) == problem.prompt
        ended = response == run.tokenizer.eos_id
        np.testing.assert_array_equal(one["special"][one["role"] == 1], ended)
        words = [run.tokenizer.decode([token]) for token in response.tolist()]
        symbols = parse_prompt(problem.prompt, modulus=5).symbols
        for name, values in label_words(words, symbols).items():
            np.testing.assert_array_equal(one[name], [-1] * len(prompt) + values)


def test_where_it_comes_from_is_on_record(written):
    index = written.index
    assert (index.layer, index.hook) == (1, "blocks.1.hook_resid_post")
    assert (index.width, index.roles) == (16, ("prompt", "response"))
    assert index.sequences == SEQUENCES


def test_each_sequence_names_the_problem_that_it_answers(restored, written):
    """Problem numbers follow the ids, in the order of the completions."""
    problems = restored.setup.problems("train", SEQUENCES)
    owner = written.column("sequence")
    for number, problem in enumerate(problems):
        (found,) = set(written.column("problem")[owner == number])
        assert written.index.problems[found] == problem.id


def test_each_completion_carries_its_verdict_and_each_token_its_text(
    restored, tmp_path
):
    """The verdict belongs to the text that the vocabulary decodes."""
    with jax.set_mesh(restored.setup.mesh):
        write_activations(
            restored,
            tmp_path / "acts",
            layer=0,
            num_problems=8,
            num_samples=3,
            dtype="float32",
        )
    shards = ActivationShards(tmp_path / "acts")
    words = shards.index.vocabulary
    assert words == ("<0>", "<1>", *restored.setup.config.task.vocabulary()[2:])
    problems = restored.setup.problems("train", 8)
    owner, found = shards.column("sequence"), []
    assert shards.index.sequences == 24
    for number in range(24):
        at = owner == number
        response = shards.column("role")[at] == 1
        text = " ".join(
            words[i] for i in shards.column("token_id")[at][response] if i > 1
        )
        (outcome,) = set(shards.column("correct")[at])
        verdict = restored.setup.verifier([problems[number // 3]], [text])[0]
        assert outcome == {"correct": 1, "incorrect": 0}[verdict.status]
        found.append(outcome)
    assert set(found) <= {0, 1}


@pytest.mark.parametrize("layer", [-1, 3])
def test_a_layer_that_is_not_there_is_refused(restored, tmp_path, layer):
    with pytest.raises(UsageError, match=rf"--layer={layer}.*0\.\.2"):
        write_activations(
            restored, tmp_path / "a", layer=layer, num_problems=1, dtype="float32"
        )
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("missing", ["checkpoint", "out", "layer"])
def test_a_missing_flag_is_named(tmp_path, capsys, missing):
    recipe = tmp_path / "recipe.py"
    recipe.write_text("from rlvr_jax.config import Config as get_config\n")
    flags = {"checkpoint": tmp_path, "out": tmp_path / "out", "layer": 0}
    args = [f"--{name}={value}" for name, value in flags.items() if name != missing]
    assert main([f"--config={recipe}", *args]) == 2
    assert f"--{missing} is missing" in capsys.readouterr().err


def test_the_command_writes_what_its_flags_name(tmp_path, monkeypatch, capsys):
    asked = {}

    def write(policy, out, **settings):
        asked.update(settings, policy=policy, out=out)
        return 9

    def load(config, path, *, stage, grades):
        return contextlib.nullcontext((path, stage, grades))

    monkeypatch.setattr("rlvr_jax.activations.load_policy", load)
    monkeypatch.setattr("rlvr_jax.activations.write_activations", write)
    recipe = tmp_path / "recipe.py"
    recipe.write_text("from rlvr_jax.config import Config as get_config\n")
    out = tmp_path / "out"
    flags = [f"--config={recipe}", f"--checkpoint={tmp_path}", f"--out={out}"]
    counts = ["--layer=2", "--sequences=5", "--num_samples=3", "--dtype=float16"]
    assert main([*flags, *counts]) == 0
    assert asked == {
        "policy": (tmp_path, "train", False),
        "out": out,
        "layer": 2,
        "num_problems": 5,
        "num_samples": 3,
        "dtype": "float16",
    }
    written = json.loads(capsys.readouterr().out)
    assert written == {"activations": str(out), "tokens": 9}
