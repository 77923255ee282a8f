"""Thinking: which text of a completion is judged, its rewards and its counts."""

import dataclasses
import types

import numpy as np
import pytest

from rlvr_jax.config import EnvironmentConfig, RewardConfig, TokenizerConfig
from rlvr_jax.metrics.rollouts import rollout_metrics
from rlvr_jax.rollouts.graded import grade_completions
from rlvr_jax.rollouts.judged import JudgedText, read_judged_text, thinking_length
from rlvr_jax.rollouts.scores import score_completions
from rlvr_jax.tasks import FilesTask
from rlvr_jax.types import Episode, Message, Problem, Prompts, Rollouts, Verdict
from rlvr_jax.verifiers.base import get_verifier
from rlvr_jax.verifiers.thinking import NOT_FINISHED, writes_thinking
from tests.support import user_extensions

WORDS = ["<pad>", "<eos>", "<think>", "</think>", "1", "2", "The answer is", ".\n"]
EOS, OPEN, CLOSE, ONE, TWO, ANSWER, STOP = range(1, 8)
PROBLEM = Problem(id="a", prompt="?", gold="2", verifier="math", source="t")
OPENED = dataclasses.replace(PROBLEM, prompt="<|im_start|>assistant\n<think>\n")


def _decode(ids):
    return " ".join(WORDS[i] for i in ids if i > EOS)


def _grade(problems, texts):
    graded = []
    for problem, text in zip(problems, texts, strict=True):
        assert "think" not in text
        graded.append(get_verifier("math").grade(problem, text))
    return graded


def _setup(thinking="on", environment=None):
    return types.SimpleNamespace(
        tokenizer=types.SimpleNamespace(decode=_decode, eos_ids=(EOS,)),
        verifier=_grade
        if thinking == "on"
        else lambda p, t: [Verdict(status="correct")],
        config=types.SimpleNamespace(
            task=FilesTask(),
            tokenizer=TokenizerConfig(thinking=thinking),
            environment=environment or EnvironmentConfig(),
        ),
    )


def _graded(ids, *, problem=PROBLEM, thinking="on", finished=True, episode=None):
    rollouts = Rollouts(
        prompts=Prompts(
            tokens=np.ones((1, 1), np.int32),
            lengths=np.ones(1, np.int32),
            uid=np.zeros(1, np.uint32),
        ),
        tokens=np.array([ids], np.int32),
        lengths=np.array([len(ids)], np.int32),
        logprobs=np.zeros((1, len(ids)), np.float32),
        finished=np.array([finished]),
        weight_version=np.int32(0),
        episodes=None if episode is None else (episode,),
    )
    (graded,) = grade_completions(_setup(thinking), [problem], rollouts)
    return graded


@pytest.mark.parametrize(
    ("ids", "problem", "status", "thought"),
    [
        ((OPEN, ONE, CLOSE, ANSWER, TWO, STOP), PROBLEM, "correct", 3),
        ((OPEN, TWO, CLOSE, ANSWER, ONE, STOP), PROBLEM, "incorrect", 3),
        # The policy thinks twice: the last mark counts.
        ((OPEN, CLOSE, ANSWER, TWO, OPEN, CLOSE, ANSWER, ONE), PROBLEM, "incorrect", 6),
        ((ANSWER, TWO, STOP), PROBLEM, "correct", 0),  # no thinking at all
        ((ONE, CLOSE, ANSWER, TWO, STOP), OPENED, "correct", 2),
        ((CLOSE, ANSWER, TWO, STOP), PROBLEM, "correct", 1),
    ],
)
def test_only_the_text_behind_the_thinking_is_judged(ids, problem, status, thought):
    graded = _graded(ids, problem=problem)
    assert graded.verdict.status == status
    assert graded.completion == _decode(ids)  # all of it is shown
    row = graded.to_json("train", 0)
    assert (row["thinking_tokens"], row["answer_tokens"]) == (
        thought,
        len(ids) - thought,
    )


@pytest.mark.parametrize(
    ("ids", "problem"),
    [
        ((OPEN, ANSWER, TWO, STOP), PROBLEM),
        ((OPEN, CLOSE, ANSWER, TWO, OPEN), PROBLEM),
        # the prompt opened the thinking, and nothing closed it
        ((ANSWER, TWO, STOP), OPENED),
    ],
)
@pytest.mark.parametrize("finished", [True, False])
def test_unfinished_thinking_earns_nothing(ids, problem, finished):
    graded = _graded(ids, problem=problem, finished=finished)
    assert graded.verdict == Verdict(status="incorrect", reason=NOT_FINISHED)
    assert graded.format == "none"
    assert graded.to_json("train", 0)["thinking_tokens"] == len(ids)


def test_a_prompt_that_closes_the_thinking_has_not_opened_it():
    closed = dataclasses.replace(PROBLEM, prompt="assistant\n<think>\n\n</think>\n\n")
    assert _graded((ANSWER, TWO, STOP), problem=closed).verdict.status == "correct"
    told = dataclasses.replace(PROBLEM, prompt="Begin with <think> and end it.")
    assert _graded((ANSWER, TWO, STOP), problem=told).verdict.status == "correct"


@pytest.mark.parametrize("thinking", ["off", "auto"])
def test_without_thinking_all_of_a_completion_is_judged(thinking):
    """A run that is not opened has not resolved auto, which then reads as off."""
    graded = _graded((OPEN, ANSWER, TWO), thinking=thinking)
    assert graded.verdict.status == "correct"
    assert graded.judged_text.text == graded.completion
    assert "thinking_tokens" not in graded.to_json("train", 0)


@pytest.mark.parametrize(
    ("thinking", "template", "on"),
    [
        ("auto", "{{ content.split('</think>')[-1] }}", True),
        ("auto", "assistant\n<think>\n", True),
        ("auto", "think about </thinking>", False),
        ("on", "", True),
        ("off", "<think>", False),
    ],
)
def test_auto_follows_the_template(thinking, template, on):
    section = TokenizerConfig(thinking=thinking)
    has_it = writes_thinking(template)
    assert section.resolve_thinking(template_has_it=has_it).thinks == on


def test_thinking_is_counted_up_to_its_last_mark_wherever_tokens_are_cut():
    """A mark of several tokens ends with the token that completes it."""
    text = "<think>ab</think>c</think>de"
    tokenizer = types.SimpleNamespace(decode=lambda ids: "".join(text[i] for i in ids))
    assert thinking_length(range(len(text)), tokenizer) == text.index("de")
    assert thinking_length(range(16), tokenizer) == 0
    assert thinking_length(range(17), tokenizer) == 17
    assert thinking_length([], tokenizer) == 0


def _episode(*turns, verdict=None):
    messages = []
    for turn in turns:
        messages += [
            Message(role="policy", text=turn),
            Message(role="environment", text="</think> reply"),
        ]
    return Episode(
        messages=tuple(messages[:-1]), completion="\n".join(turns), verdict=verdict
    )


def test_of_an_episode_the_last_turn_says_whether_thinking_has_ended():
    ended = _episode("<think>a</think> call", "<think>b</think> 2")
    begun = _episode("<think>a</think> call", "<think>b")
    setup = _setup()
    read = [
        read_judged_text(setup, PROBLEM, episode.completion, episode=episode)
        for episode in (ended, begun)
    ]
    assert [text.text for text in read] == [" 2", ""]
    assert [text.is_thinking for text in read] == [False, True]
    # Here the reply opens the thinking again, as its template may.
    opens = _setup(
        environment=types.SimpleNamespace(format_reply=lambda text: f"{text}<think>\n")
    )
    plain = _episode("<think>a</think> call", "2")
    for setup_, is_open in ((setup, False), (opens, True)):
        found = read_judged_text(setup_, PROBLEM, plain.completion, episode=plain)
        assert found.is_thinking == is_open


def test_unfinished_thinking_is_incorrect_for_any_environment_verdict():
    won = Verdict(status="correct")
    lost = Verdict(status="unverified", failure="error", reason="gone")
    for verdict, text, expected in (
        (won, "<think>2", Verdict(status="incorrect", reason=NOT_FINISHED)),
        (won, "<think></think>2", won),
        (lost, "<think>2", lost),
    ):
        episode = _episode(text, verdict=verdict)
        assert _graded((OPEN, EOS), episode=episode).verdict == expected


def test_an_answer_at_the_cut_is_incorrect_and_a_closed_one_counts():
    cut = _graded((ANSWER, TWO), finished=False)
    assert cut.verdict == Verdict(status="incorrect", reason="cut by the length limit")
    assert _graded((ANSWER, TWO), finished=True).verdict.status == "correct"
    assert _graded((ANSWER, TWO, STOP), finished=False).verdict.status == "correct"
    # This episode ended after a finished turn, so no turn was cut.
    episode = _episode("The answer is 2")
    for ids, status in (((TWO, EOS), "correct"), ((TWO,), "incorrect")):
        graded = _graded(ids, finished=False, episode=episode)
        assert graded.verdict.status == status


def _scores(judged, *names):
    values, _ = score_completions(
        RewardConfig(names=names, weights=(1.0,) * len(names)),
        [PROBLEM] * len(judged),
        [text.text for text in judged],
        judge=_Judge(),
        seed=0,
        group_size=len(judged),
        judged=judged,
    )
    return values


class _Judge:
    def __call__(self, problems, texts):
        return [
            get_verifier("math").grade(*pair)
            for pair in zip(problems, texts, strict=True)
        ]

    def check_failures(self, name, problems, outcomes):
        assert not any(outcome.failure for outcome in outcomes)


@pytest.mark.parametrize(
    ("paid", "earned"), [(1.0, 0.0), (-5.0, -5.0), (None, 0.0), (0.0, 0.0)]
)
def test_unfinished_thinking_earns_no_custom_reward(monkeypatch, paid, earned):
    """A reward for empty text pays nothing; a penalty applies, and no opinion is 0."""
    monkeypatch.setattr(user_extensions, "brevity", lambda problem, completion: paid)
    judged = [JudgedText(text="", is_thinking=True), JudgedText(text="")]
    values = _scores(judged, "tests.support.user_extensions:brevity")[
        "tests.support.user_extensions:brevity"
    ]
    np.testing.assert_array_equal(values, [earned, np.nan if paid is None else paid])


def test_unfinished_thinking_has_no_form_and_states_no_confidence():
    judged = [JudgedText(text="", is_thinking=True), JudgedText(text="\\boxed{2}")]
    values = _scores(judged, "format", "random", "confidence")
    assert values["format"].tolist() == [0.0, 1.0]
    assert np.isnan(values["confidence"][0])  # nothing stated: the reward is -1
    coins = _scores([JudgedText(text="")] * 2, "random")["random"]
    np.testing.assert_array_equal(values["random"], coins)


def test_the_wrong_label_control_reads_cut_answers_as_the_verifier_does():
    texts = ["The answer is 3", "The answer is 3.\n"]  # 3: the gold's digit plus one
    judged = [JudgedText(text=text, was_cut=True) for text in texts]
    assert _scores(judged, "wrong_label")["wrong_label"].tolist() == [0.0, 1.0]


def test_thinking_and_answer_tokens_are_logged_apart():
    graded = [
        _graded((OPEN, ONE, CLOSE, ANSWER, TWO, STOP)),
        _graded((OPEN, ONE, ONE, ONE)),
    ]
    shape = {"rewards_PG": np.zeros((1, 2)), "advantages_PG": np.zeros((1, 2))}
    shape["judged_PG"] = np.ones((1, 2), bool)
    metrics = rollout_metrics(graded, **shape, has_signal_P=np.zeros(1, bool), k=(1,))
    assert metrics["rollout/thinking_tokens"] == 3.5
    assert metrics["rollout/answer_tokens"] == 1.5
    assert metrics["rollout/thinking_unfinished"] == 0.5
    plain = [_graded((ANSWER, TWO, STOP), thinking="off")] * 2
    metrics = rollout_metrics(plain, **shape, has_signal_P=np.zeros(1, bool), k=(1,))
    assert not any("thinking" in name for name in metrics)
