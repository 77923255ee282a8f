"""The world: answers by brute force, the split, reproducibility, and shares."""

import collections
import dataclasses
import json
import math
import os
import pickle
import subprocess
import sys

import pytest

from job_jax.schema import ConfigError
from rlvr_jax.tasks import ChainMix, FiniteFieldTask
from rlvr_jax.tasks.finite_field.chains import (
    invert_question,
    parse_prompt,
    solve,
    write_prompt,
)
from rlvr_jax.tasks.finite_field.source import ChainSource, vocabulary
from rlvr_jax.tasks.finite_field.traces import parse_trace
from rlvr_jax.verifiers.confidence import STATEMENTS, parse_confidence

TYPES = ("evaluation", "inversion", "composition")
FIELDS = [
    (modulus, symbols) for modulus in (2, 3, 7, 31) for symbols in ("fixed", "permuted")
]


def source(
    modulus=7, symbols="fixed", *, split="train", seed=0, types=TYPES, **mix
) -> ChainSource:
    config = FiniteFieldTask(modulus=modulus, symbols=symbols)
    return ChainSource(config, ChainMix(types=types, **mix), split=split, seed=seed)


def brute_force_answers(prompt: str, modulus: int) -> list[str]:
    """Returns every symbol that can replace the question mark, by trying all values."""
    symbols = [f"e{v}" for v in range(modulus)]
    if prompt.startswith("map "):
        mapping, prompt = prompt.removeprefix("map ").split(" ; ")
        symbols = mapping.split(" ")
    task, _, *body = prompt.split(" ")
    text = " ".join(body)
    answers: list[str] = []
    for part in text.split(" then ") if task == "compose" else [text]:
        first, *steps, _, last = part.split(" ")
        if answers:  # the second chain starts from the first chain's answer
            first, last = (w.replace("!", answers[0]) for w in (first, last))
        answers = []
        for start in range(modulus):
            value = start
            for op, operand in zip(steps[1::3], steps[2::3], strict=True):
                by = symbols.index(operand)
                value = (value + by if op == "+" else value * by) % modulus
            if first == "?" and symbols[value] == last:
                answers.append(symbols[start])
            if last == "?" and symbols[start] == first:
                answers.append(symbols[value])
        assert len(answers) == 1, f"{part} has {len(answers)} answers"
    return answers


@pytest.mark.parametrize(("modulus", "symbols"), FIELDS)
@pytest.mark.parametrize("type_", TYPES)
def test_gold_is_the_only_answer_that_brute_force_finds(modulus, symbols, type_):
    problems = source(modulus, symbols, types=(type_,), chain_lengths=(2, 7, 20))
    for index in range(60):
        problem = problems[index]
        assert brute_force_answers(problem.prompt, modulus) == [problem.gold]


def test_a_confidence_may_end_a_solution_and_is_uninformative():
    """Each tenth is equally likely for any problem, and nothing else changes."""
    lengths = ChainMix(chain_lengths=(2, 9))
    plain, asked = (
        ChainSource(FiniteFieldTask(ask_confidence=ask), lengths, split="train", seed=0)
        for ask in (False, True)
    )
    stated = collections.defaultdict(list)
    for index in range(1100):
        problem, other = plain[index], asked[index]
        text, end = other.solution.rsplit(" ", 1)
        assert dataclasses.replace(other, solution=text) == problem
        assert end in STATEMENTS
        stated[problem.level].append(parse_confidence(end))
    for of_level in stated.values():
        assert sorted(set(of_level)) == [tenths / 10 for tenths in range(11)]
        assert sum(of_level) / len(of_level) == pytest.approx(0.5, abs=0.05)
    assert len({repr(plain), repr(asked)}) == 2
    words = FiniteFieldTask(ask_confidence=True).vocabulary()
    assert words == (*FiniteFieldTask().vocabulary(), *STATEMENTS)


@pytest.mark.parametrize(("modulus", "symbols"), FIELDS)
def test_every_word_is_in_the_vocabulary_once(modulus, symbols):
    words = vocabulary(modulus)
    assert words[:2] == ("<pad>", "<eos>")
    assert len(set(words)) == len(words)
    problems = source(modulus, symbols, chain_lengths=(2, 20))
    seen: set[str] = set()
    for index in range(400):
        problem = problems[index]
        text = f"{problem.prompt} {problem.solution} {problem.gold}"
        assert text == " ".join(text.split())
        seen.update(text.split(" "))
    unused = {"<pad>", "<eos>"} | ({"map", ";"} if symbols == "fixed" else set())
    assert seen == set(words) - unused


@pytest.mark.parametrize(("modulus", "symbols"), FIELDS)
def test_a_prompt_survives_parsing_and_writing(modulus, symbols):
    problems = source(modulus, symbols, chain_lengths=(2, 5, 20))
    for index in range(60):
        prompt = problems[index].prompt
        assert write_prompt(parse_prompt(prompt, modulus=modulus)) == prompt


def test_steps_are_labeled_on_a_ring_by_operands_that_are_not_zero():
    problems = source(symbols="permuted", chain_lengths=(4, 20))
    offsets = collections.Counter()
    for index in range(400):
        problem = problems[index]
        question = parse_prompt(problem.prompt, modulus=7)
        steps = [step for chain in question.chains for step in chain.steps]
        places = [ord(step.label) - ord("a") for step in steps]
        assert len(steps) == problem.level
        assert places == [(places[0] + i) % 26 for i in range(len(steps))]
        assert all(1 <= step.operand < 7 and step.op in "+*" for step in steps)
        offsets[places[0]] += 1
    assert set(offsets) == set(range(26))


def test_a_composition_splits_its_steps_and_draws_both_kinds():
    problems = source(types=("composition",), chain_lengths=(2, 3))
    seen = set()
    for index in range(200):
        question = parse_prompt(problems[index].prompt, modulus=7)
        first, second = question.chains
        assert first.input_value is not None
        assert second.input_value is None
        seen.add((first.kind, second.kind, len(first.steps), len(second.steps)))
    kinds = ("evaluation", "inversion")
    cuts = ((1, 1), (1, 2), (2, 1))
    assert seen == {(a, b, *cut) for a in kinds for b in kinds for cut in cuts}


def test_a_composition_of_two_to_five_chains_is_answered_by_brute_force():
    problems = source(
        types=("composition",), chain_lengths=(5, 8), composition_parts=(2, 3, 4, 5)
    )
    counts = collections.Counter()
    for index in range(400):
        problem = problems[index]
        question = parse_prompt(problem.prompt, modulus=7)
        assert write_prompt(question) == problem.prompt
        assert brute_force_answers(problem.prompt, 7) == [problem.gold]
        assert sum(len(chain.steps) for chain in question.chains) == problem.level
        given = [chain.input_value is not None for chain in question.chains]
        assert given == [True] + [False] * (len(given) - 1)
        report = parse_trace(problem.prompt, problem.solution, modulus=7)
        assert (report.complete, report.first_error) == (True, None)
        assert report.answer == problem.gold
        counts[len(question.chains)] += 1
    assert set(counts) == {2, 3, 4, 5}
    assert all(within(count, 400, 1 / 4) for count in counts.values())


def test_a_composition_needs_a_step_for_each_of_its_chains():
    mix = {"types": ("composition",), "composition_parts": (5, 3)}
    refusal = r"into at least 3 chains; give lengths within 3\.\.20"
    with pytest.raises(ConfigError, match=refusal):
        ChainMix(chain_lengths=(2, 4), **mix)
    problems = source(chain_lengths=(3, 4, 5), **mix)
    assert {(p.level, count_chains(p)) for p in (problems[i] for i in range(200))} == {
        *((3, 3), (4, 3), (5, 3), (5, 5))
    }
    with pytest.raises(ConfigError, match=r"into at least 5 chains"):
        ChainMix(chain_lengths=(4,), composition_part_weights=(1.0, 0.0), **mix)
    with pytest.raises(ConfigError, match=r"composition_parts=\(6,\); it must hold"):
        ChainMix(composition_parts=(6,))


def test_compositions_of_a_number_of_chains_are_drawn_by_its_weight():
    mix = {"types": ("composition",), "composition_parts": (2, 3, 5)}
    weights = (0.6, 0.4, 0.0)
    plain = source(chain_lengths=(5,), **mix)
    weighted = source(chain_lengths=(5,), composition_part_weights=weights, **mix)
    counts = collections.Counter(count_chains(weighted[i]) for i in range(400))
    assert set(counts) == {2, 3}
    assert within(counts[3], 400, 0.4)
    assert plain[0].id != weighted[0].id  # other problems, other names


def count_chains(problem):
    return len(parse_prompt(problem.prompt, modulus=7).chains)


def test_a_bounded_source_has_the_first_problems_of_the_endless_one():
    bounded, endless = source(num_problems=20), source()
    assert len(bounded) == 20
    assert [bounded[i] for i in range(20)] == [endless[i] for i in range(20)]
    with pytest.raises(IndexError, match=r"20 lies outside 0\.\.19"):
        bounded[20]


def chain_content(prompt: str, modulus: int) -> tuple:
    """Returns a question's content without labels and symbols."""
    question = parse_prompt(prompt, modulus=modulus)
    return tuple(
        (chain.kind, chain.input_value, tuple(step[1:] for step in chain.steps))
        for chain in question.chains
    )


def whole_chains(prompt: str) -> set[tuple]:
    """Returns an evaluation's or inversion's (start, operations), by trying starts."""
    ((kind, given, steps),) = chain_content(prompt, 3)
    found = set()
    for start in range(3):
        value = start
        for op, operand in steps:
            value = (value + operand if op == "+" else value * operand) % 3
        if given == (start if kind == "evaluation" else value):
            found.add((start, steps))
    return found


def test_train_and_heldout_share_no_question_at_any_seed_or_symbols():
    # GF(3) with 2 steps has 48 chains, so thousands of draws visit all of them.
    asked = {}
    for split in ("train", "heldout"):
        asked[split] = {
            chain_content(problems[index].prompt, 3)
            for symbols, seed in (("fixed", 0), ("permuted", 1))
            for problems in [
                source(3, symbols, split=split, seed=seed, chain_lengths=(2, 3))
            ]
            for index in range(2000)
        }
    assert len(asked["train"]) > 200
    assert len(asked["heldout"]) > 30
    assert not asked["train"] & asked["heldout"]


def test_an_evaluation_and_the_inversion_of_its_chain_are_on_one_side():
    sides = {}
    for split in ("train", "heldout"):
        problems = source(3, split=split, types=TYPES[:2], chain_lengths=(2,))
        prompts = {problems[index].prompt for index in range(2000)}
        sides[split] = set().union(*(whole_chains(prompt) for prompt in prompts))
    assert not sides["train"] & sides["heldout"]
    assert len(sides["train"] | sides["heldout"]) == 3 * 4**2


def test_about_one_chain_in_eight_is_held_out():
    # GF(7) with 2 steps has 7 * 12^2 = 1008 chains; an eighth is 126 +- 10.5.
    seen = {}
    for split, draws in (("train", 20_000), ("heldout", 3000)):
        problems = source(split=split, types=("evaluation",), chain_lengths=(2,))
        seen[split] = {
            chain_content(problems[index].prompt, 7) for index in range(draws)
        }
    assert len(seen["train"]) + len(seen["heldout"]) == 1008
    assert abs(len(seen["heldout"]) - 126) < 3 * 10.5


def test_a_problem_does_not_depend_on_the_order_of_asking():
    forward, backward = source(seed=3), source(seed=3)
    indices = [0, 1, 7, 2**31 - 2]
    first = [forward[index] for index in indices]
    assert [backward[index] for index in reversed(indices)] == first[::-1]
    assert [pickle.loads(pickle.dumps(forward))[index] for index in indices] == first
    assert repr(forward) == repr(backward)  # grain compares it before it resumes
    assert len({problem.id for problem in first}) == len(indices)


def test_problems_are_the_same_in_a_process_of_another_hash_seed():
    program = (
        "import json\n"
        "from rlvr_jax.tasks import ChainMix, FiniteFieldTask\n"
        "from rlvr_jax.tasks.finite_field.source import ChainSource\n"
        "s = ChainSource(FiniteFieldTask(symbols='permuted'), ChainMix(),"
        " split='heldout', seed=5)\n"
        "print(json.dumps([[p.id, p.prompt, p.solution] for p in map(s.__getitem__,"
        " range(20))]))\n"
    )
    here = ChainSource(
        FiniteFieldTask(symbols="permuted"), ChainMix(), split="heldout", seed=5
    )
    expected = [[p.id, p.prompt, p.solution] for p in map(here.__getitem__, range(20))]
    for hash_seed in ("1", "2"):
        printed = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        assert json.loads(printed) == expected


def test_seeds_and_splits_draw_different_problems():
    drawn = [
        [
            source(split=split, seed=seed, chain_lengths=(9,))[index].prompt
            for index in range(50)
        ]
        for split in ("train", "heldout")
        for seed in (0, 1, 10)
    ]
    prompts = [prompt for stream in drawn for prompt in stream]
    assert len(set(prompts)) == len(prompts) == 300


def test_strategies_change_the_worked_solution_and_not_the_question():
    forward = source(strategies=("forward",))
    backward = source(strategies=("backward",))
    for index in range(50):
        one, other = forward[index], backward[index]
        assert (one.id, one.prompt, one.gold) == (other.id, other.prompt, other.gold)
        assert one.solution != other.solution


def test_direct_lengths_are_worked_from_the_end_that_is_given():
    """Evaluations go forward and inversions backward; other lengths toss a coin."""
    both = ("evaluation", "inversion")
    plain = source(types=both, chain_lengths=(2, 3, 6))
    direct = source(types=both, chain_lengths=(2, 3, 6), direct_lengths=(2, 3))
    long = {"evaluation": set(), "inversion": set()}
    for index in range(200):
        one, other = plain[index], direct[index]
        assert (one.id, one.prompt, one.gold) == (other.id, other.prompt, other.gold)
        strategy = other.solution.split()[0]
        if other.level == 6:
            assert one.solution == other.solution
            long[other.type].add(strategy)
        else:
            expected = {"evaluation": "forward", "inversion": "backward"}
            assert strategy == expected[other.type]
            report = parse_trace(other.prompt, other.solution, modulus=7)
            assert report.consistent_start
    assert all(len(strategies) == 2 for strategies in long.values())


def test_an_id_names_one_question_over_mixes():
    one, other = source(chain_lengths=(2, 3)), source(chain_lengths=(2, 4))
    assert {one[i].id for i in range(50)}.isdisjoint(other[i].id for i in range(50))


def within(count: int, draws: int, share: float) -> bool:
    """Five standard deviations of a binomial: false once in 1.7 million."""
    return abs(count - draws * share) < 5 * math.sqrt(draws * share * (1 - share))


def test_lengths_types_and_strategies_come_in_their_shares():
    draws = 4000
    problems = source(
        chain_lengths=(2, 4, 6, 8), chain_length_weights=(1.0, 0.0, 3.0, 4.0)
    )
    seen = [problems[index] for index in range(draws)]
    levels = collections.Counter(problem.level for problem in seen)
    assert set(levels) == {2, 6, 8}
    for level, share in ((2, 1 / 8), (6, 3 / 8), (8, 4 / 8)):
        assert within(levels[level], draws, share)
    types = collections.Counter(problem.type for problem in seen)
    assert all(within(types[type_], draws, 1 / 3) for type_ in TYPES)
    weighted = source(types=TYPES[:2], type_weights=(0.9, 0.1))
    types = collections.Counter(weighted[index].type for index in range(draws))
    assert within(types["evaluation"], draws, 0.9)
    forward = sum(problem.solution.startswith("forward") for problem in seen)
    assert within(forward, draws, 1 / 2)
    golds = collections.Counter(problem.gold for problem in seen)
    assert all(within(golds[f"e{value}"], draws, 1 / 7) for value in range(7))


def test_operands_decay_by_their_ratio():
    # In GF(5) with a ratio of 1/2, the shares are 8, 4, 2 and 1 fifteenths.
    problems = source(
        modulus=5, chain_lengths=(3,), types=("evaluation",), operand_decay=0.5
    )
    draws = 1000
    chains = [
        chain
        for index in range(draws)
        for chain in parse_prompt(problems[index].prompt, modulus=5).chains
    ]
    counts = collections.Counter(
        step.operand for chain in chains for step in chain.steps
    )
    for operand, share in ((1, 8 / 15), (2, 4 / 15), (3, 2 / 15), (4, 1 / 15)):
        assert within(counts[operand], 3 * draws, share)


def test_every_permutation_of_the_symbols_comes_equally_often():
    draws = 3000
    problems = source(3, "permuted")
    prompts = [problems[index].prompt.split(" ; ")[0] for index in range(draws)]
    maps = collections.Counter(prompts)
    assert len(maps) == 6
    assert all(within(count, draws, 1 / 6) for count in maps.values())


@pytest.mark.parametrize("index", [-1, 2**31 - 1])
def test_an_index_outside_the_source_is_refused(index):
    with pytest.raises(IndexError, match=str(index)):
        source()[index]


def test_a_side_without_any_chain_is_refused_before_work_starts():
    # GF(2) has two steps, + 1 and * 1, so 4 chains of one step; none is held out.
    with pytest.raises(ConfigError, match=r"GF\(2\) has no heldout .* steps=1"):
        source(2, split="heldout", types=("evaluation",), chain_lengths=(1, 5))
    weighted = {"chain_lengths": (1, 5), "chain_length_weights": (0.0, 1.0)}
    assert source(2, split="heldout", types=("evaluation",), **weighted)[0].level == 5


def test_a_composition_of_one_step_is_refused():
    with pytest.raises(ConfigError, match=r"composition .* 2\.\.20"):
        ChainMix(types=("evaluation", "composition"), chain_lengths=(1, 2))


def test_each_chain_of_a_direct_composition_has_the_strategy_that_calculates():
    mix = {"types": ("composition",), "chain_lengths": (4, 6)}
    mix["composition_parts"] = (2, 4)
    plain, direct = source(**mix), source(direct_lengths=(4,), **mix)
    seen = set()
    for index in range(200):
        one, other = plain[index], direct[index]
        assert (one.id, one.prompt, one.gold) == (other.id, other.prompt, other.gold)
        if other.level == 6:
            assert one.solution == other.solution
            continue
        kinds = [c.kind for c in parse_prompt(other.prompt, modulus=7).chains]
        written = [part.split()[0] for part in other.solution.split(" then ")]
        wanted = {"evaluation": "forward", "inversion": "backward"}
        assert written == [wanted[kind] for kind in kinds]
        report = parse_trace(other.prompt, other.solution, modulus=7)
        assert (report.complete, report.first_error) == (True, None)
        assert report.consistent_start
        assert report.answer == other.gold
        seen.add(report.strategy)
    assert seen == {"forward", "backward", "mixed"}


@pytest.mark.parametrize("type_", ["evaluation", "inversion", "composition"])
def test_a_backward_problem_gives_the_answer_and_asks_for_the_given(type_):
    plain = source(types=(type_,), chain_lengths=(3,))
    turned = source(types=(type_,), chain_lengths=(3,), inverted_fraction=1.0)
    kept = 0
    for index in range(200):
        parent, child = plain[index], turned[index]
        if child == parent:
            kept += 1
            continue
        assert (child.parent, child.id) == (parent.id, f"{parent.id}-backward")
        assert (child.level, child.verifier, child.source) == (
            3,
            "finite_field",
            parent.source,
        )
        asked = parse_prompt(child.prompt, modulus=7)
        given = parse_prompt(parent.prompt, modulus=7)
        solved, undone = solve(given), solve(asked)
        # The given value and the question swap places; the values between are kept.
        assert child.gold == given.symbols[given.chains[0].input_value]
        assert asked.symbols[asked.chains[0].input_value] == parent.gold
        assert undone[::-1] == solved
        assert invert_question(asked, undone) == given
        report = parse_trace(child.prompt, child.solution, modulus=7)
        assert report.first_error is None
    # The inverse of one composition in eight would be held out, so it is kept.
    assert 8 < kept < 50 if type_ == "composition" else kept == 0


def test_no_inverse_of_a_composition_is_on_the_other_side():
    turned = {"types": ("composition",), "chain_lengths": (2,), "inverted_fraction": 1}
    train, held_out = (
        {_content(parse_prompt(problem.prompt, modulus=7)) for problem in some}
        for some in (
            [source(split="train", **turned)[i] for i in range(1500)],
            [source(split="heldout", **turned)[i] for i in range(400)],
        )
    )
    assert len(held_out) > 100
    assert not train & held_out


def _content(question):
    """Returns what a question computes, without the names of its steps and symbols."""
    return tuple(
        (values[0], tuple((op, operand) for _, op, operand in chain.steps))
        for chain, values in zip(question.chains, solve(question), strict=True)
    )


def test_a_share_is_turned_backward_and_the_rest_is_unchanged():
    single = {"types": ("evaluation", "inversion")}
    plain, mixed = source(**single), source(**single, inverted_fraction=0.3)
    turned = [mixed[i].parent is not None for i in range(1000)]
    assert 250 < sum(turned) < 350  # 1,000 draws: std 14.5
    for index in (i for i in range(1000) if not turned[i]):
        assert mixed[index] == plain[index]
