"""Quality of service: what producers and consumers tell each other about once a second."""

from __future__ import annotations

import secrets
from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec

from tensor_pool.runtime import TimerQueue
from tensor_pool.wire.messages import Mode, QosConsumer, QosProducer

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from tensor_pool.wire.messages import ConsumerHello

__all__ = [
    "ConsumerReport",
    "ConsumerWatch",
    "IdCollision",
    "qos_consumer",
    "qos_producer",
    "random_consumer_id",
]

_NOTHING_SEEN: Final = 2**64 - 1
"""What some peers say who have not seen a frame yet."""
_MAX_COUNT: Final = 2**64 - 2
_MAX_WATERMARK: Final = 2**32 - 2
"""2^32-1 stands for no watermark."""
_MAX_OWN_SESSIONS: Final = 32


def qos_producer(
    *, stream_id: int, producer_id: int, epoch: int, next_seq: int, watermark: int | None
) -> QosProducer:
    """What a producer reports [WIRE-10.4.2-1].

    Args:
        stream_id: Its stream.
        producer_id: Its id.
        epoch: Its epoch.
        next_seq: The sequence number of its next frame: one above the last. Without a frame, 0 is reported.
        watermark: How many frames the slowest live consumer is behind (`ConsumerWatch.watermark`); None when
            nobody is known to read.

    Example:
        >>> qos_producer(stream_id=1, producer_id=7, epoch=5, next_seq=50, watermark=3).current_seq
        49
    """
    if watermark is not None:
        watermark = min(watermark, _MAX_WATERMARK)
    return QosProducer(stream_id, producer_id, epoch, max(next_seq - 1, 0), watermark)


def qos_consumer(
    *,
    stream_id: int,
    consumer_id: int,
    epoch: int,
    next_seq: int,
    drops_gap: int,
    drops_late: int,
    mode: Mode,
) -> QosConsumer:
    """What a consumer reports [WIRE-10.4.1-4].

    Args:
        stream_id: Its stream.
        consumer_id: Its id.
        epoch: The epoch that it has mapped; 0 for none.
        next_seq: The sequence number that it looks for next. A consumer that joined late and has seen nothing
            is not behind by all the frames before it, so this counts and not what it has taken.
        drops_gap: Frames that it never found.
        drops_late: Frames that were overwritten before or while it read them.
        mode: How it reads.

    Example:
        >>> report = qos_consumer(stream_id=1, consumer_id=9, epoch=3, next_seq=42, drops_gap=7,
        ...                       drops_late=0, mode=Mode.STREAM)
        >>> report.last_seq_seen, report.drops_gap
        (41, 7)
    """
    # Sums over rings, whose slots may claim any number.
    gap, late = min(drops_gap, _MAX_COUNT), min(drops_late, _MAX_COUNT)
    return QosConsumer(stream_id, consumer_id, epoch, max(next_seq - 1, 0), gap, late, mode)


class ConsumerReport(msgspec.Struct, frozen=True, gc=False):
    """What a producer knows about one of its consumers."""

    consumer_id: int
    seen_ns: int
    """When it was last heard."""
    mode: Mode
    epoch: int | None = None
    """The epoch of its last QoS report; None before the first."""
    last_seq_seen: int | None = None
    drops_gap: int = 0
    drops_late: int = 0
    next_seq: int | None = None
    """The producer's next frame when the report came. Later ones are not held against the consumer."""

    def age_ns(self, now_ns: int) -> int:
        """How long ago it was heard."""
        return now_ns - self.seen_ns

    def behind(self, epoch: int) -> int | None:
        """How many frames of an epoch it had not seen when it was last heard; None when it does not say."""
        if self.last_seq_seen is None or self.next_seq is None or self.epoch != epoch:
            return None
        return max(self.next_seq - 1 - self.last_seq_seen, 0)


class ConsumerWatch:
    """The consumers of a stream as their hellos and QoS reports show them.

    Args:
        stream_id: The stream; what is about others is ignored.
        stale_after_ns: A consumer that was silent for longer is forgotten.
        max_consumers: How many are kept; what others report is ignored and counted.

    Example:
        >>> watch = ConsumerWatch(1, stale_after_ns=4_000_000_000)
        >>> watch.on_qos(QosConsumer(1, 9, epoch=5, last_seq_seen=40, drops_gap=2, drops_late=0,
        ...                          mode=Mode.STREAM), now_ns=0, next_seq=50)
        >>> watch.watermark(epoch=5)
        9
        >>> watch.expire(now_ns=5_000_000_000), watch.watermark(epoch=5)
        ([9], None)
    """

    def __init__(self, stream_id: int, *, stale_after_ns: int, max_consumers: int = 1024) -> None:
        self.stream_id = stream_id
        self.ignored = 0
        """Reports of consumers beyond the limit."""
        self._stale_after_ns = stale_after_ns
        self._max_consumers = max_consumers
        self._reports: dict[int, ConsumerReport] = {}
        self._deadlines: TimerQueue[int] = TimerQueue()

    @property
    def consumers(self) -> Mapping[int, ConsumerReport]:
        """The live consumers by id."""
        return self._reports

    def on_hello(self, hello: ConsumerHello, now_ns: int) -> None:
        """A consumer introduced itself, or did so again."""
        if hello.stream_id != self.stream_id:
            return
        known = self._reports.get(hello.consumer_id)
        if known is None:
            self._keep(ConsumerReport(hello.consumer_id, now_ns, hello.mode))
        else:
            self._keep(msgspec.structs.replace(known, seen_ns=now_ns, mode=hello.mode))

    def on_qos(self, qos: QosConsumer, now_ns: int, *, next_seq: int | None) -> None:
        """A consumer told how it is doing; `next_seq` is the producer's next frame then, if it has a ring."""
        if qos.stream_id != self.stream_id:
            return
        seen = None if qos.last_seq_seen == _NOTHING_SEEN else qos.last_seq_seen
        self._keep(
            ConsumerReport(
                qos.consumer_id, now_ns, qos.mode, qos.epoch, seen, qos.drops_gap, qos.drops_late, next_seq
            )
        )

    def forget(self, consumer_id: int) -> None:
        """A consumer left."""
        self._reports.pop(consumer_id, None)
        self._deadlines.cancel(consumer_id)

    def expire(self, now_ns: int) -> list[int]:
        """Forgets the consumers that fell silent; says which."""
        gone = self._deadlines.expire(now_ns)
        for consumer_id in gone:
            del self._reports[consumer_id]
        return gone

    def watermark(self, *, epoch: int) -> int | None:
        """How far the slowest live consumer was behind when it was last heard; None when none says so."""
        behind = (report.behind(epoch) for report in self._reports.values())
        return max((frames for frames in behind if frames is not None), default=None)

    def _keep(self, report: ConsumerReport) -> None:
        if report.consumer_id not in self._reports and len(self._reports) >= self._max_consumers:
            self.ignored += 1
            return
        self._reports[report.consumer_id] = report
        self._deadlines.set(report.consumer_id, report.seen_ns + self._stale_after_ns + 1)


def random_consumer_id(
    taken: Collection[int] = (), *, randbits: Callable[[int], int] = secrets.randbits
) -> int:
    """An id that nobody is known to use; random, since nobody hands them out [WIRE-10.1.2-14].

    Example:
        >>> numbers = iter([0, 5, 6])
        >>> random_consumer_id({5}, randbits=lambda bits: next(numbers))
        6
    """
    while True:
        candidate = randbits(32)
        if 0 < candidate < 2**32 - 1 and candidate not in taken:
            return candidate


class IdCollision:
    """Notices that another consumer of the stream uses our id, and chooses a new one [WIRE-10.1.2-15].

    Reports that we did not send ourselves are told by their session: a publication's own. Former sessions of
    ours are remembered, because a lingering log may still replay them (decision L11).

    Args:
        stream_id: The stream.
        consumer_id: Our id.
        randbits: Where new ids come from.

    Example:
        >>> ours = IdCollision(1, consumer_id=9, randbits=lambda bits: 1234)
        >>> ours.on_session(77)
        >>> report = QosConsumer(1, 9, epoch=5, last_seq_seen=0, drops_gap=0, drops_late=0, mode=Mode.STREAM)
        >>> ours.on_qos(report, session_id=77) is None
        True
        >>> ours.on_qos(report, session_id=78)
        1234
    """

    def __init__(
        self, stream_id: int, consumer_id: int, *, randbits: Callable[[int], int] = secrets.randbits
    ) -> None:
        self.stream_id = stream_id
        self.consumer_id = consumer_id
        """The id to use; another one after each collision."""
        self.collisions = 0
        self._randbits = randbits
        self._own_sessions: deque[int] = deque(maxlen=_MAX_OWN_SESSIONS)
        self._former: deque[int] = deque(maxlen=_MAX_OWN_SESSIONS)

    def on_session(self, session_id: int) -> None:
        """We send our reports through this publication from now on; call it before the first one."""
        if session_id not in self._own_sessions:
            self._own_sessions.append(session_id)

    def on_qos(self, qos: QosConsumer, session_id: int) -> int | None:
        """The new id, when a report shows that ours is in use; the caller says hello again with it."""
        if (qos.stream_id, qos.consumer_id) != (self.stream_id, self.consumer_id):
            return None
        if session_id in self._own_sessions:
            return None
        self.collisions += 1
        self._former.append(self.consumer_id)
        self.consumer_id = random_consumer_id(self._former, randbits=self._randbits)
        return self.consumer_id
