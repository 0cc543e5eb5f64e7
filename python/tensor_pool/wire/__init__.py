"""Bytes and messages.

The schemas in ``schemas/`` are compiled when this package is imported, and each struct in `messages` is
checked against its schema then. `decode` and `encode` translate; `Router` hands messages to handlers;
`shm` knows what lies in shared memory; `json_form` is what ``tpool wire`` prints.

Example:
    >>> from tensor_pool import wire
    >>> data = wire.encode(wire.messages.FrameDescriptor(stream_id=10000, epoch=5, seq=42))
    >>> len(data), wire.decode(data).seq
    (48, 42)
"""

from tensor_pool.wire import messages, shm
from tensor_pool.wire.bind import GroupEntry, Message
from tensor_pool.wire.framing import (
    HEADER_BYTES,
    MessageHeader,
    decode,
    encode,
    message_layouts,
    message_type,
    message_types,
    peek,
)
from tensor_pool.wire.router import Outcome, Router, RouterCounts
from tensor_pool.wire.schema import (
    SCHEMA_NAMES,
    FieldLayout,
    MessageLayout,
    Schema,
    compile_schema,
    compiled_layout,
    load_schema,
)

__all__ = [
    # messages
    "GroupEntry",
    "Message",
    "messages",
    "shm",
    # bytes
    "HEADER_BYTES",
    "MessageHeader",
    "decode",
    "encode",
    "peek",
    # dispatch
    "Outcome",
    "Router",
    "RouterCounts",
    # schemas
    "SCHEMA_NAMES",
    "FieldLayout",
    "MessageLayout",
    "Schema",
    "compile_schema",
    "compiled_layout",
    "load_schema",
    "message_layouts",
    "message_type",
    "message_types",
]
