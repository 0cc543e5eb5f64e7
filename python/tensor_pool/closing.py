"""What has to be closed."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Closing"]


class Closing(Protocol):
    """Something that is closed by `close`, or at the end of a ``with`` block, whatever happened in it.

    A protocol, so that other protocols can ask for it; whoever inherits from it writes `close` only.

    Example:
        >>> class Shutter(Closing):
        ...     def close(self) -> None:
        ...         print("closed")
        >>> with Shutter():
        ...     print("open")
        open
        closed
    """

    __slots__ = ()

    @abstractmethod
    def close(self) -> object:
        """Closes it; may be called again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
