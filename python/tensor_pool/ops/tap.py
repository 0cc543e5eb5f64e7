"""Listens to the pool's streams and shows every message decoded; disturbs nobody.

Its subscriptions are untethered, like all of ours: a tap that is slow is left behind, and the others go on.
"""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tensor_pool.closing import Closing
from tensor_pool.errors import MalformedMessageError
from tensor_pool.ops.chunk_tap import ChunkReader
from tensor_pool.runtime import SystemClock
from tensor_pool.wire.framing import decode, find_template, peek
from tensor_pool.wire.json_form import to_json_form
from tensor_pool.wire.messages import BridgeFrameChunk, NewerBridgeFrameChunk

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tensor_pool.config import StreamsSection
    from tensor_pool.runtime import Clock
    from tensor_pool.transport import Client, Header, Subscription

__all__ = ["SOURCES", "Filter", "Tap", "TapCounts", "Tapped", "endpoints"]

SOURCES: Final = (
    "control",
    "announce",
    "descriptor",
    "qos",
    "metadata",
    "service_control",
    "service_status",
)
"""What can be listened to; each is a pair of keys of the section `streams`."""

_FRAGMENTS: Final = 100
_CHUNK_SCHEMA: Final = 902


class Tapped(msgspec.Struct, frozen=True, kw_only=True):
    """One message as it is printed; the names are the keys of the JSON output."""

    realtime_ns: int
    """When it was read here, on CLOCK_REALTIME."""
    source: str
    """The sources that its stream serves, joined by ``+``."""
    session_id: int
    position: int
    bytes: int
    message: str | None
    """None for messages that are not ours."""
    header: dict[str, int] | None
    fields: dict[str, Any] | None
    error: str | None
    """Why it could not be decoded, or what is wrong with it."""


class Filter(msgspec.Struct, frozen=True):
    """Which messages are wanted; an empty filter wants all.

    Example:
        >>> Filter(types=frozenset({"qosproducer"})).needs_a_name
        True
    """

    stream_ids: frozenset[int] = frozenset()
    types: frozenset[str] = frozenset()
    """Message names in lower case."""

    @property
    def needs_a_name(self) -> bool:
        """Whether messages that could not be decoded are left out."""
        return bool(self.types or self.stream_ids)

    def wants(self, tapped: Tapped) -> bool:
        """Whether to show a message."""
        if tapped.message is None or tapped.fields is None:
            return not self.needs_a_name
        if self.types and tapped.message.lower() not in self.types:
            return False
        return not self.stream_ids or bool(self.stream_ids & _stream_ids(tapped.fields))


def _stream_ids(fields: dict[str, Any]) -> set[int]:
    """The pool streams that a message is about: its own, and those of its groups' entries."""
    entries = (value for value in fields.values() if isinstance(value, list))
    holders = [fields, *(entry for entry in itertools.chain(*entries) if isinstance(entry, dict))]
    names = ("stream_id", "out_stream_id")
    return {holder[name] for holder in holders for name in names if isinstance(holder.get(name), int)}


class TapCounts(msgspec.Struct):
    """What passed by since the tap was opened."""

    messages: int = 0
    shown: int = 0
    unknown: int = 0
    """Of schemas or templates that are not ours."""
    malformed: int = 0
    lost_images: int = 0
    """Publications that went away, or that left this tap behind because it was slow."""


def endpoints(streams: StreamsSection, sources: Sequence[str]) -> dict[tuple[str, int], str]:
    """The channels and ids of sources; those that share a stream are listened to once.

    Example:
        >>> from tensor_pool.config import StreamsSection
        >>> endpoints(StreamsSection(), ["qos"])
        {('aeron:ipc', 1200): 'qos'}
    """
    found: dict[tuple[str, int], str] = {}
    for source in sources:
        place = (getattr(streams, f"{source}_channel"), getattr(streams, f"{source}_stream_id"))
        found[place] = f"{found[place]}+{source}" if place in found else source
    return found


class Tap(Closing):
    """Subscriptions to some of the pool's streams.

    Args:
        client: The connection to the media driver; stays open when this is closed.
        places: What `endpoints` returns.
        only: Which messages are wanted.
        clock: What messages are dated with.

    Example:
        >>> from tensor_pool import wire
        >>> from tensor_pool.transport.memory import MemoryBus
        >>> from tensor_pool.wire.messages import QosProducer
        >>> bus = MemoryBus()
        >>> tap = Tap(bus.client(), {("aeron:ipc", 1200): "qos"})
        >>> publication = bus.client().add_publication("aeron:ipc", 1200)
        >>> report = QosProducer(stream_id=1, producer_id=2, epoch=3, current_seq=4)
        >>> _ = publication.offer(wire.encode(report))
        >>> [(tapped.message, tapped.fields["current_seq"]) for tapped in tap.poll()]
        [('QosProducer', 4)]
    """

    def __init__(
        self,
        client: Client,
        places: dict[tuple[str, int], str],
        *,
        only: Filter | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.counts = TapCounts()
        self._only = only if only is not None else Filter()
        self._clock = clock if clock is not None else SystemClock()
        self._chunks = ChunkReader()
        self._wanted: list[Tapped] = []
        self._subscriptions: list[tuple[Subscription, str]] = [
            (client.add_subscription(channel, stream_id), source)
            for (channel, stream_id), source in places.items()
        ]

    def poll(self) -> list[Tapped]:
        """What came since the last call and is wanted; looks once at each stream and never waits."""
        self._wanted = []
        for subscription, source in self._subscriptions:
            subscription.poll(functools.partial(self._take, source), _FRAGMENTS)
            events = subscription.take_image_events()
            self.counts.lost_images += sum(not event.available for event in events)
        return self._wanted

    def close(self) -> None:
        """Closes the subscriptions; may be called again."""
        for subscription, _ in self._subscriptions:
            subscription.close()

    def _take(self, source: str, data: bytes, header: Header) -> None:
        self.counts.messages += 1
        form, error = self._decode(data, header.session_id)
        tapped = Tapped(
            realtime_ns=self._clock.realtime_ns(),
            source=source,
            session_id=header.session_id,
            position=header.position,
            bytes=len(data),
            message=form.get("message"),
            header=form.get("header"),
            fields=form.get("fields"),
            error=error,
        )
        if self._only.wants(tapped):
            self.counts.shown += 1
            self._wanted.append(tapped)

    def _decode(self, data: bytes, session_id: int) -> tuple[dict[str, Any], str | None]:
        try:
            if peek(data).schema_id == _CHUNK_SCHEMA:
                return self._decode_chunk(data, session_id)
            form = to_json_form(data, "message")
        except MalformedMessageError as e:
            header = _header(data)
            if header is None or find_template(header) is not None:
                self.counts.malformed += 1
            else:
                self.counts.unknown += 1
            return {"header": None if header is None else msgspec.structs.asdict(header)}, e.message
        return form, None

    def _decode_chunk(self, data: bytes, session_id: int) -> tuple[dict[str, Any], str | None]:
        """Without their bytes, which are many; a receiver looks at more than the layout, and so does this."""
        chunk = decode(data)
        assert isinstance(chunk, BridgeFrameChunk | NewerBridgeFrameChunk), "the schema has no other message"
        fields, wrong = self._chunks.read(chunk, session_id=session_id)
        self.counts.malformed += wrong is not None
        header = msgspec.structs.asdict(peek(data))
        return {"message": "BridgeFrameChunk", "header": header, "fields": fields}, wrong


def _header(data: bytes) -> Any:
    try:
        return peek(data)
    except MalformedMessageError:
        return None


def known_types(names: Iterable[str], known: Iterable[str]) -> frozenset[str]:
    """Names of messages in lower case.

    Raises:
        KeyError: There is no such message; holds the name as it was given.
    """
    by_lower = {name.lower() for name in known}
    wanted = list(names)
    for name in wanted:
        if name.lower() not in by_lower:
            raise KeyError(name)
    return frozenset(name.lower() for name in wanted)
