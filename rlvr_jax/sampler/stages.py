"""The loops of static shape that decoding runs, as rows first grow and then end."""

from typing import NamedTuple

# Fewer slots per device take no less time, because reading the weights dominates.
_MIN_SLOTS = 4
# Fewer columns are not worth a separate loop, and shorter completions leave too little
# to save for halved slots.
_MIN_COLUMNS = 32
_MIN_HALVED_LENGTH = 64
_MAX_HALVINGS = 3, 2  # of slots, of columns; each is another loop to compile


class DecodeStage(NamedTuple):
    """A loop of static shape: slots of one device, and columns of their caches."""

    slots: int
    columns: int


def decode_stages(slots: int, length: int) -> list[DecodeStage]:
    """Returns the stages of decoding `length` tokens in `slots` slots of a device.

    First the columns double until they are `length`, then slots are halved. Rows of
    equal length need only the first stages. If half of the rows end before the columns
    are filled, decoding continues with the first stage of half the slots, at full
    width.

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
        *(DecodeStage(slots, width) for width in columns),
        *(DecodeStage(count, length) for count in counts[1:]),
    ]
