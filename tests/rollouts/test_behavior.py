"""Behavior flags: each on the text that earns it, and on no other."""

import pytest

from rlvr_jax.rollouts.behavior import FLAGS, detect_behaviors, repeated_ngram_fraction
from rlvr_jax.tasks import ChainMix, FilesTask, FiniteFieldTask
from rlvr_jax.tasks.finite_field.source import ChainSource
from rlvr_jax.types import Problem, Verdict

FIELD = FiniteFieldTask(modulus=7)
WORDS = Problem(id="w", prompt="?", gold="42", verifier="math", source="test")


def flags(task, problem, text, status, *, tokens=()):
    verdict = Verdict(status=status)
    return detect_behaviors(task, problem, text, tokens=tokens, verdict=verdict).flags


def chain(type_="evaluation", steps=2):
    mix = ChainMix(types=(type_,), chain_lengths=(steps,), strategies=("forward",))
    if type_ == "inversion":
        mix = ChainMix(types=(type_,), chain_lengths=(steps,), strategies=("backward",))
    return ChainSource(FIELD, mix, split="train", seed=0)[0]


@pytest.mark.parametrize("type_", ["evaluation", "inversion"])
def test_a_worked_solution_earns_no_flag(type_):
    problem = chain(type_)
    assert flags(FIELD, problem, problem.solution, "correct") == ()


def test_a_stated_confidence_sets_no_flag():
    task, problem = FiniteFieldTask(modulus=7, ask_confidence=True), chain()
    text = f"{problem.solution} <confidence>0.4</confidence>"
    assert flags(task, problem, text, "correct") == ()
    bare = f"answer {problem.gold} <confidence>0.4</confidence>"
    assert flags(task, problem, bare, "correct") == ("bare_answer",)


def test_traces_are_checked_step_by_step():
    problem = chain()
    steps, answer = problem.solution.split(" answer ")
    first = " ".join(steps.split()[:8])  # the header and one step of two
    other = "e1" if answer != "e1" else "e2"
    for text, status, expected in (
        (f"answer {answer}", "correct", "bare_answer"),
        (f"answer {other}", "incorrect", "bare_answer"),
        (f"{first} answer {answer}", "correct", "skipped_steps"),
        (steps, "incorrect", "no_aggregation"),
        (f"{steps} answer {other}", "incorrect", "no_aggregation"),
        (f"{problem.solution} answer {answer} answer {answer}", "correct", None),
    ):
        found = flags(FIELD, problem, text, status)
        assert found == ((expected,) if expected else ("repeated_answer",)), text
    # An error before the end is a mistake, not a shortcut.
    assert flags(FIELD, problem, f"{first} answer {other}", "incorrect") == ()


def test_a_guess_at_the_start_is_not_a_missing_aggregation():
    """The backward steps from a guessed result are right; the guess was not given."""
    guessing = ChainMix(
        types=("evaluation",), chain_lengths=(2,), strategies=("backward",)
    )
    problem = ChainSource(FIELD, guessing, split="train", seed=0)[0]
    assert flags(FIELD, problem, problem.solution, "incorrect") == ()
    # A guess that turns out right is still a success, by luck.
    assert flags(FIELD, problem, problem.solution, "correct") == ("guessed_start",)


@pytest.mark.parametrize(
    ("text", "status", "expected"),
    [
        ("6 * 7 = 42, so \\boxed{42}", "correct", ()),
        ("\\boxed{42}", "correct", ("bare_answer",)),
        ("The answer is 42", "incorrect", ("bare_answer",)),
        ("42", "correct", ("bare_answer",)),
        (
            "I have seen this one before and remember the number well: \\boxed{42}",
            "correct",
            ("skipped_steps",),
        ),
        ("Some long text of words that never gets to any point", "incorrect", ()),
        ("6 * 7 = 42 and 42 + 1 = 43 and so on", "incorrect", ("no_aggregation",)),
        ("6 * 7 = 42 \\boxed{41} \\boxed{42}", "correct", ()),
        ("6*7=42 #### 1 #### 2 #### 3", "incorrect", ("repeated_answer",)),
        # Marks of one answer are one statement.
        (
            "6*7=42. The answer is \\boxed{42}. Final answer: \\boxed{42}.",
            "correct",
            (),
        ),
        ("6*7=42 <answer>The answer is \\boxed{42}.</answer>", "correct", ()),
        ("", "incorrect", ()),
        ("I do not know.", "incorrect", ()),
    ],
)
def test_free_text_is_read_by_its_signs(text, status, expected):
    assert flags(FilesTask(), WORDS, text, status) == expected


def test_repetition_is_the_share_of_repeated_four_grams():
    # 40 tokens in a cycle of 5 have 37 four-grams, 5 of them different.
    assert repeated_ngram_fraction([*range(5)] * 8) == pytest.approx(1 - 5 / 37)
    assert repeated_ngram_fraction(range(40)) == 0.0
    # 15 four-grams are too few to judge
    assert repeated_ngram_fraction([1] * 18) == 0.0
    assert repeated_ngram_fraction([1] * 19) == pytest.approx(15 / 16)
    looping = [*range(5)] * 8
    assert "repetition" in flags(FilesTask(), WORDS, "x", "incorrect", tokens=looping)


def test_unverified_is_not_right():
    long = "I have seen this one before and remember the number well: \\boxed{42}"
    assert flags(FilesTask(), WORDS, long, "unverified") == ()


@pytest.mark.parametrize(
    ("text", "verdict", "given"),
    [
        (r"so \boxed{41}", Verdict(status="incorrect", answer="41"), "boxed"),
        ("#### 42", Verdict(status="correct", answer="42"), "hashes"),
        ("so 6 * 7 = 42", Verdict(status="correct", answer="42"), "unmarked"),
        ("so 6 * 7 = 42", Verdict(status="correct"), "unmarked"),
        ("I give up", Verdict(status="incorrect"), "none"),
        ("I give up", Verdict(status="incorrect", answer=""), "none"),
        # The text is read without its confidence, as the verifier reads it.
        (
            r"42 <confidence>\boxed{1}</confidence>",
            Verdict(status="correct", answer="42"),
            "unmarked",
        ),
    ],
)
def test_the_format_is_the_mark_or_what_the_verifier_found_without(
    text, verdict, given
):
    found = detect_behaviors(FilesTask(), WORDS, text, tokens=(), verdict=verdict)
    assert found.format == given


@pytest.mark.parametrize(
    ("text", "given"),
    [("answer e3", "statement"), ("answer e3 ;", "statement"), ("e3 answer", "none")],
)
def test_a_field_has_one_statement(text, given):
    verdict = Verdict(status="incorrect")
    found = detect_behaviors(FIELD, chain(), text, tokens=(), verdict=verdict)
    assert found.format == given


def test_every_flag_has_a_name():
    assert len(FLAGS) == len(set(FLAGS)) == 9
