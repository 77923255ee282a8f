"""Prompts that begin with worked examples: their tokens, and what is refused."""

import dataclasses
from types import SimpleNamespace

import pytest

from job_jax.flags import UsageError
from rlvr_jax.analysis.sufficiency.few_shot import (
    FewShotTokenizer,
    add_worked_examples,
    choose_examples,
)
from rlvr_jax.run.load import LoadedPolicy
from rlvr_jax.tokenizer import HuggingFaceTokenizer, WordLevelTokenizer
from rlvr_jax.types import Problem
from tests.support.checkpoints import SPECIAL, write_tokenizer

WORDS = WordLevelTokenizer(["<pad>", "<eos>", "a", "b", "=", "c", "d"])
END = 269  # SPECIAL[0], which is both ends in the tokenizer below


def problem(name, prompt, solution=None):
    return Problem(
        id=name,
        prompt=prompt,
        solution=solution,
        gold="c",
        verifier="numeric",
        source="here",
    )


A, B = problem("a", "a =", "c"), problem("b", "b =", "d c")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setup:
    """What the function reads of a run's setup."""

    tokenizer: object
    config: object


def policy(room, max_new_tokens=4):
    config = SimpleNamespace(
        eval=SimpleNamespace(sampling=SimpleNamespace(max_new_tokens=max_new_tokens)),
        model=SimpleNamespace(max_seq_len=room),
    )
    return LoadedPolicy(Setup(tokenizer=WORDS, config=config), None, 0)


def test_examples_are_whole_turns_as_in_sft():
    tokenizer = FewShotTokenizer(WORDS, [A, B], [B])
    assert tokenizer.encode_prompt("b =") == [2, 4, 5, 1, 3, 4, 6, 5, 1, 3, 4]
    assert tokenizer.encode("b =") == [3, 4]  # solutions and replies have none


def test_everything_else_is_the_tokenizers_own(tmp_path):
    own = HuggingFaceTokenizer(write_tokenizer(tmp_path), stop=("!", SPECIAL[2]))
    tokenizer = FewShotTokenizer(own, [A], [B])
    for name in ("vocab_size", "eos_id", "eos_ids", "stop_strings"):
        assert getattr(tokenizer, name) == getattr(own, name)
    ids = own.encode("What is 2?" + SPECIAL[2])
    assert tokenizer.decode(ids) == own.decode(ids) != tokenizer.show(ids)
    assert tokenizer.show(ids) == own.show(ids)
    literal = ((0, len(SPECIAL[2])),)
    assert tokenizer.encode(SPECIAL[2], literal=literal) == own.encode(
        SPECIAL[2], literal=literal
    )


def test_only_the_first_turn_begins_the_sequence(tmp_path):
    own = HuggingFaceTokenizer(
        write_tokenizer(tmp_path, bos_token=SPECIAL[1], add_bos_token=True)
    )
    hostile = dataclasses.replace(B, prompt=SPECIAL[2], literal=((0, 10),))
    tokenizer = FewShotTokenizer(own, [A, hostile], [B])
    ids = tokenizer.encode_prompt("b =")
    begin = own.encode(SPECIAL[1])
    assert ids[:1] == begin
    assert ids.count(begin[0]) == 1
    turns = f"a =c{SPECIAL[0]}\n{SPECIAL[2]}d c{SPECIAL[0]}\nb ="
    assert own.show(ids[1:]) == turns
    assert own.encode(SPECIAL[2])[0] not in ids  # data that spells it out stays text


def test_a_system_message_is_written_once(tmp_path):
    """Chat prompts share a whole turn; the user's turn begins each of them."""
    own = HuggingFaceTokenizer(
        write_tokenizer(tmp_path), stop=(SPECIAL[2],), has_chat_template=True
    )

    def chat(name, text, solution=None):
        system = f"{SPECIAL[1]}system\nAdd.{SPECIAL[2]}\n"
        user = f"{SPECIAL[1]}user\n{text}{SPECIAL[2]}\n{SPECIAL[1]}assistant\n"
        return problem(name, system + user, solution)

    examples, asked = [chat("a", "1+1", "2"), chat("b", "1+2", "3")], chat("c", "2+2")
    shown = own.show(
        FewShotTokenizer(own, examples, [asked]).encode_prompt(asked.prompt)
    )
    answered = [f"{one.prompt}{one.solution}{SPECIAL[0]}" for one in examples]
    system, first = answered[0].split(f"{SPECIAL[2]}", 1)
    turns = [
        text.removeprefix(system + SPECIAL[2]) for text in (*answered, asked.prompt)
    ]
    assert shown == system + SPECIAL[2] + "".join(turns)
    assert first == turns[0]
    assert shown.count("Add.") == 1
    assert shown.count("user\n") == 3


def test_the_first_candidates_with_a_solution_are_shown():
    unsolved = problem("c", "c =")
    assert choose_examples([A, unsolved, B], 2) == [A, B]
    assert choose_examples([unsolved], 0) == []
    with pytest.raises(UsageError, match=r"--shots=3, but of the 3.*only 2 have a wor"):
        choose_examples([A, unsolved, B], 3)


@pytest.mark.parametrize("room", [10, 11])
def test_the_longest_prompt_must_fit_with_its_completion(room):
    """Its turns have 4 and 3 tokens, and the completion has up to 4."""
    problems = [problem("short", "a"), problem("long", "a = b")]
    if room == 11:
        add_worked_examples(policy(room), [A], problems)
        return
    with pytest.raises(UsageError, match=r"has 7 tokens.*max_seq_len=11"):
        add_worked_examples(policy(room), [A], problems)
