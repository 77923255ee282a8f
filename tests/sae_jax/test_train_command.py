"""`python -m sae_jax.train`: its output, its refusals, and how it resumes."""

import contextlib
import dataclasses
import json
import shutil
import signal

import jax
import numpy as np
import pytest

from job_jax.command import StoppedError
from job_jax.config import CheckpointConfig, MeshConfig
from job_jax.config_io import to_json
from job_jax.files import latest_step
from job_jax.flags import UsageError
from job_jax.mesh import make_mesh
from job_jax.metrics import MetricsWriter
from job_jax.schema import ConfigError
from job_jax.steps import StopSignal
from job_jax.workdir import Workdir
from sae_jax import io
from sae_jax.capture.stream import StreamedPairs
from sae_jax.config import (
    Config,
    LogConfig,
    LossConfig,
    OptimizerConfig,
    PairsConfig,
    SAEConfig,
    StreamConfig,
    TrainConfig,
)
from sae_jax.data.pairs import ShuffledPairs
from sae_jax.data.shards import ActivationShards, ShardWriter
from sae_jax.train import main, open_source, train
from tests.support.command import Command, Ended
from tests.support.recording import knobs, record_reads

WIDTH, LATENTS, K = 8, 32, 4
REPLICAS = ["seed0", "seed0_no_contrast", "seed1", "seed1_no_contrast"]


def recipe(path):
    return Config(
        sae=SAEConfig(latents=LATENTS, k=K),
        loss=LossConfig(contrast_block_size=0, dead_after_tokens=200),
        optimizer=OptimizerConfig(learning_rate=1e-2, warmup_steps=2),
        pairs=PairsConfig(path=str(path), batch_size=32, eval_fraction=0.1),
        train=TrainConfig(
            steps=12, num_seeds=2, threshold_start_step=4, threshold_decay=0.5
        ),
        checkpoint=CheckpointConfig(every=5),
        log=LogConfig(every=3),
        mesh=MeshConfig(cpu_devices=8),  # as many as the tests have
    )


def write(path, *, documents=20, spoil=lambda document, rows: None, roles=True):
    """Writes documents of 4 prompt and 12 response tokens: noise about a mean."""
    rng = np.random.default_rng(0)
    with ShardWriter(
        path,
        width=WIDTH,
        layer=2,
        hook="blocks.2.hook_resid_post",
        model="toy",
        roles=("prompt", "response"),
        dtype="float32",
        shard_tokens=100,
    ) as out:
        for document in range(documents):
            rows_TD = 3.0 + rng.normal(size=(16, WIDTH)).astype(np.float32)
            spoil(document, rows_TD)
            role_T = (np.arange(16) >= 4).astype(int) if roles else np.zeros(16, int)
            out.add(rows_TD, token_ids=16 * document + np.arange(16), roles=role_T)


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    path = tmp_path_factory.mktemp("activations") / "data"
    write(path)
    return path


class StopAfter(StopSignal):
    """A signal before the end of an attempt's step `steps` (counted from 1)."""

    def __init__(self, steps):
        super().__init__()
        self._left = steps

    def requested(self):
        self._left -= 1
        return self._left <= 0


def run(path, config, *, stop=None, source=None):
    """Trains as the command does, and returns its result."""
    mesh = make_mesh(config.mesh)
    workdir = Workdir(path, config, mutable_sections=())
    metadata = {"model_name": "forward"}
    if source is None:
        source, metadata = open_source(config.pairs, seed=config.seed, mesh=mesh)
    with jax.set_mesh(mesh), MetricsWriter(path) as writer:
        return train(
            config,
            source,
            mesh=mesh,
            workdir=workdir,
            writer=writer,
            stop=stop or StopSignal(),
            metadata=metadata,
        )


def lines(path):
    rows = (path / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(r).items() if k != "time_s"} for r in rows]


def outcome(path):
    """Returns everything that the config decides: metrics, summary and weights."""
    summary = json.loads((path / "summary.json").read_text())["tsae"]
    del summary["pairs_per_s"], summary["seconds"]
    weights = {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.glob("sae*/**/*.safetensors"))
    }
    return {"metrics": lines(path), "summary": summary, "weights": weights}


@pytest.fixture(scope="module")
def whole(shards, tmp_path_factory):
    """Returns the workdir of an uninterrupted run."""
    path = tmp_path_factory.mktemp("whole")
    run(path, recipe(shards))
    return path


def test_a_run_leaves_every_replica_measured_and_saved(whole):
    found = outcome(whole)
    assert list(found["summary"]["replicas"]) == REPLICAS
    assert [row["step"] for row in found["metrics"]] == [2, 4, 5, 8, 9, 11]
    for name in REPLICAS:
        row = found["summary"]["replicas"][name]
        for kind in ("smoothness", "relative_smoothness", "autocorrelation"):
            assert set(row[kind]) == {"high", "low", "all"}
        assert row["alpha"] == (0.0 if name.endswith("no_contrast") else 0.1)
        # Of 20 documents one calibrates and one is measured: 12 response tokens.
        assert row["tokens"] == 12
        assert f"{name}/fve" in found["metrics"][0]
    # 18 documents of 16 tokens: 4 are prompt, and the first response has no positive.
    assert found["summary"]["skipped_tokens"] == {
        "role": 80,
        "special": 0,
        "non_finite": 0,
        "high_norm": 0,
        "duplicate": 0,
        "eval": 24,
        "no_positive": 18,
    }


def test_the_saved_dictionary_is_the_measured_one(whole, shards):
    """The L0 of summary.json is recounted from its latents on measured documents.

    On the calibration documents, which are different, it is k.
    """
    config = recipe(shards)
    source = ShuffledPairs(ActivationShards(shards), config.pairs, seed=0)
    (block,), (calibration,) = source.eval_documents(), source.calibration_documents()
    assert not set(block.token_index.flat) & set(calibration.token_index.flat) - {-1}
    rows = json.loads((whole / "summary.json").read_text())["tsae"]["replicas"]
    for name in REPLICAS:
        place = whole / "sae" if name == "seed0" else whole / "sae_replicas" / name
        l0, calibrated = (
            float((io.load(place).encode(of.x[of.mask]) > 0).sum(axis=1).mean())
            for of in (block, calibration)
        )
        assert l0 == pytest.approx(rows[name]["l0"]["calibrated"])
        assert abs(calibrated - K) < 0.1 * K
    saved = io.load_record(whole / "sae").metadata
    assert saved["hook_name"] == "blocks.2.hook_resid_post"
    assert saved["hf_hook_name"] == "model.layers.2"
    assert saved["context_size"] == 16
    assert saved["roles"] == ["response"]
    assert saved["data_hash"] == ActivationShards(shards).data_hash


@pytest.mark.parametrize("steps", [1, 5, 7])
def test_a_run_cut_anywhere_ends_as_one_never_cut(whole, shards, tmp_path, steps):
    """Each attempt is cut between reports, at a checkpoint, or after one."""
    cuts = 0
    for _ in range(12):
        with contextlib.suppress(StoppedError):
            run(tmp_path, recipe(shards), stop=StopAfter(steps))
            break
        cuts += 1
    assert cuts >= 12 // (steps + 1)
    run(tmp_path, recipe(shards))
    assert outcome(tmp_path) == outcome(whole)


def test_baselines_differ_only_by_the_contrast(whole):
    first, *_, last = outcome(whole)["metrics"]
    for seed in ("seed0", "seed1"):
        assert last[f"{seed}/fve"] != last[f"{seed}_no_contrast/fve"]
        loss, contrast = first[f"{seed}/loss"], first[f"{seed}/contrast"]
        assert loss > first[f"{seed}_no_contrast/loss"] + 0.05 * contrast


def recipe_file(path, shards):
    file = path / "recipe.py"
    file.write_text(
        "from sae_jax.config import *\n"
        "from job_jax.config import CheckpointConfig, MeshConfig\n"
        f"def get_config():\n    return {recipe(shards)!r}\n"
    )
    return file


@pytest.fixture
def command(shards, tmp_path, restored_signals, capfd):
    """Runs the command in this process with overrides, and returns its exit code."""
    file = recipe_file(tmp_path, shards)

    def call(*overrides, workdir=tmp_path / "run"):
        capfd.readouterr()
        given = [f"--config.{o}" for o in overrides]
        code = main([f"--config={file}", f"--workdir={workdir}", *given])
        return Ended(code, *capfd.readouterr())

    return call


def test_a_finished_run_says_so_and_is_left_alone(command, tmp_path):
    ended = command()
    assert ended.code == 0, ended.err
    assert "tokens left out: role 80, special 0" in ended.err
    assert ended.out.splitlines()[-4].startswith("seed0 ")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["config"]["sae"]["k"] == K
    before = outcome(tmp_path / "run")
    ended = command()
    assert (ended.code, ended.out.split(":")[0]) == (0, "finished")
    assert outcome(tmp_path / "run") == before


def test_a_run_does_not_go_on_with_other_activations(shards, tmp_path):
    config = recipe(shards)
    with pytest.raises(StoppedError):
        run(tmp_path / "run", config, stop=StopAfter(2))
    write(tmp_path / "others", documents=21)
    others = ShuffledPairs(
        ActivationShards(tmp_path / "others"), config.pairs, seed=config.seed
    )
    with pytest.raises(ConfigError, match="was trained on other activations than"):
        run(tmp_path / "run", config, source=others)


def refused(ended, *parts):
    """Asserts exit code 2 and one line with the reason."""
    assert ended.code == 2
    (line,) = [text for text in ended.err.splitlines() if text.startswith("error")]
    for part in parts:
        assert part in line
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("sae.k=33", ["sae.k=33", "latents=32", "lower sae.k"]),
        ("pairs.path=nowhere", ["no activations in nowhere"]),
        ("pairs.roles=answer", ["'answer'", "['prompt', 'response']"]),
        ("pairs.batch_size=1000", ["exceeds the 198 pairs", "lower it"]),
        ("pairs.batch_size=36", ["pairs.batch_size=36 cannot be split over 8 devices"]),
        ("train.stepz=3", ["train.stepz", "did you mean 'train.steps'?"]),
    ],
)
def test_a_config_that_cannot_run_is_one_line(command, override, parts):
    refused(command(override), *parts)


def test_pairs_are_opened_with_the_seed_of_the_config(command, monkeypatch):
    def tell(pairs, *, seed, mesh):
        raise UsageError(f"opened with seed {seed}")

    monkeypatch.setattr("sae_jax.train.open_source", tell)
    refused(command("seed=5"), "opened with seed 5")


def test_a_truncated_shard_is_one_line(command, shards, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(shards, copy)
    last = copy / "shard_00001.bin"
    last.write_bytes(last.read_bytes()[:-7])
    refused(command(f"pairs.path={copy}"), str(last), "5145 bytes, but")


def test_a_damaged_shard_is_one_line_with_verification(command, shards, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(shards, copy)
    first = copy / "shard_00000.bin"
    raw = bytearray(first.read_bytes())
    raw[5000] ^= 1
    first.write_bytes(raw)
    ended = command(f"pairs.path={copy}", "pairs.verify=true")
    refused(ended, str(first), "is damaged")


def test_rows_of_nan_and_of_a_wild_norm_are_counted_and_left_out(shards, tmp_path):
    def spoil(document, rows_TD):
        if document == 0:
            rows_TD[5] = np.nan
            rows_TD[9, 3] = np.inf
            rows_TD[12] = 1e4

    write(tmp_path / "spoilt", spoil=spoil)
    config = recipe(shards)
    source = ShuffledPairs(
        ActivationShards(tmp_path / "spoilt"), config.pairs, seed=config.seed
    )
    left_out = run(tmp_path / "run", config, source=source)["skipped_tokens"]
    assert (left_out["non_finite"], left_out["high_norm"]) == (2, 1)
    last = lines(tmp_path / "run")[-1]
    assert last["seed0/fve"] > 0.1  # the values are finite, or nothing was written


def test_shards_without_a_response_are_one_line(command, tmp_path):
    write(tmp_path / "prompts", roles=False)
    ended = command(f"pairs.path={tmp_path / 'prompts'}")
    refused(ended, "no token has the role 'response'; the data have ['prompt']")


def test_a_missing_workdir_is_one_line(capsys):
    assert main(["--config=configs/tsae_quickstart.py"]) == 2
    assert capsys.readouterr().err == (
        "error: --workdir is missing: directory of the run; made if missing\n"
    )


def test_help_names_every_field(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    for field in (
        "sae.k=",
        "pairs.path=",
        "train.no_contrast_baseline=",
        "loss.alpha=",
        "log.every=",
    ):
        assert f"--config.{field}" in text


def test_sigterm_saves_and_exits_75(shards, tmp_path):
    file = recipe_file(tmp_path, shards)
    process = Command(cache=tmp_path / "programs")
    args = (f"--config={file}", f"--workdir={tmp_path}", "--config.train.steps=9000")
    ended = process.cut("tsae  3/9000", signal.SIGTERM, *args, module="sae_jax.train")
    assert ended.code == 75, ended.err
    assert ended.err.endswith("\nstopped; run the same command again to continue\n")
    saved = latest_step(tmp_path / "checkpoints" / "tsae")
    # Every report except those that a resumed run writes.
    reported = [row["step"] + 1 for row in lines(tmp_path)]
    assert reported == [n for n in range(1, saved + 1) if n % 3 == 0 or n % 5 == 0]


def streamed(text):
    """Returns a recipe that trains straight from the model of `support.readers`."""
    words = (" ".join(f"w{(5 * d + i * i) % 83}" for i in range(30)) for d in range(30))
    text.write_text("\n\n".join(words))
    stream = StreamConfig(
        model="toy",
        text=str(text),
        layer=3,
        hook="mlp_out",
        reader="tests.support.readers:WordSums",
        buffer_tokens=200,
    )
    pairs = PairsConfig(batch_size=32, eval_fraction=0.5)
    return dataclasses.replace(recipe(""), stream=stream, pairs=pairs)


def test_a_run_straight_from_a_model_goes_on_as_one_never_cut(tmp_path):
    config = streamed(tmp_path / "text.txt")

    def train_on(name, stop=None):
        source = StreamedPairs(config.stream, config.pairs, config.seed)
        return run(tmp_path / name, config, source=source, stop=stop)

    train_on("whole")
    with pytest.raises(StoppedError):
        train_on("cut", StopAfter(7))
    train_on("cut")
    assert outcome(tmp_path / "cut") == outcome(tmp_path / "whole")
    last = lines(tmp_path / "whole")[-1]
    assert last["seed0/fve"] > 0.3  # it trains on the model's own activations


def test_a_run_on_data_read_block_by_block_goes_on_where_it_stopped(shards, tmp_path):
    pairs = PairsConfig(
        path=str(shards), batch_size=8, buffer_tokens=64, eval_fraction=0.1
    )
    config = dataclasses.replace(recipe(shards), pairs=pairs)
    for stop in (3, 6):
        with pytest.raises(StoppedError):
            run(tmp_path / "cut", config, stop=StopAfter(stop))
    assert latest_step(tmp_path / "cut" / "checkpoints" / "tsae") == 9
    run(tmp_path / "cut", config)
    run(tmp_path / "whole", config)
    assert outcome(tmp_path / "cut") == outcome(tmp_path / "whole")


def test_every_field_of_the_config_is_read(command, shards, tmp_path):
    """A field that no run reads would have no effect."""
    straight = tmp_path / "config.json"
    config = dataclasses.replace(streamed(tmp_path / "text.txt"), seed=78)
    straight.write_text(json.dumps({"config": to_json(config)}))
    with record_reads() as reads:
        # A separate seed: programs that other tests traced would not read fields again.
        assert command("seed=77").code == 0
        assert main([f"--config={straight}", f"--workdir={tmp_path / 'b'}"]) == 0
    assert knobs(recipe(shards)) - reads == set()
    saved = io.load_record(tmp_path / "b" / "sae").metadata
    assert saved["hook_name"] == "blocks.3.hook_mlp_out"
    assert "hf_hook_name" not in saved
    assert (saved["model_name"], saved["roles"]) == ("toy", ["text"])
