"""The command prints the figures of a corpus whose answers are known."""

import dataclasses
import json

import numpy as np
import pytest

from sae_jax.data.shards import ShardWriter
from sae_jax.evaluate import _seed_cosine_report, main
from sae_jax.io import save
from tests.support.sae_corpora import copying, write_corpus


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("evaluate")
    save(root / "sae", copying(), metadata={"k": 2})
    write_corpus(root / "data")
    return root


def run(capsys, *argv: str) -> tuple[int, str, str]:
    code = main(argv)
    out, err = capsys.readouterr()
    return code, out, err


def test_figures_of_a_known_corpus(place, capsys):
    """5 of 6 tokens count. Every activation above 1/2 is copied, so FVE is 1.

    L0 is 2, or 3 in right documents where the last coordinate was not already on: on
    all but the two tokens of step 2. So L0 is (4 * 10 + 4 * (10 + 3)) / 40.
    """
    code, out, err = run(
        capsys, f"--sae={place / 'sae'}", f"--activations={place / 'data'}"
    )
    assert (code, err) == (0, "")
    result = json.loads(out)
    assert result["sae"]["group_sizes"] == [1, 3]
    assert result["sae"]["k"] == 2
    assert result["activations"]["skipped"]["special"] == 8
    quality = result["quality"]
    assert quality["tokens"] == 40
    assert quality["fve"] == 1.0
    assert quality["l0"]["all"] == pytest.approx((4 * 10 + 4 * 13) / 40)
    assert quality["alive"]["all"] == 1.0
    assert set(result["factors"]) == {"step", "correct", "prompt"}
    step = result["factors"]["step"]
    assert step["auroc_by_value"]["0"] == 1.0  # coordinate 0 is 2 there, else 0
    assert step["latents"]["0"] == 0
    assert step["probe_accuracy"] == 1.0
    assert step["majority_share"] == pytest.approx(0.4)
    correct = result["factors"]["correct"]
    assert correct["latents"] == {"0": 3, "1": 3}
    assert correct["auroc_by_value"]["1"] == pytest.approx(1.0)
    assert correct["auroc_by_value"]["0"] == pytest.approx(1.0)


def test_an_unmeasurable_factor_says_why(place, capsys):
    """One document chooses, so none is left to score."""
    argv = [f"--sae={place / 'sae'}", f"--activations={place / 'data'}"]
    code, out, _ = run(capsys, *argv, "--factors=correct", "--documents=1")
    assert code == 0
    assert "has 0 values" in json.loads(out)["factors"]["correct"]["error"]


def test_other_seeds_give_stability(place, capsys):
    argv = [f"--sae={place / 'sae'}", f"--activations={place / 'data'}"]
    _, out, _ = run(capsys, *argv, "--factors=", f"--others={place / 'sae'}")
    result = json.loads(out)
    assert result["seed_cosine"]["mean"] == pytest.approx(1.0)
    assert result["factors"] == {}


def test_the_high_level_latents_are_matched_by_themselves():
    """Another seed has the one high-level latent, and none of the three others."""
    found = _seed_cosine_report(copying(), [np.eye(4, dtype=np.float32)[:1]])
    assert found == {"mean": 0.25, "high": 1.0, "above_0.7": 0.25, "median": 0.0}


def test_partners_write_alike_and_correlate_only_where_they_fire_alike(
    tmp_path, capsys
):
    """The refit orders the latents differently, and the first one now reads noise.

    Its decoder row is unchanged: the cosine is 1, but the correlation is not.
    """
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 4)).astype(np.float32)
    with ShardWriter(
        tmp_path / "data",
        width=4,
        layer=0,
        hook="h",
        model="m",
        roles=("r",),
        dtype="float32",
    ) as out:
        for part in rows.reshape(4, 50, 4):
            out.add(part, token_ids=rng.integers(0, 99, 50), roles=np.zeros(50, int))
    order = np.array([2, 0, 3, 1])
    encoder = np.eye(4, dtype=np.float32)
    encoder[:, 0] = [0, 0, 0.9, 0.5]
    moved = dataclasses.replace(
        copying(),
        encoder=2 * encoder[:, order],
        decoder=np.eye(4, dtype=np.float32)[order],
    )
    save(tmp_path / "sae", copying())
    save(tmp_path / "refit", moved)
    argv = [f"--sae={tmp_path / 'sae'}", f"--activations={tmp_path / 'data'}"]
    _, text, _ = run(capsys, *argv, f"--others={tmp_path / 'refit'}")
    found = json.loads(text)["partners"][str(tmp_path / "refit")]
    assert found["partner"] == np.argsort(order).tolist()
    assert found["cosine"] == [1.0] * 4
    before, after = rows, 2 * rows @ encoder
    expected = [
        np.corrcoef(*(np.where(x[:, z] > 0.5, x[:, z], 0) for x in (before, after)))
        for z in range(4)
    ]
    np.testing.assert_allclose(
        found["correlation"], [table[0, 1] for table in expected], atol=1e-4
    )
    assert abs(found["correlation"][0]) < 0.2
    assert min(found["correlation"][1:]) > 0.9
    assert found["above_0.7"] == 0.75


def test_roles_and_documents_choose_the_tokens(place, capsys):
    argv = [f"--sae={place / 'sae'}", f"--activations={place / 'data'}", "--factors="]
    _, out, _ = run(capsys, *argv, "--roles=response", "--documents=3")
    assert json.loads(out)["quality"]["tokens"] == 15


def test_by_default_the_tokens_are_of_the_roles_it_was_trained_on(
    place, tmp_path, capsys
):
    save(tmp_path / "sae", copying(), metadata={"roles": ["response"]})
    argv = [f"--activations={place / 'data'}", "--factors=", "--documents=3"]
    _, out, _ = run(capsys, f"--sae={tmp_path / 'sae'}", *argv)
    assert json.loads(out)["quality"]["tokens"] == 15


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--activations=y"], "--sae is missing"),
        (["--sae=x"], "--activations is missing: a directory of activation shards"),
        (["--sea=x"], "sae"),
        (["--sae=x", "--activations=y", "z"], "unexpected argument 'z'"),
        (["--sae=x", "--activations=y", "--documents=0"], "--documents=0; it must"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(capsys, argv, message):
    code, out, err = run(capsys, *argv)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_an_unknown_factor_is_reported_with_the_nearest(place, capsys):
    argv = [f"--sae={place / 'sae'}", f"--activations={place / 'data'}"]
    code, _, err = run(capsys, *argv, "--factors=stop")
    assert code == 2
    assert "step" in err


def test_missing_inputs_are_one_line_and_exit_code_2(place, tmp_path, capsys):
    data = f"--activations={place / 'data'}"
    code, _, err = run(capsys, f"--sae={tmp_path}", data)
    assert code == 2
    assert "no autoencoder in" in err
    code, _, err = run(capsys, f"--sae={place / 'sae'}", f"--activations={tmp_path}")
    assert code == 2
    assert "no activations in" in err


def test_a_width_that_does_not_fit_is_reported(place, tmp_path, capsys):
    save(tmp_path / "wide", copying(5))
    code, _, err = run(
        capsys, f"--sae={tmp_path / 'wide'}", f"--activations={place / 'data'}"
    )
    assert code == 2
    assert "activations of width 4, but the autoencoder reads width 5" in err


def test_help_names_every_flag(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    for name in ("sae", "activations", "roles", "documents", "factors", "others"):
        assert f"--{name}" in out


def factor_of(tmp_path, capsys, documents):
    """Returns `evaluate`'s output for (rows [50, 64], labels, problem, first id)."""
    with ShardWriter(
        tmp_path / "data",
        width=64,
        layer=0,
        hook="h",
        model="m",
        roles=("r",),
        factors=("luck",),
        dtype="float32",
    ) as out:
        for rows, labels, problem, first in documents:
            out.add(
                rows,
                token_ids=first + np.arange(50),
                roles=np.zeros(50, int),
                factors={"luck": np.broadcast_to(labels, 50)},
                problem=problem,
            )
    save(tmp_path / "sae", copying(64))
    _, text, _ = run(
        capsys, f"--sae={tmp_path / 'sae'}", f"--activations={tmp_path / 'data'}"
    )
    return json.loads(text)


def test_a_mark_of_a_problem_does_not_predict_other_problems(tmp_path, capsys):
    """Each problem p has its own coordinate, a label, and four completions.

    If completions were halved instead of problems, these marks would predict every
    label.
    """
    rng = np.random.default_rng(0)
    documents = []
    for completion in range(4):
        for problem in range(16):
            rows = 0.1 * rng.normal(size=(50, 64))
            rows[:, problem] += 3.0
            label = problem // 2 % 2
            documents.append((rows, label, f"p{problem}", 1000 * problem + completion))
    found = factor_of(tmp_path, capsys, documents)
    assert found["factors"]["luck"]["probe_accuracy"] < 0.6
    assert found["factors"]["luck"]["auroc"] == pytest.approx(0.5, abs=0.05)


def test_a_completion_written_again_is_measured_once(tmp_path, capsys):
    """Document 3 repeats document 1 in another problem; document 4 differs."""
    rows = np.full((50, 64), 1.0)
    documents = [
        (rows, 0, "a", 0),
        (2 * rows, 1, "b", 100),
        (rows, 0, "c", 0),
        (rows, 1, "d", 1),
    ]
    found = factor_of(tmp_path, capsys, documents)
    assert found["activations"]["skipped"]["duplicate"] == 50
    assert found["quality"]["tokens"] == 150


def test_a_factor_is_scored_on_documents_that_did_not_choose(tmp_path, capsys):
    """With random labels, the best latent of one half scores 1/2 on the other."""
    rng = np.random.default_rng(0)
    documents = [
        (rng.normal(size=(50, 64)), rng.integers(0, 2, 50), None, 50 * number)
        for number in range(8)
    ]
    luck = factor_of(tmp_path, capsys, documents)["factors"]["luck"]
    assert luck["auroc"] == pytest.approx(0.5, abs=0.1)
    assert luck["probe_accuracy"] == pytest.approx(0.5, abs=0.1)
    assert luck["mcc"] < 0.15
