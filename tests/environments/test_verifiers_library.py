"""The adapter to the library verifiers, against a small fake of its interface.

The fake has the parts of version 0.1.14 that the adapter calls: data sets, `rollout`
with a client that answers every turn, stop conditions, a rubric. It is not the library.
"""

import dataclasses
import importlib
import json
import sys
import types

import pytest

from job_jax.schema import ConfigError
from rlvr_jax.config import Config, TokenizerConfig
from rlvr_jax.environments import Message
from rlvr_jax.environments import verifiers as adapter
from rlvr_jax.environments.calls import answer_turns
from rlvr_jax.environments.verifiers import VerifiersEnvironment, VerifiersTask

LIBRARY = '''
import abc, copy
from types import SimpleNamespace

class Client(abc.ABC):
    @abc.abstractmethod
    def setup_client(self, config): ...
    @abc.abstractmethod
    async def get_native_response(self, prompt): ...

class Rubric:
    async def score_rollout(self, state):
        said = state["completion"][-1].content
        state["reward"] = float(state["answer"] in said) * 0.5 + 0.5 * state["tries"]

class _MultiTurnEnv:
    """Doubles each number of a call; ends at a turn without a call."""

    def __init__(self, largest):
        self.largest, self.rubric = largest, Rubric()

    def get_dataset(self):
        return [
            {
                "prompt": [{"role": "user", "content": f"twice {n}?"}],
                "answer": str(2 * n),
            }
            for n in range(self.largest)
        ]

    def get_eval_dataset(self):
        raise ValueError("eval_dataset is not set")

    async def rollout(self, input, client, model, sampling_args):
        assert isinstance(client, Client)
        state = dict(copy.deepcopy(input), trajectory=[], error=None, tries=0)
        messages = list(state["prompt"])
        while True:
            response = await client.get_response(
                prompt=list(messages),
                model=model,
                tools=None,
                sampling_args={},
                state=state,
            )
            message = SimpleNamespace(role="assistant", **vars(response.message))
            messages.append(message)
            state["trajectory"].append(message)
            if not message.tool_calls:
                break
            for call in message.tool_calls:
                state["tries"] = 1
                if call.name == "breaks":
                    state["error"] = RuntimeError("the sandbox is gone")
                    return state
                content = f"{call.name} {call.arguments}"
                messages.append({"role": "tool", "content": content})
        state["completion"] = messages[len(state["prompt"]):]
        return state

def load_environment(env_id, **args):
    if env_id != "doubles":
        raise ValueError(f"no environment {env_id}")
    return _MultiTurnEnv(**args)

def __getattr__(name):  # the library loads most names at first use
    if name != "MultiTurnEnv":
        raise AttributeError(name)
    return _MultiTurnEnv
'''
TYPES = """
import types
ToolCall = ResponseMessage = Response = types.SimpleNamespace
"""
CALL = '<tool_call>{"name": "double", "arguments": {"n": 3}}</tool_call>'


@pytest.fixture
def library(tmp_path, monkeypatch):
    package = tmp_path / "verifiers"
    package.mkdir()
    (package / "__init__.py").write_text(LIBRARY)
    (package / "types.py").write_text(TYPES)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("verifiers", "verifiers.types"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    importlib.invalidate_caches()
    for cached in (adapter.load_environment, adapter._read_rows):
        cached.cache_clear()
    yield
    for name in ("verifiers", "verifiers.types"):
        sys.modules.pop(name, None)
    for cached in (adapter.load_environment, adapter._read_rows):
        cached.cache_clear()


TASK = VerifiersTask(env="doubles", args=json.dumps({"largest": 4}))


def _respond(*turns, **settings):
    problem = TASK.problems("train", seed=0)[3]
    messages = []
    for turn in turns:
        messages += [
            Message(role="policy", text=turn),
            Message(role="environment", text=""),
        ]
    environment = VerifiersEnvironment(**settings)
    (answer,) = answer_turns(environment, [(problem, messages[:-1])])
    return answer


@pytest.mark.usefixtures("library")
def test_problems_are_the_rows_of_the_data_set():
    problems = TASK.problems("train", seed=0)
    assert [p.prompt for p in problems] == [f"twice {n}?" for n in range(4)]
    assert [p.gold for p in problems] == ["0", "2", "4", "6"]
    with pytest.raises(ConfigError, match="no eval problems: eval_dataset is not set"):
        TASK.problems("eval", seed=0)
    template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    chat = dataclasses.replace(TASK, chat_template=template)
    assert chat.problems("train", seed=0)[1].prompt == "<user>twice 1?"
    wrong = dataclasses.replace(TASK, chat_template="{{ missing.field }}")
    with pytest.raises(ConfigError, match=r"^task\.chat_template: .* undefined"):
        wrong.problems("train", seed=0)


@pytest.mark.usefixtures("library")
def test_the_environments_text_after_a_turn_is_its_reply():
    reply = _respond(f"let me see {CALL}")
    assert reply.text == 'double {"n": 3}'
    assert (reply.tool_calls, reply.done) == (1, False)
    again = _respond(CALL, f"{CALL} and {CALL.replace('3', '4')}")
    assert again.text == 'double {"n": 3}\ndouble {"n": 4}'
    assert again.tool_calls == 2


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("last", "min_reward", "status", "reason"),
    [
        ("it is 6", 1.0, "correct", "reward 1"),
        ("it is 7", 1.0, "incorrect", "reward 0.5"),
        ("it is 7", 0.5, "correct", "reward 0.5"),
    ],
)
def test_the_rubric_judges_where_the_environment_stops(
    last, min_reward, status, reason
):
    reply = _respond(CALL, last, min_reward=min_reward)
    assert reply.done
    assert (reply.verdict.status, reply.verdict.reason) == (status, reason)


@pytest.mark.usefixtures("library")
def test_a_turn_without_a_call_is_text_and_an_error_is_a_failure():
    for broken in ("<tool_call>{</tool_call>", "<tool_call>[1]</tool_call>"):
        assert _respond(broken).done
    failed = _respond('<tool_call>{"name": "breaks"}</tool_call>')
    assert failed.verdict.reason == "environment: RuntimeError: the sandbox is gone"


@pytest.mark.usefixtures("library")
def test_what_cannot_be_loaded_is_told_in_one_line():
    for changed, why in (
        ({"env": "halves"}, "ValueError: no environment halves"),
        ({"args": "{"}, "JSONDecodeError"),
        ({"args": '{"smallest": 1}'}, "TypeError"),
    ):
        with pytest.raises(ConfigError, match=why) as error:
            dataclasses.replace(TASK, **changed).problems("train", seed=0)
        assert "\n" not in str(error.value)


def test_a_missing_or_too_new_library_is_reported_in_one_line(monkeypatch):
    adapter.load_environment.cache_clear()
    monkeypatch.setitem(sys.modules, "verifiers", None)
    with pytest.raises(ConfigError, match=r"rlvr_jax\[verifiers\]"):
        adapter.load_environment("doubles", "{}")
    newer = types.ModuleType("verifiers")
    newer.__version__ = "0.4.0"
    monkeypatch.setitem(sys.modules, "verifiers", newer)
    with pytest.raises(ConfigError, match=r"verifiers 0\.4\.0 has no MultiTurnEnv"):
        adapter.load_environment("doubles", "{}")


def test_its_environment_answers_only_on_its_own_problems():
    tokenizer = TokenizerConfig(kind="sentencepiece")
    with pytest.raises(ConfigError, match=r"task\.source=verifiers"):
        Config(environment=VerifiersEnvironment())
    Config(task=TASK, environment=VerifiersEnvironment(), tokenizer=tokenizer)
