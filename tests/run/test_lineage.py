"""Continuing another run: its checkpoint is found, or refused in one line."""

import dataclasses
import json

import pytest

from job_jax.config_io import override, to_json
from job_jax.flags import UsageError
from job_jax.schema import ConfigError
from rlvr_jax.config import Config
from rlvr_jax.run.lineage import (
    Lineage,
    lineage_record,
    read_lineage,
    resolve_lineage,
)

CONFIG = Config()
ADAPTED = override(CONFIG, {"train.lora.rank": "2"})


def write_run(path, config=CONFIG, *, lineage=None, **steps):
    """Returns a workdir with its record, and directories named like checkpoints."""
    path.mkdir()
    record = {"config": to_json(config)} | lineage_record(lineage)
    (path / "config.json").write_text(json.dumps(record))
    for stage, names in steps.items():
        for name in names:
            (path / "checkpoints" / stage / name).mkdir(parents=True)
    return path


@pytest.fixture
def old(tmp_path):
    unfinished = "6.orbax-checkpoint-tmp"
    return write_run(tmp_path / "old", train=("10", "4", unfinished), sft=("20",))


def resolve(source, *, config=CONFIG, has_optimizer=False, workdir=None):
    return resolve_lineage(
        config, str(source), has_optimizer=has_optimizer, workdir=workdir
    )


def refusal(*args, **options):
    with pytest.raises((UsageError, ConfigError)) as caught:
        resolve(*args, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("mark", "stage", "step"),
    [("", "train", 10), ("@4", "train", 4), ("@10", "train", 10), ("@sft", "sft", 20)],
)
def test_the_newest_of_rl_unless_another_is_named(old, mark, stage, step):
    config, lineage = resolve(f"{old}{mark}")
    assert (lineage.stage, lineage.step) == (stage, step)
    assert lineage.checkpoints == old / "checkpoints" / stage
    assert not lineage.has_optimizer
    assert lineage.earlier is None
    # No supervised stage runs again; all other settings are kept.
    assert config == override(CONFIG, {"sft.steps": "0"})


def test_before_any_step_of_rl_a_run_continues_from_sft(tmp_path):
    early = write_run(tmp_path / "early", sft=("20",))
    assert resolve(early)[1].stage == "sft"


def test_a_folder_may_have_an_at_in_its_name(tmp_path):
    odd = write_run(tmp_path / "a@7", train=("3",))
    assert resolve(odd)[1].step == 3
    assert resolve(f"{odd}@3")[1].workdir == str(odd)


def test_without_a_source_nothing_changes(old, tmp_path):
    assert resolve("") == (CONFIG, None)
    assert resolve("", workdir=old) == (CONFIG, None)
    assert resolve("", workdir=tmp_path / "new") == (CONFIG, None)


def test_what_cannot_be_gone_on_from(old, tmp_path):
    assert "no checkpoint of RL step 6 (there are 4, 10; @sft" in refusal(f"{old}@6")
    for mark in ("04", "x", "-1"):
        assert f"no checkpoint of RL step {mark} (" in refusal(f"{old}@{mark}")
    assert f"no {tmp_path}/none/config.json; give the workdir" in refusal(
        tmp_path / "none"
    )
    empty = write_run(tmp_path / "empty")
    assert "has no complete checkpoint yet" in refusal(empty)
    assert "has no complete checkpoint yet" in refusal(f"{empty}@sft")
    only_sft = write_run(tmp_path / "sft", sft=("20",))
    assert "no complete checkpoint" in refusal(f"{only_sft}@4")
    for source in (f"{old}@sft", only_sft):
        assert "leave out --continue_optimizer" in refusal(source, has_optimizer=True)
    assert "needs --continue_from" in refusal("", has_optimizer=True)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"model.num_layers": "3"}, "model.num_layers: 4 -> 3"),
        ({"model.rope_theta": "5e5"}, "model.rope_theta: 10000.0 -> 500000.0"),
        (
            {"model.param_dtype": "bfloat16"},
            "model.param_dtype: 'float32' -> 'bfloat16'",
        ),
        ({"task.modulus": "5"}, "the task's vocabulary: "),
    ],
)
def test_another_policy_is_refused(old, change, told):
    line = refusal(old, config=override(CONFIG, change))
    assert told in line
    assert str(old) in line


@pytest.mark.parametrize(
    "change",
    [
        {"train.optimizer.learning_rate": "1e-6"},
        {"curriculum.name": "target", "train.steps": "7", "seed": "3"},
        {"model.scan_layers": "true", "model.max_seq_len": "900"},
        {"train.lora.rank": "4"},
    ],
)
def test_training_settings_may_change(old, change):
    assert resolve(old, config=override(CONFIG, change))[1].step == 10


def test_moments_go_with_what_they_are_of(tmp_path, old):
    assert resolve(old, has_optimizer=True)[1].has_optimizer
    adapted = write_run(tmp_path / "adapted", ADAPTED, train=("4",))
    for source, config in ((old, ADAPTED), (adapted, CONFIG), (adapted, ADAPTED)):
        line = refusal(source, config=config, has_optimizer=True)
        assert "adapters are merged" in line
        assert resolve(source, config=config)[1]
    bf16 = override(CONFIG, {"train.optimizer.moments_dtype": "bfloat16"})
    assert "moments_dtype: float32 -> bfloat16" in refusal(
        old, config=bf16, has_optimizer=True
    )
    assert resolve(old, config=bf16)[1]


@pytest.fixture
def new(old, tmp_path):
    """Returns a run that continued from the other's step 4, with the optimizer."""
    _, lineage = resolve(f"{old}@4", has_optimizer=True)
    return write_run(
        tmp_path / "new", override(CONFIG, {"sft.steps": "0"}), lineage=lineage
    )


def test_a_run_that_went_on_remembers_from_where(new, old):
    for source in ("", old, f"{old}@4"):
        has_optimizer = source != ""
        config, lineage = resolve(source, workdir=new, has_optimizer=has_optimizer)
        assert (lineage.workdir, lineage.step) == (str(old), 4)
        assert lineage.has_optimizer
        assert config.sft.steps == 0
    # It has its own copy, so the other run may be deleted.
    (old / "config.json").unlink()
    assert resolve("", workdir=new)[1] == lineage


def test_a_run_went_on_from_one_checkpoint(new, old, tmp_path):
    third = write_run(tmp_path / "third", train=("4",))
    for source in (f"{old}@10", f"{old}@sft", third):
        line = refusal(source, workdir=new, has_optimizer=True)
        assert f"started from {old}, step 4 of RL, with its optimizer" in line
    assert "started from" in refusal(f"{old}@4", workdir=new)
    began_anew = refusal(new, workdir=old)
    assert "holds a run that began without it; use another --workdir" in began_anew
    assert "for more steps, set --config.train.steps=N" in refusal(old, workdir=old)


def test_the_line_of_runs_is_kept(new, old):
    (new / "checkpoints" / "train" / "6").mkdir(parents=True)
    _, lineage = resolve(new)
    assert (lineage.workdir, lineage.step) == (str(new), 6)
    assert lineage.earlier == Lineage(
        workdir=str(old), stage="train", step=4, has_optimizer=True
    )
    record = json.loads(json.dumps(lineage_record(lineage)))
    assert read_lineage(record) == lineage
    assert read_lineage({}) is None
    assert dataclasses.replace(lineage, earlier=None) != lineage
