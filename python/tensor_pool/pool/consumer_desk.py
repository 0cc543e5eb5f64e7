"""Answers the hellos of a stream's consumers, as the one authority for them (decision D14)."""

from __future__ import annotations

import enum
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

from tensor_pool.pool.private_streams import PrivateStream, PrivateStreams
from tensor_pool.runtime import TimerQueue
from tensor_pool.wire.messages import ConsumerConfig, ConsumerHello
from tensor_pool.wire.shm import LAYOUT_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tensor_pool.wire.messages import QosConsumer

__all__ = ["Assignment", "ConsumerDesk", "Decline"]

_MAX_GONE: Final = 256
"""Consumers that fell silent and are remembered, so that they can be told if they come back."""


class Decline(enum.StrEnum):
    """Why a consumer did not get a stream of its own."""

    HALF_A_REQUEST = "a channel without an id, or an id without a channel"
    CHANNEL = "a channel that is not allowed, or none"
    NO_ID_LEFT = "no stream id is left"
    TOO_MANY_CONSUMERS = "too many consumers"


class Assignment(NamedTuple):
    """What one consumer was given; whoever asks the desk opens and closes publications after it."""

    consumer_id: int
    descriptor: PrivateStream | None
    """Where its descriptors go instead of the shared stream."""
    control: PrivateStream | None
    """Where its `FrameProgress` messages go, and nothing else [WIRE-5-20]."""
    max_rate_hz: int
    """At most so many descriptors a second; 0 for all. Only ever set for a private stream [WIRE-5-15]."""


class ConsumerDesk:
    """Keeps the consumers of a stream, and which of them have streams of their own.

    Args:
        stream_id: The stream; hellos for others are not answered.
        descriptor_stream_ids: Ids for private descriptor streams.
        control_stream_ids: Ids for private control streams.
        interval_ns: How often consumers say hello or send QoS.
        allowed_channels: Channels that a consumer may ask for.
        fallback_uri: Where consumers without shared memory get their data; empty for nowhere.
        stale_intervals: Intervals of silence after which a consumer is gone: 3 to 5 [WIRE-5-12].
        max_consumers: Those beyond share the shared stream and are not kept track of.
        max_private: So many private streams of each kind; each costs a publication.

    Example:
        >>> from tensor_pool.wire.messages import Mode
        >>> desk = ConsumerDesk(10000, descriptor_stream_ids=range(31000, 32000),
        ...                     control_stream_ids=range(32000, 33000), interval_ns=1_000_000_000)
        >>> config = desk.on_hello(ConsumerHello(
        ...     stream_id=10000, consumer_id=7, supports_shm=True, supports_progress=False,
        ...     mode=Mode.RATE_LIMITED, max_rate_hz=30, descriptor_stream_id=31005,
        ...     descriptor_channel="aeron:ipc"), now_ns=0)
        >>> config.descriptor_channel, config.descriptor_stream_id
        ('aeron:ipc', 31005)
        >>> desk.assignments[7].max_rate_hz
        30
        >>> [gone.consumer_id for gone in desk.expire(now_ns=4_000_000_001)]
        [7]
    """

    def __init__(
        self,
        stream_id: int,
        *,
        descriptor_stream_ids: range,
        control_stream_ids: range,
        interval_ns: int,
        allowed_channels: Sequence[str] = ("aeron:ipc",),
        fallback_uri: str = "",
        stale_intervals: int = 4,
        max_consumers: int = 1024,
        max_private: int = 64,
    ) -> None:
        self.stream_id = stream_id
        self.declined: Counter[Decline] = Counter()
        """How often a wish was declined, by reason."""
        self.changes = 0
        """Grows with every change of `assignments`: who opens publications looks only then."""
        self._descriptors = PrivateStreams(
            descriptor_stream_ids, allowed_channels=allowed_channels, most=max_private
        )
        self._controls = PrivateStreams(
            control_stream_ids, allowed_channels=allowed_channels, most=max_private
        )
        self._silence_ns = stale_intervals * interval_ns + 1
        self._fallback_uri = fallback_uri
        self._max_consumers = max_consumers
        self._hellos: dict[int, ConsumerHello] = {}
        self._assignments: dict[int, Assignment] = {}
        self._deadlines: TimerQueue[int] = TimerQueue()
        self._gone: OrderedDict[int, ConsumerHello] = OrderedDict()

    @property
    def assignments(self) -> Mapping[int, Assignment]:
        """What each live consumer has, by its id."""
        return self._assignments

    @property
    def hellos(self) -> list[ConsumerHello]:
        """The last hello of each live consumer: what `ProgressPolicy.aggregate` takes."""
        return list(self._hellos.values())

    def hello(self, consumer_id: int) -> ConsumerHello | None:
        """The last hello of a live consumer."""
        return self._hellos.get(consumer_id)

    def on_hello(self, hello: ConsumerHello, now_ns: int) -> ConsumerConfig | None:
        """The answer to a hello, or None when it is for another stream.

        The same hello again gives the same answer and changes nothing but the time it was last heard.
        """
        if hello.stream_id != self.stream_id:
            return None
        consumer_id = hello.consumer_id
        known = self._assignments.get(consumer_id)
        if known is None and len(self._assignments) >= self._max_consumers:
            self.declined[Decline.TOO_MANY_CONSUMERS] += 1
            return self._config(hello, Assignment(consumer_id, None, None, 0))
        self._deadlines.set(consumer_id, now_ns + self._silence_ns)
        self._gone.pop(consumer_id, None)
        self._hellos[consumer_id] = hello
        return self._config(hello, self._reassign(hello, known))

    def on_qos(self, qos: QosConsumer, now_ns: int) -> ConsumerConfig | None:
        """A consumer is alive [WIRE-5-11].

        One that fell silent and lost its streams meanwhile is told so by the config that comes back: it would
        otherwise listen to them for ever.
        """
        if qos.stream_id != self.stream_id:
            return None
        if qos.consumer_id in self._assignments:
            self._deadlines.set(qos.consumer_id, now_ns + self._silence_ns)
            return None
        hello = self._gone.pop(qos.consumer_id, None)
        if hello is None:
            return None
        return self._config(hello, Assignment(qos.consumer_id, None, None, 0))

    def on_disconnect(self, consumer_id: int) -> Assignment | None:
        """A consumer said goodbye: what it had, to be closed [WIRE-5-9]."""
        self._deadlines.cancel(consumer_id)
        return self._remove(consumer_id)

    def expire(self, now_ns: int) -> list[Assignment]:
        """The consumers that were silent for too long, with what they had, to be closed [WIRE-5-10]."""
        gone = []
        for consumer_id in self._deadlines.expire(now_ns):
            hello = self._hellos[consumer_id]
            assignment = self._remove(consumer_id)
            assert assignment is not None, "deadlines are only kept for consumers with an assignment"
            gone.append(assignment)
            if assignment.descriptor is not None or assignment.control is not None:
                self._gone[consumer_id] = hello
                if len(self._gone) > _MAX_GONE:
                    self._gone.popitem(last=False)
        return gone

    def _remove(self, consumer_id: int) -> Assignment | None:
        assignment = self._assignments.pop(consumer_id, None)
        self._hellos.pop(consumer_id, None)
        if assignment is not None:
            self.changes += 1
            self._release(assignment)
        return assignment

    def _release(self, assignment: Assignment) -> None:
        if assignment.descriptor is not None:
            self._descriptors.release(assignment.descriptor)
        if assignment.control is not None:
            self._controls.release(assignment.control)

    def _reassign(self, hello: ConsumerHello, before: Assignment | None) -> Assignment:
        descriptor = self._stream(
            self._descriptors,
            hello,
            hello.descriptor_channel,
            hello.descriptor_stream_id,
            before.descriptor if before is not None else None,
        )
        control = self._stream(
            self._controls,
            hello,
            hello.control_channel,
            hello.control_stream_id,
            before.control if before is not None else None,
        )
        rate = hello.max_rate_hz if descriptor is not None else 0
        assignment = Assignment(hello.consumer_id, descriptor, control, rate)
        if assignment != before:
            self._assignments[hello.consumer_id] = assignment
            self.changes += 1
        return assignment

    def _stream(
        self,
        streams: PrivateStreams,
        hello: ConsumerHello,
        channel: str,
        stream_id: int,
        before: PrivateStream | None,
    ) -> PrivateStream | None:
        """The private stream for one wish; the one it had, if that still answers the wish."""
        wished = bool(channel and stream_id)
        allowed = streams.allowed(channel) if wished else None
        if before is not None:
            if before.channel == allowed:
                return before
            streams.release(before)
        if not wished:
            # Half a request is no request, and it is told so by the empty answer (decision D15).
            if channel or stream_id:
                self.declined[Decline.HALF_A_REQUEST] += 1
            return None
        assigned = streams.assign(channel, wish=stream_id, seed=31 * hello.stream_id + hello.consumer_id)
        if assigned is None:
            self.declined[Decline.CHANNEL if allowed is None else Decline.NO_ID_LEFT] += 1
        return assigned

    def _config(self, hello: ConsumerHello, assignment: Assignment) -> ConsumerConfig:
        """An empty channel and id 0 say that there is no such stream [WIRE-5-22]."""
        # 0 is "any" (decision D3). Whoever can't read the layout is as far from the data as one without
        # shared memory.
        readable = hello.expected_layout_version in (0, LAYOUT_VERSION)
        use_shm = hello.supports_shm and readable
        return ConsumerConfig(
            stream_id=hello.stream_id,
            consumer_id=hello.consumer_id,
            use_shm=use_shm,
            mode=hello.mode,
            descriptor_stream_id=assignment.descriptor.stream_id if assignment.descriptor else 0,
            control_stream_id=assignment.control.stream_id if assignment.control else 0,
            # Also for those who may map: they may still find that they can't [WIRE-15.22-17].
            payload_fallback_uri=self._fallback_uri,
            descriptor_channel=assignment.descriptor.channel if assignment.descriptor else "",
            control_channel=assignment.control.channel if assignment.control else "",
        )
