"""A config survives JSON, fields set the types of overrides, and changes show."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from job_jax.command import load_config
from job_jax.config_io import (
    diff,
    diff_json,
    from_json,
    from_record,
    keep_earlier_values,
    override,
    to_json,
)
from job_jax.hints import iter_alternatives
from job_jax.schema import ConfigError, ConfigSection, iter_fields
from rlvr_jax.config import Config, OptimizerConfig, TokenizerConfig, TrainConfig
from rlvr_jax.tasks import ChainMix, FilesTask, FiniteFieldTask, RecordConfig
from sae_jax.config import Config as DictionaryConfig

DEFAULT = Config()
JSONL = Config(
    task=FilesTask(train_path="données.jsonl", record=RecordConfig(answer_prefix="")),
    tokenizer=TokenizerConfig(kind="sentencepiece"),
    train=TrainConfig(optimizer=OptimizerConfig(learning_rate=0.1 + 0.2)),
)
MIXED = Config(
    task=FiniteFieldTask(
        train=ChainMix(chain_lengths=(2, 9), chain_length_weights=(1 / 3, 1e-300))
    )
)
RECIPES = sorted((Path(__file__).parents[2] / "configs").glob("*.py"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Inner(ConfigSection):
    needed: int
    later: int = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Changed(ConfigSection):
    """A section with a changed default: records without the field mean "none"."""

    earlier_values: ClassVar[Mapping[str, Any]] = {"mode": "none"}

    kept: int = 1
    mode: str = "auto"


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Outer(ConfigSection):
    path: str
    inner: _Inner


def _kind(recipe):
    """Returns the config of the recipe with this name."""
    return DictionaryConfig if recipe.stem.startswith("tsae_") else Config


def _text(value):
    """Returns the text that a user types after the equals sign."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


@pytest.mark.parametrize("config", [DEFAULT, JSONL, MIXED], ids=["gf", "files", "mix"])
def test_json_is_a_round_trip(config):
    copy = from_json(Config, json.loads(json.dumps(to_json(config))))
    assert copy == config
    assert repr(copy) == repr(config)
    assert to_json(copy) == to_json(config)
    assert diff(config, copy) == []


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_is_a_round_trip(path):
    config = load_config(path, _kind(path))
    assert from_json(_kind(path), to_json(config)) == config


def test_a_record_without_a_field_means_the_behavior_of_its_version():
    assert from_json(_Changed, {"kept": 2}) == _Changed(kept=2, mode="none")
    assert from_json(_Changed, to_json(_Changed())).mode == _Changed().mode == "auto"
    data = to_json(DEFAULT)
    del data["train"]["sampling"]["temperature"]
    sampling = from_json(Config, data).train.sampling
    assert sampling == DEFAULT.train.sampling
    assert "temperature" in sampling.stated


def test_json_holds_plain_values():
    data = to_json(MIXED)
    assert data["task"]["source"] == "finite_field"
    assert data["task"]["train"]["chain_lengths"] == [2, 9]
    assert data["train"]["optimizer"]["learning_rate"] == 3e-4
    assert data["model"]["tie_embeddings"] is True


def _changed(path, value):
    data = to_json(DEFAULT)
    *parents, last = path.split(".")
    section = data
    for name in parents:
        section = section[name]
    section[last] = value
    return data


def _without(path):
    data = _changed(path, None)
    *parents, last = path.split(".")
    section = data
    for name in parents:
        section = section[name]
    del section[last]
    return data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            _changed("train.setps", 3),
            "unknown config key 'train.setps'; did you mean 'train.steps'?",
        ),
        (_changed("sead", 3), "unknown config key 'sead'; did you mean 'seed'?"),
        (
            _changed("task.train.chain_length", [2]),
            "unknown config key 'task.train.chain_length'; "
            "did you mean 'task.train.chain_lengths'?",
        ),
        ({}, "config is empty"),
        (_changed("train.steps", "3"), "train.steps expects an int, got '3'"),
        (_changed("eval.k", [1, "2"]), "eval.k expects a tuple of int, got (1, '2')"),
        (_changed("train", 3), "train expects an object, got 3"),
        (_changed("train.steps", {}), "train.steps expects an int, got {}"),
        ([], "config expects an object, got []"),
        (
            _changed("task.source", "file"),
            "unknown task 'file'; did you mean 'files'? Name your own as "
            "package.module:name",
        ),
        (
            _without("task.source"),
            "task.source expects the name of a task, got None",
        ),
        (
            _changed("train.optimizer.learning_rate", float("nan")),
            "train.optimizer.learning_rate expects a finite float, got nan",
        ),
        (
            _changed("train.num_minibatches", 5),
            "train.batch_size=16 does not split into num_minibatches=5 x "
            "grad_accum_steps=1; make it a multiple of 5",
        ),
        (
            _changed("tokenizer.kind", "sentencepiece"),
            "tokenizer.kind=sentencepiece learns from texts, and task.source="
            "finite_field has none; set tokenizer.kind=word_level, or a tokenizer.path",
        ),
    ],
)
def test_json_that_is_no_config_is_refused(data, message):
    with pytest.raises(ConfigError) as caught:
        from_json(Config, data)
    assert str(caught.value) == message


def test_missing_fields_came_later_and_get_their_default(tmp_path, capsys):
    """A field, and a nested section; the old value is not the later default."""
    data = to_json(override(DEFAULT, {"train.steps": "7", "train.group_size": "4"}))
    del data["train"]["steps"], data["train"]["rfgo"], data["judge"]
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"config": data}))
    assert diff(from_record(Config, path), DEFAULT) == ["train.group_size: 4 -> 8"]
    told = capsys.readouterr().err
    assert "version without train.steps, train.rfgo, judge; these get the" in told
    from_record(Config, path)
    assert capsys.readouterr().err == ""  # warned once
    path.write_text(json.dumps({"config": to_json(DEFAULT)}))
    assert from_record(Config, path) == DEFAULT
    assert capsys.readouterr().err == ""


def test_a_field_without_a_default_cannot_have_come_later():
    data = {"path": "acts", "inner": {}}
    assert from_json(_Outer, {**data, "inner": {"needed": 3}}).inner.later == 2
    with pytest.raises(ConfigError, match=r"^config key 'inner.needed' is missing$"):
        from_json(_Outer, data)


def test_a_whole_number_in_json_is_a_float_where_the_field_is():
    config = from_json(Config, _changed("train.optimizer.clip_norm", 2))
    assert to_json(config)["train"]["optimizer"]["clip_norm"] == 2.0
    assert to_json(config) == to_json(
        override(DEFAULT, {"train.optimizer.clip_norm": "2.0"})
    )


@pytest.mark.parametrize("config", [DEFAULT, JSONL, MIXED], ids=["gf", "files", "mix"])
def test_every_value_can_be_written_as_an_override(config):
    texts = {path: _text(value) for path, _, value in iter_fields(config)}
    assert override(config, texts) == config
    blank = Config(task=type(config.task)(), tokenizer=config.tokenizer)
    assert override(blank, texts) == config


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("train.steps", "7", 7),
        ("mesh.data", "-1", -1),
        ("train.optimizer.learning_rate", "1e-4", 1e-4),
        ("train.optimizer.learning_rate", "1", 1.0),
        ("model.tie_embeddings", "false", False),
        ("model.tie_embeddings", "True", True),
        ("name", "12", "12"),
        ("name", "", ""),
        ("model.remat", "dots", "dots"),
        ("task.eval.chain_lengths", "2,3", (2, 3)),
        ("task.eval.chain_lengths", "(2, 3)", (2, 3)),
        ("task.eval.chain_lengths", "4", (4,)),
        ("task.eval.chain_lengths", "(4,)", (4,)),
        ("task.train.chain_length_weights", "1,2,0.5", (1.0, 2.0, 0.5)),
        ("task.train.chain_length_weights", "()", ()),
        ("task.train.types", "inversion", ("inversion",)),
        (
            "task.train.types",
            "('evaluation', \"inversion\")",
            ("evaluation", "inversion"),
        ),
        ("task.source", "finite_field", "finite_field"),
        ("tokenizer.stop_strings", "[/INST]", ("[/INST]",)),
        ("tokenizer.stop_strings", "(END),]", ("(END)", "]")),
        ("tokenizer.stop_strings", '["a, b", "c"]', ("a, b", "c")),
        ("tokenizer.stop_strings", "[]", ()),
    ],
)
def test_text_becomes_the_type_of_its_field(key, text, value):
    values = {
        path: held for path, _, held in iter_fields(override(DEFAULT, {key: text}))
    }
    assert values[key] == value
    assert type(values[key]) is type(value)


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("train.steps", "ten", "train.steps expects an int, got 'ten'"),
        ("train.steps", "1.5", "train.steps expects an int, got '1.5'"),
        ("train.steps", "", "train.steps expects an int, got ''"),
        ("eval.k", "1,x", "eval.k expects a tuple of int, got (1, 'x')"),
        ("model.tie_embeddings", "1", "model.tie_embeddings expects a bool, got '1'"),
        (
            "train.max_logprob_mismatch",
            "inf",
            "train.max_logprob_mismatch expects a finite float, got inf",
        ),
        (
            "train.loss.surrogate",
            "tokn",
            "train.loss.surrogate expects one of ppo, cispo, reinforce, got 'tokn'",
        ),
        (
            "train.optimizer.learning_rate",
            "-1",
            "train.optimizer.learning_rate=-1.0; it must be positive",
        ),
        (
            "train.setps",
            "3",
            "unknown config key 'train.setps'; did you mean 'train.steps'?",
        ),
        (
            "train.steps.now",
            "3",
            "unknown config key 'train.steps.now'; did you mean 'train.steps'?",
        ),
        (
            "train",
            "3",
            "train=3: 'train' is a section; set one of its fields, such as "
            "'train.steps'",
        ),
        (
            "task.train_path",
            "x",
            "'task.train_path' is a field of task.source=files; set that as well",
        ),
    ],
)
def test_an_override_that_cannot_be_is_refused(key, text, message):
    with pytest.raises(ConfigError) as caught:
        override(DEFAULT, {key: text})
    assert str(caught.value) == message


def test_a_key_that_resembles_none_is_refused_with_the_names_of_its_section():
    with pytest.raises(ConfigError) as caught:
        override(DEFAULT, {"train.optimizer.width": "3"})
    message = str(caught.value)
    assert message.startswith("unknown config key 'train.optimizer.width'; 'train.opt")
    assert "has learning_rate, " in message


def test_overrides_act_on_the_class_that_the_file_chose():
    assert override(JSONL, {"task.train_path": "b"}).task.train_path == "b"
    with pytest.raises(
        ConfigError, match=r"'task\.modulus' is a field of task\.source=fi"
    ):
        override(JSONL, {"task.modulus": "11"})


def test_overrides_are_checked_together():
    # 16 does not split into 3, and 6 does not split into the earlier 4. Each alone
    # would be refused; both together are valid.
    before = override(DEFAULT, {"train.num_minibatches": "4"})
    both = {"train.batch_size": "6", "train.num_minibatches": "3"}
    for key, text in both.items():
        with pytest.raises(ConfigError, match="does not split"):
            override(before, {key: text})
    after = override(before, both).train
    assert (after.batch_size, after.num_minibatches) == (6, 3)


def test_digest_changes_with_every_field():
    changes = {
        "name": "other",
        "seed": "1",
        "model.tie_embeddings": "false",
        "sft.optimizer.learning_rate": "3e-4",
        "train.optimizer.learning_rate": "1e-3",
        "train.steps": "201",
        "train.loss.surrogate": "reinforce",
        "task.train.chain_lengths": "4,5",
        "eval.k": "1",
    }
    digests = {
        json.dumps(to_json(override(DEFAULT, {key: changes[key]}))) for key in changes
    }
    assert len(digests | {json.dumps(to_json(DEFAULT))}) == len(changes) + 1


def test_diff_names_every_change():
    new = override(DEFAULT, {"train.steps": "7", "task.symbols": "permuted"})
    assert diff(DEFAULT, new) == [
        "task.symbols: 'fixed' -> 'permuted'",
        "train.steps: 200 -> 7",
    ]
    assert diff(new, new) == []


def test_diff_of_json_is_that_of_the_configs():
    new = override(DEFAULT, {"train.steps": "7", "name": "other"})
    assert diff_json(to_json(DEFAULT), to_json(new)) == diff(DEFAULT, new)


def test_diff_of_json_takes_configs_of_different_versions():
    old = {"a": {"b": 1, "gone": None}, "seed": 0}
    new = {"a": {"b": 2}, "seed": 0, "probe": {"layer": 3}}
    assert diff_json(old, new) == [
        "a.b: 1 -> 2",
        "a.gone: None -> absent",
        "probe: absent -> present",
    ]


def test_diff_between_two_tasks_names_the_fields_of_both():
    lines = diff(DEFAULT, JSONL)
    assert "task.source: 'finite_field' -> 'files'" in lines
    assert "task.modulus: 7 -> absent" in lines
    assert "task.train_path: absent -> 'données.jsonl'" in lines


def test_alternatives_are_the_classes_not_chosen_by_the_file():
    def tasks(config):
        return [
            section.tags()["source"]
            for path, section in iter_alternatives(config)
            if path == "task."
        ]

    generated = ["arithmetic", "word_problems", "verifiers"]
    graded = ["hub", "code", "programs", "reasoning_gym"]
    assert tasks(DEFAULT) == [*generated, "files", *graded]
    assert tasks(JSONL) == ["finite_field", *generated, *graded]


def _thinking(value, **sections):
    return dataclasses.replace(
        DEFAULT, tokenizer=TokenizerConfig(thinking=value), **sections
    )


def test_an_older_record_reads_as_the_behavior_before_the_field(tmp_path):
    """Thinking was off for every template; `auto`, the default now, came later."""
    data = to_json(DEFAULT)
    assert data["tokenizer"].pop("thinking") == "auto"
    assert from_json(Config, data) == _thinking("off")
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"config": data}))
    assert from_record(Config, path) == _thinking("off")
    data["tokenizer"]["thinking"] = "auto"
    assert from_json(Config, data) == DEFAULT


def test_an_older_run_keeps_its_behavior_unless_another_value_is_set():
    older = _thinking("off")
    assert keep_earlier_values(older, DEFAULT) == older
    longer = TrainConfig(steps=7)
    assert keep_earlier_values(older, _thinking("auto", train=longer)) == _thinking(
        "off", train=longer
    )
    for asked in ("on", "off"):
        assert keep_earlier_values(older, _thinking(asked)) == _thinking(asked)
    for saved in ("auto", "on"):
        assert keep_earlier_values(_thinking(saved), DEFAULT) is DEFAULT
    # Nothing else is inherited.
    other = _thinking("off", train=longer)
    assert keep_earlier_values(other, DEFAULT) == older
