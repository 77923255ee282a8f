"""Names of other trainers and short forms are answered with our field."""

import dataclasses

import pytest

from job_jax.command import parse_command
from job_jax.config_io import override, override_faults
from job_jax.flags import ConfigFlags, UsageError
from job_jax.hints import explain_flag, iter_alternatives
from job_jax.schema import ConfigError, iter_sections
from rlvr_jax.algorithms.objective import OBJECTIVES
from rlvr_jax.config import Config, LossConfig, OptimizerConfig, TrainConfig
from rlvr_jax.learn import presets
from sae_jax.config import Config as DictionaryConfig

_SECTIONS = {
    type(section): section
    for config in (Config(), DictionaryConfig())
    for _, held in (*iter_sections(config), *iter_alternatives(config))
    for _, section in iter_sections(held)
}


@pytest.mark.parametrize("kind", _SECTIONS, ids=lambda kind: kind.__name__)
def test_other_names_lead_to_fields_and_hide_none(kind):
    fields = {field.name for field in dataclasses.fields(kind)}
    assert set(kind.other_names.values()) <= fields
    assert fields.isdisjoint(kind.other_names)
    assert all(name == name.lower() for name in kind.other_names)


@pytest.mark.parametrize(
    ("key", "fields"),
    [
        ("train.lr", "'train.optimizer.learning_rate'"),
        ("sft.lr", "'sft.optimizer.learning_rate'"),
        ("train.optimizer.LR", "'train.optimizer.learning_rate'"),
        ("lr", "'sft.optimizer.learning_rate' or 'train.optimizer.learning_rate'"),
        ("actor_rollout_ref.rollout.n", "'train.group_size' or 'eval.num_samples'"),
        ("train.num-generations", "'train.group_size'"),
        ("train.beta", "'train.loss.kl_coef'"),
        ("train.loss.beta", "'train.loss.kl_coef'"),
        ("train.loss.lr", "'train.optimizer.learning_rate'"),
        ("train.epsilon_high", "'train.loss.clip_high'"),
        ("train.max_tokens", "'train.sampling.max_new_tokens'"),
        ("eval.temp", "'eval.sampling.temperature'"),
        ("train.temperature", "'train.sampling.temperature'"),
        ("train.bs", "'train.batch_size'"),
        ("batch_size", "'sft.batch_size', 'train.batch_size' or 'eval.batch_size'"),
        ("lora.r", "'train.lora.rank'"),
        ("model.num_hidden_layers", "'model.num_layers'"),
        ("save_steps", "'checkpoint.every'"),
        ("task.name", "'task.source'"),
        ("curriculum.kind", "'curriculum.name'"),
        ("train_files", "'task.train_path'"),  # of a task that is not chosen
        ("task.record.messages", "'task.record.prompt_field'"),
        ("trian.steps", "'train.steps'"),  # a typo comes before an equal name elsewhere
        ("train.setps", "'train.steps'"),
        ("sft.epochs", "'sft.steps'"),
        ("num_train_epochs", "'train.steps'"),
        ("difficulty.samples", "'difficulty.num_samples'"),
    ],
)
def test_a_name_of_another_program_is_answered_with_our_field(key, fields):
    expected = f"unknown config key '{key}'; did you mean {fields}?"
    assert override_faults(Config(), {key: "1"}) == [expected]
    with pytest.raises(ConfigError) as refused:
        override(Config(), {key: "1"})
    assert str(refused.value) == expected


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("verifier.seed", "'verifier' has workers"),
        ("train.kind", "'train' has steps"),  # not train.loss.name
    ],
)
def test_an_equal_name_in_another_section_is_not_suggested(key, said):
    (line,) = override_faults(Config(), {key: "1"})
    assert line.startswith(f"unknown config key '{key}'; {said}")


@pytest.mark.parametrize(
    ("flags", "meant"), [(["seeds"], "--seeds"), (["arms"], "--config.seed")]
)
def test_a_flag_of_the_command_comes_before_a_field(flags, meant):
    line = f"unknown flag '--seed'; did you mean '{meant}'?"
    assert explain_flag("seed", flags, Config()) == line


@pytest.mark.parametrize(
    ("section", "key", "field"),
    [
        (OptimizerConfig, "lr", "learning_rate"),
        (TrainConfig, "lr", "optimizer.learning_rate"),
        (LossConfig, "beta", "kl_coef"),
        (LossConfig, "eps_clip", "clip_low"),
    ],
)
def test_python_is_answered_with_the_path_within_the_section(section, key, field):
    with pytest.raises(ConfigError) as refused:
        section(**{key: 1})
    name = section.__name__
    assert str(refused.value).startswith(f"{name} has no field {key!r}; did you mean")
    assert f"'{field}'" in str(refused.value)


@pytest.mark.parametrize(
    ("argument", "line"),
    [
        (
            "--train.lr=1",
            "unknown flag '--train.lr'; did you mean "
            "'--config.train.optimizer.learning_rate'?",
        ),
        (
            "--lr=1",
            "unknown flag '--lr'; did you mean '--config.sft.optimizer.learning_rate' "
            "or '--config.train.optimizer.learning_rate'?",
        ),
        ("--cofnig=x", "unknown flag '--cofnig'; did you mean '--config'?"),
        ("--config.help=1", "'--config.help' is not a field; did you mean '--help'?"),
    ],
)
def test_flags_and_fields_are_told_apart(argument, line):
    with pytest.raises(UsageError) as refused:
        parse_command(
            ["--config=smoke", argument],
            ConfigFlags,
            usage="",
            default=Config(),
        )
    assert str(refused.value) == line


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "curriculum.name",
            "medium",
            "unknown curriculum 'medium'; did you mean curriculum.name=band with "
            "curriculum.band=medium?",
        ),
        (
            "curriculum.name",
            "easy",  # near to "replay" by its letters
            "unknown curriculum 'easy'; did you mean curriculum.name=band with "
            "curriculum.band=easy?",
        ),
        (
            "train.loss.name",
            "dapo",
            "unknown objective 'dapo'; dapo is a preset for a recipe: "
            "TrainConfig(**rlvr_jax.learn.presets.dapo())",
        ),
        (
            "train.reward.names",
            "accuracy",
            "train.reward: unknown reward 'accuracy'; did you mean 'correctness', the "
            "verdict of the problem's verifier?",
        ),
        (
            "train.reward.names",
            "math",
            "train.reward: unknown reward 'math'; math is a verifier; reward "
            "correctness is its verdict, and task.record.verifier=math chooses it for "
            "your own records",
        ),
    ],
)
def test_a_word_of_another_kind_is_answered_with_its_place(key, value, message):
    with pytest.raises(ConfigError) as refused:
        override(Config(), {key: value})
    assert str(refused.value) == message


def test_every_preset_is_explained_as_an_objective():
    names = {name for name, made in vars(presets).items() if _is_preset(made)}
    assert len(names) == 7
    for name in names:
        with pytest.raises(ConfigError, match=rf"presets\.{name}\(\)\)$"):
            OBJECTIVES.load(name)


def _is_preset(made):
    returned = getattr(made, "__annotations__", {}).get("return")
    return callable(made) and returned == presets.Preset
