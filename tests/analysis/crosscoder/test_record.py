"""The record's comparisons, each of two crosscoders, and the bands of its problems."""

import json
import types

from rlvr_jax.analysis.crosscoder import command, texts
from rlvr_jax.analysis.crosscoder.summary import BASE, HALVES, OTHER_SEED, RANDOM, RL
from rlvr_jax.config import DifficultyConfig
from rlvr_jax.rollouts.graded import GradedCompletion
from rlvr_jax.types import Problem, Verdict


def test_each_crosscoder_is_replicated_by_its_partner(monkeypatch, tmp_path):
    """RL by the other seed, and one half of the problems by the other half."""
    fitted = {
        name: types.SimpleNamespace(name=name, tsae=f"decoder of {name}")
        for name in (RL, OTHER_SEED, *HALVES, BASE, RANDOM)
    }
    index = types.SimpleNamespace(problems=("p", "q"))
    corpus = types.SimpleNamespace(shards=types.SimpleNamespace(index=index))
    described = []

    def describe(fit, checkpoints, *, bands, others):
        partners = {name: other.name for name, other in others.items()}
        described.append((fit.name, checkpoints, bands, partners))
        return [{"latent": 4}]

    for name, stand_in in {
        "open_measured": lambda paths: corpus,
        "describe_latents": describe,
        "quote_latents": lambda tsae, corpus, latents: dict.fromkeys(latents, tsae),
        "load_config": lambda path, kind: types.SimpleNamespace(name="a run"),
        "describe_fit": lambda fit: fit.name,
        "count_replicated": lambda found, other: [found.name, other.name],
    }.items():
        monkeypatch.setattr(command, name, stand_in)
    read = texts.CheckpointTexts(
        activations={"before": tmp_path / "before", "step_4": tmp_path / "step_4"},
        noise=tmp_path / "noise",
        bands={"q": "easy", "p": "hard"},
    )
    record = command._describe(tmp_path, read, fitted, {})
    assert record["replicated"] == {
        f"{RL} by {OTHER_SEED}": [RL, OTHER_SEED],
        f"{HALVES[0]} by {HALVES[1]}": [*HALVES],
    }
    assert record["crosscoders"] == {name: name for name in fitted}
    bands = {0: "hard", 1: "easy"}
    partners = {OTHER_SEED: OTHER_SEED}
    assert described == [(RL, ["before", "step_4"], bands, partners)]
    assert record["latents"] == [{"latent": 4, "contexts": f"decoder of {RL}"}]


def _answers(problem_id, statuses, version):
    return [
        GradedCompletion(
            problem=Problem(
                id=problem_id, prompt="?", gold="4", verifier="", source=""
            ),
            completion="4",
            verdict=Verdict(status=status, answer="4"),
            length=1,
            finished=True,
            strategy=None,
            weight_version=version,
        )
        for status in statuses
    ]


def test_a_problems_band_counts_no_answers_after_rl(tmp_path):
    """RL turned problem p from hard to easy, and q from easy to hard."""
    wrong, right = ["incorrect"] * 2, ["correct"] * 2
    batches = [
        texts._Batch(None, None, _answers("p", wrong, 0) + _answers("q", right, 0)),
        texts._Batch(None, None, _answers("p", right, 4) + _answers("q", wrong, 4)),
    ]
    texts._write_documents(tmp_path, batches, DifficultyConfig())
    assert texts._read_bands(tmp_path) == {"p": "hard", "q": "easy"}
    lines = (tmp_path / "documents.jsonl").read_text().splitlines()
    versions = [json.loads(line)["weight_version"] for line in lines]
    assert versions == [0] * 4 + [4] * 4
