"""One-line mutants of rlvr_jax/rewards/ and its door; CONTRIBUTING.md explains rows."""

from tests.mutants.mutant import rows

_CLASSES = ("tests/rewards/test_reward_classes.py",)

MUTANTS = [
    *rows(
        "rlvr_jax/rewards/parts.py",
        _CLASSES,
        one_verdict_is_enough=(
            "jnp.stack(verdicts).all(axis=0)",
            "jnp.stack(verdicts).any(axis=0)",
        ),
        a_class_is_called_as_a_function=(
            "isinstance(found, type) and issubclass(found, Reward)",
            "False",
        ),
    ),
    *rows(
        "rlvr_jax/rewards/built_in/random.py",
        _CLASSES,
        one_coin_for_a_group=("row % G", "0"),
        one_coin_for_all_seeds=("completions.seed", "0"),
        a_coin_by_the_row=("row % G", "row"),
    ),
    *rows(
        "rlvr_jax/rewards/built_in/plurality.py",
        ("tests/rewards/test_plurality.py",),
        right_answers_are_wrong_labels=(
            'return verdict.status == "incorrect"',
            "return True",
        ),
        silence_is_the_plurality=("answer is not None and votes", "votes"),
        silence_votes=(
            "for answer in answers if answer is not None",
            "for answer in answers",
        ),
        answers_of_the_whole_step=("G = completions.group_size", "G = len(answers)"),
        malformed_answers_vote=("verdict.failure or not formed", "verdict.failure"),
        a_failure_votes=("verdict.failure or not formed", "not formed"),
        a_failure_is_wrong=("None if verdict.failure else score", "score"),
        a_cut_answer_votes=(
            "was_cut=completions.was_cut,",
            "was_cut=[False] * len(completions.texts),",
        ),
        compares_texts=(
            "return verifier.answer_value(problem, verdict)",
            "return verdict.answer",
        ),
    ),
    *rows(
        "rlvr_jax/rewards/built_in/wrong_label.py",
        ("tests/rollouts/test_scores.py", "tests/rollouts/test_judged.py"),
        labels_are_right=(
            "corrupt_gold(problem) for problem",
            "problem for problem",
        ),
        a_cut_answer_counts=("was_cut=completions.was_cut,", "was_cut=[False] * 9,"),
    ),
    *rows(
        "rlvr_jax/rewards/built_in/correctness.py",
        _CLASSES,
        judges_the_unverified=("return verified", "return verified | True"),
    ),
    *rows(
        "rlvr_jax/rewards/built_in/confidence.py",
        _CLASSES,
        judges_the_unverified=("return verified", "return verified | True"),
    ),
    *rows(
        "rlvr_jax/rollouts/scores.py",
        _CLASSES,
        accepts_any_number_of_scores=(
            "len(values) == count,",
            "True,",
        ),
    ),
    *rows(
        "rlvr_jax/algorithms/reward.py",
        ("tests/rewards/test_parts.py",),
        judges_silence=("return ~jnp.isnan(scores)", "return verified"),
    ),
    *rows(
        "rlvr_jax/rollouts/scores.py",
        ("tests/rewards/test_reward_classes.py",),
        each_process_its_own_scores=(
            "np.array(broadcast(values_B.tolist), np.float32)",
            "values_B",
        ),
        infinity_is_a_score=('fault = next(filter(None, faults), "")', 'fault = ""'),
    ),
]
