"""The board of producers and consumers: who is there, how far behind, what it loses, who fell silent.

Everything here comes from other processes. What can't be is refused and counted; there is room for so many
streams and consumers, and whoever is known keeps its place however many strangers come.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from tensor_pool.control.supervisor.judging import Seen
from tensor_pool.control.supervisor.samples import Samples
from tensor_pool.control.supervisor.watched import WatchedConsumer, WatchedStream
from tensor_pool.pool.qos_board import QosBoard
from tensor_pool.wire.messages import Mode
from tensor_pool.wire.shm import SLOT_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tensor_pool.control.supervisor.config import Setting
    from tensor_pool.control.supervisor.watched import ConsumerKey, StreamState
    from tensor_pool.pool.qos_board import ProducerQos
    from tensor_pool.wire.messages import (
        ConsumerHello,
        DataSourceAnnounce,
        DataSourceMeta,
        QosConsumer,
        QosProducer,
        ShmPoolAnnounce,
    )

__all__ = ["HealthBoard"]

_NS_PER_S: Final = 1_000_000_000
_MOST_ATTRIBUTES: Final = 64
_NOTEWORTHY_SHARE: Final = 1 / 8
_NOTEWORTHY_LAG: Final = 128
"""Who is behind by that share of the ring, or by so many numbers, may lose frames of its own doing.

Large rings need the number: by default a consumer skips to the newest frame when it is 256 behind, however
many slots there are (`client.max_outstanding_seq_gap`).
"""
_NOTEWORTHY_STEPS: Final = 2
"""Producers and consumers don't report at the same moment. Where numbers are left out on purpose, lag is
wrong by up to one step for where the producer is, and another one for its rate."""
_MOST_CHARACTERS: Final = 256
"""Of a name: it comes from somewhere and is shown everywhere."""


class HealthBoard:
    """Keeps what producers and consumers say of themselves.

    Args:
        setting: Limits and intervals.
        count: Called with the reason for everything that was not taken, or looks odd.

    Example:
        >>> from tensor_pool.control.supervisor.config import Setting
        >>> from tensor_pool.wire.messages import Mode, QosConsumer
        >>> refused = []
        >>> board = HealthBoard(Setting(), refused.append)
        >>> board.on_consumer(QosConsumer(1, 9, 5, 40, 0, 0, Mode.STREAM), session_id=1, now_ns=0), refused
        (False, ['unknown_stream'])
    """

    def __init__(self, setting: Setting, count: Callable[[str], object]) -> None:
        self._setting = setting
        self._section = setting.section
        self._count = count
        self._streams: dict[int, WatchedStream] = {}
        # In the order in which they were last heard: who is silent for longest comes first.
        self._consumers: OrderedDict[ConsumerKey, WatchedConsumer] = OrderedDict()
        most = max(self._section.max_streams, self._section.max_consumers)
        self._qos = QosBoard(stale_after_ns=self._setting.forget_ns, max_entries=most)

    @property
    def streams(self) -> Mapping[int, WatchedStream]:
        """The streams by id."""
        return self._streams

    @property
    def consumers(self) -> Mapping[ConsumerKey, WatchedConsumer]:
        """The consumers of all streams."""
        return self._consumers

    def producer(self, stream_id: int) -> ProducerQos | None:
        """The last report of a stream's producer."""
        return self._qos.producer(stream_id)

    # --- what is heard ------------------------------------------------------------------------------------

    def on_announce(self, announce: ShmPoolAnnounce, *, session_id: int, now_ns: int) -> bool:
        """A stream is there; says whether that was taken.

        Who announces it first is believed until it is silent: otherwise a single forged announce of a far
        epoch would make all later ones seem old.
        """
        known = self._streams.get(announce.stream_id)
        if announce.header_slot_bytes != SLOT_BYTES or not announce.header_nslots:
            return self._refuse("unsound_announce")
        if known is None:
            if len(self._streams) >= self._section.max_streams:
                return self._refuse("too_many_streams")
            self._streams[announce.stream_id] = WatchedStream(announce, session_id, now_ns)
            return True
        if now_ns - known.heard_ns <= self._setting.liveness_ns:
            if session_id != known.announcer_id:
                return self._refuse("another_session")
            if announce.epoch < known.announce.epoch:
                return self._refuse("old_epoch")
        if announce.epoch != known.announce.epoch:
            known.begin_epoch(announce)
        known.heard_ns, known.announcer_id = now_ns, session_id
        return True

    def on_name(self, announce: DataSourceAnnounce) -> bool:
        """A stream has a name."""
        stream = self._streams.get(announce.stream_id)
        if stream is None:
            return self._refuse("unknown_stream")
        stream.name = announce.name[:_MOST_CHARACTERS]
        return True

    def on_meta(self, meta: DataSourceMeta) -> bool:
        """A stream has metadata."""
        stream = self._streams.get(meta.stream_id)
        if stream is None:
            return self._refuse("unknown_stream")
        stream.meta_version = meta.meta_version
        names = (attribute.key[:_MOST_CHARACTERS] for attribute in meta.attributes[:_MOST_ATTRIBUTES])
        stream.attributes = tuple(names)
        return True

    def on_producer(self, report: QosProducer, *, session_id: int, now_ns: int) -> bool:
        """A producer says how far it is."""
        stream = self._streams.get(report.stream_id)
        if stream is None:
            return self._refuse("unknown_stream")
        if report.epoch != stream.announce.epoch:
            # One that is not announced yet will be told of again.
            return self._refuse("old_epoch" if report.epoch < stream.announce.epoch else "unannounced_epoch")
        if self._is_another(stream.session_id, session_id, stream.reported_ns, now_ns):
            return self._refuse("another_session")
        before = self._qos.producer(report.stream_id)
        if before is not None and before.epoch == report.epoch and report.current_seq < before.current_seq:
            self._count("seq_went_back")
        stream.reported_ns, stream.session_id = now_ns, session_id
        self._qos.on_producer(report, now_ns)
        return True

    def on_consumer(self, report: QosConsumer, *, session_id: int, now_ns: int) -> bool:
        """A consumer says what it has seen and lost."""
        key = (report.stream_id, report.consumer_id)
        consumer = self._admit(key, now_ns)
        if consumer is None:
            return False
        if self._is_another(consumer.session_id, session_id, consumer.reported_ns, now_ns):
            return self._refuse("another_session")
        before = self._qos.consumer(*key)
        if before is not None:
            if 0 < report.epoch < before.epoch:
                return self._refuse("epoch_went_back")
            if report.epoch != before.epoch:
                consumer.samples.clear()
            elif report.last_seq_seen < (before.last_seq_seen or 0):
                self._count("seq_went_back")
                consumer.samples.clear()
            elif report.drops_gap + report.drops_late < before.drops:
                consumer.samples.clear()  # counts anew: another process, or another ring
        self._qos.on_consumer(report, now_ns)
        after = self._qos.consumer(*key)
        assert after is not None, "there is room for whoever was admitted"
        consumer.samples.add(
            now_ns, after.drops, after.last_seq_seen, gaps=after.drops_gap, lag=self._qos.lag(*key)
        )
        consumer.report, consumer.reported_ns, consumer.session_id = report, now_ns, session_id
        self._heard(consumer, now_ns)
        return True

    def on_hello(self, hello: ConsumerHello, *, session_id: int, now_ns: int) -> bool:
        """A consumer says what it wishes."""
        consumer = self._admit((hello.stream_id, hello.consumer_id), now_ns)
        if consumer is None:
            return False
        if self._is_another(consumer.hello_session_id, session_id, consumer.heard_ns, now_ns):
            return self._refuse("another_session")
        consumer.hello, consumer.hello_session_id = hello, session_id
        self._heard(consumer, now_ns)
        return True

    def _admit(self, key: ConsumerKey, now_ns: int) -> WatchedConsumer | None:
        """The consumer, if there is room for it: one that is stale makes room, one that lives does not."""
        if key[0] not in self._streams:
            self._count("unknown_stream")
            return None
        consumer = self._consumers.get(key)
        if consumer is None:
            if len(self._consumers) >= self._section.max_consumers:
                silent = next(iter(self._consumers.values()))
                if not self.is_stale(silent, now_ns):
                    self._count("too_many_consumers")
                    return None
                self.forget(silent.key)
            samples = Samples(window_ns=self._section.window_ns, interval_ns=self._setting.report_interval_ns)
            consumer = self._consumers[key] = WatchedConsumer(key, samples, now_ns)
        return consumer

    def _heard(self, consumer: WatchedConsumer, now_ns: int) -> None:
        consumer.heard_ns = now_ns
        self._consumers.move_to_end(consumer.key)

    def _is_another(self, known: int | None, session_id: int, heard_ns: int | None, now_ns: int) -> bool:
        """Whether somebody else uses an id whose owner still reports; it is the owner's until that ends."""
        if known is None or heard_ns is None or known == session_id:
            return False
        return now_ns - heard_ns <= self._setting.silence_ns

    def _refuse(self, reason: str) -> bool:
        self._count(reason)
        return False

    # --- what is known ------------------------------------------------------------------------------------

    def is_stale(self, consumer: WatchedConsumer, now_ns: int) -> bool:
        """Whether a consumer fell silent."""
        return now_ns - consumer.heard_ns > self._setting.silence_ns

    def seen(self, consumer: WatchedConsumer, now_ns: int) -> Seen:
        """How a consumer is doing. Of one whose stream is not live nothing can be said."""
        stream = self._streams[consumer.key[0]]
        nslots = stream.announce.header_nslots
        is_stale = self.is_stale(consumer, now_ns)
        if stream.state != "live" or consumer.report is None:
            return Seen(nslots=nslots, is_stale=is_stale)
        lag = self._qos.lag(*consumer.key)
        is_behind = lag is not None and lag >= self._section.slow_lag * nslots
        return Seen(
            lag=lag,
            nslots=nslots,
            drops_per_s=consumer.samples.drops_per_s,
            uncounted_gaps_per_s=_uncounted_gaps_per_s(consumer.samples, nslots),
            is_limited=consumer.mode is Mode.RATE_LIMITED,
            is_stale=is_stale,
            is_still=is_behind and consumer.samples.is_still,
        )

    def state_of(self, stream: WatchedStream, now_ns: int) -> tuple[StreamState, str]:
        """Whether a stream lives, and why not: a dead one needs another epoch [WIRE-15.14-2]."""
        setting = self._setting
        silences = (
            ("its memory was not kept alive for", stream.activity_ns, setting.liveness_ns),
            ("it was not announced for", stream.heard_ns, setting.liveness_ns),
            ("its producer said nothing for", stream.reported_ns, setting.silence_ns),
        )
        for what, last_ns, longest_ns in silences:
            if last_ns is not None and now_ns - last_ns > longest_ns:
                return "dead", f"{what} {(now_ns - last_ns) / _NS_PER_S:.1f} s"
        return ("waiting" if stream.reported_ns is None else "live"), ""

    def expire(self, now_ns: int) -> tuple[list[ConsumerKey], list[int]]:
        """Forgets who was silent for too long; says which consumers and which streams."""
        self._qos.expire(now_ns)
        oldest_ns = now_ns - self._setting.forget_ns
        gone = []
        for key, consumer in self._consumers.items():
            if consumer.heard_ns >= oldest_ns:
                break
            gone.append(key)
        ended = [key for key, stream in self._streams.items() if stream.heard_ns < oldest_ns]
        for stream_id in ended:
            gone += [consumer.key for consumer in self._consumers_of(stream_id)]
            del self._streams[stream_id]
        for key in dict.fromkeys(gone):
            self.forget(key)
        return list(dict.fromkeys(gone)), ended

    def forget(self, key: ConsumerKey) -> bool:
        """A consumer left; whether it was known."""
        self._qos.forget_consumer(*key)
        return self._consumers.pop(key, None) is not None

    def _consumers_of(self, stream_id: int) -> Iterable[WatchedConsumer]:
        return [consumer for key, consumer in self._consumers.items() if key[0] == stream_id]


def _uncounted_gaps_per_s(samples: Samples, nslots: int) -> float:
    """Numbers that a consumer didn't find though it was hardly behind: nobody can tell whether they existed.

    A rate limiter, a bridge with a rate and claims that were given up leave numbers out. Who really can't
    keep up is behind before it loses anything.
    """
    noteworthy = max(min(_NOTEWORTHY_SHARE * nslots, _NOTEWORTHY_LAG), _NOTEWORTHY_STEPS * samples.step)
    return 0.0 if samples.most_lag >= noteworthy else samples.gaps_per_s or 0.0
