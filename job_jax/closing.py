"""What a `with` closes."""

import abc
from typing import Self


class Closing(abc.ABC):
    """Base of what is opened by making it: a `with` closes it, whatever happened."""

    @abc.abstractmethod
    def close(self) -> None:
        """Ends what was opened."""

    def __enter__(self) -> Self:
        """Returns itself."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Closes."""
        self.close()
