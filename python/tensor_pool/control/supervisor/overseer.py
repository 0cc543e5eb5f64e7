"""What a supervisor does with what it hears: all of it but the sockets."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from tensor_pool.control.supervisor.desk import SupervisorDesk
from tensor_pool.control.supervisor.health import HealthBoard
from tensor_pool.control.supervisor.journal import Journal
from tensor_pool.control.supervisor.judging import Condition, Remedy, Standing, condition_of, judge
from tensor_pool.control.supervisor.view import ConsumerHealth, StreamHealth, SupervisorView
from tensor_pool.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tensor_pool.control.supervisor.config import Setting
    from tensor_pool.control.supervisor.journal import Kind, Outcome
    from tensor_pool.control.supervisor.judging import Seen
    from tensor_pool.control.supervisor.watched import WatchedConsumer, WatchedStream
    from tensor_pool.wire import Message

__all__ = ["HEARD", "Overseer"]

_NS_PER_S: Final = 1_000_000_000

HEARD: Final[tuple[type[Message], ...]] = (
    m.ShmPoolAnnounce, m.DataSourceAnnounce, m.DataSourceMeta, m.QosProducer, m.QosConsumer, m.ConsumerHello,
    m.ConsumerConfig, m.ShmLeaseRevoked,
)  # fmt: skip
"""What a supervisor listens to [WIRE-10.5-1]."""


class Overseer:
    """Watches streams and consumers, and decides.

    Args:
        setting: What is configured.
        count: Called with the reason for everything that was not taken.
        read_activity: When the memory of an announce was last kept alive, if that can be known.
        realtime_offset_ns: What makes the time of day of monotonic time; each look says it anew.

    Example:
        >>> from tensor_pool.control.supervisor.config import Setting
        >>> overseer = Overseer(Setting(), count=print)
        >>> report = m.QosConsumer(10000, 7, 5, 40, 0, 0, m.Mode.STREAM)
        >>> overseer.on_message(report, session_id=1, now_ns=0)
        unknown_stream
        []
    """

    def __init__(
        self,
        setting: Setting,
        count: Callable[[str], object] = lambda _: None,
        read_activity: Callable[[m.ShmPoolAnnounce], int | None] = lambda _: None,
        realtime_offset_ns: int = 0,
    ) -> None:
        self._setting = setting
        self._section = setting.section
        self._tell_count = count
        self._read_activity = read_activity
        self._realtime_offset_ns = realtime_offset_ns
        self.dry_run = setting.section.dry_run
        self.refused: Counter[str] = Counter()
        """What was not taken, by reason."""
        self.journal = Journal(self._section.log_length)
        self.board = HealthBoard(setting, self.refuse)
        self.desk = SupervisorDesk(setting)

    @property
    def acts(self) -> bool:
        """Whether consumers are told what was decided."""
        return self._setting.is_authority and not self.dry_run

    # --- what is heard ------------------------------------------------------------------------------------

    def on_message(self, message: Message, *, session_id: int, now_ns: int) -> list[m.ConsumerConfig]:
        """Takes a message; what is to be sent for it."""
        board = self.board
        match message:
            case m.ShmPoolAnnounce():
                board.on_announce(message, session_id=session_id, now_ns=now_ns)
            case m.DataSourceAnnounce():
                board.on_name(message)
            case m.DataSourceMeta():
                board.on_meta(message)
            case m.QosProducer():
                board.on_producer(message, session_id=session_id, now_ns=now_ns)
            case m.QosConsumer():
                return self._on_report(message, session_id, now_ns)
            case m.ConsumerHello():
                return self._on_hello(message, session_id, now_ns)
            case m.ConsumerConfig() if self._setting.is_authority:
                self.refuse("another_authority")  # our own are not heard
            case m.ShmLeaseRevoked(role=m.Role.CONSUMER):
                self._forget((message.stream_id, message.client_id))
            case _:
                pass
        return []

    def _on_report(self, report: m.QosConsumer, session_id: int, now_ns: int) -> list[m.ConsumerConfig]:
        if not self.board.on_consumer(report, session_id=session_id, now_ns=now_ns):
            return []
        config = self.desk.on_qos(report, now_ns) if self._setting.is_authority else None
        return [] if config is None else [config]

    def _on_hello(self, hello: m.ConsumerHello, session_id: int, now_ns: int) -> list[m.ConsumerConfig]:
        if hello.stream_id not in self.board.streams:
            self.refuse("unknown_stream")
            return []
        key = (hello.stream_id, hello.consumer_id)
        is_taken = self.board.on_hello(hello, session_id=session_id, now_ns=now_ns)
        if not self._setting.is_authority:
            return []
        if is_taken:
            return [self._answer(self.board.consumers[key], now_ns)]
        return [] if key in self.board.consumers else [self.desk.answer_stranger(hello, now_ns)]

    def _answer(self, consumer: WatchedConsumer, now_ns: int) -> m.ConsumerConfig:
        """What a consumer is told now: what it wishes, and what was decided about it."""
        remedy = consumer.standing.remedy if self.acts else Remedy.NONE
        consumer.told = self.desk.answer(consumer.wish, remedy, now_ns)
        return consumer.told

    # --- what is decided ------------------------------------------------------------------------------------

    def look(self, now_ns: int, *, realtime_ns: int) -> list[m.ConsumerConfig]:
        """Looks at everybody; what those are told about whom something was decided."""
        self._realtime_offset_ns = realtime_ns - now_ns
        gone, ended = self.board.expire(now_ns)
        for key in gone:
            self.desk.forget(key)
        for stream_id in ended:
            self.desk.forget_stream(stream_id)
        self.desk.expire(now_ns)
        for stream in self.board.streams.values():
            self._look_at_stream(stream, now_ns)
        configs = (self._look_at(consumer, now_ns) for consumer in list(self.board.consumers.values()))
        return [config for config in configs if config is not None]

    def _look_at_stream(self, stream: WatchedStream, now_ns: int) -> None:
        activity_ns = self._read_activity(stream.announce)
        if activity_ns is not None:
            stream.activity_ns = min(activity_ns, now_ns)  # nobody is alive in advance
        before = stream.state
        stream.state, stream.why = self.board.state_of(stream, now_ns)
        if stream.state != before and "dead" in (stream.state, before):
            kind: Kind = "dead" if stream.state == "dead" else "live"
            seen = stream.why or f"epoch {stream.announce.epoch}"
            self._note(kind, now_ns, stream_id=stream.announce.stream_id, seen=seen)

    def _look_at(self, consumer: WatchedConsumer, now_ns: int) -> m.ConsumerConfig | None:
        seen = self.board.seen(consumer, now_ns)
        condition = condition_of(seen, self._section)
        before = consumer.standing
        self._note_change(consumer, before.condition, condition, seen, now_ns)
        ladder = self._ladder(consumer, condition)
        after = consumer.standing = judge(before, condition, ladder, self._section, now_ns)
        if after.remedy is before.remedy:
            return None
        consumer.samples.restart()
        outcome: Outcome = (
            "told" if self.acts else "dry_run" if self._setting.is_authority else "not_authority"
        )
        self.journal.add(
            "moved",
            at_ns=now_ns + self._realtime_offset_ns,
            stream_id=consumer.key[0],
            consumer_id=consumer.key[1],
            seen=_words(seen, condition),
            before=before.remedy,
            after=after.remedy,
            outcome=outcome,
        )
        return self._answer(consumer, now_ns) if self.acts else None

    def _ladder(self, consumer: WatchedConsumer, condition: Condition) -> Sequence[Remedy]:
        if condition is not Condition.SLOW and consumer.standing.remedy is Remedy.NONE:
            return (Remedy.NONE,)  # as nearly always: there is nothing to decide
        ladder = self.desk.ladder(consumer.wish)
        # What a first step would change can't be seen where nobody takes it, so there is no second one.
        return ladder if self.acts else ladder[:2]

    def _note_change(
        self, consumer: WatchedConsumer, before: Condition, after: Condition, seen: Seen, now_ns: int
    ) -> None:
        stream_id, consumer_id = consumer.key
        if before is after:
            return
        kind: Kind = "returned"
        if after is Condition.STALE:
            kind = "stale"
        elif after is Condition.STUCK:
            kind = "stuck"
        elif before not in (Condition.STALE, Condition.STUCK):
            return
        self._note(kind, now_ns, stream_id=stream_id, consumer_id=consumer_id, seen=_words(seen, after))

    def set_dry_run(self, dry_run: bool, *, now_ns: int) -> list[m.ConsumerConfig]:
        """From now on decisions are only logged, or no longer; what was decided so far is undone."""
        if dry_run == self.dry_run:
            return []
        moved = [c for c in self.board.consumers.values() if c.standing.remedy is not Remedy.NONE]
        was_told, self.dry_run = self.acts, dry_run
        for consumer in moved:
            consumer.standing = Standing(condition=consumer.standing.condition, since_ns=now_ns)
        self._note("dry_run", now_ns, seen="on" if dry_run else "off")
        return [self._answer(consumer, now_ns) for consumer in moved] if was_told else []

    def _forget(self, key: tuple[int, int]) -> None:
        if self.board.forget(key):
            self.desk.forget(key)

    def refuse(self, reason: str) -> None:
        """Counts something that was not taken."""
        self.refused[reason] += 1
        self._tell_count(reason)

    def _note(
        self,
        kind: Kind,
        now_ns: int,
        *,
        stream_id: int | None = None,
        consumer_id: int | None = None,
        seen: str = "",
    ) -> None:
        at_ns = now_ns + self._realtime_offset_ns
        self.journal.add(kind, at_ns=at_ns, stream_id=stream_id, consumer_id=consumer_id, seen=seen)

    # --- what is known --------------------------------------------------------------------------------------

    def view(self, now_ns: int) -> SupervisorView:
        """Everything that is known, worst consumers first."""
        counts = Counter(stream_id for stream_id, _ in self.board.consumers)
        streams = [
            self._stream_health(stream, counts[stream_id], now_ns)
            for stream_id, stream in sorted(self.board.streams.items())
        ]
        consumers = [self._consumer_health(each, now_ns) for each in self.board.consumers.values()]
        consumers.sort(
            key=lambda each: (-_BADNESS[Condition(each.condition)], each.stream_id, each.consumer_id)
        )
        return SupervisorView(
            at_ns=now_ns + self._realtime_offset_ns,
            dry_run=self.dry_run,
            is_authority=self._setting.is_authority,
            streams=tuple(streams),
            consumers=tuple(consumers),
            refused=dict(self.refused),
        )

    def _stream_health(self, stream: WatchedStream, consumers: int, now_ns: int) -> StreamHealth:
        announce = stream.announce
        report = self.board.producer(announce.stream_id)
        if report is not None and report.epoch != announce.epoch:
            report = None
        return StreamHealth(
            stream_id=announce.stream_id,
            name=stream.name,
            epoch=announce.epoch,
            producer_id=announce.producer_id,
            state=stream.state,
            why=stream.why,
            slots=announce.header_nslots,
            current_seq=None if report is None else report.current_seq,
            rate_hz=None if report is None else _rounded(report.rate_hz),
            consumers=consumers,
            meta_version=stream.meta_version,
            attributes=stream.attributes,
            silent_s=None if stream.reported_ns is None else _seconds(now_ns - stream.reported_ns),
        )

    def _consumer_health(self, consumer: WatchedConsumer, now_ns: int) -> ConsumerHealth:
        seen, report, standing = self.board.seen(consumer, now_ns), consumer.report, consumer.standing
        return ConsumerHealth(
            stream_id=consumer.key[0],
            consumer_id=consumer.key[1],
            condition=standing.condition,
            remedy=standing.remedy,
            mode=consumer.mode.name.lower(),
            lag=seen.lag,
            drops_per_s=_rounded(seen.drops_per_s),
            drops_gap=0 if report is None else report.drops_gap,
            drops_late=0 if report is None else report.drops_late,
            rate_hz=_rounded(consumer.samples.rate_hz),
            condition_s=_seconds(now_ns - standing.since_ns),
            patience=standing.patience,
            silent_s=_seconds(now_ns - consumer.heard_ns),
        )


_BADNESS: Final = {
    Condition.STUCK: 5,
    Condition.SLOW: 4,
    Condition.STALE: 3,
    Condition.FAIR: 2,
    Condition.UNKNOWN: 1,
    Condition.HEALTHY: 0,
}


def _words(seen: Seen, condition: Condition) -> str:
    lag = "unknown" if seen.lag is None else f"{seen.lag} of {seen.nslots} slots"
    drops = "unknown" if seen.drops_per_s is None else f"{seen.drops_per_s:.1f}/s"
    gaps = seen.uncounted_gaps_per_s
    uncounted = f", {gaps:.1f}/s of them don't count" if gaps else ""
    return f"{condition}: lag {lag}, drops {drops}{uncounted}"


def _seconds(duration_ns: int) -> float:
    return round(duration_ns / _NS_PER_S, 3)


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 2)
