"""Checkpoints: all or nothing, bit for bit, and never of another model."""

import gc
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as Spec

from job_jax import checkpoint
from job_jax.buckets import BucketError, JointMirror
from job_jax.checkpoint import (
    CheckpointMismatchError,
    CheckpointReadError,
    StageCheckpoints,
    latest_step,
    params_sha256,
)
from job_jax.config import CheckpointConfig
from job_jax.config_io import from_json
from job_jax.files import checkpoint_steps

CONFIG = CheckpointConfig(max_to_keep=2)


def state(seed=0, *, width=64, dtype=jnp.bfloat16):
    key = jax.random.key(seed)
    return {
        "params": {
            "embed": jax.random.normal(key, (8, width)),
            "out": jax.random.normal(key, (width, 8)).astype(dtype),
        },
        "opt_state": (jnp.int32(seed), {"mu": jax.random.normal(key, (8, width))}),
        "step": jnp.int32(seed),
    }


def saved(directory, *steps, **form):
    with StageCheckpoints(directory, CONFIG) as checkpoints:
        for step in steps:
            checkpoints.save(step, state(step, **form), {"note": f"after {step}"})
    return directory


def same(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    return all(
        a.dtype == b.dtype and np.array_equal(a, b)
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    )


def test_a_restored_state_equals_the_saved_one(tmp_path):
    saved(tmp_path, 3)
    with StageCheckpoints(tmp_path) as checkpoints:
        restored, host = checkpoints.restore(3, state(0))
        params = checkpoints.restore_params(3, state(0)["params"])
    assert same(restored, state(3))
    assert same(params, state(3)["params"])
    assert host == {"note": "after 3"}


def test_buffers_donated_while_a_save_is_under_way_do_not_reach_the_disk(tmp_path):
    add_one = jax.jit(lambda x: x + 1, donate_argnums=0)
    with StageCheckpoints(tmp_path, CONFIG) as checkpoints:
        weights = jnp.zeros((1024, 1024))
        for step in (1, 2):
            checkpoints.save(step, {"params": weights}, {})
            weights = add_one(weights)
            jax.block_until_ready(weights)
    like = {"params": jnp.zeros((1024, 1024))}
    with StageCheckpoints(tmp_path) as checkpoints:
        for step in (1, 2):
            restored, _ = checkpoints.restore(step, like)
            assert np.unique(restored["params"]).tolist() == [step - 1]


def test_another_layout_reads_the_same_numbers(tmp_path):
    mesh = jax.make_mesh((4, 2), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
    rows, columns = (NamedSharding(mesh, Spec(*axes)) for axes in (("a",), (None, "b")))
    weights = jnp.arange(64.0).reshape(8, 8)
    with StageCheckpoints(tmp_path, CONFIG) as checkpoints:
        checkpoints.save(1, {"params": jax.device_put(weights, rows)}, {})
    abstract = jax.ShapeDtypeStruct((8, 8), jnp.float32, sharding=columns)
    with StageCheckpoints(tmp_path) as checkpoints:
        restored = checkpoints.restore_params(1, abstract)
    assert restored.sharding == columns
    assert np.array_equal(restored, weights)


def test_the_newest_complete_one_counts_and_the_last_n_are_kept(tmp_path):
    assert latest_step(tmp_path / "none") is None
    saved(tmp_path, 1, 2, 10)
    unfinished = tmp_path / "11.orbax-checkpoint-tmp"
    shutil.copytree(tmp_path / "10", unfinished)
    assert latest_step(tmp_path) == 10
    names = {p.name for p in tmp_path.iterdir()}
    assert names == {"2", "10", unfinished.name, "digests"}
    with StageCheckpoints(tmp_path) as reader:
        assert reader.latest_step == 10
    # A reader may read while another process saves.
    assert unfinished.exists()
    saved(tmp_path, 11)
    assert {p.name for p in tmp_path.iterdir()} == {"10", "11", "digests"}


def one_parameter_less():
    return state() | {"params": {"embed": state()["params"]["embed"]}}


@pytest.mark.parametrize(
    ("like", "message"),
    [
        (
            lambda: state(width=32),
            r"1 holds opt_state/1/mu as float32\[8, 64\], but the config needs "
            r"float32\[8, 32\]; use the config it was made with, or another workdir",
        ),
        (
            lambda: state(dtype=jnp.float32),
            r"params/out as bfloat16\[64, 8\], but the config needs float32",
        ),
        (lambda: state() | {"skipped": jnp.int32(0)}, "1 has no skipped"),
        (one_parameter_less, "holds params/out, which the config does not have"),
    ],
)
def test_another_model_is_refused_by_name(tmp_path, like, message):
    with (
        StageCheckpoints(saved(tmp_path, 1)) as checkpoints,
        pytest.raises(CheckpointMismatchError, match=message),
    ):
        checkpoints.restore(1, like())


# The first failing read ends orbax's event loop. The others then report to a closed
# loop, and Python has no place to raise that.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "part", ["state/manifest.ocdbt", "state/ocdbt.process_0/d", "state", "host"]
)
def test_a_damaged_one_is_named_with_the_way_out(tmp_path, part):
    victim = saved(tmp_path, 1, 2) / "2" / part
    if victim.is_dir():
        shutil.rmtree(victim)
    else:
        victim.write_bytes(victim.read_bytes()[:7])
    with StageCheckpoints(tmp_path) as checkpoints:
        with pytest.raises(CheckpointReadError, match=r"2 cannot be read.* remove it"):
            checkpoints.restore(2, state())
        shutil.rmtree(tmp_path / "2")
        restored, _ = checkpoints.restore(checkpoints.latest_step, state())
    gc.collect()  # the failed coroutines, while their warnings are ignored
    assert same(restored, state(1))


def test_the_digest_depends_on_names_types_shapes_and_bytes():
    zeros = np.zeros((2, 3), np.float32)
    trees = [
        {"a": zeros},
        {"b": zeros},
        {"a": zeros.T},
        {"a": zeros.view(np.int32)},
        {"a": -zeros},  # equal numbers, other bits
        {"a": zeros, "b": zeros},
    ]
    assert len({params_sha256(tree) for tree in trees}) == len(trees)


def test_the_digest_does_not_depend_on_layout_or_order():
    values = np.arange(16, dtype=np.float32)
    mesh = jax.make_mesh((8,), ("a",), axis_types=(AxisType.Auto,))
    spread = jax.device_put(values, NamedSharding(mesh, Spec("a")))
    assert params_sha256({"a": spread, "b": values}) == params_sha256(
        {"b": values, "a": values}
    )


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """A run of several processes in a bucket, which is a folder here."""

    class Mirror(JointMirror):
        def __init__(self):
            self.begun = []

        def checkpoint_url(self, stage):
            return str(tmp_path / "bucket" / stage)

        def begin_checkpoint(self, stage, step, config):
            self.begun.append((stage, step, config))

    mirror = Mirror()
    monkeypatch.setattr(checkpoint, "mirror_of", {tmp_path / "run": mirror}.get)
    return mirror


def test_several_processes_save_past_their_disks_and_remove_nothing(bucket, tmp_path):
    stage = tmp_path / "run/checkpoints/train"
    saved(stage, 1, 2, 3)
    assert bucket.begun == [("train", step, CONFIG) for step in (1, 2, 3)]
    assert latest_step(stage) is None
    assert {path.name for path in (tmp_path / "bucket/train").iterdir()} == {*"123"}
    shutil.copytree(tmp_path / "bucket/train/3", stage / "3")  # as a fetch does
    with StageCheckpoints(stage, CONFIG) as checkpoints:
        assert checkpoints.latest_step == 3
        restored, host = checkpoints.restore(3, state(0))
    assert same(restored, state(3))
    assert host == {"note": "after 3"}


def test_a_checkpoint_that_cannot_be_put_into_a_bucket_is_one_line(bucket, tmp_path):
    (tmp_path / "bucket").touch()
    with pytest.raises(BucketError, match="checkpoints cannot be written to") as told:
        saved(tmp_path / "run/checkpoints/train", 1)
    assert "\n" not in str(told.value)


def test_an_orbax_error_without_text_is_reported_by_its_type(
    bucket, tmp_path, monkeypatch
):
    def fail():
        raise TimeoutError

    with (
        StageCheckpoints(tmp_path / "run/checkpoints/train", CONFIG) as checkpoints,
        monkeypatch.context() as patched,
    ):
        manager = checkpoints._bucket.manager
        patched.setattr(manager, "wait_until_finished", fail)
        with pytest.raises(BucketError, match=r"bucket/train \(TimeoutError\)"):
            checkpoints.wait()


def files_of(directory, step):
    return sorted(p for p in (directory / str(step)).rglob("*") if p.is_file())


def flip(file):
    """Changes one bit in the middle of a file."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def test_a_flipped_bit_in_any_file_is_found_and_named(tmp_path):
    saved(tmp_path, 1, 2)
    files = [file for file in files_of(tmp_path, 2) if file.stat().st_size]
    assert len(files) > 4
    for file in files:
        content = file.read_bytes()
        flip(file)
        name = str(file.relative_to(tmp_path / "2"))
        with StageCheckpoints(tmp_path) as checkpoints:
            for read in (
                lambda: checkpoints.restore(2, state(0)),
                lambda: checkpoints.restore_params(2, state(0)["params"]),
                lambda: checkpoints.restore_host_state(2),
            ):
                with pytest.raises(
                    CheckpointReadError, match="changed since it was writt"
                ) as e:
                    read()
                assert f"2 cannot be read ({name} has" in str(e.value)
        file.write_bytes(content)
    with StageCheckpoints(tmp_path) as checkpoints:
        assert same(checkpoints.restore(2, state(0))[0], state(2))


def test_a_resumed_run_takes_the_checkpoint_before_a_damaged_one(tmp_path, capfd):
    saved(tmp_path, 1, 2)
    array = max(files_of(tmp_path, 2), key=lambda file: file.stat().st_size)
    flip(array)
    with StageCheckpoints(tmp_path, CONFIG) as checkpoints:
        assert checkpoints.latest_step == 1
        assert same(checkpoints.restore(1, state(0))[0], state(1))
        checkpoints.save(2, state(2), {"note": "once more"})
    said = capfd.readouterr().err
    assert f"{tmp_path}/2 is damaged: {array.relative_to(tmp_path / '2')}" in said
    assert "the run continues from 1\n" in said
    assert (tmp_path / "damaged-2").is_dir()
    with StageCheckpoints(tmp_path) as checkpoints:
        assert checkpoints.restore_host_state(2) == {"note": "once more"}
    for step in (1, 2):
        flip(max(files_of(tmp_path, step), key=lambda file: file.stat().st_size))
    with StageCheckpoints(tmp_path, CONFIG) as checkpoints:
        assert checkpoints.latest_step is None
    assert "the run continues from the beginning\n" in capfd.readouterr().err


def test_a_checkpoint_that_a_kill_left_without_digests_is_read(tmp_path):
    saved(tmp_path, 1, 2)
    shutil.rmtree(tmp_path / "digests" / "2")
    with StageCheckpoints(tmp_path) as checkpoints:
        assert same(checkpoints.restore(2, state(0))[0], state(2))
    saved(tmp_path, 3)
    # A resumed run completes them; a removal removes them too.
    assert {path.name for path in (tmp_path / "digests").iterdir()} == {"2", "3"}


def test_a_step_removed_and_saved_again_has_new_digests(tmp_path):
    saved(tmp_path, 1, 2)
    shutil.rmtree(tmp_path / "2")
    with StageCheckpoints(tmp_path, CONFIG) as checkpoints:
        checkpoints.save(2, state(7), {"note": "another"})
    with StageCheckpoints(tmp_path) as checkpoints:
        assert same(checkpoints.restore(2, state(0))[0], state(7))
    assert (tmp_path / "digests" / "2").is_dir()


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b'{"a": 1}'])
def test_digests_that_are_damaged_themselves_are_named(tmp_path, content, capfd):
    saved(tmp_path, 1, 2)
    (tmp_path / "digests" / "2" / "0.json").write_bytes(content)
    with (
        StageCheckpoints(tmp_path) as checkpoints,
        pytest.raises(CheckpointReadError, match="has changed since it was written"),
    ):
        checkpoints.restore(2, state(0))
    with StageCheckpoints(tmp_path, CONFIG) as checkpoints:
        assert checkpoints.latest_step == 1
    assert "the run continues from 1\n" in capfd.readouterr().err


def test_a_file_that_is_gone_is_damage(tmp_path):
    saved(tmp_path, 1)
    files_of(tmp_path, 1)[0].unlink()
    with (
        StageCheckpoints(tmp_path) as checkpoints,
        pytest.raises(CheckpointReadError, match="has changed since it was written"),
    ):
        checkpoints.restore_host_state(1)


@pytest.mark.parametrize(
    ("every", "max_to_keep", "steps", "kept"),
    [
        (1, 2, [1, 2, 3], {2, 3}),
        (50, 2, [10, 20], {10, 20}),
        (50, 2, [10, 20, 30], {20, 30}),
        (50, 2, [20, 30, 50], {30, 50}),
        (50, 2, [50, 60, 70], {50, 70}),
        (50, 2, [50, 70, 100], {50, 100}),
        (50, 2, [50, 100, 120], {100, 120}),
        (50, 3, [10, 50, 60, 70], {50, 60, 70}),
        (50, 1, [50, 60], {60}),
        (50, 2, [], set()),
    ],
)
def test_a_checkpoint_saved_by_time_takes_no_planned_ones_place(
    every, max_to_keep, steps, kept
):
    config = CheckpointConfig(every=every, max_to_keep=max_to_keep)
    assert config.choose_kept(steps) == kept


def test_the_disk_holds_the_chosen_checkpoints(tmp_path):
    with StageCheckpoints(tmp_path, CheckpointConfig(every=5)) as checkpoints:
        for step in (3, 5, 7, 8, 10, 12):
            checkpoints.save(step, {"params": {"x": jnp.zeros(2)}}, {})
            checkpoints.wait()
    assert checkpoint_steps(tmp_path) == [10, 12]


def test_a_run_from_before_the_time_existed_goes_on_without_it():
    assert from_json(CheckpointConfig, {"every": 50}).every_minutes == 0.0
    assert CheckpointConfig().every_minutes == 10.0
