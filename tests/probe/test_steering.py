"""Steering changes texts only inside the block, as the chosen latents dictate."""

import contextlib
import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from job_jax.config_io import to_json
from job_jax.schema import ConfigError
from rlvr_jax import generate
from rlvr_jax.probe.edited_policy import kl_from_clean, sample_edited
from rlvr_jax.probe.intervene import NullEditError
from rlvr_jax.probe.steering import SteerablePolicy
from rlvr_jax.run.load import LoadedPolicy
from rlvr_jax.run.setup import open_setup
from rlvr_jax.sampler import ScopedIntervention
from sae_jax.edits import LatentEdit
from sae_jax.io import save
from sae_jax.sae import TSAE
from tests.support.policies import TINY_EVAL

G = TINY_EVAL.eval.num_samples
CONFIG = dataclasses.replace(
    TINY_EVAL, eval=dataclasses.replace(TINY_EVAL.eval, num_problems=4)
)
PROMPTS = ["evaluate : e2 + e3 = ?", "evaluate : e4 * e1 = ?"]
SAES = {
    layer: TSAE.init(jax.random.key(layer), width=16, latents=32) for layer in (0, 1)
}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    run = open_setup(CONFIG, tmp_path_factory.mktemp("run") / "none", stages=("eval",))
    with jax.set_mesh(run.mesh), run.verifier:
        yield LoadedPolicy(run, run.initial_params(), 0)


@pytest.fixture(scope="module")
def policy(loaded):
    return SteerablePolicy(loaded)


@pytest.fixture(scope="module")
def pushes(policy):
    """Returns an edit with two latents after each layer."""
    return [
        policy.change_latents(tsae, layer=layer, strengths={3: 40.0, 5: -40.0})
        for layer, tsae in SAES.items()
    ]


def ids(texts):
    return [text.token_ids for text in texts]


def test_unsteered_texts_equal_evaluation(policy, loaded):
    problems = loaded.setup.problems("eval", 3)
    ((_, rollouts),) = sample_edited(loaded, problems, None)
    texts = policy.generate(problems)
    assert len(texts) == 3 * G
    for row, text in enumerate(texts):
        assert list(text.token_ids) == rollouts.tokens[row, rollouts.mask[row]].tolist()
        assert text.prompt == problems[row // G].prompt
        assert text.completion == loaded.setup.tokenizer.decode(list(text.token_ids))
        assert text.kl == 0


def test_texts_are_steered_inside_the_block_and_only_there(policy, pushes):
    clean = policy.generate(PROMPTS)
    with policy.steer(*pushes):
        steered = policy.generate(PROMPTS)
        with policy.steer(*(edit.with_scale(-1.0) for edit in pushes)):
            inner = policy.generate(PROMPTS)
        assert ids(policy.generate(PROMPTS)) == ids(steered)
    assert ids(policy.generate(PROMPTS)) == ids(clean)
    assert len({str(ids(texts)) for texts in (clean, steered, inner)}) == 3
    assert all(text.kl > 0 for text in steered if len(text.token_ids) > 1)
    with pytest.raises(RuntimeError, match="halfway"), policy.steer(*pushes):
        raise RuntimeError("halfway")
    assert ids(policy.generate(PROMPTS)) == ids(clean)


def test_the_kl_of_a_text_is_per_token(policy, loaded, pushes):
    problems = loaded.setup.problems("eval", 3)
    with policy.steer(*pushes):
        texts = policy.generate(problems)
    edits = ScopedIntervention(edits=loaded.setup.replicate(tuple(pushes)))
    ((_, rollouts),) = sample_edited(loaded, problems, edits)
    kl = kl_from_clean(loaded, rollouts, edits) / rollouts.lengths
    assert max(rollouts.lengths) > 2
    assert [text.kl for text in texts] == pytest.approx(kl[: len(texts)], rel=1e-5)


def test_each_latent_moves_by_its_own_strength_in_means_where_it_fires(policy, pushes):
    calibrated = policy.change_latents(SAES[0], layer=0, strengths={5: -40.0, 3: 40.0})
    for edit, at in ((pushes[0], [3, 5]), (calibrated, [5, 3])):
        np.testing.assert_array_equal(
            edit.columns.decoder, np.asarray(SAES[0].decoder)[at]
        )
        sign = np.sign(np.asarray(edit.latent_shift))
        np.testing.assert_array_equal(sign, [1, -1] if at == [3, 5] else [-1, 1])
        np.testing.assert_array_equal(edit.latent_scale, [1.0, 1.0])
    weaker = policy.change_latents(SAES[0], layer=0, strengths={3: 20.0})
    np.testing.assert_allclose(2 * weaker.latent_shift[0], pushes[0].latent_shift[0])


def test_the_sham_is_looked_at(policy, pushes, monkeypatch):
    policy.check_sham(PROMPTS, *pushes)
    monkeypatch.setattr(LatentEdit, "with_scale", lambda edit, scale: edit)
    with pytest.raises(NullEditError, match=r"gain 0 changed [1-4] of 4 texts"):
        policy.check_sham(PROMPTS, *pushes)


def test_a_latent_that_never_fires_has_no_unit(policy):
    tsae = SAES[1]
    deaf = dataclasses.replace(
        tsae, threshold=jnp.asarray(tsae.threshold).at[7].set(1e9)
    )
    with pytest.raises(ConfigError, match=r"latents \[7\] after layer 1 fire on none"):
        policy.change_latents(deaf, layer=1, strengths={3: 1.0, 7: 1.0})
    edit = policy.change_latents(
        deaf, layer=1, strengths={3: 1.0, 7: 1.0}, mode="ablate"
    )
    assert edit.layer == 1
    with pytest.raises(ConfigError, match=r"latents \[32\] lie outside"):
        policy.change_latents(deaf, layer=1, strengths={32: 1.0})


@pytest.fixture
def command(loaded, tmp_path, monkeypatch):
    """Returns a function that runs the command on this module's policy."""

    @contextlib.contextmanager
    def opened(config, path, *, stage, grades):
        assert (stage, grades) == ("eval", False)
        yield loaded

    monkeypatch.setattr("rlvr_jax.generate.load_policy", opened)
    record = tmp_path / "config.json"
    record.write_text(json.dumps({"config": to_json(CONFIG)}))
    for layer, tsae in SAES.items():
        hook = {"hook_name": f"blocks.{layer}.hook_resid_post"}
        save(tmp_path / f"sae{layer}", tsae, metadata=hook)

    def run(*flags):
        given = [f"--config={record}", f"--checkpoint={tmp_path}", *flags]
        return generate.main([flag.replace("DIR", str(tmp_path)) for flag in given])

    return run


def test_the_command_writes_both_texts_of_each_prompt(
    command, policy, pushes, tmp_path, capsys
):
    (tmp_path / "prompts.txt").write_text("\n".join((PROMPTS[0], "", PROMPTS[1])))
    flags = ["--prompts=DIR/prompts.txt", "--out=DIR/out.jsonl", "--layers=0,1"]
    steer = "--steer=0/3:40,0/5:-40,1/3:40,1/5:-40"
    assert command(*flags, "--sae=DIR/sae0,DIR/sae1", steer) == 0
    shown = capsys.readouterr().out
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    with policy.steer(*pushes):
        steered = policy.generate(PROMPTS)
    assert [row["prompt"] for row in rows] == [text.prompt for text in steered]
    assert [row["steered"]["text"] for row in rows] == [t.completion for t in steered]
    assert [row["steered"]["kl"] for row in rows] == [t.kl for t in steered]
    clean = [text.completion for text in policy.generate(PROMPTS)]
    assert [row["clean"]["text"] for row in rows] == clean
    assert rows[0]["steering"]["latents"][1]["strengths"] == {"3": 40.0, "5": -40.0}
    assert f"steered: {steered[0].completion}\n" in shown
    assert "with gain 0 all equal the clean ones" in shown


def test_without_steering_it_writes_the_first_held_out_problems(
    command, loaded, capsys
):
    assert command("--first=2") == 0
    shown = capsys.readouterr().out
    for problem in loaded.setup.problems("eval", 2):
        assert f"prompt: {problem.prompt}\n" in shown
    assert shown.count("clean: ") == 2 * G
    assert "steered" not in shown


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--steer=3:1"], "--steer needs --layers and --sae"),
        (["--steer=3:1", "--layers=0", "--sae=a,b"], "2 autoencoders and --layers 1"),
        (["--steer=3", "--layers=0", "--sae=a"], "--steer=3: write latent:strength"),
        (["--steer=3:1,3:2", "--layers=0", "--sae=a"], "latent 3 of layer 0 twice"),
        (["--steer=3:1", "--layers=0,1", "--sae=a,b"], "layers 0,1, such as 1/3:1"),
        (["--steer=2/3:1", "--layers=0", "--sae=a"], "layers 0, such as 0/3:1"),
        (["--steer=0/3:1", "--layers=0,1", "--sae=a,b"], "no latent of layer 1"),
        (["--steer=3:1", "--layers=x", "--sae=a"], "--layers expects a tuple of int"),
        (["--steer=3:1", "--layers=0", "--sae=DIR/sae1"], "hook_resid_post, but layer"),
        (["--mode=ablate"], "--mode needs --steer"),
        (["--scope=everywhere"], "--scope needs --steer"),
        (["--prompts=DIR/words.txt", "--first=2"], "--first counts held-out problems"),
        (["--prompts=DIR/none.txt"], "no such file"),
        (["--prompts=DIR/empty.txt"], "has no prompt"),
        (["--prompts=DIR/marked.txt"], "has the word 'two', which is not among the"),
        (["--prompts=DIR/words.txt"], "has the word 'two', which is not among the"),
        (["--out=DIR/texts.txt"], "has the ending '.txt'"),
    ],
)
def test_bad_flags_are_one_line_each(command, tmp_path, capsys, flags, said):
    (tmp_path / "empty.txt").write_text("\n \n")
    (tmp_path / "words.txt").write_text("evaluate : two + two\n")
    (tmp_path / "marked.txt").write_text("\ufeffevaluate : two + two\n")
    assert command(*flags) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
