"""Mutants of what a run's seed decides, in addition to those in tests/stages."""

from tests.mutants.mutant import rows

_SEED = ("tests/run/test_seed.py",)

MUTANTS = [
    *rows(
        "rlvr_jax/learn/update.py",
        ("tests/learn/test_optimizer.py",),
        rounds_alike_at_every_seed=("seed=self._seed,", "seed=0,"),
    ),
    *rows(
        "rlvr_jax/learn/optimizer.py",
        ("tests/learn/test_optimizer.py",),
        forgets_the_seed=(
            "_hash_uint32(jnp.uint32(seed)) + step",
            "_hash_uint32(jnp.uint32(0 * seed)) + step",
        ),
    ),
    *rows(
        "rlvr_jax/verifiers/controls.py",
        _SEED,
        tosses_one_coin=(
            'f"{seed}/{sample}/{problem_id}"',
            'f"{sample}/{problem_id}"',
        ),
    ),
    *rows(
        "rlvr_jax/data/loader.py",
        _SEED,
        one_order=("shuffle(seed=seed).repeat()", "shuffle(seed=0).repeat()"),
    ),
    *rows(
        "rlvr_jax/tasks/arithmetic/task.py",
        _SEED,
        one_set_of_questions=(
            "QuestionSource(self, seed=seed, held_out=False)",
            "QuestionSource(self, seed=0, held_out=False)",
        ),
        holds_out_by_seed=(
            "QuestionSource(self, seed=_EVAL_SEED, held_out=True)",
            "QuestionSource(self, seed=seed, held_out=True)",
        ),
        holds_nothing_out=(
            "QuestionSource(self, seed=_EVAL_SEED, held_out=True)",
            "QuestionSource(self, seed=_EVAL_SEED, held_out=False)",
        ),
    ),
    *rows(
        "rlvr_jax/tasks/finite_field/task.py",
        _SEED,
        holds_nothing_out=('split="heldout", seed', 'split="train", seed'),
        one_set_of_problems=(
            'split="train", seed=seed)',
            'split="train", seed=_EVAL_SEED)',
        ),
    ),
    *rows(
        "rlvr_jax/tasks/word_problems/task.py",
        _SEED,
        holds_nothing_out=("held_out=is_eval,", "held_out=False,"),
        scores_every_seed_on_its_own=(
            "seed=_EVAL_SEED if is_eval else seed",
            "seed=seed",
        ),
    ),
    *rows(
        "rlvr_jax/learn/run_updates.py",
        _SEED,
        one_order_of_minibatches=(
            "np.random.default_rng(seed)",
            "np.random.default_rng(seed[1:])",
        ),
    ),
]
