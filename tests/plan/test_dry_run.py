"""The dry run: a plan for chips that are elsewhere, and its memory by part."""

import dataclasses
import itertools
import json
import re
import shutil
import subprocess
import sys

import jax
import pytest

from job_jax.config import MeshConfig
from job_jax.schema import ConfigError
from rlvr_jax.config import (
    Config,
    LossConfig,
    ModelConfig,
    PretrainedConfig,
    SamplerConfig,
    SamplingConfig,
    TrainConfig,
)
from rlvr_jax.plan.dry_run import describe
from rlvr_jax.run.lineage import Lineage
from rlvr_jax.tasks import RecordConfig
from rlvr_jax.tokenizer import HuggingFaceTokenizer
from tests.support.checkpoints import (
    SPECIAL,
    word_config,
    write_checkpoint,
    write_problems,
)

CONFIG = Config(
    model=ModelConfig(num_layers=1, hidden_size=64, num_heads=2, num_kv_heads=2),
    pretrained=PretrainedConfig(path="nowhere", vocab_size=128),
    mesh=MeshConfig(fsdp=4),
)


def parts(text):
    """Returns the sizes in a plan, in MiB, by part."""
    lines = [line.split() for line in text.splitlines() if line.endswith(" MiB")]
    return {" ".join(words[:-2]): float(words[-2]) for words in lines}


def phases(text, title="memory of each device, MiB"):
    """Returns the sizes in a table of memory, in MiB: phase -> part -> size."""
    lines = text.split(title)[1].splitlines()[1:]
    table = itertools.takewhile(lambda line: line.startswith("  "), lines)
    names, *rows = (re.split("  +", line.strip()) for line in table)
    return {
        name: {
            row[0]: float(row[at].replace(",", "")) for row in rows if row[at] != "-"
        }
        for at, name in enumerate(names, start=1)
    }


def test_a_plan_is_for_the_chips_of_the_slice():
    text = describe(CONFIG, "v5e:2x2")
    assert "devices     4 chips of v5e:2x2, 15.75 GiB each" in text
    assert "mesh        data 1 x fsdp 4 x tensor 1" in text


def test_gpus_are_planned_with_the_memory_that_jax_reserves():
    """The same shapes as on chips; three quarters of 79 GiB, and of 139."""
    mesh = MeshConfig(fsdp=4)
    config = dataclasses.replace(CONFIG, mesh=mesh)
    text = describe(config, "h100:4")
    assert " of 59.2 GiB on a GPU of h100:4" in text.splitlines()[0]
    assert "devices     4 GPUs of h100:4, 59.25 GiB each" in text
    assert phases(text) == phases(describe(config, "v5e:2x2"))
    one = describe(dataclasses.replace(CONFIG, mesh=MeshConfig(fsdp=1)), "h200:1")
    assert "devices     1 GPU of h200:1, 104.25 GiB each" in one


def test_memory_is_for_one_chip():
    """On a wider mesh each chip holds a smaller share of the divided arrays."""
    four, eight = (
        phases(describe(dataclasses.replace(CONFIG, mesh=MeshConfig(fsdp=n)), topology))
        for n, topology in ((4, "v5e:2x2"), (8, "v5e:2x4"))
    )
    four, eight = four["update"], eight["update"]
    assert four["optimizer"] == pytest.approx(2 * eight["optimizer"], rel=0.1)


def test_a_plan_separates_the_samplers_devices_from_the_updates():
    """With staleness 2 the sampler has two copies in the compute dtype, no moments."""
    config = dataclasses.replace(
        CONFIG,
        sampler=SamplerConfig(devices=4, tensor_parallel=1),
        train=TrainConfig(
            staleness=2,
            loss=LossConfig(tis_cap=2.0),
            sampling=SamplingConfig(max_new_tokens=8),
        ),
    )
    text = describe(config, "v5e:2x4")
    assert "mesh        data 1 x fsdp 4 x tensor 1" in text
    assert "sampler     data 4 x fsdp 1 x tensor 1" in text
    assert "weights before step t - 2; the first 2 steps use the initial" in text
    of_update = phases(text, "memory of each device of the update")
    of_sampler = phases(text, "memory of each device of the sampler")
    assert of_update.keys() == {"sft", "update"}
    assert of_sampler.keys() == {"rollouts", "eval"}
    held = of_sampler["rollouts"]
    assert {"sampler weights", "completion cache"} <= held.keys()
    assert not {"parameters", "optimizer", "gradients"} & held.keys()
    assert "sampler weights" not in of_update["update"]
    copies = 2 * 4 * of_update["update"]["parameters"]
    layers = 4 * 64 * (4 * 2 * 32 + 3 * 384) / 2**20  # copied once more, unrolled
    assert held["sampler weights"] == pytest.approx(copies + layers, rel=0.1)


def test_a_reference_policy_takes_room_where_one_is_read():
    assert "reference" not in phases(describe(CONFIG, "v5e:2x2"))["update"]
    train = TrainConfig(
        loss=LossConfig(kl_coef=0.1), sampling=SamplingConfig(max_new_tokens=8)
    )
    text = describe(dataclasses.replace(CONFIG, train=train), "v5e:2x2")
    sizes = phases(text)["update"]
    assert sizes["reference"] == sizes["parameters"]


def test_too_few_devices_give_a_hint_how_to_plan():
    config = dataclasses.replace(CONFIG, mesh=MeshConfig(fsdp=16))
    with pytest.raises(ConfigError, match=r"add --topology=v5e:4x4"):
        describe(config)
    assert len(jax.devices()) < 16


def test_the_command_plans_for_more_chips_than_the_machine_has_cores():
    command = [
        *(sys.executable, "-m", "rlvr_jax.main", "--config=configs/smoke.py"),
        *("--dry_run", "--topology=v5e:4x4", "--config.mesh.fsdp=16"),
        *("--config.sft.batch_size=32", "--config.train.batch_size=16"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "mesh        data 1 x fsdp 16 x tensor 1" in done.stdout
    assert "16 chips of v5e:4x4" in done.stdout


@pytest.mark.parametrize(("has_optimizer", "copies"), [(False, 1), (True, 3)])
def test_the_start_of_a_continued_run_is_on_its_disk(has_optimizer, copies):
    """The disk holds a copy of the policy, and both float32 moments if used."""
    lineage = Lineage(
        workdir="/runs/a", stage="train", step=7, has_optimizer=has_optimizer
    )
    text = describe(CONFIG, "v5e:2x2", lineage=lineage)
    sizes = parts(text)
    # Two stages keep two checkpoints each, with parameters and two moments. One more is
    # written before the oldest is deleted.
    assert sizes["checkpoints"] == pytest.approx(
        5 * 3 / copies * sizes["checkpoints/start"], abs=0.6
    )
    assert sizes["checkpoints/start"] > 0
    assert f"starts from {lineage}" in text
    assert "checkpoints/start" not in parts(describe(CONFIG, "v5e:2x2"))


def test_free_disk_space_is_printed_below_the_needed_space(tmp_path):
    free = parts(describe(CONFIG, "v5e:2x2", workdir=tmp_path))["free there now"]
    assert free == pytest.approx(shutil.disk_usage(tmp_path).free / 2**20, rel=0.2)
    assert "free there now" not in parts(describe(CONFIG, "v5e:2x2"))


def test_two_prompts_are_shown_as_the_policy_reads_them(tmp_path):
    """The plan shows special tokens, lengths, and each token that ends a completion."""
    start = write_checkpoint(tmp_path / "hf")
    settings = json.loads((start / "tokenizer_config.json").read_text())
    settings |= {"bos_token": SPECIAL[0], "add_bos_token": True}
    (start / "tokenizer_config.json").write_text(json.dumps(settings))
    (start / "generation_config.json").write_text('{"temperature": 0.6}')
    config = word_config(start, write_problems(tmp_path / "problems.jsonl"))
    shown = describe(config)
    tokenizer = HuggingFaceTokenizer(start, has_chat_template=True)
    for number, sum_ in ((1, "0 plus 0"), (2, "0 plus 1")):
        lines = (
            "<|im_start|>system",
            "Add.<|im_end|>",
            "<|im_start|>user",
            f"What is {sum_}?<|im_end|>",
            "<|im_start|>assistant",
            "",
        )
        count = len(tokenizer.encode("\n".join(lines)))
        told = "\n".join(f"  | {line}" for line in lines)
        assert f"train prompt {number}, {count} tokens:\n{told}\n" in shown
    assert "train prompt 3" not in shown
    ends = "<|endoftext|> (token 269), <|im_end|> (token 271), the text '!'"
    assert f"completions end at {ends}\n" in shown
    assert "\nsampling: temperature 0.6 from generation_config.json\n" in shown
    assert shown.startswith("fits: about ")
    order = ("\nwarning: ", "train prompt 1", "\nparameters", "\nmemory", "\ntime")
    assert [*order] == sorted(order, key=shown.index)
    assert '"name": ' not in shown
    whole = describe(config, verbose=True)
    assert json.loads(whole[whole.index("\n{") :])["task"]["source"] == "files"
    assert "\nwarning: train.optimizer.learning_rate=0.0003 for all" in shown

    record = RecordConfig(chat_template="", prompt_template="{prompt}")
    plain = dataclasses.replace(
        config, task=dataclasses.replace(config.task, record=record)
    )
    first = HuggingFaceTokenizer(start).encode_prompt("What is 0 plus 0?")
    told = f"{len(first)} tokens:\n  | <|endoftext|>What is 0 plus 0?\n"
    assert f"train prompt 1, {told}" in describe(plain)
