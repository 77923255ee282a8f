"""Worked traces: right by construction, and parsed step by step."""

import dataclasses
import random
import re

import pytest

from rlvr_jax.tasks import ChainMix, FiniteFieldTask
from rlvr_jax.tasks.finite_field.chains import (
    apply_operation,
    chain_values,
    parse_prompt,
    solve,
)
from rlvr_jax.tasks.finite_field.source import ChainSource, vocabulary
from rlvr_jax.tasks.finite_field.traces import (
    TraceReport,
    label_words,
    parse_trace,
    write_trace,
)
from rlvr_jax.tasks.finite_field.verifier import FiniteFieldVerifier

EVALUATE = "evaluate : e3 k + e2 l * e4 m + e1 = ?"  # 3 -> 5 -> 6 -> 0
INVERT = "invert : ? k + e2 l * e4 = e5"  # 1 -> 3 -> 5
COMPOSE = "compose : ? k + e2 = e5 then ! l * e4 = ?"  # 3 -> 5, then 3 -> 5
PERMUTED = "map e2 e0 e3 e1 e4 ; evaluate : e0 a + e3 b * e4 = ?"  # 1 -> 3 -> 2


def report(
    strategy, steps, *, first_error=None, consistent=True, complete=True, answer=None
) -> TraceReport:
    return TraceReport(
        strategy=strategy,
        step_correct=tuple(mark == "+" for mark in steps),
        first_error=first_error,
        consistent_start=consistent,
        complete=complete,
        answer=answer,
    )


@pytest.mark.parametrize(
    ("prompt", "modulus", "strategy", "trace"),
    [
        (
            EVALUATE,
            7,
            "forward",
            "k e3 + e2 = e5 l e5 * e4 = e6 m e6 + e1 = e0 answer e0",
        ),
        (
            EVALUATE,
            7,
            "backward",
            "m e0 - e1 = e6 l e6 / e4 = e5 k e5 - e2 = e3 answer e0",
        ),
        (INVERT, 7, "forward", "k e1 + e2 = e3 l e3 * e4 = e5 answer e1"),
        (INVERT, 7, "backward", "l e5 / e4 = e3 k e3 - e2 = e1 answer e1"),
        (
            COMPOSE,
            7,
            "backward",
            "k e5 - e2 = e3 then backward : l e5 / e4 = e3 answer e5",
        ),
        (PERMUTED, 5, "forward", "a e0 + e3 = e1 b e1 * e4 = e3 answer e3"),
    ],
)
def test_a_worked_trace_reads_as_on_paper(prompt, modulus, strategy, trace):
    question = parse_prompt(prompt, modulus=modulus)
    written = write_trace(question, solve(question), [strategy] * len(question.chains))
    assert written == f"{strategy} : {trace}"


@pytest.mark.parametrize("modulus", [2, 3, 7, 31])
@pytest.mark.parametrize("symbols", ["fixed", "permuted"])
@pytest.mark.parametrize("type_", ["evaluation", "inversion", "composition"])
@pytest.mark.parametrize("strategy", ["forward", "backward"])
def test_every_worked_solution_is_right_in_every_step(
    modulus, symbols, type_, strategy
):
    mix = ChainMix(types=(type_,), chain_lengths=(2, 6, 20), strategies=(strategy,))
    config = FiniteFieldTask(modulus=modulus, symbols=symbols)
    problems = ChainSource(config, mix, split="train", seed=1)
    calculates = {"evaluation": "forward", "inversion": "backward"}
    for index in range(40):
        problem = problems[index]
        question = parse_prompt(problem.prompt, modulus=modulus)
        kinds = {chain.kind for chain in question.chains}
        assert (
            FiniteFieldVerifier().grade(problem, problem.solution).status == "correct"
        )
        assert parse_trace(problem.prompt, problem.solution, modulus=modulus) == report(
            strategy,
            "+" * problem.level,
            consistent={calculates[kind] for kind in kinds} == {strategy},
            answer=problem.gold,
        )


@pytest.mark.parametrize(
    ("prompt", "completion", "expected"),
    [
        # a wrong value; the next steps follow from the written values
        (
            EVALUATE,
            "forward : k e3 + e2 = e5 l e5 * e4 = e3 m e3 + e1 = e4 answer e4",
            report("forward", "+-+", first_error=1, answer="e4"),
        ),
        # a wrong value among right ones: the next step does not restate it
        (
            EVALUATE,
            "forward : k e3 + e2 = e4 l e5 * e4 = e6 m e6 + e1 = e0 answer e0",
            report("forward", "--+", first_error=0, answer="e0"),
        ),
        # a value restated wrongly, and a result that follows from the restated value
        (
            EVALUATE,
            "forward : k e3 + e2 = e5 l e4 * e4 = e2 m e2 + e1 = e3 answer e3",
            report("forward", "+-+", first_error=1, answer="e3"),
        ),
        # ... and a result that follows from the previous value
        (
            EVALUATE,
            "forward : k e3 + e2 = e5 l e4 * e4 = e6 m e6 + e1 = e0 answer e0",
            report("forward", "+-+", first_error=1, answer="e0"),
        ),
        # a step left out
        (
            EVALUATE,
            "forward : k e3 + e2 = e5 m e5 + e1 = e6 answer e6",
            report("forward", "+-", first_error=1, complete=False, answer="e6"),
        ),
        # the last step is missing
        (
            EVALUATE,
            "forward : k e3 + e2 = e5 l e5 * e4 = e6",
            report("forward", "++", first_error=2, complete=False),
        ),
        # cut within a step
        (
            EVALUATE,
            "forward : k e3 + e2 = e5 l e5 * e4 =",
            report("forward", "+", first_error=1, complete=False),
        ),
        # one step too many
        (
            EVALUATE,
            "forward : k e3 + e2 = e5 l e5 * e4 = e6 m e6 + e1 = e0 n e0 + e1 = e1"
            " answer e1",
            report("forward", "+++-", first_error=3, answer="e1"),
        ),
        # right arithmetic with another operand, then with another label
        (
            EVALUATE,
            "forward : k e3 + e3 = e6 z e6 * e4 = e3 m e3 + e1 = e4 answer e4",
            report("forward", "--+", first_error=0, answer="e4"),
        ),
        # a start copied wrongly: every step follows, but not from the given value
        (
            EVALUATE,
            "forward : k e2 + e2 = e4 l e4 * e4 = e2 m e2 + e1 = e3 answer e3",
            report("forward", "+++", consistent=False, answer="e3"),
        ),
        # backward without undoing
        (
            INVERT,
            "backward : l e5 * e4 = e6 k e6 + e2 = e1 answer e1",
            report("backward", "--", first_error=0, answer="e1"),
        ),
        # backward in the order of the prompt
        (
            INVERT,
            "backward : k e5 - e2 = e3 l e3 / e4 = e6 answer e6",
            report("backward", "--", first_error=0, answer="e6"),
        ),
        # a forward guess that happens to be right is still a guess
        (
            INVERT,
            "forward : k e1 + e2 = e3 l e3 * e4 = e5 answer e1",
            report("forward", "++", consistent=False, answer="e1"),
        ),
        # each part from its given end
        (
            COMPOSE,
            "backward : k e5 - e2 = e3 then forward : l e3 * e4 = e5 answer e5",
            report("mixed", "++", answer="e5"),
        ),
        # the second part does not start from the first part's answer
        (
            COMPOSE,
            "backward : k e5 - e2 = e3 then forward : l e2 * e4 = e1 answer e1",
            report("mixed", "++", consistent=False, answer="e1"),
        ),
        # ... and it does, although that answer is wrong
        (
            COMPOSE,
            "backward : k e5 - e2 = e2 then forward : l e2 * e4 = e1 answer e1",
            report("mixed", "-+", first_error=0, answer="e1"),
        ),
        # the second part is missing
        (
            COMPOSE,
            "backward : k e5 - e2 = e3 answer e3",
            report(
                "backward",
                "+",
                first_error=1,
                consistent=False,
                complete=False,
                answer="e3",
            ),
        ),
        # the first part has no steps: no start, and an error before step 0
        (
            COMPOSE,
            "backward : then forward : l e5 * e4 = e6 answer e6",
            report(
                "mixed",
                "+",
                first_error=0,
                consistent=False,
                complete=False,
                answer="e6",
            ),
        ),
        # a part that the question does not have
        (
            INVERT,
            "backward : l e5 / e4 = e3 k e3 - e2 = e1 then forward : k e1 + e2 = e3",
            report("mixed", "++-", first_error=2),
        ),
        # an answer without a trace
        (
            INVERT,
            "answer e1",
            report(
                "none",
                "",
                first_error=0,
                consistent=False,
                complete=False,
                answer="e1",
            ),
        ),
        # the last answer word counts, but nothing follows it
        (
            INVERT,
            "backward : l e5 / e4 = e3 k e3 - e2 = e1 answer e1 answer",
            report("backward", "++"),
        ),
        # a numeral of another field makes no step; a header without steps has no start
        (
            INVERT,
            "backward : l e10 / e4 = e3 k e3 - e2 = e1",
            report("backward", "", first_error=0, consistent=False, complete=False),
        ),
    ],
)
def test_a_corrupted_trace_is_read_as_on_paper(prompt, completion, expected):
    assert parse_trace(prompt, completion, modulus=7) == expected


@pytest.mark.parametrize("strategy", ["forward", "backward"])
@pytest.mark.parametrize("symbols", ["fixed", "permuted"])
def test_a_wrong_value_at_step_i_is_found_at_i(strategy, symbols):
    mix = ChainMix(
        types=("evaluation", "inversion", "composition"),
        chain_lengths=(8,),
        strategies=(strategy,),
    )
    config = FiniteFieldTask(modulus=11, symbols=symbols)
    problems = ChainSource(config, mix, split="train", seed=2)
    for index in range(64):
        problem, slip = problems[index], index % 8
        words = problem.solution.split(" ")
        place = [at + 1 for at, word in enumerate(words) if word == "="][slip]
        words[place] = "e0" if words[place] != "e0" else "e1"
        seen = parse_trace(problem.prompt, " ".join(words), modulus=11)
        assert seen.first_error == slip
        assert seen.step_correct[:slip] == (True,) * slip
        assert all(
            seen.step_correct[slip + 2 :]
        )  # judged by the previously written values
        assert seen.complete


@pytest.mark.parametrize("prompt", [EVALUATE, INVERT])
def test_one_guess_in_p_answers_right_and_none_counts_as_given(prompt):
    question = parse_prompt(prompt, modulus=7)
    (chain,) = question.chains
    other, strategy = {
        "evaluation": ("inversion", "backward"),
        "inversion": ("evaluation", "forward"),
    }[chain.kind]
    (truth,) = solve(question)
    right = 0
    for guess in range(7):
        # Worked from the unknown end, as for a chain of the other kind.
        turned = dataclasses.replace(chain, kind=other, input_value=guess)
        guessed = chain_values(turned, guess, 7)
        trace = write_trace(question, [guessed], [strategy])
        assert parse_trace(prompt, trace, modulus=7) == report(
            strategy, "+" * len(chain.steps), consistent=False, answer=f"e{guess}"
        )
        right += guessed == truth
    assert right == 1


@pytest.mark.parametrize("modulus", [2, 7, 31])
def test_minus_undoes_plus_and_division_undoes_multiplication(modulus):
    for value in range(modulus):
        for by in range(1, modulus):
            assert (
                apply_operation(
                    apply_operation(value, "+", by, modulus), "-", by, modulus
                )
                == value
            )
            assert (
                apply_operation(
                    apply_operation(value, "*", by, modulus), "/", by, modulus
                )
                == value
            )


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        "evaluate",
        "evaluate : e3 = ?",
        "evaluate : e3 k + e0 = ?",
        "evaluate : e3 k - e2 = ?",
        "evaluate : e3 k + e7 = ?",
        "evaluate : e3 kl + e2 = ?",
        "evaluate : ? k + e2 = e3",
        "evaluate : ? k + e2 = ?",
        "evaluate : ! k + e2 = ?",
        "invert : e3 k + e2 = ?",
        "compose : e3 k + e2 = ?",
        "compose : e3 k + e2 = ? then e3 l + e2 = ?",
        "compose : e3 k + e2 = ? then ! l + e2 = ? then e1 m + e2 = ?",
        "compute : e3 k + e2 = ?",
        "map e0 e1 ; evaluate : e3 k + e2 = ?",
        "map e0 e1 e2 e3 e4 e5 e6 evaluate : e3 k + e2 = ?",
    ],
)
def test_a_prompt_that_states_no_question_is_refused(prompt):
    with pytest.raises(ValueError, match=re.escape(repr(prompt))):
        parse_prompt(prompt, modulus=7)


def hostile_texts(solution: str, rng: random.Random) -> list[str]:
    """Returns a solution mutated word by word, and noise of words and bytes."""
    words = solution.split(" ")
    extra = [
        *vocabulary(7),
        "e07",
        "e-1",
        "e99",
        "E3",
        "e٣",
        "\x00",
        "\ud800",
        "\U0001d4863",
    ]
    mutants = []
    for _ in range(6):
        mutant = list(words)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(mutant))
            match rng.randrange(4):
                case 0:
                    mutant[at] = rng.choice(extra)
                case 1:
                    mutant.insert(at, rng.choice(extra))
                case 2:
                    mutant = mutant[:at] + mutant[at + 1 :] or ["answer"]
                case 3:
                    mutant = mutant[: at + 1]
        mutants.append(" ".join(mutant))
    noise = " ".join(rng.choices(extra, k=rng.randrange(40)))
    raw = "".join(chr(rng.randrange(0x110000)) for _ in range(rng.randrange(40)))
    return [*mutants, noise, raw, f"{words[0]} : {noise}", ""]


def test_any_text_is_read_and_judged_and_the_two_agree():
    rng = random.Random(0)
    mix = ChainMix(
        types=("evaluation", "inversion", "composition"), chain_lengths=(2, 5)
    )
    problems = ChainSource(FiniteFieldTask(), mix, split="train", seed=0)
    errorless = 0
    for index in range(300):
        problem = problems[index]
        for text in hostile_texts(problem.solution, rng):
            seen = parse_trace(problem.prompt, text, modulus=7)
            verdict = FiniteFieldVerifier().grade(problem, text)
            assert verdict.answer == seen.answer
            assert verdict.status in ("correct", "incorrect")
            assert (verdict.status == "correct") <= (seen.answer == problem.gold)
            if seen.first_error is None:
                errorless += 1
                assert seen.complete
                assert seen.step_correct == (True,) * problem.level
            else:
                assert all(seen.step_correct[: seen.first_error])
                assert not (seen.complete and all(seen.step_correct))
    assert errorless > 0  # where only the answer changed


def test_a_very_long_completion_is_read_to_its_end():
    completion = "forward : " + "k e3 + e2 = e5 " * 20_000 + "answer e5"
    seen = parse_trace(EVALUATE, completion, modulus=7)
    assert len(seen.step_correct) == 20_000
    assert seen.first_error == 1
    assert seen.answer == "e5"


def test_factors_of_each_word_of_a_worked_example():
    trace = "forward : k e3 + e2 = e5 then backward : l e6 / e4 = e5 answer e5"
    one, two = [0] * 6, [-1, -1]
    assert label_words(trace.split(), [f"e{v}" for v in range(7)]) == {
        "step": [*two, *one, -1, *two, *one, *two],
        "operation": [*two, *[0] * 6, -1, *two, *[3] * 6, *two],
        "value": [*two, *[3] * 5, 5, -1, *two, *[6] * 5, 5, *two],
        "direction": [*[0] * 8, -1, *[1] * 10],
    }


@pytest.mark.parametrize("text", ["", "answer e1", "k e3 + e2 = e5", "forward : k"])
def test_words_outside_steps_have_no_step(text):
    factors = label_words(text.split(), ["e0", "e1", "e2", "e3", "e4", "e5"])
    assert {len(values) for values in factors.values()} == {len(text.split())}
    assert set(factors["step"]) <= {-1}


def test_factors_follow_the_symbols():
    """With permuted symbols, a numeral's value is its place in the map."""
    found = label_words(
        ["forward", ":", "a", "e0", "+", "e3", "=", "e1"],
        ["e2", "e0", "e3", "e1", "e4"],
    )
    assert found["value"] == [-1, -1, 1, 1, 1, 1, 1, 3]
