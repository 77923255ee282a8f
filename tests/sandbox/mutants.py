"""One-line mutants of rlvr_jax/sandbox/; CONTRIBUTING.md says how to add one."""

from tests.mutants.mutant import rows

MUTANTS = [
    *rows(
        "rlvr_jax/sandbox/jail.py",
        ("tests/sandbox/test_pool.py",),
        files=("    os.closerange(CHANNEL", "    (CHANNEL"),
        memory=("resource.RLIMIT_AS: memory_bytes", "resource.RLIMIT_AS: 1 << 44"),
    ),
    *rows(
        "rlvr_jax/sandbox/tester.py",
        ("tests/sandbox/test_pool.py",),
        fault=("passed = not reason and not program.fault", "passed = not reason"),
        plain=("return decode(answer", "return (answer"),
    ),
]
