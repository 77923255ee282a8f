"""Messages between sandbox processes carry all plain data, and nothing else."""

import collections
import os

import pytest

from rlvr_jax.sandbox.messages import MessageError, decode, encode, receive, send


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -(10**300),
        1.5,
        float("inf"),
        "",
        "\ud800é",
        2 + 3j,
        b"\x00\xff",
        [],
        [1, [2]],
        (),
        ((1,), [2]),
        {},
        {1: {"a": (2,)}},
        {"tuple": [1]},
        range(1, 9, 2),
        set(),
        {1, (2, 3)},
        frozenset({4}),
        [int, dict, frozenset],
    ],
)
def test_plain_data_arrives_as_it_was(value):
    channel, end = os.pipe()
    send(end, encode(value))
    back = decode(receive(channel))
    assert back == value
    assert type(back) is type(value)


def test_a_subclass_arrives_as_its_base():
    class Count(int):
        def __eq__(self, other):
            return True

        __hash__ = int.__hash__

    assert decode(encode(Count(3))) != 4
    back = decode(encode([collections.OrderedDict(a=1), collections.deque([2])]))
    assert type(back[0]) is dict
    assert list(back[1]) == [2]


def test_an_iterator_arrives_as_one_unless_it_is_endless():
    back = decode(encode(iter([1, 2])))
    assert next(back) == 1
    assert next(back) == 2
    with pytest.raises(MessageError, match="an iterator of over 100000 items"):
        encode(iter(int, 1))


@pytest.mark.parametrize(
    "value", [object(), print, [lambda: 0], {1: len}, ..., type, Exception]
)
def test_other_values_are_refused(value):
    with pytest.raises(MessageError, match="is no plain data"):
        encode(value)


@pytest.mark.parametrize(
    "message",
    [
        {"eval": "1"},
        {"object": 0},
        {"type": "type"},
        {"type": ["int"]},
        {"dict": [[1]]},
        {"dict": [[[], 1]]},
        {"set": [[1]]},
        {"range": ["a"]},
        {"bytes": "xy"},
        {"complex": 1},
        {"tuple": 1},
        {"tuple": [], "set": []},
        {},
    ],
)
def test_a_message_that_is_no_plain_data_is_refused(message):
    with pytest.raises(MessageError):
        decode(message)


def test_a_message_has_a_length_and_an_end():
    channel, end = os.pipe()
    with pytest.raises(MessageError, match="bytes in one message"):
        send(end, "x" * (1 << 22))
    os.write(end, b"\xff\xff\xff\xff")
    with pytest.raises(MessageError, match="4294967295 bytes"):
        receive(channel)
    os.write(end, b"\x00\x00\x00\x02[[")
    with pytest.raises(MessageError, match="no message"):
        receive(channel)
    os.write(end, b"\x00\x00\x00\x09[1")
    os.close(end)
    with pytest.raises(EOFError):
        receive(channel)
