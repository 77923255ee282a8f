"""Latents to look at: counts, examples, and the content of the page."""

import base64
import gzip
import html
import json
import re
import shutil
import subprocess
import types

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file

from sae_jax.dashboard import __main__ as dashboard
from sae_jax.dashboard import record
from sae_jax.dashboard.__main__ import main
from sae_jax.dashboard.contexts import (
    TOP,
    ContextCounts,
    choose_documents,
    measure_firings,
    read_contexts,
)
from sae_jax.dashboard.sources import (
    find_outcomes,
    read_documents,
    read_reward_weights,
    read_unembedding,
)
from sae_jax.data.corpus import open_corpus
from sae_jax.data.vocabulary import WHITESPACE_NOTE
from sae_jax.formats.record import FormatError
from sae_jax.io import save
from tests.support.sae_corpora import copying, write_corpus

VERDICTS = ["incorrect", "incorrect", "correct", "correct"] * 2


@pytest.fixture
def place(tmp_path):
    """Returns a directory with sae/, activations/, and rollouts of 8 documents."""
    save(tmp_path / "sae", copying(), metadata={"model_name": "toy <b>"})
    write_corpus(tmp_path / "activations")
    rows = [
        {
            "id": f"p{i // 4}",
            "verdict": verdict,
            "reward": i / 8,
            "band": "hard",
            "x": 1,
        }
        for i, verdict in enumerate(VERDICTS)
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "rollouts.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    return tmp_path


def read_page(path):
    """Returns the JSON in a page."""
    text = path.read_text()
    (packed,) = re.findall(r'id="data">([^<]*)</script>', text)
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def test_firings_are_counted_over_the_tokens_that_count(place):
    """Of 5 tokens of a document, latent 0 fires on one, at 2, and latent 1 on three."""
    corpus = open_corpus(place / "activations", copying())
    firings = measure_firings(copying(), corpus, np.array([0, 1, 3]))
    assert firings.rate.tolist() == [1 / 5, 3 / 5, (2 + 5) / 10]
    assert firings.mean.tolist()[:2] == pytest.approx([2.0, 5 / 3])
    assert firings.highest[0].tolist() == [2.0, 2.0, 1.0]
    assert firings.highest[2].tolist() == [2.0, 2.0, 4.0]
    assert firings.position[2].tolist() == [1, 2, 4]
    assert firings.outcomes is None


def test_of_a_problem_the_highest_document_is_shown():
    highest = np.array([3.0, 9.0, 8.0, 0.0, 5.0])
    problems = np.array([0, 1, 1, 2, 3])
    counts = ContextCounts(top=9, at_quantile=1, quantiles=())
    shown = choose_documents(highest, problems, counts)
    assert shown == [(TOP, 1), (TOP, 4), (TOP, 0)]


def test_quantiles_are_of_the_documents_in_which_a_latent_fires():
    """Of 100, highest first, rank 25 is the quantile 0.75; zeros do not count."""
    highest = np.concatenate([np.zeros(50), np.arange(100, 0, -1)])
    counts = ContextCounts(top=2, at_quantile=3, quantiles=(0.75, 0.25))
    shown = choose_documents(highest, np.arange(150), counts)
    assert [row - 50 for group, row in shown if group == "0.75"] == [24, 25, 26]
    assert [row - 50 for group, row in shown if group == "0.25"] == [74, 75, 76]
    few = choose_documents(highest[:53], np.arange(53), counts)
    assert [group for group, _ in few] == [TOP, TOP, "0.75"]


def test_contexts_are_the_tokens_around_the_highest(place):
    tsae = copying()
    corpus = open_corpus(place / "activations", tsae)
    latents = np.array([0, 3])
    firings = measure_firings(tsae, corpus, latents)
    contexts = read_contexts(tsae, corpus, firings, ContextCounts(top=2))
    first = contexts[0][0]
    assert (first.group, first.document, first.peak) == (TOP, 0, 1)
    assert first.token_ids.tolist() == [0, 1, 2, 3, 4, 5]
    assert first.roles.tolist() == [0, 1, 1, 1, 1, 1]
    assert first.values.tolist() == [0, 2, 0, 0, 0, 0]
    assert contexts[3][0].values.max() == 4
    assert contexts[3][0].document in {2, 3, 6, 7}


def test_outcomes_compare_right_and_wrong_within_problems(place):
    """Latent 3 fires where a document is correct, so its effect is 1."""
    tsae = copying()
    corpus = open_corpus(place / "activations", tsae)
    outcomes = find_outcomes([{"verdict": verdict} for verdict in VERDICTS])
    firings = measure_firings(tsae, corpus, np.arange(4), outcomes=outcomes)
    moments = firings.outcomes
    assert moments.num_rollouts.sum(axis=0).tolist() == [4, 4]
    means = moments.sums.sum(axis=0)[:, 3] / 4
    assert means.tolist() == pytest.approx([2 / 5, 2 / 5 + 3])


@pytest.mark.parametrize(
    ("given", "filled"),
    [
        ((), {"sae", "activations", "rollouts", "others", "dynamics"}),
        (("activations",), {"sae", "others", "dynamics"}),
        (("sae",), {"activations", "rollouts"}),
    ],
)
def test_a_runs_files_are_not_mixed_with_other_ones(tmp_path, given, filled):
    """Its completions belong to its activations, its features to its autoencoder."""
    for path in dashboard._OF_RUN.values():
        (tmp_path / path).mkdir(parents=True)
    for name in ("seed3_no_contrast", "seed4"):  # of a run with seed 3
        (tmp_path / "sae_replicas" / name).mkdir()
    mine = dict.fromkeys(given, "mine")
    flags = dashboard.DashboardFlags(out="d.html", workdir=str(tmp_path), **mine)
    values = vars(dashboard._fill_from_workdir(flags))
    of_run = {name for name in dashboard._OF_RUN if str(tmp_path) in str(values[name])}
    assert of_run == filled
    partner = (str(tmp_path / "sae_replicas/seed4"),)
    assert values["others"] == (partner if "others" in filled else ())


@pytest.mark.parametrize(
    ("control", "weights"),
    [
        ("none", {3: 0.5, 7: -0.25}),
        ("direction", {}),  # one weight for the direction that replaces two latents
        ("random_directions", {}),
    ],
)
def test_a_control_along_directions_pays_no_latent(tmp_path, control, weights):
    paid = [0.5] if control == "direction" else [0.5, -0.25]
    selection = {"latents": [3, 7], "weights": paid, "control": control}
    (tmp_path / "selection.json").write_text(json.dumps(selection))
    assert read_reward_weights(tmp_path) == weights


def test_an_effects_interval_is_students_t_over_problems(monkeypatch):
    """Two problems have one degree of freedom, t = 12.7; no end leaves -1..1."""
    within = types.SimpleNamespace(
        outcome_scatter=np.ones(2),
        effect=lambda: (np.array([0.1, 0.5]), np.array([0.01, 0.1])),
    )
    monkeypatch.setattr(record, "within_prompts", lambda outcomes: within)
    firings = types.SimpleNamespace(latents=[0, 1], outcomes=())
    small, large = record._outcome_effects(firings)
    assert small == pytest.approx([0.1, 0.1 - 0.127, 0.1 + 0.127], abs=1e-3)
    assert large == pytest.approx([0.5, -0.77, 1.0], abs=1e-2)
    within.outcome_scatter = np.ones(1)
    assert record._outcome_effects(firings) == [None, None]


def test_without_verdicts_there_are_no_outcomes():
    assert find_outcomes([{"verdict": "unverified"}, {}]) is None


def test_page_holds_what_is_shown_and_nothing_runs_in_its_names(place, capsys):
    out = place / "page.html"
    code = main(
        [
            f"--sae={place / 'sae'}",
            f"--activations={place / 'activations'}",
            f"--rollouts={place / 'rollouts.jsonl.gz'}",
            f"--others={place / 'sae'}",
            f"--out={out}",
        ]
    )
    assert code == 0
    assert json.loads(capsys.readouterr().out)["latents"] == 4
    assert "<title>toy &lt;b&gt;: 4 latents</title>" in out.read_text()
    page = read_page(out)
    latent = {row["id"]: row for row in page["latents"]}[3]
    assert latent["max"] == 4
    assert latent["effect"][0] == 1  # it fires where a document is correct
    assert latent["partners"] == {str(place / "sae"): [3, 1.0, 1.0]}
    context = latent["contexts"][0]
    known = page["documents"][context["document"]]
    assert known["verdict"] == "correct"
    assert known["band"] == "hard"
    assert "x" not in known
    words = [page["vocabulary"][token] for token in context["tokens"]]
    assert words == [str(10 * known["document"] + at) for at in range(6)]


def test_white_space_is_shown_by_signs_that_the_page_explains_once(place, capsys):
    """Tokens of only white space get a sign; a space before a word is kept."""
    texts = {"x": 0, "\n": 1, " ": 2, "\t": 3, " the": 4, " \n\n": 5}
    texts |= {f"w{i}": i for i in range(6, 76)}
    (place / "vocab.json").write_text(json.dumps(texts))
    out = place / "page.html"
    flags = [f"--{name}={place / name}" for name in ("sae", "activations")]
    assert main([*flags, f"--vocabulary={place / 'vocab.json'}", f"--out={out}"]) == 0
    page = read_page(out)
    first = next(
        context
        for latent in page["latents"]
        for context in latent["contexts"]
        if page["documents"][context["document"]]["document"] == 0
    )
    words = [page["vocabulary"][token] for token in first["tokens"]]
    assert words == ["x", "\u21b5", "\u2423", "\u2192", " the", "\u2423\u21b5\u21b5"]
    assert page["separator"] == ""
    assert out.read_text().count(html.escape(WHITESPACE_NOTE)) == 1


def test_what_a_latent_writes_is_read_off_the_unembedding(place, capsys):
    """Token 7 reads only direction 2, through a norm that doubles it."""
    head = np.zeros((90, 4), np.float32)
    head[7, 2], head[8, 2] = 3.0, -1.0
    model = {"lm_head.weight": head, "model.norm.weight": np.full(4, 2, np.float32)}
    (place / "model").mkdir()
    save_file(model, place / "model" / "model.safetensors")
    out = place / "page.html"
    assert (
        main(
            [
                f"--sae={place / 'sae'}",
                f"--activations={place / 'activations'}",
                f"--model={place / 'model'}",
                "--latents=2",
                f"--out={out}",
            ]
        )
        == 0
    )
    capsys.readouterr()
    page = read_page(out)
    (latent,) = page["latents"]
    most, least = latent["logits"]
    assert [page["vocabulary"][most[0][0]], most[0][1]] == ["7", 6.0]
    assert [page["vocabulary"][least[0][0]], least[0][1]] == ["8", -2.0]


def test_unembedding_of_another_width_is_refused(tmp_path):
    model = {
        "model.embed_tokens.weight": np.zeros((5, 3), jnp.bfloat16),
        "model.norm.weight": np.zeros(3, jnp.bfloat16),
    }
    save_file(model, tmp_path / "model.safetensors")
    assert read_unembedding(tmp_path, 3).head.dtype == np.float32
    with pytest.raises(FormatError, match=r"width 3.*one of 4"):
        read_unembedding(tmp_path, 4)


def test_rollouts_of_other_activations_are_refused(place):
    with pytest.raises(FormatError, match="8 lines for 9 documents"):
        read_documents(place / "rollouts.jsonl.gz", 9)
    assert len(read_documents(place / "rollouts.jsonl.gz", 7)) == 7


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--out=page.txt"], "may be one of .html"),
        (["--out=page.html"], "--sae and --activations missing"),
        (["--out=page.html", "--workdir=nowhere"], "nowhere holds none"),
    ],
)
def test_bad_usage_is_one_line(arguments, words, capsys):
    assert main(arguments) == 2
    told = capsys.readouterr().err.strip()
    assert words in told
    assert "\n" not in told


@pytest.mark.skipif(not shutil.which("chromium"), reason="no chromium on this machine")
def test_a_browser_draws_index_and_latent(place, capsys):
    out = place / "page.html"
    arguments = ["sae", "activations"]
    assert (
        main(
            [
                *(f"--{name}={place / name}" for name in arguments),
                f"--rollouts={place / 'rollouts.jsonl.gz'}",
                f"--out={out}",
            ]
        )
        == 0
    )
    capsys.readouterr()

    def draw(address):
        command = [
            *("chromium", "--headless", "--no-sandbox", "--disable-gpu"),
            *("--disable-background-networking", "--no-first-run"),
            *(f"--user-data-dir={place / 'profile'}", "--virtual-time-budget=5000"),
            *("--dump-dom", address),
        ]
        shown = subprocess.run(command, capture_output=True, text=True, check=True)
        (view,) = re.findall(r'<div id="view".*?</main>', shown.stdout, re.DOTALL)
        return re.sub(r"<[^>]*>", " ", view)

    index = draw(out.as_uri())
    assert "fires most on" in index
    latent = draw(f"{out.as_uri()}#3")
    assert "Latent 3" in latent
    assert "effect within problems 1 [" in latent
    assert latent.index("correct") < latent.index("hard")
