"""The experiment: paired arms, honest controls, one command."""

import contextlib
import dataclasses
import gzip
import json
from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from job_jax.config_io import to_json
from job_jax.schema import ConfigError
from rlvr_jax.analysis.__main__ import main
from rlvr_jax.analysis.causal.command import run_experiment
from rlvr_jax.analysis.sufficiency.command import (
    SufficiencyFlags,
    measure_sufficiency,
)
from rlvr_jax.metrics.scores import evaluate_policy, summarize_completions
from rlvr_jax.probe.edited_policy import kl_from_clean
from rlvr_jax.probe.intervene import (
    EditArm,
    InterventionSpec,
    calibrate,
    load_fitting_sae,
    make_arms,
    run_arm,
)
from rlvr_jax.run.load import LoadedPolicy
from rlvr_jax.run.setup import open_setup
from rlvr_jax.sampler import ScopedIntervention, generate
from sae_jax.edits import LatentEdit
from sae_jax.export import main as export_main
from sae_jax.io import save
from sae_jax.sae import TSAE
from tests.support.policies import TINY_EVAL

G = TINY_EVAL.eval.num_samples
QUESTION = InterventionSpec(
    layer=1,
    latents=(3, 5),
    mode="ablate",
    strengths=(0.5, 1.0),
    num_controls=2,
    scope="predicting",
)
TSAE_ = TSAE.init(jax.random.key(0), width=16, latents=32)


@pytest.fixture(scope="module")
def restored(tmp_path_factory):
    run = open_setup(
        TINY_EVAL, tmp_path_factory.mktemp("run") / "none", stages=("eval",)
    )
    with jax.set_mesh(run.mesh), run.verifier:
        yield LoadedPolicy(run, run.initial_params(), 0)


@pytest.fixture(scope="module")
def problems(restored):
    return restored.setup.problems("eval", TINY_EVAL.eval.num_problems)


@pytest.fixture(scope="module")
def calibration(restored, problems):
    return calibrate(restored, TSAE_, problems, layer=1)


@pytest.fixture(scope="module")
def asked(calibration):
    return make_arms(QUESTION, TSAE_, calibration, seed=0)


@pytest.fixture(scope="module")
def clean(restored, problems):
    return run_arm(restored, problems, EditArm(kind="clean"), scope="predicting")


def of(asked, kind, strength=1.0):
    return [arm for arm in asked if (arm.kind, arm.strength) == (kind, strength)]


def test_calibration_reads_the_clean_stream_that_tokens_are_drawn_from(
    calibration, clean
):
    drawn_from = (clean.metrics["length"].numerator - G).sum()
    assert len(calibration.residuals) == drawn_from
    f = np.asarray(TSAE_.encode(calibration.residuals))
    np.testing.assert_allclose(calibration.firing.rate, (f > 0).mean(axis=0))


def test_every_dose_has_its_target_and_controls_and_one_is_a_sham(asked):
    kinds = [(arm.kind, arm.strength) for arm in asked]
    for strength in QUESTION.strengths:
        assert kinds.count(("target", strength)) == 1
        assert kinds.count(("random latents", strength)) == 2
        assert kinds.count(("random direction", strength)) == 2
    assert [kind for kind, _ in kinds].count("null") == 1


def test_controls_move_the_stream_as_far_as_the_target(asked):
    for strength in QUESTION.strengths:
        (target,) = of(asked, "target", strength)
        assert target.mean_shift > 0
        for kind in ("random latents", "random direction"):
            for arm in of(asked, kind, strength):
                assert arm.mean_shift == pytest.approx(target.mean_shift, rel=1e-4)
    (sham,) = of(asked, "null", 0.5)
    assert sham.mean_shift == 0


def test_random_latents_are_the_same_at_every_dose(asked):
    low, high = (
        [arm.latents for arm in of(asked, "random latents", strength)]
        for strength in QUESTION.strengths
    )
    assert low == high
    assert not {3, 5} & {latent for latents in low for latent in latents}


def test_the_sham_is_the_clean_arm_token_for_token(restored, problems, asked, clean):
    sham = run_arm(restored, problems, of(asked, "null", 0.5)[0], scope="everywhere")
    np.testing.assert_array_equal(sham.tokens, clean.tokens)
    assert sham.token_match_rate(clean) == 1.0
    assert abs(sham.metrics["kl"].numerator).max() < 1e-5


def test_the_clean_arm_is_the_evaluation(restored, problems, clean):
    """With the same problems and keys it gives what `evaluate` prints."""
    judged = evaluate_policy(
        restored.setup,
        restored.params,
        problems,
        weight_version=0,
        on_batch=lambda *_: None,
    )
    summary = summarize_completions(restored.setup.config, judged)
    assert clean.metrics["pass@1"].mean() == summary["pass@k"]["1"]["mean"]
    assert clean.metrics["length"].mean() == summary["length_mean"]


def test_pairs_do_not_depend_on_the_order_of_problems(restored, problems, asked, clean):
    """A problem's answers, and so its pair, do not depend on other problems."""
    (target,) = of(asked, "target")
    order = np.random.default_rng(0).permutation(len(problems))
    there = run_arm(restored, problems, target, scope="predicting")
    assert there.token_match_rate(clean) < 1
    shuffled = run_arm(
        restored, [problems[i] for i in order], target, scope="predicting"
    )
    by_problem = there.tokens.reshape(len(problems), G, -1)[order]
    np.testing.assert_array_equal(shuffled.tokens, by_problem.reshape(-1, 8))


def test_kl_is_that_of_the_two_full_distributions(restored, asked):
    """The reference is the whole-vocabulary logits of one pass over each text."""
    run, params, _ = restored
    (target,) = of(asked, "target")
    policy = nnx.merge(run.graphdef, params)
    edited = ScopedIntervention(edits=(target.edit,), scope="completion")
    prompts = [[4, 5, 6]] * 8
    rollouts = generate(policy, prompts, max_new_tokens=4, intervention=edited)
    found = kl_from_clean(restored, jax.device_get(rollouts), edited)
    tokens = np.concatenate([np.array(prompts), rollouts.tokens], axis=1)

    class Completion:
        layer = 1

        def __call__(self, x, /):
            return jnp.concatenate([x[:, :3], target.edit(x[:, 3:])], axis=1)

    def logprobs(*edits):
        mask = jnp.ones(tokens.shape, bool)
        passed, _ = policy.prefill(jnp.asarray(tokens), mask, interventions=edits)
        return np.asarray(jax.nn.log_softmax(policy.logits(passed.hidden)))[:, 2:-1]

    ours, without = logprobs(Completion()), logprobs()
    kl = (np.exp(ours) * (ours - without)).sum(axis=2)
    inside = np.arange(4) < np.asarray(rollouts.lengths)[:, None]
    np.testing.assert_allclose(found, np.where(inside, kl, 0).sum(axis=1), atol=1e-5)
    assert found.max() > 1e-6


def test_an_experiment_asks_each_latent_and_tells_nulls(restored, tmp_path, capsys):
    """A policy that knows nothing has nothing to lose."""
    questions = [
        dataclasses.replace(QUESTION, latents=(z,), strengths=(1.0,)) for z in (3, 5)
    ]
    result, picture = run_experiment(restored, TSAE_, questions, directory=tmp_path)
    shown = capsys.readouterr().out
    assert len(result["arms"]) == 2 * (1 + 2 + 2 + 1)
    for z, sentence in zip((3, 5), result["summary"], strict=True):
        assert sentence.startswith(f"latents {z}, strength 1: ")
        assert "outcomes without a detectable change" in sentence
        assert sentence in shown
    assert {row["latents"] for row in result["contrasts"]} == {(3,), (5,)}
    assert picture.startswith("<svg xmlns=")
    assert "target" in picture


def test_what_rl_amplified_is_added_before_rl_on_problems_that_chose_nothing(
    restored, problems, capsys
):
    """RL, played by other weights, changes answers; an edit of gain 0 does not."""
    params = jax.tree.map(lambda x: 1.5 * x, restored.params)
    flags = SufficiencyFlags(
        config="", run="", out="", top=2, strengths=(1.0, 64.0), num_controls=2, shots=1
    )
    result, picture = measure_sufficiency(
        restored, restored._replace(params=params, step=5), TSAE_, flags, layer=1
    )
    assert result["problems"] == {"choosing": 6, "scored": 5}
    assert len(result["latents"]) == 2
    assert result["after_rl"]["fraction_unchanged"] < 1
    kinds = [(arm["kind"], arm["strength"]) for arm in result["arms"]]
    for strength in flags.strengths:
        assert kinds.count(("target", strength)) == 1
        assert kinds.count(("random latents", strength)) == 2
    unchanged = {arm["kind"]: arm["fraction_unchanged"] for arm in result["arms"]}
    assert unchanged["null"] == 1.0
    assert unchanged["target"] < 1
    few_shot = result["few_shot"]
    assert result["examples"] == [problems[0].id]
    assert few_shot["fraction_unchanged"] < 1
    assert {few_shot["kind"], result["after_rl"]["kind"]} == {"few-shot", "clean"}
    for row in (few_shot, result["after_rl"]):
        assert "kl" not in row["outcomes"]
    assert all("kl" in arm["outcomes"] for arm in result["arms"])
    alone = run_arm(restored, problems[1::2], EditArm(kind="clean"), scope="completion")
    length = alone.metrics["length"].mean()
    assert result["clean"]["outcomes"]["length"] == length
    said = capsys.readouterr().out
    assert "share of RL's change" in said
    assert said.count("few-shot ") == len({row["outcome"] for row in result["shares"]})
    assert all(sentence in said for sentence in result["summary"])
    assert picture.startswith("<svg xmlns=")


def sae_at(path, *, width=16, hook_name="blocks.1.hook_resid_post", **metadata):
    tsae = TSAE.init(jax.random.key(0), width=width, latents=32)
    save(path, tsae, metadata=metadata | {"hook_name": hook_name})
    return str(path)


def foreign_at(path, **config):
    """Writes an autoencoder as SAELens did before version 6, without metadata."""
    sae_at(path)
    written = json.loads((path / "cfg.json").read_text())
    del written["metadata"]
    (path / "cfg.json").write_text(json.dumps(written | config))
    return str(path)


def gemma_scope_at(folder):
    folder.mkdir(parents=True)
    tsae = TSAE.init(jax.random.key(0), width=16, latents=32)
    names = {"W_enc": "encoder", "b_enc": "encoder_bias", "W_dec": "decoder"}
    names |= {"b_dec": "decoder_bias", "threshold": "threshold"}
    arrays = {name: np.asarray(vars(tsae)[ours]) for name, ours in names.items()}
    np.savez(folder / "params.npz", **arrays)
    return str(folder)


@pytest.mark.parametrize(
    ("folder", "said"),
    [
        ("layer_1/width_32/average_l0_9", None),
        ("layer_0/width_32/average_l0_9", r"blocks\.0\.hook_resid_post, but layer=1"),
        ("layer_11/width_32", r"blocks\.11\.hook_resid_post, but layer=1 is"),
        ("gemma-scope-2b-pt-mlp/layer_1/width_32", r"blocks\.1\.hook_mlp_out, but"),
        ("somewhere", r"does not say which layer.*--hook_name=blocks\.1\.hook_resid_p"),
    ],
)
def test_gemma_scope_is_of_the_layer_that_its_release_names(tmp_path, folder, said):
    path = gemma_scope_at(tmp_path / folder)
    if said is None:
        assert (
            load_fitting_sae(path, TINY_EVAL, layer=1, latents=(3,)).tsae.latents == 32
        )
        return
    with pytest.raises(ConfigError, match=said):
        load_fitting_sae(path, TINY_EVAL, layer=1, latents=(3,))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"hook_name": "blocks.1.hook_resid_post"}, None),
        ({"hook_name": "blocks.2.hook_resid_pre"}, None),  # layer 1's output
        ({"hook_point": "blocks.1.hook_resid_pre"}, "blocks.1.hook_resid_pre, but"),
        ({"hook_name": "blocks.1.hook_mlp_out"}, "blocks.1.hook_mlp_out, but layer=1"),
        ({"hook_name": "model.layers.1.output"}, None),
        ({"hook_name": "model.language_model.layers.1"}, None),
        ({"hook_name": "model.layers.0.output"}, "layers.0.output, but layer=1 is"),
        ({"hook_name": "model.layers.1.mlp.output"}, "mlp.output, but layer=1 is"),
        ({}, "does not say which layer it was trained on"),
        (
            {"hook_name": "blocks.1.hook_resid_post", "model_name": "gpt2"},
            "the model 'gpt2', but the policy is 'tiny'",
        ),
    ],
)
def test_an_older_saelens_directory_is_held_to_its_layer(tmp_path, config, said):
    path = foreign_at(tmp_path / "old", **config)
    if said is None:
        assert (
            load_fitting_sae(path, TINY_EVAL, layer=1, latents=(3,)).tsae.latents == 32
        )
        return
    with pytest.raises(ConfigError, match=said):
        load_fitting_sae(path, TINY_EVAL, layer=1, latents=(3,))


def test_a_layer_missing_from_the_files_is_stated_once(tmp_path):
    """Following the refusal's advice makes the file readable."""
    path = gemma_scope_at(tmp_path / "somewhere")
    stated = "--hook_name=blocks.1.hook_resid_post"
    out = tmp_path / "stated"
    assert (
        export_main([f"--sae={path}", "--format=saelens", stated, f"--out={out}"]) == 0
    )
    assert (
        load_fitting_sae(str(out), TINY_EVAL, layer=1, latents=(3,)).tsae.latents == 32
    )
    with pytest.raises(ConfigError, match="layer=0 is"):
        load_fitting_sae(str(out), TINY_EVAL, layer=0, latents=(3,))


@pytest.mark.parametrize(
    ("width", "metadata", "said"),
    [
        (8, {}, "width 8, but the policy 'tiny' has width 16"),
        (
            16,
            {"hook_name": "blocks.0.hook_resid_post"},
            r"blocks\.0\.hook_resid_post, but layer=1 is blocks\.1\.hook_resid_post",
        ),
        (16, {"model_name": "other, step 3"}, "'other', but .* 'tiny'"),
    ],
)
def test_an_autoencoder_of_something_else_is_refused(tmp_path, width, metadata, said):
    path = sae_at(tmp_path, width=width, **metadata)
    with pytest.raises(ConfigError, match=said):
        load_fitting_sae(path, TINY_EVAL, layer=1, latents=(3,))


def test_an_autoencoder_that_fits_is_opened(tmp_path):
    path = sae_at(
        tmp_path, model_name="tiny, step 9", hook_name="blocks.1.hook_resid_post"
    )
    assert load_fitting_sae(path, TINY_EVAL, layer=1, latents=(3,)).tsae.latents == 32
    with pytest.raises(ConfigError, match=r"layer=2; the policy has layers 0\.\.1"):
        load_fitting_sae(path, TINY_EVAL, layer=2, latents=(3,))
    with pytest.raises(ConfigError, match=r"latents \[32\] lie outside 0\.\.31"):
        load_fitting_sae(path, TINY_EVAL, layer=1, latents=(3, 32))


@pytest.mark.parametrize(
    ("changed", "said"),
    [({"strengths": ()}, "no strengths"), ({"num_controls": 0}, "num_controls=0")],
)
def test_a_question_without_doses_or_controls_is_refused(changed, said):
    with pytest.raises(ConfigError, match=said):
        dataclasses.replace(QUESTION, **changed)


@pytest.fixture
def command(restored, tmp_path, monkeypatch):
    """Returns the command's arguments, for this module's policy."""

    @contextlib.contextmanager
    def policy(config, path, *, stage):
        assert stage == "eval"
        yield restored

    monkeypatch.setattr("rlvr_jax.analysis.causal.command.load_policy", policy)
    record = tmp_path / "config.json"
    record.write_text(json.dumps({"config": to_json(TINY_EVAL)}))

    def arguments(**changed):
        flags = {
            "config": record,
            "checkpoint": tmp_path,
            "sae": sae_at(tmp_path / "sae", model_name="tiny, step 0"),
            "layer": 1,
            "latents": "3",
            "strengths": "1",
            "num_controls": 1,
            "out": tmp_path / "out",
            **changed,
        }
        given = [f"--{name}={value}" for name, value in flags.items() if value != ""]
        return ["causal", *given]

    return arguments


def test_only_the_outcomes_that_are_named_are_tested(command, tmp_path, capsys):
    assert main(command(outcomes="length")) == 0
    record = json.loads((tmp_path / "out" / "causal.json").read_text())
    assert {row["outcome"] for row in record["contrasts"]} == {"length"}
    assert "pass@1" in record["clean"]["outcomes"]
    assert main(command(outcomes="pas@1", out=tmp_path / "other")) == 2
    assert (
        "--outcomes: 'pas@1' is not measured; there are pass@1, pass@2, length"
        in capsys.readouterr().err
    )


def test_the_command_writes_one_record_and_one_figure(command, tmp_path, capsys):
    assert main(command()) == 0
    shown = capsys.readouterr().out
    assert "beyond latents [95 %, draws]" in shown
    assert json.loads(shown.splitlines()[-1]) == {"causal": str(tmp_path / "out")}
    record = json.loads((tmp_path / "out" / "causal.json").read_text())
    assert record["policy"] == {"name": "tiny", "step": 0}
    assert record["interventions"][0]["latents"] == [3]
    kinds = [arm["kind"] for arm in record["arms"]]
    assert kinds == ["null", "target", "random latents", "random direction"]
    assert record["arms"][0]["fraction_unchanged"] == 1.0
    ElementTree.fromstring((tmp_path / "out" / "causal.svg").read_text())
    assert main(command()) == 2
    assert "exists; remove it" in capsys.readouterr().err


def test_the_completions_of_every_arm_are_kept(command, tmp_path, restored, problems):
    assert main(command()) == 0
    files = sorted((tmp_path / "out" / "completions").iterdir())
    assert [file.name for file in files] == [f"arm_{i:04d}.jsonl.gz" for i in range(5)]
    arms = [
        [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
        for file in files
    ]
    assert [rows[0]["arm"] for rows in arms] == [
        *("clean", "null", "target", "random latents", "random direction")
    ]
    clean, null, target, *_ = ([row["completion"] for row in rows] for rows in arms)
    assert clean == null != target
    answers = evaluate_policy(
        restored.setup,
        restored.params,
        problems,
        weight_version=0,
        on_batch=lambda *_: None,
    )
    assert clean == [answer.completion for answer in answers]


def test_a_null_edit_that_changes_a_completion_ends_the_command(
    command, tmp_path, capsys, monkeypatch
):
    """Here gain 0 changes one: a line says which, and no result is claimed."""
    scaled = LatentEdit.with_scale
    monkeypatch.setattr(
        LatentEdit, "with_scale", lambda edit, scale: scaled(edit, scale or 30.0)
    )
    assert main(command()) == 1
    *_, error = capsys.readouterr().err.splitlines()
    assert error.startswith("error: the null edit of latents [3], of gain 0, changed ")
    assert f" of {11 * G} completions" in error
    assert not (tmp_path / "out" / "causal.json").exists()


def test_too_few_controls_for_a_claim_are_said_before_the_work(command, capsys):
    assert main(command()) == 0
    assert "--num_controls=1 can show no specific effect" in capsys.readouterr().err


def test_dead_latents_are_warned_of_and_listed(command, tmp_path, capsys):
    dead = dataclasses.replace(TSAE_, threshold=TSAE_.threshold.at[3].set(1e9))
    hook = {"hook_name": "blocks.1.hook_resid_post"}
    save(tmp_path / "dead", dead, metadata=hook)
    assert main(command(sae=tmp_path / "dead", latents="3,5")) == 0
    assert "warning: dead latents [3]: they fire on none" in capsys.readouterr().err
    record = json.loads((tmp_path / "out" / "causal.json").read_text())
    assert record["calibration"]["dead"] == [3]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"latents": ""}, "no latents; name some of 0..31"),
        ({"latents": "3,32"}, "latents [32] lie outside 0..31"),
        ({"latents": "3,three"}, "--latents expects a tuple of int, got (3, 'three')"),
        ({"strengths": "much"}, "--strengths expects a tuple of finite float"),
        ({"layer": ""}, "--layer is missing"),
        ({"sae": "nowhere"}, "no autoencoder at nowhere"),
        (
            {"mode": "remove"},
            "--mode expects one of ablate, clamp, scale, add, got 'remove'",
        ),
        (
            {"num_control": 3},
            "unknown flag '--num_control'; did you mean '--num_controls'?",
        ),
    ],
)
def test_bad_input_is_one_line_and_exit_2(command, tmp_path, capsys, changed, said):
    assert main(command(**changed)) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()
