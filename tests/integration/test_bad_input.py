"""Bad input: one clear line, the right exit code, nothing started.

The runs are refused before anything is compiled, so they share this process.
"""

import json
import shutil
import sys

import jax
import pytest

from job_jax import disk
from rlvr_jax import evaluate
from rlvr_jax.main import main
from sae_jax import io
from sae_jax.sae import TSAE
from tests.support.command import ROOT, overrides, tiny

WORDS = [
    {"question": f"What is {a} plus {b}?", "answer": f"{a}+{b}={a + b}\n#### {a + b}"}
    for a in range(5)
    for b in range(5)
]
LONG = {"question": "word " * 600, "answer": "1\n#### 1"}


@pytest.fixture(autouse=True)
def apart(monkeypatch, tmp_path, restored_signals):
    """Prevents the command from changing this process."""
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "programs"))


_BEGUN = ("stages to do: ", "done before: ", "CPU devices: ")


@pytest.fixture
def refusal(capsys):
    """Returns the command's one-line refusal.

    A run that had begun prints its first lines before it.
    """

    def refuse(args, *, command=main):
        assert command([*args, "--config.mesh.cpu_devices=8"]) == 2
        shown = capsys.readouterr()
        assert shown.out == ""
        *begun, line = shown.err.splitlines(keepends=True)
        assert line.startswith("error: ")
        assert all(one.startswith(_BEGUN) for one in begun)
        return line

    return refuse


def lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def word_run(workdir, path, *, eval_path="", **more):
    """Returns the arguments of a run on the word problems of a file."""
    return [
        f"--config={ROOT / 'configs' / 'gsm8k_tiny.py'}",
        f"--workdir={workdir}",
        *overrides(
            task__train_path=path,
            task__eval_path=eval_path or path,
            tokenizer__vocab_size=300,
            **more,
        ),
    ]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("--config.train.setps=3", "did you mean 'train.steps'"),
        ("--config.train.steps=ten", "train.steps expects an int, got 'ten'"),
        ("--config.train.group_size=1", "train.group_size=1 leaves"),
        ("--config.train.batch_size=9", "=9 cannot be split over 8 devices"),
        ("--config.train.grad_accum_steps=2", "=4 cannot be split over 8 devices"),
        ("--config.sft.batch_size=12", "=12 cannot be split over 8 devices"),
        ("--config.eval.batch_size=4", "=4 cannot be split over 8 devices"),
        ("--config.mesh.data=3", "mesh data=3 x fsdp=1 x tensor=1 does not use the 8"),
        (
            "--config.mesh.tensor=2",
            "model.num_heads=1 does not divide over mesh.tensor=2",
        ),
        (
            "--config.sampler.tensor_parallel=3",
            "=3 does not divide the mesh's 8 devices",
        ),
        (
            "--config.sampler.tensor_parallel=8",
            "does not divide over sampler.tensor_parallel=8",
        ),
        ("--stage=trian", "trian"),
        ("--wrokdir=x", "did you mean '--workdir'"),
    ],
)
def test_a_setting_that_cannot_be(refusal, tmp_path, override, message):
    assert message in refusal(tiny(tmp_path / "w", override))
    assert not (tmp_path / "w" / "config.json").exists()


def test_a_report_of_no_run_leaves_nothing_behind(refusal, tmp_path):
    assert "is not a directory" in refusal(tiny(tmp_path / "w", "--stage=report"))
    assert not (tmp_path / "w").exists()


def test_a_stage_that_the_recipe_leaves_out_is_not_called_finished(tmp_path, capsys):
    args = tiny(tmp_path, "--stage=probe", "--config.mesh.cpu_devices=8")
    assert main(args) == 0
    said = capsys.readouterr().out
    assert said == "nothing to do: the recipe has no stage probe (probe.name=none)\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        (json.dumps(WORDS[0]) + "\n{not json\n", "line 2: not JSON at column 2"),
        (json.dumps(WORDS[0]) + '\n\n{"question": "?"}', "line 3: no field 'answer'"),
        (None, "cannot read the data file"),
    ],
)
def test_a_data_file_that_cannot_be_used(refusal, tmp_path, text, message):
    good, bad = lines(tmp_path / "good.jsonl", WORDS), tmp_path / "bad.jsonl"
    if text is not None:
        bad.write_text(text)
    for args in (
        word_run(tmp_path / "w", bad),
        word_run(tmp_path / "w", good, eval_path=bad),
    ):
        line = refusal(args)
        assert message in line
        assert str(bad) in line
    # Nothing is left behind that would stop a run with the fixed path.
    assert not (tmp_path / "w" / "config.json").exists()


def test_a_prompt_too_long_is_left_out_counted_and_reported(tmp_path, capsys):
    path = lines(tmp_path / "long.jsonl", [*WORDS, LONG])
    left_out = "1 of 26 problems left out: a prompt of more than 384 tokens"
    args = word_run(tmp_path / "w", path, mesh__cpu_devices=8, sft__steps=0)
    assert main([*args, "--dry_run"]) == 0
    shown = capsys.readouterr().out
    assert f"train: {left_out}" in shown
    assert f"eval: {left_out}" in shown
    assert not (tmp_path / "w").exists()
    # A stage without steps: the run opens, and reports the omissions.
    assert main([*args, "--stage=sft"]) == 0
    assert f"train: {left_out}\neval: {left_out}\n" in capsys.readouterr().err
    summary = json.loads((tmp_path / "w" / "summary.json").read_text())
    assert summary["too_long"] == {"train": 1, "eval": 1}


def test_a_gold_that_cannot_be_read_is_listed_and_left_out(tmp_path, capsys):
    bad = {"question": "What is nothing?", "answer": "#### (("}
    path = lines(tmp_path / "golds.jsonl", [*WORDS, bad])
    args = word_run(tmp_path / "w", path, mesh__cpu_devices=8, sft__steps=0)
    assert main([*args, "--dry_run"]) == 0
    shown = capsys.readouterr().out
    for stage in ("train", "eval"):
        assert (
            f"{stage}: 1 of 26 problems left out: golds that the verifier cannot read\n"
            "  golds.jsonl:26: gold does not parse"
        ) in shown


def test_only_golds_that_cannot_be_read(refusal, tmp_path):
    path = lines(tmp_path / "golds.jsonl", [w | {"answer": "#### (("} for w in WORDS])
    line = refusal(word_run(tmp_path / "w", path))
    assert "the verifier can read none of the 25 golds, such as '(('" in line


def test_only_prompts_too_long(refusal, tmp_path):
    path = lines(tmp_path / "words.jsonl", [LONG, LONG])
    line = refusal(word_run(tmp_path / "w", path))
    assert "none of 2 problems fits: the first has a prompt of" in line
    assert "raise model.max_seq_len" in line


def test_a_workdir_of_another_config(refusal, whole):
    line = refusal(tiny(whole, "--config.train.optimizer.b1=0.5"))
    assert "(train.optimizer.b1: 0.9 -> 0.5); use another --workdir" in line


def test_a_dry_run_refuses_what_the_run_would(refusal, whole, tmp_path):
    changed = tiny(whole, "--config.train.optimizer.b1=0.5", "--dry_run")
    assert "(train.optimizer.b1: 0.9 -> 0.5); use another --workdir" in refusal(changed)
    (tmp_path / "file").touch()
    line = refusal(tiny(tmp_path / "file", "--dry_run"))
    assert line == f"error: workdir {tmp_path}/file is a file; name a directory\n"
    few = lines(tmp_path / "few.jsonl", WORDS[:7])
    for more in ([], ["--dry_run"]):
        line = refusal([*word_run(tmp_path / "w", few), *more])
        assert "train.batch_size=8 is more than the 7 train problems" in line
    assert not (tmp_path / "w" / "config.json").exists()


def test_a_workdir_that_cannot_be_written(refusal, tmp_path):
    (tmp_path / "file").touch()
    assert "cannot be written" in refusal(tiny(tmp_path / "file"))
    assert "cannot be written" in refusal(tiny(tmp_path / "file" / "w"))


def test_a_checkpoint_of_other_shapes(refusal, whole, tmp_path):
    workdir = tmp_path / "w"
    shutil.copytree(whole, workdir)
    wider = "--config.model.intermediate_size=24"
    checkpoint = f"--checkpoint={workdir}"
    config = f"--config={workdir / 'config.json'}"
    message = "but the config needs"
    assert message in refusal([config, checkpoint, wider], command=evaluate.main)
    record = json.loads((workdir / "config.json").read_text())
    record["config"]["model"]["intermediate_size"] = 24
    (workdir / "config.json").write_text(json.dumps(record))
    (workdir / "summary.json").unlink()
    assert message in refusal(tiny(workdir, wider, "--stage=eval"))


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        ("train", "stage sft has done 0 of 6 steps"),
        ("eval", "stage sft has done 0 of 6 steps"),
        ("report", "holds no config.json: no run started there"),
    ],
)
def test_a_stage_before_its_time(refusal, tmp_path, stage, message):
    assert message in refusal(tiny(tmp_path, f"--stage={stage}"))
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.parametrize("inside", [".", "none", "rollouts"])
def test_no_checkpoint_to_evaluate(refusal, tmp_path, inside):
    (tmp_path / "rollouts").mkdir()
    args = [*tiny(tmp_path)[:1], f"--checkpoint={tmp_path / inside}"]
    line = refusal(args, command=evaluate.main)
    assert "no complete checkpoint" in line


def test_a_dry_run_writes_nothing(tmp_path, capsys):
    args = tiny(tmp_path / "never", "--config.mesh.cpu_devices=8", "--dry_run")
    assert main(args) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("fits: about ")
    for part in ("parameters", "mesh        data 8", "optimizer"):
        assert part in shown
    name = '"name": "smoke"'
    assert name not in shown
    assert main([*args, "--verbose"]) == 0
    assert name in capsys.readouterr().out
    assert not (tmp_path / "never").exists()


def probe_at(path, *, width=16, layer=0, model="smoke, step 0"):
    """Returns the overrides of a run that reads an autoencoder from this test."""
    tsae = TSAE.init(jax.random.key(0), width=width, latents=24)
    metadata = {"model_name": model}
    if layer is not None:
        metadata["hook_name"] = f"blocks.{layer}.hook_resid_post"
    io.save(path, tsae, metadata=metadata)
    return overrides(probe__name="sae", probe__sae_path=path)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"width": 8}, "width 8, but the policy 'smoke' has width 16"),
        ({"layer": 1}, "blocks.1.hook_resid_post, but layer=0 is blocks.0.hook"),
        ({"layer": None}, "does not say which layer it was trained on, so it cannot"),
        ({"model": "other"}, "the model 'other', but the policy is 'smoke'"),
    ],
)
def test_an_autoencoder_of_something_else(refusal, tmp_path, written, message):
    args = probe_at(tmp_path / "sae", **written)
    line = refusal(tiny(tmp_path / "w", *args))
    assert message in line
    assert str(tmp_path / "sae") in line
    assert not (tmp_path / "w" / "config.json").exists()
    assert message in refusal(tiny(tmp_path / "w", *args, "--dry_run"))


@pytest.mark.parametrize("pack", [None, "{", "[]", '{"features": []}', "a,b"])
def test_an_invalid_pack(refusal, tmp_path, pack):
    path = tmp_path / "pack.json"
    if pack is not None:
        path.write_text(pack)
    asked = overrides(
        probe__features__method="weights_file", probe__features__weights_file=path
    )
    line = refusal(tiny(tmp_path / "w", *probe_at(tmp_path / "sae"), *asked))
    assert f"probe.features.weights_file={str(path)!r} " in line
    assert not (tmp_path / "w" / "config.json").exists()


STAGE = "--config.probe.name=sae"
LIST = "--config.probe.features.method=list"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ([STAGE, LIST], "latents=() is an empty feature set"),
        (
            [STAGE, LIST, "--config.probe.features.latents=(1,2048)"],
            "latent 2048 does not exist; the autoencoder has latents 0..2047",
        ),
        (
            [STAGE, LIST, "--config.probe.features.latents=(-1,)"],
            "latent -1 does not exist",
        ),
        (
            [STAGE, "--config.probe.features.method=reason_score"],
            "probe.features.words: the tokenizer makes no token of 'alternatively'",
        ),
        (
            [STAGE, "--config.probe.layer=1"],
            "probe.layer=1, but the policy has layers 0",
        ),
        (["--config.train.rfgo.lambda_w=0.5"], "probe.name=none has none"),
        (["--config.train.rfgo.lambda_p=0.1"], "probe.name=none has none"),
        (
            [STAGE, "--config.probe.num_reference_texts=12"],
            "probe.num_reference_texts=12 cannot be split over 8 devices",
        ),
        (
            [STAGE, "--config.probe.num_problems=8"],
            "num_reference_texts=64 is more than",
        ),
    ],
)
def test_a_probe_that_cannot_be(refusal, tmp_path, asked, message):
    assert message in refusal(tiny(tmp_path / "w", *asked))
    assert not (tmp_path / "w" / "config.json").exists()


def test_a_tracker_without_its_library_is_refused_before_anything_is_made(
    tmp_path, refusal, monkeypatch
):
    monkeypatch.setitem(sys.modules, "wandb", None)
    said = refusal(tiny(tmp_path / "run", "--config.log.trackers=wandb"))
    assert said == (
        "error: log.trackers: wandb is not installed; pip install 'rlvr_jax[wandb]'\n"
    )
    assert not (tmp_path / "run").exists()


def test_a_disk_without_room_for_the_checkpoints_is_refused_before_any_step(
    refusal, monkeypatch, tmp_path
):
    monkeypatch.setattr(disk, "free_bytes", lambda path: 10_000)
    message = refusal(tiny(tmp_path))
    assert f"the disk of {tmp_path} has 0.0 MiB free" in message
    assert "needed for checkpoints; make room, choose another --workdir" in message
    assert not (tmp_path / "config.json").exists()
