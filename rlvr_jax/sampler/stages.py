"""The loops of static shape that decoding goes through, as rows grow and then end."""

from typing import NamedTuple

# Fewer slots of a device take no less time: that of reading the weights.
_MIN_SLOTS = 4
# Fewer columns are not worth a loop of their own, nor do shorter completions leave
# enough to save to those that are halved.
_MIN_COLUMNS = 32
_MIN_HALVED_LENGTH = 64
_MAX_HALVINGS = 3, 2  # of slots, of columns: each is one more loop to compile


class Stage(NamedTuple):
    """A loop of static shape: slots of one device, and columns of their caches."""

    slots: int
    columns: int


def decode_stages(slots: int, length: int) -> list[Stage]:
    """Returns the stages of decoding `length` tokens in so many slots of a device.

    First the columns double until they are `length`, then slots are halved. Rows of one
    length need the first stages alone; where half of the rows end before the columns
    are filled, the next stage is the first with half of the slots, at full width.

    Example:
        >>> [tuple(stage) for stage in decode_stages(16, 100)]
        [(16, 50), (16, 100), (8, 100), (4, 100)]
    """
    columns, counts = [length], [slots]
    max_slots, max_columns = _MAX_HALVINGS
    while len(columns) <= max_columns and columns[0] >= 2 * _MIN_COLUMNS:
        columns.insert(0, -(-columns[0] // 2))
    while (
        len(counts) <= max_slots
        and counts[-1] >= 2 * _MIN_SLOTS
        and length >= _MIN_HALVED_LENGTH
    ):
        counts.append(-(-counts[-1] // 2))
    return [
        *(Stage(slots, width) for width in columns),
        *(Stage(count, length) for count in counts[1:]),
    ]
