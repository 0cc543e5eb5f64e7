"""Hands messages to whoever registered for them; everything else is counted and forgotten.

Several schemas share Aeron streams, and a stream may carry messages of peers that are older, newer or broken.
None of that is an error here: a router never raises for what it is fed (decision B13).
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from tensor_pool.errors import MalformedMessageError
from tensor_pool.wire.bind import Message
from tensor_pool.wire.compatibility import accepts_version
from tensor_pool.wire.framing import MessageHeader, Template, find_template, peek, templates_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import ReadableBuffer

    from tensor_pool.wire.repeats import Repeats

__all__ = ["Outcome", "Router", "RouterCounts"]

MessageT = TypeVar("MessageT", bound=Message)


class Outcome(enum.Enum):
    """What became of a message."""

    HANDLED = enum.auto()
    """Decoded and given to its handler."""
    UNHANDLED = enum.auto()
    """One of ours that nobody here registered for; not decoded."""
    UNKNOWN = enum.auto()
    """A schema or template that is not ours."""
    UNSUPPORTED_VERSION = enum.auto()
    """One that somebody registered for, in a version that we don't read."""
    MALFORMED = enum.auto()
    """Bytes that are not the message they claim to be."""


class RouterCounts(msgspec.Struct, gc=False):
    """How many messages had which outcome, since the router was made."""

    handled: int = 0
    unhandled: int = 0
    unknown: int = 0
    unsupported_version: int = 0
    malformed: int = 0


class Router:
    """Decodes the messages that have a handler, and counts the rest.

    Args:
        on_unsupported_version: Called with the header and the whole message when a registered message comes
            in a version that we don't read, so that a driver can answer an attach request with UNSUPPORTED.
        on_malformed: Called with the error when a message can't be decoded, for the log.
        repeats: Keeps messages that are said again and again; handlers then get the same object again.

    Example:
        >>> from tensor_pool.wire import encode
        >>> from tensor_pool.wire.messages import FrameDescriptor, QosProducer
        >>> router = Router()
        >>> router.on(FrameDescriptor, lambda descriptor: print("frame", descriptor.seq))
        >>> router.dispatch(encode(FrameDescriptor(stream_id=1, epoch=1, seq=42))).name
        frame 42
        'HANDLED'
        >>> router.dispatch(encode(QosProducer(stream_id=1, producer_id=1, epoch=1, current_seq=42))).name
        'UNHANDLED'
        >>> router.counts.unhandled
        1
    """

    __slots__ = ("_handlers", "_on_malformed", "_on_unsupported_version", "_repeats", "_wanted", "counts")

    def __init__(
        self,
        *,
        on_unsupported_version: Callable[[MessageHeader, bytes], None] | None = None,
        on_malformed: Callable[[MalformedMessageError], None] | None = None,
        repeats: Repeats | None = None,
    ) -> None:
        self.counts = RouterCounts()
        self._repeats = repeats
        self._handlers: dict[type[Message], Callable[[Any], None]] = {}
        self._wanted: set[Template] = set()
        self._on_unsupported_version = on_unsupported_version
        self._on_malformed = on_malformed

    def on(self, message_type: type[MessageT], handler: Callable[[MessageT], None]) -> None:
        """Registers a handler; one a message. What it raises comes out of `dispatch`.

        Raises:
            ValueError: The message has a handler already.
            TypeError: Not a message.
        """
        if message_type in self._handlers:
            raise ValueError(f"{message_type.__name__} has a handler already")
        self._wanted |= templates_of(message_type)
        self._handlers[message_type] = handler

    def dispatch(self, buffer: ReadableBuffer) -> Outcome:
        """Takes one message, exactly as it came from Aeron."""
        if self._repeats is not None and type(buffer) is bytes:
            message = self._repeats.recall(buffer)
            if message is not None:
                return self._hand_over(message)
        try:
            header = peek(buffer)
            template = find_template(header)
            if template is None:
                self.counts.unknown += 1
                return Outcome.UNKNOWN
            if template not in self._wanted:
                self.counts.unhandled += 1
                return Outcome.UNHANDLED
            data = buffer if type(buffer) is bytes else memoryview(buffer).tobytes()
            supported = accepts_version(header.schema_id, header.version)
            message = template.decode(data, header.block_length) if supported else None
        except MalformedMessageError as e:
            self.counts.malformed += 1
            if self._on_malformed is not None:
                self._on_malformed(e)
            return Outcome.MALFORMED
        if message is None:
            self.counts.unsupported_version += 1
            if self._on_unsupported_version is not None:
                self._on_unsupported_version(header, data)
            return Outcome.UNSUPPORTED_VERSION
        if self._repeats is not None:
            self._repeats.keep(data, message)
        return self._hand_over(message)

    def _hand_over(self, message: Message) -> Outcome:
        handler = self._handlers.get(type(message))
        if handler is None:  # the other dialect of a message that is registered in one only
            self.counts.unhandled += 1
            return Outcome.UNHANDLED
        self.counts.handled += 1
        handler(message)
        return Outcome.HANDLED
