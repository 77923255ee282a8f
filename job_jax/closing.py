"""A base class for objects that a `with` block closes."""

import abc
from typing import Self


class Closing(abc.ABC):
    """Base of objects that are open once made; `with` closes them, even on errors."""

    @abc.abstractmethod
    def close(self) -> None:
        """Closes what the object holds open."""

    def __enter__(self) -> Self:
        """Returns itself."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Closes."""
        self.close()
