"""Announces: what they say, and when each stream is due."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tensor_pool.pool.mapping import announce_ring
from tensor_pool.runtime import CounterType, TimerQueue
from tensor_pool.wire import encode
from tensor_pool.wire.messages import ClockDomain, ShmPoolAnnounce
from tensor_pool.wire.repeats import with_time

if TYPE_CHECKING:
    from tensor_pool.driver.answers import Moment
    from tensor_pool.driver.leases import LeaseBook
    from tensor_pool.driver.registry import Epoch, Stream
    from tensor_pool.runtime import CounterSet

__all__ = ["Announcer"]

_GOLDEN: Final = 0x9E3779B9
"""Multiplying by this spreads neighbouring ids over the whole period."""
_PHASES: Final = 8
"""Moments of a period at which streams are due: few, because each wakes the driver."""


class Announcer:
    """Makes announces and knows when the next ones are due.

    Streams are due at different moments of the period, so that five hundred of them make small groups and not
    a burst a second.

    Args:
        leases: Who is attached: the producer stands in its stream's announce.
        period_ns: How often a stream is announced.
        domain: Which clock stamps announces (decision L6).
        counters: What is counted.
    """

    def __init__(
        self, *, leases: LeaseBook, period_ns: int, domain: ClockDomain, counters: CounterSet
    ) -> None:
        self._leases = leases
        self._period_ns = period_ns
        self._domain = domain
        self._sent = counters[CounterType.DRIVER_ANNOUNCES]
        self._due: TimerQueue[int] = TimerQueue()
        self._said: dict[int, tuple[Epoch, int, bytes]] = {}

    def announce(self, stream: Stream, now: Moment) -> ShmPoolAnnounce:
        """The announce of a stream that has an epoch."""
        epoch = stream.epoch
        assert epoch is not None
        self._sent.add()
        return announce_ring(
            epoch.address,
            producer_id=self._producer_id(stream),
            timestamp_ns=self._time_ns(now),
            clock_domain=self._domain,
        )

    def repeat(self, stream: Stream, now: Moment) -> bytes:
        """The same, encoded; only its time is made anew as long as there is nothing else to say."""
        epoch, producer_id = stream.epoch, self._producer_id(stream)
        said = self._said.get(stream.stream_id)
        if said is not None and said[0] is epoch and said[1] == producer_id:
            self._sent.add()
            return with_time(said[2], ShmPoolAnnounce, self._time_ns(now))
        data = encode(self.announce(stream, now))
        assert epoch is not None
        self._said[stream.stream_id] = (epoch, producer_id, data)
        return data

    def _producer_id(self, stream: Stream) -> int:
        producer = self._leases.producer_of(stream.stream_id)
        return 0 if producer is None else producer.client_id  # [DRV-8-3, DRV-8-4]

    def _time_ns(self, now: Moment) -> int:
        return now.monotonic_ns if self._domain is ClockDomain.MONOTONIC else now.realtime_ns

    def schedule(self, stream: Stream, now: Moment) -> None:
        """Lets a stream be announced once a period from now on."""
        self._due.set(stream.stream_id, self._next_due_ns(stream.stream_id, now.monotonic_ns))

    def cancel(self, stream: Stream) -> None:
        """Lets a stream be announced no more."""
        self._due.cancel(stream.stream_id)
        self._said.pop(stream.stream_id, None)

    def take_due(self, now_ns: int) -> list[int]:
        """The streams that are due; they are due again a period later. Missed periods are skipped."""
        due = self._due.expire(now_ns)
        for stream_id in due:
            self._due.set(stream_id, self._next_due_ns(stream_id, now_ns))
        return due

    def _next_due_ns(self, stream_id: int, now_ns: int) -> int:
        phase = stream_id * _GOLDEN % 2**32 * _PHASES >> 32
        phase_ns = phase * self._period_ns // _PHASES
        return now_ns - (now_ns - phase_ns) % self._period_ns + self._period_ns
