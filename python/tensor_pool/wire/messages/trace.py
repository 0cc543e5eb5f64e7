"""Schema 904: the frames that a frame was made of."""

from tensor_pool.wire.bind import GroupEntry, Message
from tensor_pool.wire.framing import message
from tensor_pool.wire.schema import load_schema

__all__ = ["TraceLinkSet", "TraceParent"]


class TraceParent(GroupEntry, frozen=True):
    """The trace id of an input."""

    trace_id: int


@message(load_schema("trace"))
class TraceLinkSet(Message, frozen=True):
    """The parents of a frame; stream, epoch and sequence are those of its descriptor."""

    stream_id: int
    epoch: int
    seq: int
    trace_id: int
    parents: tuple[TraceParent, ...] = ()
