"""Whole runs with a probe: watching changes nothing, guiding does; cut and resumed."""

import dataclasses
import json
import re
import shutil
import signal

import numpy as np
import pytest

from rlvr_jax.probe.reference_texts import ReferenceTexts
from sae_jax import io
from sae_jax.sae import TSAE
from sae_jax.stats.feature_statistics import FeatureTable
from tests.support.command import (
    ROOT,
    completions,
    files,
    metrics,
    overrides,
    summary,
    tiny,
)

PROBED = overrides(
    probe__name="sae",
    probe__num_problems=10,  # a batch of 8, and 2 more
    probe__num_reference_texts=8,
    probe__log_every=2,
    probe__measure_overhead=False,
    probe__sae__architecture__latents=48,
    probe__sae__architecture__k=4,
    probe__sae__batch_size=32,
    probe__sae__optimizer__warmup_steps=2,
    probe__sae__train__steps=6,
    probe__sae__train__threshold_start_step=2,
    probe__sae__train__threshold_decay=0.5,
    probe__features__method="list",
    probe__features__latents=(1, 2, 40),
)
GUIDED = overrides(
    train__rfgo__lambda_w=0.5,
    train__rfgo__lambda_p=0.1,
    train__rfgo__proxy_groups="zero_variance",
)


@pytest.fixture(scope="module")
def guided(command, tmp_path_factory):
    """The workdir of an undisturbed probed and guided run."""
    workdir = tmp_path_factory.mktemp("guided")
    measured = "--config.probe.measure_overhead=True"
    ended = command.run(*tiny(workdir, *PROBED, *GUIDED, measured))
    assert ended.code == 0, ended.err
    return workdir


def features(workdir):
    """Returns the contents of features/: tables by file, and the lines of validity."""
    tables = {}
    for path in sorted((workdir / "features").glob("*.npz")):
        with np.load(path, allow_pickle=False) as file:
            tables[path.name] = {name: file[name] for name in file.files}
    lines = (workdir / "features" / "sae_fidelity.jsonl").read_text().splitlines()
    return tables, [json.loads(line) for line in lines]


def assert_same(one, other):
    """Asserts that parameters, metrics and features are equal, bit for bit."""
    assert summary(one)["params_sha256"] == summary(other)["params_sha256"]
    assert metrics(one) == metrics(other)
    (tables, lines), (others, other_lines) = features(one), features(other)
    assert lines == other_lines
    assert tables.keys() == others.keys()
    for name, table in tables.items():
        for part, array in table.items():
            np.testing.assert_array_equal(array, others[name][part], err_msg=part)


def test_a_watched_run_is_bit_for_bit_the_one_without_a_probe(command, whole, tmp_path):
    ended = command.run(*tiny(tmp_path, *PROBED))
    assert ended.code == 0, ended.err
    watched, plain = summary(tmp_path), summary(whole)
    assert watched["params_sha256"] == plain["params_sha256"]
    assert watched["eval"] == plain["eval"]
    for name in ("train_000003.jsonl.gz", "eval_after_000000.jsonl.gz"):
        assert completions(tmp_path, name) == completions(whole, name)
    assert watched["rfgo"]["proxy_groups"] == 0
    assert len(features(tmp_path)[0]) == 4


def test_where_no_feature_is_confirmed_a_guided_run_is_the_plain_one(
    command, whole, tmp_path
):
    """So young a policy solves hardly anything, so no features can be chosen."""
    contrast = overrides(
        probe__features__method="contrast", probe__features__latents=()
    )
    ended = command.run(*tiny(tmp_path, *PROBED, *GUIDED, *contrast))
    assert ended.code == 0, ended.err
    found = summary(tmp_path)
    assert f"RFGO is off: {found['probe']['refusal']}" in ended.err
    assert (found["probe"]["latents"], found["rfgo"]["num_features"]) == ([], 0)
    assert found["params_sha256"] == summary(whole)["params_sha256"]
    trained = [row for row in metrics(tmp_path) if row["stage"] == "train"]
    assert {row["rfgo/num_features"] for row in trained} == {0}
    report = (tmp_path / "report" / "index.html").read_text()
    assert "None, and RFGO is off" in report


def test_a_guided_run_differs_and_names_its_features(guided, whole):
    found = summary(guided)
    assert found["params_sha256"] != summary(whole)["params_sha256"]
    assert found["rfgo"].keys() >= {"proxy_groups", "corr_reward"}
    overhead = found["probe_overhead"]
    assert overhead.keys() >= {"features", "observer"}
    assert found["probe"]["latents"] == [1, 2, 40]
    assert len(found["probe"]["seed_cosine"]) == 3
    assert found["tsae"]["replicas"].keys() == {"seed0", "seed1"}
    assert found["stages"].keys() >= {"probe", "train"}
    weighed = [
        row["rfgo/weight_std"] for row in metrics(guided) if row["stage"] == "train"
    ]
    assert len(weighed) == 4
    assert min(weighed) > 0


def test_a_probed_run_leaves_the_files_of_the_contract(guided):
    names = files(guided).keys()
    assert names >= {
        "config.json",
        "metrics.jsonl",
        "rollouts/probe_000000.jsonl.gz",
        "activations/index.json",
        "sae/cfg.json",
        "sae/sae_weights.safetensors",
        "sae/selection.json",
        "probe/reference_texts.npz",
        "sae_replicas/seed1/cfg.json",
        "features/sae_fidelity.jsonl",
        "report/index.html",
    }
    assert not [name for name in names if "partial" in name]
    index = json.loads((guided / "activations" / "index.json").read_text())
    asked = [row["id"] for row in completions(guided, "probe_000000.jsonl.gz")]
    assert index["problems"] == list(dict.fromkeys(asked))
    assert (len(index["problems"]), index["sequences"]) == (10, 40)
    tables, lines = features(guided)
    steps = [f"step_{step:06d}.npz" for step in (0, 2, 4)]
    assert list(tables) == ["noise_000004.npz", *steps]
    assert len(completions(guided, "probe_000000.jsonl.gz")) == 10 * 4
    table = FeatureTable.load(guided / "features" / "step_000000.npz")
    assert {row.split for row in table.rows} == {"reference", "rollout"}
    fixed = [row for row in table.rows if row.split == "reference"]
    texts = ReferenceTexts.load(guided / "probe" / "reference_texts.npz")
    read = np.array(texts.problem_ids)[texts.lengths > 1]  # the last token is not read
    assert [row.prompt for row in fixed] == read.tolist()
    assert len(texts.problem_ids) == 8
    # Their problems are held out: the probe and RL have read others.
    held_out = completions(guided, "eval_before_000000.jsonl.gz")
    prompts = {row["id"]: row["prompt"] for row in held_out}
    others = {
        row["prompt"]
        for kind in ("probe", "train")
        for file in (guided / "rollouts").glob(f"{kind}_*")
        for row in completions(guided, file.name)
    }
    assert len(others) > 10
    assert not {prompts[row.prompt] for row in fixed} & others
    # The last line has only reference texts: after the last step nothing is sampled.
    final = FeatureTable.load(guided / "features" / "step_000004.npz")
    assert {row.split for row in final.rows} == {"reference"}
    of_all = {(x["step"], x["split"]) for x in lines if x["band"] == ""}
    assert of_all == {(s, "reference") for s in (0, 2, 4)} | {
        (s, "rollout") for s in (0, 2)
    }


@pytest.mark.exhaustive
def test_a_probed_run_killed_ends_as_one_never_cut(command, guided, tmp_path):
    # While the autoencoder trains; after a logged step's checkpoint; within the
    # steps after the next logged one, when its features are already written.
    args = tiny(tmp_path, *PROBED, *GUIDED, "--config.probe.measure_overhead=True")
    for line in ("probe: completions  8/10", "tsae  4/6", "train  3/4"):
        ended = command.cut(line, signal.SIGKILL, *args)
        assert ended.code == -signal.SIGKILL
    ended = command.cut("train  3/4", signal.SIGTERM, *args)
    assert ended.code in (0, 75)
    ended = command.run(*args)
    assert ended.code == 0, ended.err
    assert_same(tmp_path, guided)


def test_a_finished_probed_run_says_so_and_touches_nothing(command, guided):
    before = files(guided)
    args = tiny(guided, *PROBED, *GUIDED, "--config.probe.measure_overhead=True")
    ended = command.run(*args)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("finished: ")
    assert files(guided) == before


def test_a_policy_that_is_never_right_has_no_credit_to_give(command, guided, tmp_path):
    workdir = tmp_path / "run"
    shutil.copytree(guided, workdir)
    args = ("credit", workdir, "--num_samples=4", "--num_controls=2")
    ended = command.run(*args, "--num_problems=8", module="rlvr_jax.analysis")
    assert ended.code == 1
    assert "prefixes" in ended.err
    assert "\nerror: no token of these completions changes" in ended.err
    assert not (workdir / "credit.json").exists()


def test_gradients_are_compared_as_training_would_take_them(command, tmp_path):
    workdir, bands = (
        tmp_path,
        overrides(difficulty__num_samples=2, curriculum__name="mixture"),
    )
    ended = command.run(*tiny(workdir, *PROBED, *GUIDED, *bands))
    assert ended.code == 0, ended.err
    sizes = ("--num_batches=2", "--num_reference=2", "--num_controls=2")
    even = command.run(
        *("gradients", workdir, *sizes, "--lambda_w=0.0"), module="rlvr_jax.analysis"
    )
    assert even.code == 0, even.err
    found = json.loads((workdir / "gradients.json").read_text())
    alike = {kind["cosine"]["mean"] for kind in found["kinds"].values()}
    assert alike == {*found["of_draws"]}  # weights of 1 all
    assert all(kind["less_even"]["mean"] == 0 for kind in found["kinds"].values())
    weighed = command.run(*("gradients", workdir, *sizes), module="rlvr_jax.analysis")
    assert weighed.code == 0, weighed.err
    assert "batches  4/4" in weighed.err
    assert "over 2 batches" in weighed.out
    found = json.loads((workdir / "gradients.json").read_text())
    even_cosine = found["kinds"]["none: weights of 1"]["cosine"]["mean"]
    assert {even_cosine} == alike
    others = {kind["cosine"]["mean"] for kind in found["kinds"].values()} - alike
    assert len(others) == 3
    assert all(-1 < cosine < 1 for cosine in others)


@pytest.mark.exhaustive
def test_an_autoencoder_from_another_run_is_read_where_it_lies(
    command, guided, tmp_path
):
    from_path = overrides(probe__sae_path=guided / "sae")
    kept = [x for x in PROBED if "probe.sae." not in x]
    ended = command.run(*tiny(tmp_path, *kept, *from_path, *GUIDED))
    assert ended.code == 0, ended.err
    # The same policy, problems, dictionary and features: the same run.
    assert summary(tmp_path)["params_sha256"] == summary(guided)["params_sha256"]
    found = summary(tmp_path)["tsae"]
    assert found == {"path": str(guided / "sae"), "format": "saelens"}
    assert features(tmp_path)[1] == features(guided)[1]


@pytest.mark.slow
def test_an_autoencoder_that_keeps_the_k_largest_guides_a_run(command, tmp_path):
    tsae = dataclasses.replace(TSAE.init(0, width=16, latents=24), top_k=4)
    metadata = {"hook_name": "blocks.0.hook_resid_post"}
    io.save(tmp_path / "sae", tsae, metadata=metadata)
    kept = [x for x in PROBED if "probe.sae." not in x and "probe.features." not in x]
    chosen = overrides(
        probe__sae_path=tmp_path / "sae",
        probe__features__method="list",
        probe__features__latents=(1, 5),
    )
    ended = command.run(*tiny(tmp_path / "w", *kept, *chosen, *GUIDED))
    assert ended.code == 0, ended.err
    assert io.load(tmp_path / "w" / "sae").top_k == 4
    lines = features(tmp_path / "w")[1]
    assert all(0 < line["l0"] <= 4 for line in lines)


@pytest.mark.slow
def test_a_users_own_probe_steers_a_run(command, tmp_path, monkeypatch):
    """Runs the probe of docs/use/extend.md, a file outside the package."""
    section = (ROOT / "docs/use/extend.md").read_text().split("## A probe")[1]
    code = re.search(r"```python\n(.*?)```", section, re.DOTALL)[1]
    # So young a policy solves nothing, so half of its completions are called correct.
    code += """
class HalfCorrect(DirectionProbe):
    def fit(self, inputs):
        outcomes = np.arange(len(inputs.corpus.outcomes)) % 2
        corpus = dataclasses.replace(inputs.corpus, outcomes=outcomes)
        return super().fit(dataclasses.replace(inputs, corpus=corpus))
"""
    (tmp_path / "my_probe.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{tmp_path}")
    own = overrides(
        probe__name="my_probe:HalfCorrect",
        probe__sign=-1.0,
        probe__num_problems=8,
        probe__num_reference_texts=8,
        train__rfgo__lambda_w=0.5,
    )
    ended = command.run(*tiny(tmp_path / "run", *own))
    assert ended.code == 0, ended.err
    assert summary(tmp_path / "run")["probe"]["rms"] > 0
    trained = [row for row in metrics(tmp_path / "run") if row["stage"] == "train"]
    assert min(row["rfgo/weight_std"] for row in trained) > 0
    assert all("feature_direction/mean" in row for row in trained)
