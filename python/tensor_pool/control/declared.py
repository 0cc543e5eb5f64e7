"""What a service says that it has: properties with a value, and commands."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from tensor_pool.control.values import FrameRef, Value, encode_value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Command", "Property", "RefusedValueError", "check_value", "reading"]

_NAMES: Final[dict[type | None, str]] = {
    None: "nothing",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    bytes: "bytes",
    FrameRef: "a frame (STREAM/EPOCH/SEQ)",
}
MAX_TEXT_BYTES: Final = 64 << 10
"""A text or bytes of a property; what is longer belongs into a stream."""


class RefusedValueError(ValueError):
    """A value that a service does not take; its text goes to who sent it."""


class _Declared:
    """What a value must be."""

    def __init__(
        self,
        kind: type | None,
        *,
        least: float | None,
        most: float | None,
        choices: Sequence[Value],
        check: Callable[[Any], object] | None,
        doc: str,
    ) -> None:
        if kind not in _NAMES:
            known = ", ".join("None" if each is None else each.__name__ for each in _NAMES)
            raise TypeError(f"there is no kind {kind!r} of values; there are {known}")
        if least is not None and most is not None and least > most:
            raise ValueError(f"from {least} up to {most} there is nothing")
        self.kind = kind
        self.least = least
        self.most = most
        self.choices = tuple(choices)
        self.check = check
        self.doc = doc

    @property
    def expects(self) -> str:
        """What it takes, in words."""
        words = _NAMES[self.kind]
        if self.choices:
            return f"one of {', '.join(map(str, self.choices))}"
        if self.least is not None or self.most is not None:
            least = "" if self.least is None else f" from {self.least}"
            most = "" if self.most is None else f" up to {self.most}"
            words += least + most
        return words


class Property(_Declared):
    """A value that a service has, and that others may set.

    Args:
        kind: ``bool``, ``int``, ``float``, ``str``, ``bytes`` or `FrameRef`.
        default: Its value at first.
        on_change: Called with a new value before it counts. What it raises refuses the command, and its text
            is told.
        read_only: Whether only the service itself sets it.
        least: The smallest number.
        most: The largest number.
        choices: All values there are.
        check: Called with a value; a `ValueError` of it refuses the value.
        doc: What it is, in a line.

    Example:
        >>> gain = Property(float, default=1.0, least=0, doc="How bright.")
        >>> check_value(gain, 2)
        2.0
    """

    def __init__(
        self,
        kind: type,
        *,
        default: Value,
        on_change: Callable[[Any], object] | None = None,
        read_only: bool = False,
        least: float | None = None,
        most: float | None = None,
        choices: Sequence[Value] = (),
        check: Callable[[Any], object] | None = None,
        doc: str = "",
    ) -> None:
        super().__init__(kind, least=least, most=most, choices=choices, check=check, doc=doc)
        self.on_change = on_change
        self.read_only = read_only
        self.default = check_value(self, default)


class Command(_Declared):
    """Something that a service does when it is told.

    Args:
        run: Called with the value. What it raises refuses the command, and its text is told.
        kind: What it is called with; None for nothing.
        least: The smallest number.
        most: The largest number.
        choices: All values there are.
        check: Called with a value; a `ValueError` of it refuses the value.
        takes_correlation_id: Whether `run` is called with the command's correlation id too: for what is told
            later with `Service.tell`, so that who asked knows what it is the answer to.
        doc: What it does, in a line.

    Example:
        >>> Command(lambda _: print("flash")).expects
        'nothing'
    """

    def __init__(
        self,
        run: Callable[..., object],
        *,
        kind: type | None = None,
        least: float | None = None,
        most: float | None = None,
        choices: Sequence[Value] = (),
        check: Callable[[Any], object] | None = None,
        takes_correlation_id: bool = False,
        doc: str = "",
    ) -> None:
        super().__init__(kind, least=least, most=most, choices=choices, check=check, doc=doc)
        if not callable(run):
            raise TypeError(f"{run!r} can't be called")
        self.run = run
        self.takes_correlation_id = takes_correlation_id


def reading(kind: type, doc: str, default: Value = None) -> Property:
    """A property that only the service itself sets: something to be read.

    Example:
        >>> reading(int, "Frames so far.").default
        0
    """
    return Property(kind, default=kind() if default is None else default, read_only=True, doc=doc)


def check_value(declared: Property | Command, value: Value) -> Any:
    """The value as its owner wants it.

    Raises:
        RefusedValueError: It is not what was declared; the text says what would be.
    """
    value = _of_kind(declared, value)
    is_off = isinstance(value, int | float) and (
        (declared.least is not None and value < declared.least)
        or (declared.most is not None and value > declared.most)
    )
    if is_off or (declared.choices and value not in declared.choices):
        raise RefusedValueError(f"{value!r} is not {declared.expects}")
    if declared.check is not None:
        try:
            declared.check(value)
        except ValueError as e:
            raise RefusedValueError(str(e).encode("utf-8", "backslashreplace").decode()) from e
    return value


def _of_kind(declared: Property | Command, value: Value) -> Any:
    kind = declared.kind
    if kind is float and type(value) is int:
        value = float(value)
    if (kind is None and value is not None) or (kind is not None and type(value) is not kind):
        raise RefusedValueError(f"{_shown(value)} is not {declared.expects}")
    if isinstance(value, float) and not math.isfinite(value):
        raise RefusedValueError(f"{value} is no number to work with")
    _, data = encode_value(value)
    if len(data) > MAX_TEXT_BYTES:
        raise RefusedValueError(f"{len(data)} bytes are too long: up to {MAX_TEXT_BYTES}")
    return value


def _shown(value: Value) -> str:
    text = "nothing" if value is None else str(value) if isinstance(value, FrameRef) else repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
