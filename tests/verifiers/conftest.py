"""One pool of workers for all tests here, and its verdicts on many answers."""

import pytest

from rlvr_jax.verifiers.math_pool import Item, MathPool


@pytest.fixture(scope="session")
def verifier():
    with MathPool(workers=1, timeout_s=60.0) as pool:
        yield pool


@pytest.fixture(scope="session")
def others(verifier):
    """Returns a function: the (gold, answer) pairs with another status, each judged."""

    def find(pairs, status, kind="math"):
        verdicts = verifier.grade_all([Item(*pair, verifier=kind) for pair in pairs])
        return [
            (*pair, v.status, v.reason, v.answer)
            for pair, v in zip(pairs, verdicts, strict=True)
            if v.status != status
        ]

    return find
