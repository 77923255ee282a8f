"""Reward functions of TRL and verl, unchanged: they get what their library passes."""

import dataclasses
import sys
import types

import pytest

from job_jax.calls import CallLimits
from job_jax.schema import ConfigError
from rlvr_jax.config import RewardConfig
from rlvr_jax.config.rewards import REWARDS
from rlvr_jax.rewards.function import call_reward
from rlvr_jax.rollouts.try_rewards import try_rewards
from rlvr_jax.types import Fields, Problem

LIMITS = CallLimits(timeout_s=5.0, concurrency=4)
CHAT = [{"role": "user", "content": "2+2?"}]
PROBLEM = Problem(
    id="a", prompt="Q: 2+2?", gold="4", verifier="exact", source="data.jsonl"
)
TEXT = dataclasses.replace(
    PROBLEM, fields=Fields({"lo": 3}, read={"answer": "#### 4", "prompt": "2+2?"})
)
TALK = dataclasses.replace(
    PROBLEM, fields=Fields({"lo": 5}, read={"answer": "#### 9", "prompt": CHAT})
)
VERL = dataclasses.replace(
    PROBLEM,
    fields={
        "data_source": "gsm8k",
        "reward_model": {"style": "rule", "ground_truth": ["4", "four"]},
        "extra_info": {"level": 3},
    },
)


@pytest.fixture
def scored(monkeypatch):
    """Returns a function that scores completions with a function of another library."""

    def score(adapter, function, problems, texts):
        name = put(adapter, function)
        return call_reward(name, REWARDS.load(name), problems, texts, LIMITS)

    def put(adapter, function):
        module = types.ModuleType("theirs")
        module.f = function
        monkeypatch.setitem(sys.modules, "theirs", module)
        return f"{adapter}:theirs:f"

    score.put = put
    return score


def values(outcomes):
    assert [outcome.failure for outcome in outcomes] == [None] * len(outcomes)
    return [outcome.value for outcome in outcomes]


def test_trl_passes_every_column_as_a_list(scored):
    calls = []

    def f(completions, **columns):
        calls.append(columns | {"completions": completions})
        return [float(len(text)) for text in completions]

    assert values(scored("trl", f, [TEXT, PROBLEM], ["4", "44"])) == [1.0, 2.0]
    assert calls == [
        {
            "prompts": ["2+2?", "Q: 2+2?"],
            "completions": ["4", "44"],
            "answer": ["#### 4", None],
            "lo": [3, None],
        }
    ]


def test_trl_passes_messages_where_the_prompt_is_a_conversation(scored):
    def f(prompts, completions, lo):
        assert prompts == [CHAT]
        return [
            float(c[0]["content"] == "5") * n
            for c, n in zip(completions, lo, strict=True)
        ]

    assert values(scored("trl", f, [TALK], ["5"])) == [5.0]


def test_trl_s_async_functions_and_no_opinion_work(scored):
    async def f(completions, **_):
        return [1.0, None]

    assert str(values(scored("trl", f, [TEXT, TEXT], ["", ""]))) == "[1.0, nan]"


def test_verl_passes_source_truth_and_more(scored):
    calls = []

    def f(data_source, solution_str, ground_truth, extra_info):
        calls.append((data_source, solution_str, ground_truth, extra_info))
        return {"score": 0.5, "acc": 1}

    assert values(scored("verl", f, [VERL, TEXT], ["4", "5"])) == [0.5, 0.5]
    assert calls == [
        ("gsm8k", "4", ["4", "four"], {"level": 3}),
        ("data.jsonl", "5", "4", {"lo": 3}),
    ]


def test_verl_returns_a_number_or_a_dict_with_score(scored):
    async def number(data_source, solution_str, ground_truth, **_):
        return True

    assert values(scored("verl", number, [VERL], ["4"])) == [1.0]
    (outcome,) = scored("verl", lambda solution_str: {"acc": 1.0}, [VERL], ["4"])
    assert outcome.reason == (
        "ValueError: the dict it returned has no 'score', but 'acc'"
    )


@pytest.mark.parametrize(
    ("adapter", "function", "message"),
    [
        ("trl", lambda texts: [1.0], "has no parameter `completions`; write it as TRL"),
        ("trl", lambda completions, completion_ids: [1.0], "needs completion_ids, whi"),
        ("verl", lambda text: 1.0, "has no parameter `solution_str`; write it as verl"),
        ("verl", dict, "is not a function; name one"),
        ("tlr", lambda completions: [1.0], "unknown adapter 'tlr'; did you mean 'trl'"),
    ],
)
def test_what_cannot_be_adapted_is_refused_in_the_config(
    scored, adapter, function, message
):
    name = scored.put(adapter, function)
    with pytest.raises(ConfigError) as refused:
        RewardConfig(names=(name,), weights=(1.0,))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_default_for_what_only_trl_has_is_enough(scored):
    name = scored.put("trl", lambda completions, completion_ids=None: [1.0] * 2)
    config = RewardConfig(names=(name,), weights=(1.0,))
    assert try_rewards(config, [TEXT])[0].startswith(f"reward {name!r}: 1 for ")


def test_an_adapted_function_without_a_return_is_refused(scored):
    def f(data_source, solution_str, ground_truth, extra_info=None):
        solution_str.split()

    config = RewardConfig(names=(scored.put("verl", f),), weights=(1.0,))
    with pytest.raises(ConfigError, match="returned None, and has no other return"):
        try_rewards(config, [TEXT])


def test_a_missing_column_is_named_before_the_run(scored):
    name = scored.put("trl", lambda completions, solution: [1.0] * 2)
    config = RewardConfig(names=(name,), weights=(1.0,))
    with pytest.raises(
        ConfigError,
        match=r"^reward 'trl:theirs:f' needs the column 'solution', but gets only "
        r"answer, lo, prompts, completions; name the column in task\.record\.extra",
    ):
        try_rewards(config, [TEXT])


def test_a_column_that_no_record_of_a_step_has_is_none(scored):
    """Records of a data set may differ. Each step loads the reward again."""
    seen = []

    def f(completions, lo):
        seen.append(lo)
        return [1.0] * len(completions)

    bare = dataclasses.replace(TEXT, fields=Fields({}, read={"answer": "1"}))
    for problems in ([TEXT, bare], [bare, bare]):
        assert values(scored("trl", f, problems, ["", ""])) == [1, 1]
    assert seen == [[3, None], [None, None]]
    config = RewardConfig(names=(scored.put("trl", f),), weights=(1.0,))
    assert try_rewards(config, [bare, TEXT])[0].startswith("reward 'trl:theirs:f': 1")


@pytest.mark.parametrize(
    ("function", "adapter"),
    [
        (lambda completions, answer, **_: [1.0], "trl"),
        (lambda prompts, completions, **_: [1.0], "trl"),
        (lambda data_source, solution_str, ground_truth: 1.0, "verl"),
    ],
)
def test_without_its_adapter_a_function_is_refused_with_its_name(
    scored, function, adapter
):
    scored.put(adapter, function)
    with pytest.raises(ConfigError, match=f"is named {adapter}:theirs:f$"):
        RewardConfig(names=("theirs:f",), weights=(1.0,))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"acc": 1.0, "pred": "4"}, "has no 'score', but 'acc', 'pred', tried on"),
        ({}, "has no 'score', but nothing, tried on"),
        ({"score": "1"}, r"returned '1' \(a str\), which is not a finite number"),
    ],
)
def test_a_dict_without_a_usable_score_is_refused(scored, value, message):
    name = scored.put("verl", lambda solution_str, **_: value)
    with pytest.raises(ConfigError, match=message):
        try_rewards(RewardConfig(names=(name,), weights=(1.0,)), [TEXT])


@pytest.mark.parametrize(
    ("name", "fix"),
    [("trl:theirs", "trl:theirs:function"), ("verl:", "verl:module:function")],
)
def test_an_adapter_needs_a_module_and_a_function(name, fix):
    with pytest.raises(ConfigError, match=f"'{name}' names no function; write {fix}$"):
        RewardConfig(names=(name,), weights=(1.0,))


def test_weights_that_are_all_0_are_refused():
    names = ("correctness", "format")
    assert RewardConfig(names=names, weights=(0.0, 0.1)).weights == (0.0, 0.1)
    with pytest.raises(ConfigError, match=r"weights=\(0\.0, -0\.0\) makes every rew"):
        RewardConfig(names=names, weights=(0.0, -0.0))
