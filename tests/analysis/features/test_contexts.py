"""The contexts of reward features that the report quotes."""

from rlvr_jax.analysis.features.contexts import quote_contexts
from rlvr_jax.run.workdir import rollouts_file, write_rollouts
from sae_jax.io import save
from tests.support.sae_corpora import copying, write_corpus


def test_a_latent_is_quoted_where_it_fires_most_once_a_problem(tmp_path):
    """Latent 3 fires in documents 2, 3, 6, 7; the first two answer one problem."""
    save(tmp_path / "sae", copying())
    write_corpus(tmp_path / "activations")
    file = rollouts_file(tmp_path, "probe", 0)
    file.parent.mkdir()
    write_rollouts(file, [{"id": f"p{i // 4}"} for i in range(8)])
    quotes = quote_contexts(tmp_path, [0, 3])
    assert quotes[0] == "0 [1] 2 3 4; 40 [41] 42 43 44"
    assert quotes[3] == "21 22 23 [24] 25; 61 62 63 [64] 65"


def test_white_space_is_quoted_by_signs(tmp_path, monkeypatch):
    save(tmp_path / "sae", copying())
    write_corpus(tmp_path / "activations")
    file = rollouts_file(tmp_path, "probe", 0)
    file.parent.mkdir()
    write_rollouts(file, [{"id": "p0"}] * 8)
    vocabulary = ["x", "\n", " ", "\t", " of", *map(str, range(5, 76))]
    monkeypatch.setattr(
        "rlvr_jax.analysis.quotes.read_vocabulary", lambda *_: vocabulary
    )
    assert quote_contexts(tmp_path, [0])[0] == "x[\u21b5]\u2423\u2192 of"


def test_a_run_without_activations_is_quoted_nowhere(tmp_path):
    assert quote_contexts(tmp_path, [0]) == {}
    assert quote_contexts(tmp_path, []) == {}
