"""A dictionary trained by two processes; each reads its half of a batch."""

import json
import signal

import numpy as np
import pytest

from sae_jax import io
from sae_jax.data.shards import ShardWriter
from tests.support.several import started

WIDTH = 8


@pytest.fixture
def recipe(tmp_path):
    rng = np.random.default_rng(0)
    with ShardWriter(
        tmp_path / "data",
        width=WIDTH,
        layer=2,
        hook="blocks.2.hook_resid_post",
        model="toy",
        roles=("text",),
        dtype="float32",
    ) as out:
        for _ in range(60):
            rows_TD = rng.normal(size=(12, WIDTH)).astype(np.float32)
            ids = rng.integers(0, 1000, 12)
            out.add(rows_TD, token_ids=ids, roles=np.zeros(12, int))
    file = tmp_path / "recipe.py"
    file.write_text(
        "from sae_jax.config import *\n"
        "from job_jax.config import CheckpointConfig\n"
        "def get_config():\n"
        "    return Config(\n"
        "        sae=SAEConfig(latents=32, k=4),\n"
        f"        pairs=PairsConfig(path={str(tmp_path / 'data')!r},\n"
        "            batch_size=16, buffer_tokens=256),\n"
        "        train=TrainConfig(steps=12, threshold_start_step=4),\n"
        "        optimizer=OptimizerConfig(warmup_steps=2),\n"
        "        checkpoint=CheckpointConfig(every=4),\n"
        "        log=LogConfig(every=1),\n"
        "    )\n"
    )
    return file


def _asked(recipe, workdir, devices):
    return [
        f"--config={recipe}",
        f"--workdir={workdir}",
        f"--config.mesh.cpu_devices={devices}",
    ]


def _losses(workdir):
    rows = [json.loads(r) for r in (workdir / "metrics.jsonl").read_text().splitlines()]
    return [row["seed0/loss"] for row in rows if "seed0/loss" in row]


def test_two_processes_train_what_one_does_also_when_they_are_killed(
    command, recipe, tmp_path
):
    ended = command.run(*_asked(recipe, tmp_path / "one", 4), module="sae_jax.train")
    assert ended.code == 0, ended.err
    arguments = [_asked(recipe, tmp_path / "two", 2)] * 2
    with started(command, tmp_path, *arguments, module="sae_jax.train") as pair:
        pair.wait_for("tsae  6/12")
        pair.all[0].send_signal(signal.SIGKILL)
        pair.all[1].wait()
    with started(command, tmp_path, *arguments, module="sae_jax.train") as pair:
        codes, said = pair.ends()
    assert codes == [0, 0], said
    ours, theirs = (_losses(tmp_path / name) for name in ("two", "one"))
    assert len(ours) == 12
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)
    a, b = (io.load(tmp_path / name / "sae") for name in ("two", "one"))
    np.testing.assert_allclose(a.decoder, b.decoder, atol=1e-4)
