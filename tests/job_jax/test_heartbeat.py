"""The process that all others wait for is named."""

from job_jax.heartbeat import BEHIND_BEATS, SILENT_BEATS, Watch


def _lines(*told):
    watch = Watch()
    return [watch.check(each) for each in told]


def test_processes_that_tell_something_new_are_not_named():
    assert not any(_lines(*[{0: (n, n), 1: (n, n)} for n in range(99)]))


def test_a_silent_process_is_named_once_and_again_when_it_is_back():
    rounds = [{0: (n, 0), 1: (min(n, 2), 0)} for n in range(9)]
    *said, back = _lines(*rounds, {0: (9, 0), 1: (3, 0)})
    named = ["process 1 has been 12 s silent: it was stopped, or cannot be reached"]
    expected = [named if n == 2 + SILENT_BEATS else [] for n in range(9)]
    assert said == expected
    assert back == ["process 1 is no longer silent, after 18 s"]


def test_a_process_that_works_while_the_others_wait_is_named():
    rounds = [{0: (n, 5), 1: (n, 4), 2: (n, 5)} for n in range(BEHIND_BEATS + 2)]
    *said, back = _lines(*rounds, {0: (99, 5), 1: (99, 5), 2: (99, 5)})
    assert said[BEHIND_BEATS - 1] == [
        "process 1 has been 60 s behind: it works, and the others wait for it"
    ]
    assert sum(map(len, said)) == 1
    assert back == ["process 1 is no longer behind, after 66 s"]


def test_a_process_that_catches_up_in_time_is_not_named():
    rounds = [{0: (n, n), 1: (n, n - n % 3)} for n in range(99)]
    assert not any(_lines(*rounds))
