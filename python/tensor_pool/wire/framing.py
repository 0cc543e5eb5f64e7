"""Messages with their 8-byte header: which message bytes are, decoding them, and encoding messages.

Template ids collide across schemas (1 is eight different messages), so nothing is decoded before schema,
template and version have been looked at; `compatibility` has the rules.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from tensor_pool.errors import MalformedMessageError, SchemaError
from tensor_pool.wire.bind import Message, bind
from tensor_pool.wire.codec import Codec
from tensor_pool.wire.compatibility import accepts_version, is_extensible, may_lack_last_prefix

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import ReadableBuffer

    from tensor_pool.wire.schema import MessageLayout, Schema

__all__ = [
    "HEADER_BYTES",
    "MessageHeader",
    "Template",
    "decode",
    "encode",
    "find_template",
    "message",
    "message_layouts",
    "message_type",
    "message_types",
    "peek",
    "templates_of",
]

HEADER_BYTES: Final = 8
_HEADER: Final = struct.Struct("<HHHH")

MessageT = TypeVar("MessageT", bound=Message)


class MessageHeader(msgspec.Struct, frozen=True, gc=False):
    """The eight bytes in front of a message [WIRE-16-2].

    Example:
        >>> peek(bytes.fromhex("2800 0400 8403 0100"))
        MessageHeader(block_length=40, template_id=4, schema_id=900, version=1)
    """

    block_length: int
    template_id: int
    schema_id: int
    version: int

    def to_bytes(self) -> bytes:
        """The header as it stands on the wire."""
        return _HEADER.pack(self.block_length, self.template_id, self.schema_id, self.version)


class Template:
    """One template id of one schema, in all of its dialects."""

    __slots__ = ("_codecs", "_open_ended", "schema_id", "template_id")

    def __init__(self, schema_id: int, template_id: int) -> None:
        self.schema_id = schema_id
        self.template_id = template_id
        self._codecs: dict[int, Codec[Message]] = {}
        self._open_ended: Codec[Message] | None = None

    def add(self, codec: Codec[Message]) -> None:
        """Registers the codec of a dialect."""
        if codec.block_length in self._codecs:
            raise SchemaError(f"{codec.layout.name}: a block of {codec.block_length} bytes is bound already")
        self._codecs[codec.block_length] = codec
        if codec.extensible:
            self._open_ended = codec

    def types(self) -> tuple[type[Message], ...]:
        """The structs that decoding may return."""
        return tuple({codec.struct_type: None for codec in self._codecs.values()})

    def type_for(self, block_length: int) -> type[Message]:
        """The struct that a block of this length decodes to.

        Raises:
            MalformedMessageError: No dialect has such a block.
        """
        return self._codec_for(block_length).struct_type

    def decode(self, data: bytes, block_length: int) -> Message:
        """Decodes a whole message, header included, whose schema, template and version were checked.

        Raises:
            MalformedMessageError: Not such a message.
        """
        codec = self._codec_for(block_length)
        decoded, end = codec.decode(data, HEADER_BYTES, block_length)
        if end != len(data):
            raise MalformedMessageError(f"{codec.layout.name}: {len(data) - end} bytes behind its end")
        return decoded

    def _codec_for(self, block_length: int) -> Codec[Message]:
        exact = self._codecs.get(block_length)
        if exact is not None:
            return exact
        if self._open_ended is not None and block_length > self._open_ended.block_length:
            return self._open_ended
        name = next(iter(self._codecs.values())).layout.name
        lengths = " or ".join(str(length) for length in self._codecs)
        raise MalformedMessageError(f"{name}: a block of {block_length} bytes instead of {lengths}")


class _Framed(msgspec.Struct, frozen=True):
    """A codec and the header that its messages get."""

    header: bytes
    layout: MessageLayout
    codec: Codec[Message]


_templates: dict[int, Template] = {}
_framed: dict[type[Message], tuple[_Framed, ...]] = {}


def message(*schemas: Schema, name: str | None = None) -> Callable[[type[MessageT]], type[MessageT]]:
    """Declares a struct as the carrier of a message; a decorator.

    Args:
        schemas: Where the message is defined. More than one: the same fields in other places, to be accepted
            too; the first is what `encode` writes.
        name: The name in the schema, where it differs from that of the struct.

    Raises:
        SchemaError: The struct does not match the schema, or another one carries that message already.
    """

    def declare(struct_type: type[MessageT]) -> type[MessageT]:
        layouts = [_layout(schema, name or struct_type.__name__) for schema in schemas]
        _framed[struct_type] = tuple(
            _frame(struct_type, layout, default=layout is layouts[0]) for layout in layouts
        )
        return struct_type

    return declare


def _layout(schema: Schema, name: str) -> MessageLayout:
    try:
        return schema.messages[name]
    except KeyError:
        raise SchemaError(f"{schema.source} has no message {name}") from None


def _frame(struct_type: type[Message], layout: MessageLayout, *, default: bool) -> _Framed:
    schema_id, template_id = layout.schema_id, layout.template_id
    codec = Codec(
        struct_type,
        bind(struct_type, layout),
        extensible=default and is_extensible(schema_id, template_id),
        may_lack_last_prefix=may_lack_last_prefix(schema_id, template_id),
    )
    key = schema_id << 16 | template_id
    _templates.setdefault(key, Template(schema_id, template_id)).add(codec)
    header = MessageHeader(layout.block_length, template_id, schema_id, layout.version)
    return _Framed(header.to_bytes(), layout, codec)


def peek(buffer: ReadableBuffer) -> MessageHeader:
    """The header of a message; nothing behind it is looked at.

    Raises:
        MalformedMessageError: Fewer than eight bytes.
    """
    return MessageHeader(*_unpack_header(buffer))


def _unpack_header(buffer: ReadableBuffer) -> tuple[int, int, int, int]:
    try:
        return _HEADER.unpack_from(buffer)
    except struct.error:
        size = memoryview(buffer).nbytes
        raise MalformedMessageError(f"{size} bytes can't hold a message header") from None


def find_template(header: MessageHeader) -> Template | None:
    """The template that a header names, whatever its version; None for messages that are not ours."""
    return _templates.get(header.schema_id << 16 | header.template_id)


def decode(buffer: ReadableBuffer) -> Message:
    """Decodes a message.

    The buffer must hold exactly one message. It is copied first, so that nothing that is checked here can
    change between the check and the use.

    Raises:
        MalformedMessageError: Not a message, or not one of a kind and version that is known.

    Example:
        >>> from tensor_pool.wire.messages import FrameDescriptor
        >>> decode(encode(FrameDescriptor(stream_id=10000, epoch=1, seq=7))).seq
        7
    """
    data = buffer if type(buffer) is bytes else memoryview(buffer).tobytes()
    block_length, template_id, schema_id, version = _unpack_header(data)
    template = _templates.get(schema_id << 16 | template_id)
    if template is None:
        raise MalformedMessageError(f"schema {schema_id} has no message {template_id}")
    if not accepts_version(schema_id, version):
        raise MalformedMessageError(f"schema {schema_id}: version {version} is not supported")
    return template.decode(data, block_length)


def encode(message: Message, *, block_length: int | None = None) -> bytes:
    """Encodes a message.

    Args:
        message: What to encode.
        block_length: Chooses among several layouts of the same fields; the default is right for peers of
            ours.

    Raises:
        MalformedMessageError: A value that the schema does not allow, or no layout of that length.

    Example:
        >>> from tensor_pool.wire.messages import SequenceMergeMapRequest
        >>> encode(SequenceMergeMapRequest(out_stream_id=1, epoch=2)).hex(" ", 4)
        '0c000200 87030100 01000000 02000000 00000000'
    """
    for framed in _framed_as(type(message)):
        if block_length in (None, framed.layout.block_length):
            return framed.header + framed.codec.encode(message)
    raise MalformedMessageError(f"{type(message).__name__} has no block of {block_length} bytes")


def _framed_as(message_type: type[Message]) -> tuple[_Framed, ...]:
    try:
        return _framed[message_type]
    except KeyError:
        raise TypeError(f"{message_type.__name__} is not a message") from None


def message_types() -> tuple[type[Message], ...]:
    """Every message, both dialects where there are two."""
    return tuple(_framed)


def message_layouts(message_type: type[Message]) -> tuple[MessageLayout, ...]:
    """The layouts that a message is accepted in; the first is the one that `encode` writes."""
    return tuple(framed.layout for framed in _framed_as(message_type))


def templates_of(message_type: type[Message]) -> set[Template]:
    """The templates that a message travels under."""
    return {
        _templates[layout.schema_id << 16 | layout.template_id] for layout in message_layouts(message_type)
    }


def message_type(name: str, *, block_length: int | None = None) -> type[Message] | None:
    """The struct that carries a message, by its name in the schema; None if there is no such message.

    Example:
        >>> message_type("ShmAttachRequest", block_length=27).__name__
        'NewerShmAttachRequest'
    """
    for struct_type, framed in _framed.items():
        for dialect in framed:
            if dialect.layout.name == name and block_length in (None, dialect.layout.block_length):
                return struct_type
    return None
