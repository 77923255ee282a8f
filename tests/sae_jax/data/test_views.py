"""Several checkpoints side by side, and selected problems alone."""

import numpy as np
import pytest

from job_jax.config import MeshConfig
from job_jax.config_io import to_json
from job_jax.mesh import make_mesh
from job_jax.schema import ConfigError
from sae_jax.config import Config, PairsConfig
from sae_jax.data.shard_index import ShardError
from sae_jax.data.shards import ActivationShards, ShardWriter
from sae_jax.data.views import JoinedShards, ProblemSubset, open_activations
from sae_jax.train import open_source

DOCUMENTS, TOKENS, D = 6, 5, 3


def write(path, *, seed, width=D, hook="blocks.2.hook_resid_post", first_token=0):
    rng = np.random.default_rng(seed)
    with ShardWriter(
        path,
        width=width,
        layer=2,
        hook=hook,
        model=f"step {seed}",
        roles=("prompt", "response"),
        vocabulary=("a", "b"),
        dtype="float32",
        shard_tokens=9,  # the texts lie in several files
    ) as out:
        for document in range(DOCUMENTS):
            out.add(
                rng.standard_normal((TOKENS, width)).astype(np.float32),
                token_ids=first_token + document + np.arange(TOKENS),
                roles=np.array([0, 1, 1, 1, 1]),
                problem=f"p{document // 2}",
            )
    return path


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    directory = tmp_path_factory.mktemp("checkpoints")
    return [write(directory / str(seed), seed=seed) for seed in range(3)]


def test_rows_of_the_checkpoints_lie_side_by_side(paths):
    joined = open_activations(paths[0], paths[1:])
    parts = [ActivationShards(path) for path in paths]
    tokens = np.array([7, 0, 29, 7])
    assert joined.width == 3 * D
    for k, part in enumerate(parts):
        own = joined.rows(tokens)[:, k * D : (k + 1) * D]
        np.testing.assert_array_equal(own, part.rows(tokens))
    every = np.arange(DOCUMENTS * TOKENS)
    norms = np.linalg.norm(joined.rows(every), axis=1)
    np.testing.assert_allclose(joined.column("norm"), norms, rtol=1e-6)
    for name in ("sequence", "problem", "token_id", "role", "special"):
        np.testing.assert_array_equal(joined.column(name), parts[1].column(name))
    assert joined.index.problems == ("p0", "p1", "p2")
    assert joined.index.model == "step 0; step 1; step 2"


def test_their_order_is_part_of_what_the_data_are(paths):
    hashes = {JoinedShards(order).data_hash for order in (paths, paths[::-1])}
    assert len(hashes) == 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"first_token": 1}, "differ in 'token_id'"),
        ({"width": D + 1}, "hook, width, roles"),
        ({"hook": "blocks.1.hook_resid_post"}, "hook, width, roles"),
    ],
)
def test_what_is_not_the_same_text_or_place_is_refused(paths, tmp_path, changes, said):
    other = write(tmp_path / "other", seed=9, **changes)
    with pytest.raises(ShardError, match=said):
        JoinedShards([paths[0], other])


def test_a_subset_has_the_tokens_of_its_problems_alone(paths):
    whole = ActivationShards(paths[0])
    part = ProblemSubset(whole, np.array([0, 2]))
    kept = np.flatnonzero(np.isin(whole.column("problem"), [0, 2]))
    assert len(part.column("sequence")) == len(kept) == 4 * TOKENS
    np.testing.assert_array_equal(part.column("token_id"), np.r_[kept] % 5 + kept // 5)
    tokens = np.array([19, 3])
    np.testing.assert_array_equal(part.rows(tokens), whole.rows(kept[tokens]))
    assert part.data_hash != ProblemSubset(whole, np.array([0, 1])).data_hash


def test_training_reads_checkpoints_side_by_side(paths):
    config = PairsConfig(
        path=str(paths[0]), beside=(str(paths[1]),), batch_size=4, eval_fraction=0.5
    )
    source, metadata = open_source(config, seed=0, mesh=make_mesh(MeshConfig()))
    assert source.width == source[0].x.shape[1] == 2 * D
    assert metadata["model_name"] == "step 0; step 1"
    with pytest.raises(ConfigError, match=r"without a pairs\.path"):
        PairsConfig(beside=("x",))
    assert to_json(Config(pairs=config))["pairs"]["beside"] == [str(paths[1])]
