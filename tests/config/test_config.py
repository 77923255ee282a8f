"""A config that cannot run cannot be made, and equal configs have one form."""

import dataclasses
import pickle
from typing import Literal, get_args, get_origin

import pytest

from job_jax.config import MeshConfig
from job_jax.schema import (
    ConfigError,
    ConfigSection,
    iter_fields,
    iter_sections,
    split_annotation,
)
from rlvr_jax.config import (
    Config,
    DynamicSamplingConfig,
    EvalConfig,
    LoRAConfig,
    LossConfig,
    ModelConfig,
    OptimizerConfig,
    PretrainedConfig,
    RewardConfig,
    RFGOConfig,
    SamplerConfig,
    SamplingConfig,
    SFTConfig,
    TokenizerConfig,
    TrainConfig,
    VerifierConfig,
)
from rlvr_jax.tasks import ChainMix, CodeTask, FilesTask, FiniteFieldTask, RecordConfig

JSONL = {
    "task": FilesTask(train_path="train.jsonl", eval_path="test.jsonl"),
    "tokenizer": TokenizerConfig(kind="sentencepiece"),
}
RLCR = RewardConfig(names=("correctness", "confidence"), weights=(1.0, 1.0))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Talkative(FiniteFieldTask):
    """Chains with completions that may end in "confidence: 0.8"."""

    def vocabulary(self):
        return (*super().vocabulary(), "confidence:", "0.2", "0.8")


def _refused(section, values):
    with pytest.raises(ConfigError) as caught:
        section(**values)
    return str(caught.value)


@pytest.mark.parametrize(
    ("section", "values", "message"),
    [
        (ModelConfig, {"num_layers": "4"}, "num_layers expects an int, got '4'"),
        (ModelConfig, {"num_layers": 4.0}, "num_layers expects an int, got 4.0"),
        (ModelConfig, {"num_layers": True}, "num_layers expects an int, got True"),
        (
            ModelConfig,
            {"rope_theta": "1"},
            "rope_theta expects a finite float, got '1'",
        ),
        (ModelConfig, {"norm_eps": True}, "norm_eps expects a finite float, got True"),
        (ModelConfig, {"tie_embeddings": 1}, "tie_embeddings expects a bool, got 1"),
        (ModelConfig, {"remat": "all"}, "remat expects one of none, block, dots, got "),
        (Config, {"name": 3}, "name expects a string, got 3"),
        (EvalConfig, {"k": 1}, "k expects a tuple of int, got 1"),
        (EvalConfig, {"k": (1, 2.0)}, "k expects a tuple of int, got (1, 2.0)"),
        (
            ChainMix,
            {"types": ("inverse",)},
            "types expects a tuple of one of evaluation",
        ),
        (ChainMix, {"strategies": ("up",)}, "strategies expects a tuple of one of for"),
        (TrainConfig, {"loss": 3}, "loss expects a PolicyObjective, got 3"),
        (
            TrainConfig,
            {"loss": ModelConfig()},
            "loss expects a PolicyObjective, got Model",
        ),
        (Config, {"task": 3}, "task expects a Task, got 3"),
    ],
)
def test_a_value_of_another_type_is_refused(section, values, message):
    assert _refused(section, values).startswith(message)


@pytest.mark.parametrize(
    ("section", "values", "message"),
    [
        (ModelConfig, {"num_heads": 0}, "num_heads=0; it must be at least 1"),
        (
            ModelConfig,
            {"num_heads": 6, "num_kv_heads": 4},
            "num_heads=6 is not a multiple of num_kv_he",
        ),
        (ModelConfig, {"head_dim": 33}, "head_dim=33 is odd"),
        (ChainMix, {"types": ()}, "types=(); it must name at least one"),
        (ChainMix, {"strategies": ()}, "strategies=(); it must name at least one"),
        (
            ChainMix,
            {"chain_lengths": ()},
            "chain_lengths=(); it must hold at least one chain length",
        ),
        (ChainMix, {"chain_lengths": (0, 1)}, "chain_lengths=(0, 1); it must hold"),
        (ChainMix, {"chain_lengths": (21,)}, "chain_lengths=(21,); it must hold"),
        (
            ChainMix,
            {"types": ("composition",), "chain_lengths": (1, 2)},
            "chain_lengths=(1, 2) with types=('composition',)",
        ),
        (
            ChainMix,
            {"direct_lengths": (2, 9)},
            "direct_lengths=(2, 9) must be among chain_lengths=(2, 3, 4, 5)",
        ),
        (
            ChainMix,
            {"composition_parts": (2, 3), "composition_part_weights": (1.0,)},
            "composition_part_weights has 1 entries for 2 composition_parts",
        ),
        (
            ChainMix,
            {"chain_length_weights": (1.0,)},
            "chain_length_weights has 1 entries for 4 chain_lengths; give one",
        ),
        (
            ChainMix,
            {"chain_lengths": (1, 2), "chain_length_weights": (1.0, -1.0)},
            "chain_length_weights=(1.0, -1.0)",
        ),
        (
            ChainMix,
            {"chain_lengths": (1,), "chain_length_weights": (0.0,)},
            "chain_length_weights=(0.0,)",
        ),
        (FiniteFieldTask, {"modulus": 12}, "modulus=12; it must be one of (2, 3, 5"),
        (
            RecordConfig,
            {"prompt_template": "Q:"},
            "prompt_template='Q:' has no place",
        ),
        (
            Config,
            {
                "sampler": SamplerConfig(tensor_parallel=2),
                "train": TrainConfig(lora=LoRAConfig(rank=4)),
            },
            "sampler.tensor_parallel=2 copies whole weights to the sampler",
        ),
        (TrainConfig, {"staleness": 3}, "staleness=3; it must be 0, 1 or 2"),
        (
            TrainConfig,
            {"staleness": 1},
            "staleness=1 learns from rollouts of an older policy, but train.loss.tis",
        ),
        (
            TrainConfig,
            {"staleness": 1, "num_epochs": 2, "loss": LossConfig(tis_cap=2.0)},
            "loss.tis_cap=2.0 needs the trainer's log-probabilities before",
        ),
        (
            Config,
            {
                "train": TrainConfig(staleness=2, loss=LossConfig(tis_cap=2.0)),
                "dynamic_sampling": DynamicSamplingConfig(max_rounds=1),
            },
            "train.staleness=2 samples the next step before this one is",
        ),
        (SamplerConfig, {"devices": 4}, "devices=4 gives the sampler its own copies"),
        (
            SamplerConfig,
            {"devices": 4, "tensor_parallel": 3},
            "devices=4 does not split into copies over tensor_parallel=3",
        ),
        (
            Config,
            {"model": ModelConfig(sequence_parallel=True)},
            "model.sequence_parallel splits tokens over mesh.tensor=1",
        ),
        (
            Config,
            {
                "model": ModelConfig(sequence_parallel=True),
                "mesh": MeshConfig(tensor=4),
                "completion_pad_multiple": 6,
            },
            "model.sequence_parallel splits tokens over mesh.tensor=4: make it at "
            "least 2, and a divisor of prompt_pad_multiple=16 and "
            "completion_pad_multiple=6",
        ),
        (MeshConfig, {"fsdp": -1}, "fsdp=-1; it must be at least 1"),
        (MeshConfig, {"data": 0}, "data=0; it must be positive, or -1"),
        (
            OptimizerConfig,
            {"learning_rate": 0.0},
            "learning_rate=0.0; it must be posit",
        ),
        (
            OptimizerConfig,
            {"learning_rate": float("nan")},
            "learning_rate expects a finite float, got nan",
        ),
        (
            OptimizerConfig,
            {"clip_norm": float("inf")},
            "clip_norm expects a finite float, got inf",
        ),
        (OptimizerConfig, {"b2": 1.0}, "b2=1.0; it must lie within [0, 1)"),
        (SFTConfig, {"steps": -1}, "steps=-1; it must be at least 0"),
        (
            SamplingConfig,
            {"temperature": -0.1},
            "temperature=-0.1; it must be at least",
        ),
        (SamplingConfig, {"top_p": 0.0}, "top_p=0.0; it must lie in (0, 1]"),
        (
            SamplingConfig,
            {"max_new_tokens": 4, "min_new_tokens": 4},
            "min_new_tokens=4 must be below max_new_tokens=4",
        ),
        (LossConfig, {"clip_low": 1.5}, "clip_low=1.5; it must lie within [0, 1]"),
        (LossConfig, {"kl_coef": -1.0}, "kl_coef=-1.0; it must be at least 0"),
        (
            LossConfig,
            {"top_entropy_quantile": 0.0},
            "top_entropy_quantile=0.0; it must lie in (0, 1]",
        ),
        (
            LossConfig,
            {"top_entropy_quantile": 0.2, "importance_sampling_level": "sequence"},
            "top_entropy_quantile=0.2 leaves out tokens, and "
            "importance_sampling_level=sequence gives all",
        ),
        (
            LossConfig,
            {"token_choice": "random"},
            "token_choice=random does nothing if all tokens learn; set "
            "top_entropy_quantile below 1",
        ),
        (
            TrainConfig,
            {"loss": LossConfig(top_entropy_quantile=0.2)},
            "loss.top_entropy_quantile=0.2 needs every token's entropy before the "
            "update, but old_logprobs=sampler does not compute it",
        ),
        *(
            (
                TrainConfig,
                {
                    "loss": LossConfig(
                        importance_sampling_level=level, surrogate=surrogate
                    ),
                    "rfgo": RFGOConfig(lambda_w=0.5),
                },
                "rfgo.lambda_w=0.5 weighs the tokens of a completion, but with "
                "this loss they all gain the same",
            )
            for level in ("sequence", "trajectory")
            for surrogate in ("ppo", "reinforce")
        ),
        (
            Config,
            {"train": TrainConfig(reward=RLCR)},
            "train.reward.names=('correctness', 'confidence') rewards a confidence, "
            "but task.source=finite_field has no word to state one",
        ),
        (
            RFGOConfig,
            {"features_of": "reference", "token_score": "ref_diff"},
            "token_score=ref_diff is 0 with features_of=reference",
        ),
        (
            Config,
            {"train": TrainConfig(rfgo=RFGOConfig(features_of="reference"))},
            "train.rfgo.features_of=reference reads features, and probe.name=none",
        ),
        (TrainConfig, {"group_size": 1}, "group_size=1 leaves"),
        (
            TrainConfig,
            {"batch_size": 12, "num_minibatches": 4, "grad_accum_steps": 2},
            "batch_size=12 does not split into num_minibatches=4 x grad_accum_steps=2",
        ),
        (
            TrainConfig,
            {"sampling": SamplingConfig(temperature=0.0)},
            "sampling.temperature=0 repeats one completion G times",
        ),
        (TrainConfig, {"overlong_buffer": 97}, "overlong_buffer=97 is longer than"),
        (EvalConfig, {"k": (0, 1)}, "k=(0, 1); it must hold ks of at least 1"),
        (EvalConfig, {"k": (16,)}, "k=(16,) needs more than num_samples=8"),
        (
            EvalConfig,
            {"sampling": SamplingConfig(temperature=0.0)},
            "num_samples=8 repeats one completion",
        ),
        (VerifierConfig, {"timeout_s": 0.0}, "timeout_s=0.0; it must be positive"),
        (
            RewardConfig,
            {"names": ("correctness",), "weights": (1.0, 2.0)},
            "weights=(1.0, 2.0) has 2 entries, and names=('correctness',) has 1; give",
        ),
        (Config, {"seed": -1}, "seed=-1; it must lie within 0..2**32-1"),
        (Config, {"seed": 2**32}, "seed=4294967296; it must lie within 0..2**32-1"),
        (
            Config,
            {"tokenizer": JSONL["tokenizer"]},
            "tokenizer.kind=sentencepiece learns from texts",
        ),
        (
            Config,
            {"task": JSONL["task"]},
            "tokenizer.kind=word_level cannot read task.source=files, whose texts may",
        ),
        (
            Config,
            JSONL | {"pretrained": PretrainedConfig(path="hf")},
            "pretrained.path='hf' has an id for each token, which a newly trained",
        ),
        (
            Config,
            {"tokenizer": TokenizerConfig(kind="huggingface")},
            "tokenizer.kind=huggingface needs a directory; set tokenizer.path or pre",
        ),
        (
            Config,
            {
                "task": FilesTask(record=RecordConfig(chat_template="tokenizer")),
                "tokenizer": JSONL["tokenizer"],
            },
            "task.record.chat_template=tokenizer, but tokenizer.kind=sentencepiece",
        ),
        (
            Config,
            {
                "task": CodeTask(chat_template="tokenizer"),
                "tokenizer": JSONL["tokenizer"],
            },
            "task.chat_template=tokenizer, but tokenizer.kind=sentencepiece",
        ),
        (TokenizerConfig, {"path": "x"}, "path='x' does nothing with kind=word_level"),
        (
            TokenizerConfig,
            {"kind": "sentencepiece", "stop_strings": ("a", "")},
            "stop_strings=('a', '') holds an empty text",
        ),
        (PretrainedConfig, {"vocab_size": 9}, "vocab_size=9 without a path"),
        (
            Config,
            {"model": ModelConfig(max_seq_len=96)},
            "train.sampling.max_new_tokens=96 leaves no room for a prompt within "
            "model.max_seq_len=96",
        ),
    ],
)
def test_a_value_that_cannot_run_is_refused(section, values, message):
    assert _refused(section, values).startswith(message)


@pytest.mark.parametrize(
    ("section", "values"),
    [
        (SamplingConfig, {"temperature": 0.0, "top_p": 1.0, "top_k": 0}),
        (SamplingConfig, {"max_new_tokens": 4, "min_new_tokens": 3}),
        (EvalConfig, {"k": (8,), "num_samples": 8}),
        (
            EvalConfig,
            {
                "k": (1,),
                "num_samples": 1,
                "sampling": SamplingConfig(temperature=0.0),
            },
        ),
        (ChainMix, {"types": ("composition",), "chain_lengths": (2, 20)}),
        (MeshConfig, {"data": -1, "cpu_devices": 8}),
        (
            Config,
            {
                "model": ModelConfig(sequence_parallel=True),
                "mesh": MeshConfig(tensor=16),
            },
        ),
        (SFTConfig, {"steps": 0}),
        # CISPO multiplies the one ratio by each token's log-probability.
        (
            TrainConfig,
            {
                "loss": LossConfig(
                    importance_sampling_level="sequence", surrogate="cispo"
                ),
                "rfgo": RFGOConfig(lambda_w=0.5),
            },
        ),
        (
            TrainConfig,
            {
                "loss": LossConfig(importance_sampling_level="sequence"),
                "rfgo": RFGOConfig(lambda_p=0.1),
            },
        ),
        # Free text, and a closed vocabulary that has the words.
        (Config, JSONL | {"train": TrainConfig(reward=RLCR)}),
        (Config, {"task": Talkative(), "train": TrainConfig(reward=RLCR)}),
        (
            Config,
            {
                "task": FiniteFieldTask(ask_confidence=True),
                "train": TrainConfig(reward=RLCR),
            },
        ),
        (Config, {"model": ModelConfig(max_seq_len=97)}),
        (Config, JSONL),
    ],
)
def test_the_last_value_that_can_run_is_accepted(section, values):
    made = section(**values)
    assert {name: vars(made)[name] for name in values} == values


@pytest.mark.parametrize(
    ("section", "key", "nearest"),
    [
        (TrainConfig, "setps", "steps"),
        (Config, "evals", "eval"),
        (LossConfig, "cliphigh", "clip_high"),
    ],
)
def test_an_unknown_field_is_refused_with_the_nearest(section, key, nearest):
    message = f"{section.__name__} has no field {key!r}; did you mean {nearest!r}?"
    assert _refused(section, {key: 1}) == message
    with pytest.raises(ConfigError, match="did you mean"):
        dataclasses.replace(section(), **{key: 1})


def test_values_take_one_form():
    mix = ChainMix(chain_lengths=[2, 3], chain_length_weights=[1, 3])
    assert mix == ChainMix(chain_lengths=(2, 3), chain_length_weights=(1.0, 3.0))
    assert repr(mix.chain_length_weights) == "(1.0, 3.0)"
    assert repr(OptimizerConfig(clip_norm=2).clip_norm) == "2.0"


def test_configs_are_values():
    config = Config(train=TrainConfig(steps=7))
    twin = pickle.loads(pickle.dumps(config))
    assert twin == config
    assert hash(twin) == hash(config)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.seed = 1


@pytest.mark.parametrize(
    "config", [Config(), Config(**JSONL)], ids=["default", "files"]
)
def test_walk_reaches_every_value_once(config):
    paths = [path for path, _, _ in iter_fields(config)]
    assert len(paths) == len(set(paths))
    by_hand = [
        f"{path}{name}"
        for path, section in iter_sections(config)
        for name, value in (section.tags() | vars(section)).items()
        if not dataclasses.is_dataclass(value)
    ]
    assert paths == by_hand
    tags = {f"{path}{tag}" for path, s in iter_sections(config) for tag in s.tags()}
    for path, _, value in iter_fields(config):
        if path in tags:
            continue
        holder = config
        *parents, last = path.split(".")
        for name in parents:
            holder = vars(holder)[name]
        assert vars(holder)[last] is value


def test_every_field_has_a_default_and_a_type_that_text_can_give():
    plain = {bool, int, float, str}
    for config in (Config(), Config(**JSONL)):
        for path, annotation, _ in iter_fields(config):
            kind, _ = split_annotation(annotation)
            element = get_args(kind)[0] if get_origin(kind) is tuple else kind
            assert element in plain or get_origin(element) is Literal, path
        assert all(
            isinstance(section, ConfigSection) for _, section in iter_sections(config)
        )
