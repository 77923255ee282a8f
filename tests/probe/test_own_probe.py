"""A custom probe is one file: the example in docs/use/extend.md."""

import pathlib
import re
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from job_jax.schema import ConfigError
from rlvr_jax.config.probe import PROBES
from rlvr_jax.probe.labeled_corpus import LabeledCorpus
from sae_jax.data.corpus import open_corpus
from sae_jax.data.shards import ShardWriter

ROOT = pathlib.Path(__file__).parents[2]
NAME = "my_probe:DirectionProbe"
D, T = 6, 5


@pytest.fixture(autouse=True)
def my_probe(tmp_path_factory, monkeypatch):
    """Installs the page's example as a module that Python can import."""
    section = (ROOT / "docs/use/extend.md").read_text().split("## A probe")[1]
    code = re.search(r"```python\n(.*?)```", section, re.DOTALL)[1]
    directory = tmp_path_factory.mktemp("user")
    (directory / "my_probe.py").write_text(code)
    monkeypatch.syspath_prepend(directory)
    monkeypatch.delitem(sys.modules, "my_probe", raising=False)


def test_a_custom_probe_finds_the_planted_direction(tmp_path):
    """Correct completions have 3 more in coordinate 2, which is the feature."""
    outcomes = np.arange(16) % 2
    random = np.random.default_rng(0)
    with ShardWriter(
        tmp_path / "activations",
        width=D,
        layer=0,
        hook="blocks.0.hook_resid_post",
        model="toy",
        roles=("prompt", "response"),
        dtype="float32",
    ) as out:
        for outcome in outcomes:
            x = 0.1 * random.standard_normal((1 + T, D))
            x[:, 2] += 3 * outcome
            roles = np.minimum(np.arange(1 + T), 1)
            out.add(x, token_ids=np.arange(1 + T), roles=roles)
    corpus = LabeledCorpus(
        corpus=open_corpus(tmp_path / "activations", None, roles=("response",)),
        problem_index=np.arange(16) // 2,
        outcomes=outcomes,
    )
    config = PROBES.load(NAME)(sign=-1.0)
    inputs = types.SimpleNamespace(corpus=corpus, directory=tmp_path)
    assert config.fit(inputs)["rms"] == pytest.approx(1.5, abs=0.1)
    probe = config.load(tmp_path, None)
    assert (probe.feature_names, probe.weights) == (("direction",), (-1.0,))
    x = np.zeros((2, 3, D), np.float32)
    x[1, :, 2] = 3.0
    f = jax.jit(lambda reader, x: reader.features(x))(probe.reader, jnp.asarray(x))
    assert f.shape == (2, 3, 1)
    np.testing.assert_allclose((f[1] - f[0])[:, 0], 3.0, atol=0.05)


def test_a_direction_between_outcomes_that_no_problem_has_is_refused(tmp_path):
    with ShardWriter(
        tmp_path / "activations",
        width=D,
        layer=0,
        hook="blocks.0.hook_resid_post",
        model="toy",
        roles=("response",),
        dtype="float32",
    ) as out:
        for _ in range(2):
            out.add(np.ones((T, D)), token_ids=np.arange(T), roles=np.zeros(T, int))
    corpus = LabeledCorpus(
        corpus=open_corpus(tmp_path / "activations", None),
        problem_index=np.arange(2),
        outcomes=np.arange(2),
    )
    with pytest.raises(ConfigError, match="no problem has a correct and an incorrect"):
        corpus.outcome_direction()


def test_an_unknown_probe_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="unknown probe 'saes'; did you mean 'sae'"):
        PROBES.load("saes")
