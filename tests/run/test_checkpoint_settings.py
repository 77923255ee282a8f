"""Settings that a recipe leaves open come from an earlier run, else the checkpoint."""

import dataclasses
import json

import pytest

import rlvr_jax.pipeline
from job_jax.config_io import from_json, override, to_json
from job_jax.schema import ConfigError
from rlvr_jax.config import (
    Config,
    EvalConfig,
    MeshConfig,
    ModelConfig,
    PretrainedConfig,
    SamplingConfig,
    TokenizerConfig,
    TrainConfig,
)
from rlvr_jax.environments.verifiers import VerifiersTask
from rlvr_jax.main import main
from rlvr_jax.run.checkpoint_settings import (
    describe_sampling,
    recorded_config,
    settle_config,
)
from rlvr_jax.run.lineage import Lineage
from rlvr_jax.tasks import CodeTask, FilesTask, HubTask, RecordConfig, WordProblemsTask
from tests.support.checkpoints import (
    CHATML,
    write_checkpoint,
    write_problems,
    write_tokenizer,
)

SAMPLING = {"temperature": 0.6, "top_p": 0.95, "top_k": 20}
PLAIN = "Question: {prompt}\nAnswer:"
BOXED = "{prompt}\nReason step by step, and put the final answer within \\boxed{}."


@pytest.fixture
def start(tmp_path):
    return write_checkpoint(tmp_path / "hf")


def recipe(start, task=None, **sections):
    told = {
        "task": task or FilesTask(),
        "pretrained": PretrainedConfig(path=str(start)),
        "model": ModelConfig(family="pretrained", max_seq_len=128),
        "tokenizer": TokenizerConfig(kind="huggingface"),
    }
    return Config(**told | sections)


def templates(config):
    record = settle_config(config).task.record
    return record.chat_template, record.prompt_template


def tell(directory, **settings):
    (directory / "generation_config.json").write_text(json.dumps(settings))


def drawn(config):
    return [
        (one.sampling.temperature, one.sampling.top_p, one.sampling.top_k)
        for one in (config.train, config.eval)
    ]


def test_a_checkpoints_chat_template_is_used_by_itself(start):
    assert templates(recipe(start)) == ("tokenizer", "{prompt}")
    boxed = FilesTask(record=RecordConfig(answer_format="boxed"))
    assert templates(recipe(start, boxed)) == ("tokenizer", BOXED)


def test_without_weights_or_without_a_template_there_is_none(start, tmp_path):
    bare = write_tokenizer(tmp_path / "bare", chat_template=None)
    elsewhere = TokenizerConfig(kind="huggingface", path=str(bare))
    assert templates(recipe(start, tokenizer=elsewhere)) == ("", PLAIN)
    own = TokenizerConfig(kind="huggingface", path=str(start))
    new = recipe(
        start, pretrained=PretrainedConfig(), model=ModelConfig(), tokenizer=own
    )
    assert templates(new) == ("", PLAIN)
    learned = TokenizerConfig(kind="sentencepiece")
    assert templates(dataclasses.replace(new, tokenizer=learned)) == ("", PLAIN)


@pytest.mark.parametrize("stated", ["", "tokenizer", "{{ messages[0].content }}"])
def test_a_stated_template_wins(start, stated):
    task = FilesTask(
        record=RecordConfig(chat_template=stated, prompt_template="Q{prompt}")
    )
    assert templates(recipe(start, task)) == (stated, "Q{prompt}")


@pytest.mark.parametrize(
    ("task", "path"),
    [
        (HubTask(path="d"), "record"),
        (WordProblemsTask(), ""),
        (CodeTask(), ""),
        (VerifiersTask(env="e"), ""),
    ],
)
def test_every_task_of_texts_takes_the_template(start, task, path):
    settled = settle_config(recipe(start, task)).task
    holder = settled.record if path else settled
    assert holder.chat_template == "tokenizer"
    assert settled.applies_chat_template
    assert settled.needs_tokenizer_template
    assert not task.applies_chat_template


def test_a_system_prompt_without_a_chat_is_refused(start, tmp_path):
    task = FilesTask(record=RecordConfig(system_prompt="Add."))
    assert templates(recipe(start, task))[0] == "tokenizer"
    bare = write_tokenizer(tmp_path / "bare", chat_template=None)
    elsewhere = TokenizerConfig(kind="huggingface", path=str(bare))
    with pytest.raises(
        ConfigError, match=r"^task\.record\.system_prompt='Add\.' needs a"
    ):
        settle_config(recipe(start, task, tokenizer=elsewhere))


def test_settled_values_do_not_change(start):
    tell(start, **SAMPLING)
    config = settle_config(recipe(start))
    assert settle_config(config) == config
    assert settle_config(from_json(Config, to_json(config))) == config
    default = settle_config(Config())
    assert default == Config()


@pytest.mark.parametrize("missing", [(), ("chat_template", "prompt_template")])
def test_an_earlier_runs_record_is_read_as_that_run_was(start, missing):
    """Its record may say "" or lack the field."""
    tell(start, **SAMPLING)
    task = FilesTask(record=RecordConfig(chat_template="", prompt_template=PLAIN))
    data = to_json(recipe(start, task, model=ModelConfig()))
    del data["model"]
    for name in missing:
        del data["task"]["record"][name]
    if missing:
        del data["train"]["sampling"]["top_p"]
        del data["train"]["sampling"]["temperature"]
    read = from_json(Config, data)
    assert templates(read) == ("", PLAIN)
    assert drawn(settle_config(read)) == [(1.0, 1.0, 0)] * 2


def test_an_earlier_record_of_stories_and_programs_has_no_chat(start):
    for task in (WordProblemsTask(), CodeTask(), VerifiersTask(env="e")):
        data = to_json(recipe(start, task))
        del data["task"]["chat_template"]
        del data["model"]
        assert settle_config(from_json(Config, data)).task.chat_template == ""


def test_open_settings_follow_the_continued_run(start, tmp_path):
    """A workdir's record comes first, then the run that it continues."""
    tell(start, **SAMPLING)
    config = recipe(start)
    was = override(
        settle_config(config),
        {
            "task.record.chat_template": "",
            "task.record.prompt_template": PLAIN,
            "train.sampling.temperature": "1.0",
        },
    )
    for name, saved in (("parent", was), ("own", settle_config(config))):
        (tmp_path / name).mkdir()
        record = tmp_path / name / "config.json"
        record.write_text(json.dumps({"config": to_json(saved)}))
    lineage = Lineage(
        workdir=str(tmp_path / "parent"), stage="sft", step=1, has_optimizer=False
    )
    found = recorded_config(tmp_path / "new", lineage)
    settled = settle_config(config, found)
    assert settled.task.record.chat_template == ""
    assert settled.task.record.prompt_template == PLAIN
    assert drawn(settled) == [(1.0, 0.95, 20), (0.6, 0.95, 20)]
    assert recorded_config(tmp_path / "own", lineage) == settle_config(config)
    assert recorded_config(tmp_path / "new", None) is None
    (tmp_path / "own/config.json").write_text("{}")
    assert recorded_config(tmp_path / "own", lineage) is None


def test_sampling_comes_from_the_checkpoint_unless_it_is_stated(start):
    tell(start, **SAMPLING)
    assert drawn(settle_config(recipe(start))) == [(0.6, 0.95, 20)] * 2
    one = recipe(
        start,
        train=TrainConfig(sampling=SamplingConfig(temperature=1.0)),
        eval=EvalConfig(sampling=SamplingConfig(top_k=0, top_p=1.0)),
    )
    assert drawn(settle_config(one)) == [(1.0, 0.95, 20), (0.6, 1.0, 0)]
    typed = override(recipe(start), {"train.sampling.top_p": "1"})
    assert drawn(settle_config(typed)) == [(0.6, 1.0, 20), (0.6, 0.95, 20)]


def test_a_checkpoint_that_says_nothing_leaves_the_defaults(start):
    tell(start, eos_token_id=269)
    assert drawn(settle_config(recipe(start))) == [(1.0, 1.0, 0)] * 2
    assert describe_sampling(recipe(start)) == []
    assert describe_sampling(Config()) == []


def test_one_line_says_how_completions_are_drawn(start):
    tell(start, temperature=0.6, top_p=0.95)
    config = settle_config(recipe(start))
    assert describe_sampling(config) == [
        "sampling: temperature 0.6, top_p 0.95 from generation_config.json"
    ]
    stated = override(config, {"eval.sampling.temperature": "0.3"})
    assert describe_sampling(stated) == [
        "sampling: temperature 0.6, top_p 0.95 from generation_config.json in "
        "training; top_p 0.95 from generation_config.json, temperature 0.3 as the "
        "recipe states (generation_config.json: 0.6) in evaluation"
    ]


@pytest.fixture
def run_recipe(start, tmp_path):
    """Returns the config of a short run from the tiny checkpoint."""
    problems = str(write_problems(tmp_path / "problems.jsonl"))
    task = FilesTask(train_path=problems, eval_path=problems)
    return recipe(start, task, mesh=MeshConfig(cpu_devices=8))


def test_a_template_that_raises_is_one_clear_line(
    run_recipe, start, tmp_path, capsys, restored_signals
):
    """A dry run uses the template by default, as a run does."""
    broken = "{{ raise_exception('no such role') }}" + CHATML
    settings = json.loads((start / "tokenizer_config.json").read_text())
    settings["chat_template"] = broken
    (start / "tokenizer_config.json").write_text(json.dumps(settings))
    path = tmp_path / "config.json"
    data = to_json(run_recipe)
    data["task"]["record"] |= {"chat_template": "auto", "prompt_template": "auto"}
    del data["model"]
    path.write_text(json.dumps({"config": data}))
    for mode in ("--dry_run", f"--workdir={tmp_path / 'w'}"):
        assert main([f"--config={path}", mode]) == 2
        *_, line = capsys.readouterr().err.splitlines()  # after "an earlier version"
        assert line.startswith("error: task.record.chat_template: no such role; ")
        assert "'' for none" in line


def test_a_run_from_python_records_what_was_left_open(
    run_recipe, start, tmp_path, monkeypatch
):
    tell(start, **SAMPLING)
    seen = []
    monkeypatch.setattr(
        rlvr_jax.pipeline, "_run_stages", lambda run, config, stage: seen.append(config)
    )
    monkeypatch.setattr(rlvr_jax.pipeline, "start_jax", lambda mesh: None)
    rlvr_jax.pipeline.train(run_recipe, workdir=tmp_path / "w")
    assert seen == [settle_config(run_recipe)]
