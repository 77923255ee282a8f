"""Refused generators with reasons; measurements: docs/use/reasoning_gym.md."""

# These are not even measured.
NOT_RUN: dict[str, str] = {
    "codeio": "it runs programs that a language model wrote to make a problem",
    "composite": "it mixes other generators; name these in task.generators",
}
_HASHED = "another process makes other problems in the same places"
REFUSED: dict[str, str] = {
    **NOT_RUN,
    "coin_flip": "the answer 0 gets the full score for all of its problems",
    "game_of_life_halting": "any text gets the full score where it halts",
    "intermediate_integration": "6 % of its answers are integrals that were not solved",
    "isomorphic_strings": _HASHED,
    "knight_swap": _HASHED,
    "polynomial_multiplication": _HASHED,
    "propositional_logic": "a premise copied from the question gets the full score",
    "puzzle24": "four numbers that make 24 fit every problem",
    "ransom_note": _HASHED,
    "word_ladder": _HASHED,
}
