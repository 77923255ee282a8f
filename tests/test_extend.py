"""docs/use/extend.md: custom parts, from the page's own code."""

import dataclasses
import importlib
import pathlib
import re
import sys
import types

import jax.numpy as jnp
import numpy as np
import pytest

from job_jax.config_io import from_json, override, to_json
from job_jax.schema import ConfigError
from job_jax.trackers.base import TrackedLine, TrackedRun, tracker_class
from rlvr_jax import main
from rlvr_jax.algorithms.losses import policy_loss
from rlvr_jax.algorithms.reward import CompletionTexts
from rlvr_jax.config import Config, VerifierConfig
from rlvr_jax.config.difficulty import DifficultyConfig
from rlvr_jax.data.curricula.base import DrawState
from rlvr_jax.data.difficulty import init_difficulty
from rlvr_jax.plan.dry_run import describe
from rlvr_jax.rewards.parts import load_reward
from rlvr_jax.rollouts.scores import score_completions
from rlvr_jax.types import (
    Message,
    Problem,
    RewardGroups,
    Verdict,
)
from rlvr_jax.verifiers.base import VERIFIERS
from rlvr_jax.verifiers.grader import Grader

_PAGE = pathlib.Path(__file__).parents[1] / "docs/use/extend.md"


def modules_of_the_page():
    """Returns {file name: source}; each Python block begins with its file name."""
    blocks = re.findall(r"```python\n(.*?)```", _PAGE.read_text(), flags=re.DOTALL)
    return {block.split()[1]: block for block in blocks}


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """The page's files in a user's folder, from which Python imports."""
    for name, source in modules_of_the_page().items():
        assert name.endswith(".py"), source
        (tmp_path / name).write_text(source)
        monkeypatch.delitem(sys.modules, name.removesuffix(".py"), raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def configured(**overrides):
    """Returns a config with overrides, after a round trip through config.json."""
    changes = {key.replace("__", "."): value for key, value in overrides.items()}
    config = override(Config(), changes)
    assert from_json(Config, to_json(config)) == config
    return config


def test_a_task_has_options_and_its_verifier_executes_completions(mine):
    task = configured(task__source="walk:WalkTask", task__size="4").task
    train, held_out = (task.problems(stage, seed=0) for stage in ("train", "eval"))
    assert len(train) + len(held_out) == 4 * 4 - 4
    assert {p.id for p in train}.isdisjoint(p.id for p in held_out)
    words = {word for p in train for word in f"{p.prompt} {p.solution}".split()}
    assert words <= set(task.vocabulary())
    problem = next(p for p in train if p.id == "0-2")
    verifier = VERIFIERS.load(problem.verifier)()
    for completion, status in (
        ("right right", "correct"),
        ("right left right right", "correct"),
        ("right", "incorrect"),
        ("", "incorrect"),
    ):
        assert verifier.grade(problem, completion).status == status
    assert verifier.grade(problem, verifier.state_gold(problem)).status == "correct"


def test_a_curriculum_has_options_and_chooses_by_them(mine):
    curriculum = configured(
        curriculum__name="newest:Newest", curriculum__max_visits="3"
    ).curriculum
    draw = DrawState(
        seed=0,
        batch_index=0,
        step=0,
        num_steps=10,
        source_size=4,
        bands_config=DifficultyConfig(),
        read_levels=lambda: np.zeros(4, int),
        asked=np.zeros(4, bool),
    )
    difficulty = dataclasses.replace(
        init_difficulty(4), num_visits=np.array([3, 0, 5, 2])
    )
    batch = curriculum.next_batch(difficulty, draw, 2)
    assert batch.problems.tolist() == [1, 3]
    assert batch.num_fallback == 0


def test_a_reward_scores_a_batch_and_adds_its_weight(mine):
    config = configured(
        train__reward__names="correctness,brevity:few_words",
        train__reward__weights="1,0.5",
    ).train.reward
    task = configured(task__source="walk:WalkTask").task
    problems = [task.problems("train", seed=0)[0]] * 4
    completions = ["", "left", "left left left", "right"]
    with Grader(VerifierConfig()) as grader:
        scores, _ = score_completions(
            config, problems, completions, judge=grader, seed=0, group_size=4
        )
    assert scores["brevity:few_words"].tolist() == [1.0, 0.5, 0.25, 0.5]


def test_a_reward_class_counts_equal_answers_of_a_group(mine):
    one, other = (
        Problem(id=name, prompt="", gold="", verifier="exact", source="")
        for name in "ab"
    )
    found = load_reward("votes:Votes").score(
        CompletionTexts(
            problems=[one, one, other, other],
            texts=["left", "left", "left", "right"],
            was_cut=[False] * 4,
            group_size=2,
            seed=0,
            grader=None,
            limits=None,
        )
    )
    assert found.values == [1.0, 1.0, 0.5, 0.5]


def test_an_advantage_rule_pays_rare_successes_less(mine):
    """GRPO gives one success in two +1 and the failure -1; 0.25^1 of that is 0.25."""
    rule = configured(
        train__advantage__name="modest:Modest", train__advantage__power="1"
    ).train.advantage
    two = jnp.zeros((2, 2))
    groups = RewardGroups(
        rewards=two.at[:, 0].set(1.0),
        judged=two == 0,
        lengths=two.astype(jnp.int32),
        pass_rate=jnp.array([0.25, 1.0]),
        overhard=jnp.array([False, False]),
        confidence=jnp.ones(2),
    )
    found = rule.guarded_advantages(groups)
    np.testing.assert_allclose(found, [[0.25, -0.25], [1, -1]], rtol=1e-6)


def test_the_check_by_hand_prints_what_it_says(mine, capsys):
    importlib.import_module("try_modest")
    printed = np.fromstring(re.sub(r"[\[\]]", "", capsys.readouterr().out), sep=" ")
    np.testing.assert_allclose(printed, [0.25, -0.25, 1, -1], rtol=1e-4)


def test_a_dry_run_names_the_classes_of_a_user_with_their_settings(mine):
    config = configured(
        train__advantage__name="modest:Modest",
        train__advantage__power="0.75",
        mesh__cpu_devices="8",
    )
    (line,) = (one for one in describe(config).splitlines() if "modest" in one)
    assert line.startswith("train.advantage: modest:Modest, ")
    assert "power=0.75" in line.split(", ")


def test_dynamic_sampling_prefers_what_a_user_calls_balanced(mine):
    section = configured(
        dynamic_sampling__name="balanced:Balanced",
        dynamic_sampling__distance="0.1",
        dynamic_sampling__max_rounds="2",
    ).dynamic_sampling
    shares = {"rwww": False, "rrww": True, "rrrw": False}
    groups = GroupsOfLetters([*shares])
    assert [section.is_preferred(groups, p) for p in range(3)] == [*shares.values()]
    assert section.is_enough([groups], 1)
    assert not section.is_enough([groups], 2)
    assert section.is_enough([groups, groups], 2)


class GroupsOfLetters:
    """Stands for ProblemGroups; a completion is correct where its letter is r."""

    def __init__(self, letters):
        self._letters = letters

    def __len__(self):
        return len(self._letters)

    def completions_of(self, p):
        return [
            types.SimpleNamespace(
                verdict=Verdict(status="correct" if letter == "r" else "incorrect")
            )
            for letter in self._letters[p]
        ]


def test_an_objective_bounds_each_token_and_logs_what_it_names(mine):
    config = configured(
        train__loss__name="soft_clip:SoftClip", train__loss__softness="0.5"
    ).train.loss
    ratio = np.array([[1.0, 1.0 + 0.5, 100.0]])
    loss, aux = policy_loss(
        jnp.log(jnp.array(ratio)),
        jnp.zeros((1, 3)),
        jnp.array([2.0]),
        jnp.full((1, 3), 1.0),
        lengths=jnp.array([3]),
        config=config,
    )
    bounded = np.tanh((ratio - 1) / 0.5)
    np.testing.assert_allclose(loss, -(2 * (1 + 0.5 * bounded)).sum(), rtol=1e-6)
    np.testing.assert_allclose(aux.scalars["saturation"], bounded.sum(), rtol=1e-6)


@pytest.mark.parametrize(
    ("key", "name", "said"),
    [
        ("task.source", "finite_feild", "did you mean 'finite_field'?"),
        ("task.source", "walk:WalkTsk", "did you mean 'WalkTask'?"),
        ("task.source", "nowhere:Task", "cannot import nowhere"),
        ("train.reward.names", "corectness", "did you mean 'correctness'?"),
        ("train.reward.names", "brevity:few_word", "did you mean 'few_words'?"),
        ("train.loss.name", "polcy", "did you mean 'policy'?"),
        ("train.loss.name", "soft_clip:SoftClp", "did you mean 'SoftClip'?"),
        ("environment.name", "calculater", "did you mean 'calculator'?"),
        ("environment.name", "hints:Hnts", "did you mean 'Hints'?"),
        ("probe.name", "sea", "did you mean 'sae'?"),
        ("log.trackers", "wanbd", "did you mean 'wandb'?"),
        ("log.trackers", "table:RwardTable", "did you mean 'RewardTable'?"),
        ("curriculum.name", "unifrom", "did you mean 'uniform'?"),
        ("curriculum.name", "newest:Nwest", "did you mean 'Newest'?"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_one(mine, key, name, said):
    with pytest.raises(ConfigError) as refused:
        override(Config(), {key: name})
    assert said in str(refused.value)


def test_an_environment_answers_by_all_that_was_said(mine):
    config = configured(
        task__source="walk:WalkTask",
        environment__name="hints:Hints",
        environment__max_hints="1",
    )
    environment = config.environment
    problem = next(p for p in config.task.problems("train", seed=0) if p.id == "0-2")
    messages = list(environment.demonstrate(problem))
    assert [m.role for m in messages] == ["policy", "environment", "policy"]
    assert environment.respond(problem, messages[:1]).text == messages[1].text
    assert environment.respond(problem, messages).done
    too_far = [Message(role="policy", text="right right right")]
    assert environment.respond(problem, too_far).text == "left !"
    assert environment.respond(problem, [*messages[:2], *too_far]).done  # no hint left


def test_a_tracker_writes_a_row_for_each_step_of_rl(mine):
    run = TrackedRun(
        id="a1",
        name="run",
        project="p",
        offline=True,
        workdir=str(mine / "run"),
        config={},
        parent=None,
        num_logged=0,
    )
    (name,) = configured(log__trackers="table:RewardTable").log.trackers
    tracker = tracker_class(name)(run)
    assert tracker.open() == 0
    line = TrackedLine(number=0, stage="sft", step=0, time_s=0.0, values={"loss": 1.0})
    tracker.log(line)
    values = {"reward/mean": 0.5}
    tracker.log(dataclasses.replace(line, stage="train", step=3, values=values))
    assert (mine / "run.csv").read_text().split() == ["a1,3,0.5,0"]


def test_a_run_of_ones_own_parts_ends_with_its_report(mine):
    argv = [
        f"--config={_PAGE.parents[2] / 'configs/smoke.py'}",
        f"--workdir={mine / 'run'}",
        "--config.task.source=walk:WalkTask",
        "--config.environment.name=hints:Hints",
        "--config.curriculum.name=newest:Newest",
        "--config.train.reward.names=correctness,brevity:few_words",
        "--config.train.reward.weights=1,0.1",
        "--config.train.loss.name=soft_clip:SoftClip",
        "--config.log.trackers=table:RewardTable",
        "--config.mesh.cpu_devices=8",
        "--config.sft.steps=2",
        "--config.train.steps=2",
    ]
    assert main.main(argv) == 0
    assert len((mine / "run.csv").read_text().split()) == 2
    page = (mine / "run/report/index.html").read_text()
    assert "rewards on walks along 6 places" in page
