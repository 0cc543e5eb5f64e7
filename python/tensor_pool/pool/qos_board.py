"""What producers and consumers last said of themselves, as somebody who only listens sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from tensor_pool.wire.messages import QosConsumer, QosProducer

__all__ = ["ConsumerQos", "ProducerQos", "QosBoard"]

_NS_PER_S: Final = 1_000_000_000
_TOGETHER_NS: Final = 20_000_000
"""Reports that are heard so close to each other waited for their listener; the time between is not theirs."""
_NOTHING_SEEN: Final = 2**64 - 1
"""What some peers say who have not seen a frame yet."""


class ConsumerQos(msgspec.Struct, frozen=True, kw_only=True):
    """The last report of a consumer."""

    stream_id: int
    consumer_id: int
    epoch: int
    last_seq_seen: int | None
    drops_gap: int
    drops_late: int
    mode: str
    heard_ns: int
    drops_per_s: float | None = None
    """Since the report before; None for the first one."""

    @property
    def drops(self) -> int:
        """All frames that it says it has lost."""
        return self.drops_gap + self.drops_late


class ProducerQos(msgspec.Struct, frozen=True, kw_only=True):
    """The last report of a producer."""

    stream_id: int
    producer_id: int
    epoch: int
    current_seq: int
    watermark: int | None
    heard_ns: int
    rate_hz: float | None = None
    """Between this report and the one before; None for the first one of an epoch."""


class QosBoard:
    """Keeps the last report of everybody, and forgets those who fell silent.

    Args:
        stale_after_ns: Who said nothing for longer is forgotten.
        max_entries: How many producers and how many consumers are kept; the reports of others are ignored
            and counted.

    Example:
        >>> from tensor_pool.wire.messages import Mode, QosConsumer, QosProducer
        >>> board = QosBoard()
        >>> for second, seq in enumerate((100, 150)):
        ...     board.on_producer(QosProducer(1, 7, epoch=5, current_seq=seq), second * 1_000_000_000)
        >>> board.producer(1).rate_hz
        50.0
        >>> board.on_consumer(QosConsumer(1, 9, 5, 140, 3, 1, Mode.STREAM), 1_000_000_000)
        >>> board.lag(1, 9), board.drops_of(1)
        (10, 4)
    """

    def __init__(self, *, stale_after_ns: int = 4 * _NS_PER_S, max_entries: int = 65_536) -> None:
        self.ignored = 0
        """Reports of those for whom there was no room."""
        self._stale_after_ns = stale_after_ns
        self._max_entries = max_entries
        self._producers: dict[int, ProducerQos] = {}
        self._consumers: dict[tuple[int, int], ConsumerQos] = {}
        self._supposed_rates: dict[int, float] = {}

    # --- what is heard ----------------------------------------------------------------------------------

    def on_producer(self, report: QosProducer, now_ns: int) -> None:
        """A producer says how far it is."""
        before = self._producers.get(report.stream_id)
        if before is None and len(self._producers) >= self._max_entries:
            self.ignored += 1
            return
        self._producers[report.stream_id] = ProducerQos(
            stream_id=report.stream_id,
            producer_id=report.producer_id,
            epoch=report.epoch,
            current_seq=report.current_seq,
            watermark=report.watermark,
            heard_ns=now_ns,
            rate_hz=_rate_hz(before, report, now_ns),
        )

    def on_consumer(self, report: QosConsumer, now_ns: int) -> None:
        """A consumer says what it has seen and lost."""
        key = (report.stream_id, report.consumer_id)
        before = self._consumers.get(key)
        if before is None and len(self._consumers) >= self._max_entries:
            self.ignored += 1
            return
        drops = report.drops_gap + report.drops_late
        self._consumers[key] = ConsumerQos(
            stream_id=report.stream_id,
            consumer_id=report.consumer_id,
            epoch=report.epoch,
            last_seq_seen=None if report.last_seq_seen == _NOTHING_SEEN else report.last_seq_seen,
            drops_gap=report.drops_gap,
            drops_late=report.drops_late,
            mode=report.mode.name.lower(),
            heard_ns=now_ns,
            drops_per_s=_drops_per_s(before, drops, now_ns),
        )

    def suppose_rate(self, stream_id: int, rate_hz: float) -> None:
        """Somebody else knows the rate of a stream; used while its producer was heard only once."""
        if len(self._supposed_rates) < self._max_entries or stream_id in self._supposed_rates:
            self._supposed_rates[stream_id] = rate_hz

    def expire(self, now_ns: int) -> None:
        """Forgets those who fell silent."""
        oldest_ns = now_ns - self._stale_after_ns
        self._producers = {k: v for k, v in self._producers.items() if v.heard_ns >= oldest_ns}
        self._consumers = {k: v for k, v in self._consumers.items() if v.heard_ns >= oldest_ns}

    def forget_consumer(self, stream_id: int, consumer_id: int) -> None:
        """A consumer left."""
        self._consumers.pop((stream_id, consumer_id), None)

    # --- what is known ----------------------------------------------------------------------------------

    def producer(self, stream_id: int) -> ProducerQos | None:
        """The producer of a stream."""
        return self._producers.get(stream_id)

    def consumer(self, stream_id: int, consumer_id: int) -> ConsumerQos | None:
        """One consumer of a stream."""
        return self._consumers.get((stream_id, consumer_id))

    def consumers(self, stream_id: int) -> list[ConsumerQos]:
        """All consumers of a stream, in order of their ids."""
        found = [report for report in self._consumers.values() if report.stream_id == stream_id]
        return sorted(found, key=lambda report: report.consumer_id)

    def drops_of(self, stream_id: int) -> int | None:
        """What all consumers of a stream have lost together; None when none was heard."""
        found = [report.drops for report in self._consumers.values() if report.stream_id == stream_id]
        return sum(found) if found else None

    def lag(self, stream_id: int, consumer_id: int) -> int | None:
        """About how many frames a consumer is behind its producer; None when that can't be known.

        Both report once a second, and not at the same moment. Where the producer was at the moment of the
        consumer's report follows from its rate; otherwise a consumer of a 1 kHz stream that is not behind at
        all would seem to be, by up to a thousand frames.
        """
        consumer, producer = self._consumers.get((stream_id, consumer_id)), self._producers.get(stream_id)
        if consumer is None or producer is None or consumer.last_seq_seen is None:
            return None
        if consumer.epoch != producer.epoch:
            return None
        rate, apart_ns = producer.rate_hz, consumer.heard_ns - producer.heard_ns
        if rate is None:
            rate = self._supposed_rates.get(stream_id)
        if rate is None and abs(apart_ns) > _TOGETHER_NS:
            return None
        moved = (rate or 0.0) * apart_ns / _NS_PER_S
        return max(0, round(producer.current_seq + moved - consumer.last_seq_seen))


def _drops_per_s(before: ConsumerQos | None, drops: int, now_ns: int) -> float | None:
    # A counter that went back is that of another process with the same id.
    if before is None or drops < before.drops:
        return None
    if now_ns - before.heard_ns < _TOGETHER_NS:
        return before.drops_per_s
    return (drops - before.drops) * _NS_PER_S / (now_ns - before.heard_ns)


def _rate_hz(before: ProducerQos | None, report: QosProducer, now_ns: int) -> float | None:
    if before is None or before.epoch != report.epoch:
        return None
    if now_ns - before.heard_ns < _TOGETHER_NS:
        return before.rate_hz
    frames = report.current_seq - before.current_seq
    return None if frames < 0 else frames * _NS_PER_S / (now_ns - before.heard_ns)
