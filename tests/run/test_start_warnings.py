"""Each warning appears where its setting is known to fail, and nowhere else."""

import dataclasses
import json
import pathlib
import re

import jax
import pytest

from job_jax.command import load_config
from job_jax.config_io import override, to_json
from rlvr_jax.config import Config, PretrainedConfig, SFTConfig
from rlvr_jax.config.environment import Environment
from rlvr_jax.run.checkpoint_settings import settle_config
from rlvr_jax.run.lineage import Lineage
from rlvr_jax.run.setup import open_setup
from rlvr_jax.run.start_warnings import (
    _warn_of_learning_rate,
    describe_start,
    start_warnings,
)
from rlvr_jax.tokenizer import HuggingFaceTokenizer
from rlvr_jax.types import Problem
from tests.support.checkpoints import (
    CHATML,
    word_config,
    write_checkpoint,
    write_problems,
)

_ROOT = pathlib.Path(__file__).parents[2]
LINEAGE = Lineage(workdir="/runs/a", stage="sft", step=7, has_optimizer=False)
GOOD = {  # settings that work for a pretrained model of 135M
    "train.optimizer.learning_rate": "1e-5",
    "train.sampling.temperature": "0.7",
    "eval.sampling.temperature": "0.7",
    "train.batch_size": "1",
}
PROBLEM = Problem(
    id="1", prompt="2+2?", gold="4", solution="#### 4", verifier="math", source="s"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Echo(Environment):
    """An environment whose replies are not read here."""


@dataclasses.dataclass
class Opened:
    """A small `RunSetup`: its policy has `num_params` parameters but no arrays."""

    config: Config
    tokenizer: HuggingFaceTokenizer
    num_params: int = 135_000_000
    asked: tuple[Problem, ...] = (PROBLEM,)
    too_long: dict[str, int] = dataclasses.field(default_factory=lambda: {"train": 0})

    @property
    def sources(self):
        return {"train": self.asked}

    def problems(self, stage, count):
        return list(self.sources[stage][:count])

    def abstract_params(self):
        return {"w": jax.ShapeDtypeStruct((self.num_params,), "float32")}


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("hub") / "hf")


@pytest.fixture
def warn(start, tmp_path):
    """Returns the warnings of a good run after changing some settings."""
    recipe = word_config(start, tmp_path / "unused.jsonl", model="pretrained")
    tokenizer = HuggingFaceTokenizer(start, stop=("<|im_end|>",))

    def find(changes=None, *, lineage=None, config=recipe, **opened):
        settled = settle_config(override(config, GOOD | (changes or {})))
        return start_warnings(
            Opened(settled, **{"tokenizer": tokenizer} | opened), lineage
        )

    return find


def test_a_run_of_settings_that_work_is_told_nothing(warn):
    assert warn() == []


@pytest.mark.parametrize(
    ("num_params", "rank", "low", "high"),
    [
        (299_999_999, 0, 1e-6, 1e-4),
        (300_000_000, 0, 1e-7, 1e-5),
        (299_999_999, 4, 1e-5, 1e-3),
        (300_000_000, 4, 1e-6, 1e-4),
    ],
)
def test_a_learning_rate_far_from_what_works_at_a_size(
    warn, num_params, rank, low, high
):
    def rated(rate):
        changes = {"train.optimizer.learning_rate": repr(rate)}
        return warn(changes | {"train.lora.rank": str(rank)}, num_params=num_params)

    assert rated(low) == rated(high) == []
    for rate, word in ((0.99 * low, "under"), (1.01 * high, "over")):
        [line] = rated(rate)
        assert line.startswith("train.optimizer.learning_rate=")
        assert f"{word} {low if word == 'under' else high:g}" in line
        assert ("adapters of 300M weights" if rank else "all 300M weights") in line
        field, value = re.search(r"--config\.(\S+)=(\S+)", line).groups()
        assert warn({field: value, "train.lora.rank": str(rank)}) == []


@pytest.mark.parametrize(
    ("changes", "more", "line"),
    [
        ({"train.sampling.temperature": "2"}, {}, None),
        (
            {"train.sampling.temperature": "2.1"},
            {"num_params": 2_000_000_000},
            "train.sampling.temperature=2.1 draws tokens nearly at random; published "
            "runs use 0.6 to 1.2; try --config.train.sampling.temperature=1",
        ),
        ({"eval.sampling.temperature": "50"}, {}, "eval.sampling.temperature=50 draws"),
        ({"train.steps": "10", "train.optimizer.warmup_steps": "40"}, {}, None),
        (
            {"train.steps": "10", "train.optimizer.warmup_steps": "41"},
            {},
            "train.optimizer.warmup_steps=41 is longer than the 10 optimizer steps of "
            "train, so the learning rate rises only to 24% of train.optimizer.learning_"
            "rate; try --config.train.optimizer.warmup_steps=1",
        ),
        (
            {
                "train.steps": "5",
                "train.num_epochs": "2",
                "train.optimizer.warmup_steps": "40",
            },
            {},
            None,
        ),
        ({"sft.steps": "1", "sft.optimizer.warmup_steps": "20"}, {}, None),
        (
            {"sft.steps": "1", "sft.optimizer.warmup_steps": "21"},
            {},
            "sft.optimizer.warmup_steps=21 is longer than the 1 optimizer steps of sft",
        ),
        (
            {"sft.steps": "1", "sft.optimizer.warmup_steps": "21"},
            {"lineage": LINEAGE},
            None,
        ),
        ({"train.reward.weights": "0.1"}, {}, None),
        (
            {"train.reward.weights": "-1"},
            {},
            "train.reward.weights pays -1 for a correct completion, so RL learns wrong "
            "answers; give correctness a positive weight",
        ),
        (
            {"train.reward.names": "format", "train.reward.weights": "-1"},
            {},
            None,
        ),
    ],
)
def test_a_setting_far_outside_is_told(warn, changes, more, line):
    settings = {"sft.optimizer.learning_rate": "1e-4", "sft.steps": "0"} | changes
    if "num_params" in more:  # a model of this size has another rate
        settings["train.optimizer.learning_rate"] = "1e-6"
    lines = [one for one in warn(settings, **more) if "often writes noise" not in one]
    assert [one[: len(line or "")] for one in lines] == ([line] if line else [])


@pytest.mark.parametrize("size", ["512", "1000"])
def test_a_vocabulary_size_that_another_tokenizer_ignores(warn, size):
    lines = warn({"tokenizer.vocab_size": size})
    own = "(kind=huggingface) has its own vocabulary of "
    assert len(lines) == (size != "512")
    assert all(own in line and "vocab_size=1000 does nothing" in line for line in lines)


@pytest.mark.parametrize(("over", "found"), [(0, 0), (1, 1)])
def test_adapters_larger_than_the_weights_are_told(warn, over, found):
    hidden = Config().model.hidden_size
    rank = hidden + over
    tuned = {"train.optimizer.learning_rate": "1e-4", "train.lora.rank": str(rank)}
    start = override(Config(), {"sft.steps": "10", "train.optimizer.warmup_steps": "1"})
    lines = warn(tuned, config=start)
    told = f"train.lora.rank={rank} is more than model.hidden_size={hidden}, so the ad"
    assert [line for line in lines if line.startswith(told)] == lines[:found] * found


def test_the_supervised_start_of_a_pretrained_model_has_a_limit_too(warn):
    """The limit is ten times RL's, and adapters do not apply there."""
    sft = {"sft.steps": "1", "train.lora.rank": "4"}
    tuned = {"train.optimizer.learning_rate": "1e-4"}
    assert warn({**sft, **tuned, "sft.optimizer.learning_rate": "1e-3"}) == []
    [line] = warn({**sft, **tuned, "sft.optimizer.learning_rate": "1.1e-3"})
    assert line.startswith("sft.optimizer.learning_rate=0.0011 for all 135M weights")
    off = {**sft, **tuned, "sft.steps": "0", "sft.optimizer.learning_rate": "1"}
    assert warn(off) == []


@pytest.mark.parametrize("num_params", [1_000_000, 300_000_000])
@pytest.mark.parametrize(
    ("stage", "rank", "low", "high", "default"),
    [
        ("train", 0, 1e-6, 0.1, "0.0003"),
        ("train", 4, 1e-5, 1.0, "0.0003"),
        ("sft", 0, 1e-6, 0.1, "0.001"),
    ],
)
def test_new_weights_have_limits_far_around_our_recipes(
    start, tmp_path, num_params, stage, rank, low, high, default
):
    trained = word_config(start, tmp_path / "x")
    config = dataclasses.replace(
        trained,
        pretrained=PretrainedConfig(),
        sft=SFTConfig(steps=1),
        tokenizer=dataclasses.replace(trained.tokenizer, path=str(start)),
    )
    usual = {
        "train.sampling.temperature": "1.0",
        "train.lora.rank": str(rank),
        "train.optimizer.learning_rate": "3e-4",
    }
    settled = settle_config(override(config, GOOD | usual))
    field = f"{stage}.optimizer.learning_rate"

    def rated(rate):
        changed = override(settled, {field: repr(rate)})
        opened = Opened(changed, None, num_params=num_params)
        return list(_warn_of_learning_rate(opened, None))

    assert rated(low) == rated(high) == []
    limits = {0.99 * low: f"under {low:g}", 1.01 * high: f"over {high:g}"}
    for rate, limit in limits.items():
        [line] = rated(rate)
        assert f"weights of a policy without pretrained weights is {limit}, " in line
        assert line.endswith(f"try --config.{field}={default}")
        assert rated(float(default)) == []
    assert len(rated(10.0)) == len(rated(1e-12)) == 1


@pytest.mark.parametrize(
    "path", sorted((_ROOT / "configs").rglob("*.py")), ids=lambda path: path.stem
)
def test_no_recipe_has_a_learning_rate_that_is_warned_of(path):
    if path.stem.startswith("tsae_") or path.stem == "suite":  # which only evaluates
        return
    config = load_config(path, Config)
    sizes = {"small": 135_000_000, "large": 1_000_000_000}
    size = sizes["small" if "135M" in config.pretrained.path else "large"]
    opened = Opened(config, None, num_params=size)
    assert list(_warn_of_learning_rate(opened, None)) == []


def test_temperature_1_on_a_small_model_that_names_none(warn, start):
    hot = {"train.sampling.temperature": "1.0"}
    [line] = warn(hot)
    assert line.startswith("temperature 1 in stage train: the checkpoint gives no")
    assert line.endswith("try --config.train.sampling.temperature=0.7")
    [both] = warn(hot | {"eval.sampling.temperature": "1.5"})
    assert "in stage train, eval: " in both
    large = {"train.optimizer.learning_rate": "1e-6"}
    assert warn(hot | large, num_params=1_000_000_000) == []
    assert len(warn(hot | large, num_params=999_999_999)) == 1
    assert warn({"train.sampling.temperature": "0.99"}) == []


def test_temperature_1_is_fine_where_the_checkpoint_names_one(warn, tmp_path, start):
    told = tmp_path / "told"
    told.mkdir()
    for file in start.iterdir():
        (told / file.name).write_bytes(file.read_bytes())
    (told / "generation_config.json").write_text('{"temperature": 1.0}')
    config = word_config(told, tmp_path / "x", model="pretrained")
    assert warn({"train.sampling.temperature": "1.0"}, config=config) == []


def test_rl_from_random_weights_without_a_supervised_start(warn):
    config = Config(sft=SFTConfig(steps=0))
    [line] = warn(config=config)
    assert line.startswith("sft.steps=0 and no pretrained.path: RL starts from random")
    assert warn(config=config, lineage=LINEAGE) == []
    assert warn({"sft.steps": "1"}, config=config) == []
    assert warn({"train.steps": "0"}, config=config) == []


@pytest.mark.parametrize(("form", "mark"), [("boxed", "boxed"), ("tagged", "<answer>")])
def test_an_answer_format_that_the_prompts_do_not_request(warn, form, mark):
    untold = dataclasses.replace(PROBLEM, answer_format=form, solution=None)
    [line] = warn(asked=(untold,))
    assert line.startswith(f"answer_format={form} counts an answer only if '{mark}'")
    assert "task.record.prompt_template" in line
    told = dataclasses.replace(untold, prompt=f"2+2? Use {mark}.")
    assert warn(asked=(told,)) == []
    assert warn(asked=(untold,), lineage=LINEAGE) == []
    learned = {"sft.steps": "1", "sft.optimizer.learning_rate": "1e-4"}
    told_later = warn(learned, asked=(untold,))
    assert not any("answer_format" in line for line in told_later)


def test_completions_that_are_cut_off_before_the_answer(warn):
    """The median of three answers counts: 17 tokens do not fit into 16, but 16 do."""

    def asked(*lengths):
        return tuple(
            dataclasses.replace(PROBLEM, prompt=f"{n}?", solution="#" * (n - 1))
            for n in lengths  # bytes, and end-of-text
        )

    assert warn(asked=asked(3, 16, 99)) == []
    [line] = warn(asked=asked(3, 17, 99))
    assert line.startswith("train.sampling.max_new_tokens=16 cuts completions off")
    assert line.endswith("--config.train.sampling.max_new_tokens=34")
    gold = dataclasses.replace(PROBLEM, gold="#" * 17, solution=None)
    assert len(warn(asked=(gold,))) == 1
    tests = dataclasses.replace(gold, verifier="code")  # its golds are unit tests
    assert warn(asked=(tests,)) == []


def test_requested_steps_have_no_room(warn):
    asked = (dataclasses.replace(PROBLEM, prompt="2+2? Reason step by step."),)
    room = {"train.overlong_buffer": "0", "model.max_seq_len": "512"}
    [line] = warn(room | {"train.sampling.max_new_tokens": "127"}, asked=asked)
    assert "max_new_tokens=127 leaves little room" in line
    assert warn(room | {"train.sampling.max_new_tokens": "128"}, asked=asked) == []
    assert warn(room | {"train.sampling.max_new_tokens": "127"}) == []


def test_problems_that_are_left_out_in_numbers(warn):
    nine = tuple(dataclasses.replace(PROBLEM, prompt=f"{n}+2?") for n in range(9))
    assert warn(asked=nine, too_long={"train": 1}) == []
    [line] = warn(asked=nine, too_long={"train": 2})
    assert line.startswith("18% of the train problems have a prompt that does not fit")


def test_a_turn_of_the_chat_that_ends_no_completion(warn, start):
    """The tokenizer's own end token differs from the template's."""
    [line] = warn(tokenizer=HuggingFaceTokenizer(start))
    assert line.startswith("the chat template ends a turn with <|im_end|>, but")
    assert "--config.tokenizer.stop_strings='<|im_end|>'" in line
    plain = {"task.record.chat_template": "", "task.record.system_prompt": ""}
    assert warn(plain, tokenizer=HuggingFaceTokenizer(start)) == []


def test_a_template_without_an_assistant_turn_gives_no_warning(warn, tmp_path, start):
    other = write_checkpoint(tmp_path / "strict")
    strict = "{% if messages[1].role == 'assistant' %}{{ raise_exception('no') }}"
    settings = json.loads((other / "tokenizer_config.json").read_text())
    settings["chat_template"] = strict + "{% endif %}" + CHATML
    (other / "tokenizer_config.json").write_text(json.dumps(settings))
    config = word_config(other, tmp_path / "x", model="pretrained")
    assert warn(config=config, tokenizer=HuggingFaceTokenizer(other)) == []


def test_replies_outside_any_turn_of_the_chat(warn, start, tmp_path):
    """The line names the template that puts a reply into a user turn."""
    words = word_config(start, tmp_path / "x", model="pretrained")
    ends = dataclasses.replace(words.tokenizer, stop_strings=())
    episodes = dataclasses.replace(words, environment=Echo(), tokenizer=ends)
    [line] = warn(config=episodes)
    proper = "\n<|im_start|>user\n{reply}<|im_end|>\n<|im_start|>assistant\n"
    assert line == (
        "environment.reply_template={reply} puts replies outside any turn of the chat; "
        f"set it to {proper!r}"
    )
    fixed = dataclasses.replace(episodes, environment=Echo(reply_template=proper))
    assert warn(config=fixed) == []
    plain = {"task.record.chat_template": "", "task.record.system_prompt": ""}
    assert warn(plain, config=episodes) == []


@pytest.mark.parametrize("recipe", ["smoke", "quickstart"])
def test_the_first_recipes_get_no_warning(recipe, tmp_path):
    config = load_config(_ROOT / f"configs/{recipe}.py", Config)
    with (setup := open_setup(config, tmp_path / "none", stages=("train",))).verifier:
        assert describe_start(setup) == []


def test_the_checks_before_a_run_are_one_list(start, tmp_path):
    problems = write_problems(tmp_path / "problems.jsonl")
    config = word_config(start, problems, model="pretrained")
    assert to_json(config)["task"]["record"]["chat_template"] == "tokenizer"
    with (setup := open_setup(config, tmp_path / "none", stages=("train",))).verifier:
        lines = describe_start(setup)
    assert [line.split("=")[0].split(" of ")[0] for line in lines] == [
        "warning: train.optimizer.learning_rate",
        "warning: temperature 1 in stage train, eval: the checkpoint gives no "
        "temperature, and a pretrained model",
    ]
