"""The SHM driver as an agent: moves messages between Aeron and the parts that decide."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from tensor_pool.driver import activity
from tensor_pool.driver.admin import AdminHandler
from tensor_pool.driver.announce import Announcer
from tensor_pool.driver.answers import Moment, wire_text
from tensor_pool.driver.attach import AttachHandler
from tensor_pool.driver.files import EpochFiles
from tensor_pool.driver.garbage import EndedEpochs
from tensor_pool.driver.hello import HelloDesk
from tensor_pool.driver.leases import LeaseBook
from tensor_pool.driver.lifecycle import Lifecycle
from tensor_pool.driver.limits import Limits
from tensor_pool.driver.lock import BaseDirLock
from tensor_pool.driver.registry import StreamRegistry
from tensor_pool.driver.requests import read_broken_attach
from tensor_pool.driver.shutdown import ShutdownDesk
from tensor_pool.driver.state import StateFile, StateRecord
from tensor_pool.errors import MalformedMessageError, TensorPoolError
from tensor_pool.runtime import (
    CounterSet,
    CounterType,
    LocalCounters,
    Periodic,
    StopAgent,
    SystemClock,
)
from tensor_pool.runtime.faults import fault_point
from tensor_pool.runtime.repeats import limit_repeats
from tensor_pool.transport.outbox import Outbox
from tensor_pool.wire import Router
from tensor_pool.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensor_pool.config import ShmSection, StreamsSection
    from tensor_pool.driver.activity import KeeperFactory
    from tensor_pool.driver.config import DriverSection
    from tensor_pool.runtime import Clock, CounterFactory
    from tensor_pool.transport import Client, Header, Subscribe, Subscription
    from tensor_pool.wire import Message, MessageHeader

__all__ = ["DriverAgent"]

_LOG: Final = limit_repeats(logging.getLogger(__name__))

_NS_PER_MS: Final = 1_000_000
_POLL_LIMIT: Final = 64
_DRAIN_LIMIT: Final = 100_000
"""Messages that are looked at before leases expire; a flood must not keep them from expiring for ever."""
_HOUSEKEEPING_NS: Final = 1_000_000_000
_COUNTERS: Final = [kind for kind in CounterType if kind.name.startswith("DRIVER_")]
_CLOCK_DOMAINS: Final = {
    "monotonic": m.ClockDomain.MONOTONIC,
    "realtime_synced": m.ClockDomain.REALTIME_SYNCED,
}


class DriverAgent:
    """Owner of files, epochs and announces [DRV-3-1, DRV-8-1].

    Args:
        client: Aeron, or what stands for it.
        section: What the driver serves and allows.
        streams: Where its messages travel.
        shm: Where its files lie.
        clock: The time.
        counters: Where its counters come from.
        open_keeper: Makes what says that a ring is alive.
        software_version: What it says it is.
        replay_window_ns: For so long after its start it is deaf to attaches: a lingering log may replay those
            of an earlier run, and a lease for somebody who is gone would hold the stream (decision L11). Who
            is there asks again.
        subscribe: Opens a subscription to certain messages; everything else may be left out of it.
        on_request: Called when a client asks for something and will soon ask for more.

    Example:
        >>> import tempfile
        >>> from tensor_pool.config import ShmSection, StreamsSection
        >>> from tensor_pool.driver.config import DriverSection
        >>> from tensor_pool.runtime import AgentInvoker
        >>> from tensor_pool.transport.memory import MemoryBus
        >>> with tempfile.TemporaryDirectory(dir="/dev/shm") as base:
        ...     agent = DriverAgent(
        ...         MemoryBus().client(), DriverSection(), StreamsSection(), ShmSection(shm_base_dir=base))
        ...     with AgentInvoker(agent) as driver:
        ...         _ = driver.invoke()
        ...         agent.status().state.name
        'RUNNING'
    """

    name = "shm-driver"

    def __init__(
        self,
        client: Client,
        section: DriverSection,
        streams: StreamsSection,
        shm: ShmSection,
        *,
        clock: Clock | None = None,
        counters: CounterFactory | None = None,
        open_keeper: KeeperFactory | None = None,
        software_version: str = "",
        replay_window_ns: int = 0,
        subscribe: Subscribe | None = None,
        on_request: Callable[[], object] | None = None,
    ) -> None:
        section.check_beside(streams)
        self._client = client
        self._section = section
        self._stream_section = streams
        self._clock = SystemClock() if clock is None else clock
        self._counter_factory = LocalCounters() if counters is None else counters
        self._open_keeper = activity.open_keeper if open_keeper is None else open_keeper
        self._software_version = software_version
        self._replay_window_ns = replay_window_ns
        self._subscribe = subscribe or (lambda *endpoint: client.add_subscription(*endpoint[:2]))
        self._on_request = on_request or (lambda: None)
        self._hears_attaches_from_ns = 0
        self._files = EpochFiles(shm, instance_id=section.instance_id, group=section.group)
        self._lock: BaseDirLock | None = None
        self._outgoing: list[Message | bytes] = []
        self._is_serving = False

    @property
    def directory(self) -> str:
        """Where the driver's streams lie."""
        return str(self._files.directory)

    @property
    def announce_session_id(self) -> int:
        """What tells its announces from those of other drivers on the same stream."""
        return self._announces.publication.session_id

    # --- the life of the agent ---

    def on_start(self) -> None:
        """Takes the directory, remembers earlier runs, opens the streams.

        Raises:
            RegionError: Another driver has the directory, or it can't be used.
            TransportError: Aeron does not do what it is asked.
        """
        now = self._now()
        self._files.prepare()
        self._lock = BaseDirLock(self._files.directory)
        self._files.take()
        self.counters = CounterSet(self._counter_factory, "driver", _COUNTERS)
        self._leases = LeaseBook(lease_ns=self._section.lease_ns)
        self._streams = StreamRegistry(self._section)
        self._state = StateFile(self._files.directory)
        self._shutdown = ShutdownDesk(self._section, self._remember(now))
        self._last_cycle_ns = now.monotonic_ns
        self._housekeeping = Periodic(period_ns=_HOUSEKEEPING_NS, start_ns=now.monotonic_ns)
        self._assemble(now)
        self._open_streams()
        for stream in self._streams:
            if stream.is_static:
                self._outgoing += self._lifecycle.provision(stream, now)
        self._is_serving = True
        self._hears_attaches_from_ns = self._clock.monotonic_ns() + self._replay_window_ns
        self._send()
        _LOG.info("SHM driver serves %s, %d static streams", self.directory, len(self._section.streams))

    def _remember(self, now: Moment) -> tuple[int, ...]:
        """Takes over what earlier drivers of the directory left."""
        record = self._state.load()
        found = self._files.scan()
        self._streams.highest_epoch = max([record.highest_epoch, *(epoch.epoch for epoch in found)])
        self._ended = EndedEpochs(
            keep_count=self._section.epoch_keep_count,
            min_age_ns=self._section.epoch_min_age_ms * _NS_PER_MS,
            stale_ns=3 * self._section.announce_interval_ms * _NS_PER_MS,
        )
        for epoch in found:
            if self._section.recreate_on_start:
                self._files.remove(epoch)
            else:
                activity_ns = self._files.activity(epoch)
                self._ended.add_found(epoch, activity=activity_ns, now_ns=now.monotonic_ns)
        for stream in record.streams:
            is_free = self._streams.get(stream.id) is None and self._streams.by_name(stream.name) is None
            if is_free and len(self._streams) < self._section.max_streams:
                added = self._streams.add(stream.id, name=stream.name, now_ns=now.monotonic_ns)
                if stream.is_claimed:
                    self._streams.claim(added)
        self._saved_changes = -1  # whatever was read is written back in today's form
        self._is_unsaved = False
        return record.shutdown_requests

    def _assemble(self, now: Moment) -> None:
        self._announcer = Announcer(
            leases=self._leases,
            period_ns=self._section.announce_interval_ms * _NS_PER_MS,
            domain=_CLOCK_DOMAINS[self._section.announce_clock_domain],
            counters=self.counters,
        )
        self._lifecycle = Lifecycle(
            leases=self._leases,
            streams=self._streams,
            files=self._files,
            ended=self._ended,
            announcer=self._announcer,
            counters=self.counters,
            open_keeper=self._open_keeper,
        )
        limits = Limits(self._section)
        self._attach = AttachHandler(
            lifecycle=self._lifecycle,
            announcer=self._announcer,
            limits=limits,
            counters=self.counters,
        )
        self._admin = AdminHandler(
            section=self._section,
            lifecycle=self._lifecycle,
            attach=self._attach,
            limits=limits,
            counters=self.counters,
            started=now,
            software_version=self._software_version,
        )
        self._hellos = HelloDesk(self._streams)
        self._router = Router(
            on_unsupported_version=self._on_unsupported_version, on_malformed=self._on_malformed
        )
        handlers: list[tuple[type[Any], Callable[[Any, Moment], list[Message]]]] = [
            (m.ShmAttachRequest, self._on_attach),
            (m.NewerShmAttachRequest, self._on_attach),
            (m.ShmLeaseKeepalive, self._attach.keep_alive),
            (m.ShmDetachRequest, self._attach.detach),
            (m.ShmDriverShutdownRequest, self._on_shutdown_request),
            (m.ResolveStream, self._on_resolve),
            (m.ListStreams, self._admin.list_streams),
            (m.ListLeases, self._admin.list_leases),
            (m.RevokeLease, self._admin.revoke),
            (m.GetDriverStatus, self._admin.status),
            (m.QosProducer, self._on_qos),
        ]
        if self._section.hello_authority == "driver":
            handlers.append((m.ConsumerHello, self._on_hello))
        self._wanted = [message_type for message_type, _ in handlers]
        for message_type, handler in handlers:
            self._router.on(message_type, self._answering(handler))

    def _open_streams(self) -> None:
        """Opens each channel and id once, also where one serves several purposes (decision D21)."""
        s = self._stream_section
        control = (s.control_channel, s.control_stream_id)
        announce = (s.announce_channel, s.announce_stream_id)
        listen = dict.fromkeys([control, (s.qos_channel, s.qos_stream_id)])
        self._subscriptions: list[Subscription] = [self._subscribe(*where, self._wanted) for where in listen]
        unsent = self.counters[CounterType.DRIVER_UNSENT]
        self._control = Outbox(self._client.add_publication(*control), unsent)
        self._announces = (
            self._control if announce == control else Outbox(self._client.add_publication(*announce), unsent)
        )
        self._admin.max_message_bytes = self._control.publication.max_message_bytes

    def on_close(self) -> None:
        """Says goodbye, lets go of everything, and cleans up if that is configured."""
        try:
            if self._is_serving:
                self._is_serving = False
                self._say_goodbye()
        finally:
            self._let_go()

    def _say_goodbye(self) -> None:
        now = self._now()
        notice = m.ShmDriverShutdown(
            timestamp_ns=now.monotonic_ns,
            reason=self._shutdown.reason,
            error_message=wire_text(self._shutdown.text),
        )
        try:
            self._outgoing.append(notice)
            self._send()
        except TensorPoolError as e:  # the media driver may be gone first
            _LOG.warning("nobody was told that the driver ends: %s", e.message)
        self._save_state()
        self._lifecycle.close()
        if self._section.cleanup_on_exit:
            self._lifecycle.remove_made()
        self._files.remove_empty()
        for end in (*self._subscriptions, self._control.publication, self._announces.publication):
            end.close()

    def _let_go(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None
            if hasattr(self, "counters"):
                self.counters.close()

    # --- a duty cycle ---

    def do_work(self) -> int:
        """One duty cycle.

        Raises:
            StopAgent: A shutdown request was granted and the time to drain is over.
        """
        now = self._now()
        self._notice_stall(now)
        work = self._control.flush() + (
            self._announces.flush() if self._announces is not self._control else 0
        )
        work += self._poll()
        work += self._expire(now)
        # What the clock brings is not counted as work: nothing follows it that a short pause would be for.
        self._announce_due(self._now())
        if self._housekeeping.due(now.monotonic_ns):
            self._keep_house(now)
        self._send()
        if self._shutdown.is_over(now.monotonic_ns):
            raise StopAgent
        return work

    def _poll(self) -> int:
        return sum(subscription.poll(self._on_message, _POLL_LIMIT) for subscription in self._subscriptions)

    def _expire(self, now: Moment) -> int:
        next_ns = self._leases.next_expiry_ns()
        if next_ns is None or next_ns > now.monotonic_ns:
            return 0
        # Whoever was slow may have been this process: the keepalives that came meanwhile count first.
        drained = 0
        while drained < _DRAIN_LIMIT and (count := self._poll()):
            drained += count
            # That may take seconds in a flood; who hears no announce for so long takes the driver for dead.
            self._announce_due(self._now())
            self._send()
        expired = self._lifecycle.expire(now)
        self._outgoing += expired
        return drained + len(expired)

    def _notice_stall(self, now: Moment) -> None:
        """A driver that did not run can't tell which clients are gone: all get a new term.

        Aeron leaves a subscriber behind that is stopped for longer than its window, and the keepalives of
        that time with it (decision D18).
        """
        stalled_ns = now.monotonic_ns - self._last_cycle_ns
        self._last_cycle_ns = now.monotonic_ns
        if stalled_ns > self._section.keepalive_interval_ms * _NS_PER_MS:
            self.counters[CounterType.DRIVER_STALLS].add()
            self._leases.postpone(now.monotonic_ns + self._section.lease_ns)

    def _announce_due(self, now: Moment) -> None:
        for stream_id in self._announcer.take_due(now.monotonic_ns):
            stream = self._streams.get(stream_id)
            if stream is not None and stream.epoch is not None:
                self._lifecycle.refresh_activity(stream, now)
                self._outgoing.append(self._announcer.repeat(stream, now))

    def _keep_house(self, now: Moment) -> None:
        self._client.check()
        self._outgoing += self._lifecycle.retry(now)
        if self._is_unsaved:  # tried again once a second, not in each cycle
            self._is_unsaved, self._saved_changes = False, -1
        self._lifecycle.retire_idle(now, self._section.idle_stream_timeout_ms * _NS_PER_MS)
        self._lifecycle.forget_unclaimed(now)
        self._lifecycle.collect(now)
        self.counters[CounterType.DRIVER_STREAMS].set(len(self._streams))
        self.counters[CounterType.DRIVER_REGION_BYTES].set(self._lifecycle.total_bytes)

    def _send(self) -> None:
        """Sends what the cycle has to say; names and epochs are remembered before anybody hears of them."""
        outgoing, self._outgoing = self._outgoing, []
        self._save_state()
        for message in outgoing:
            if isinstance(message, bytes | m.ShmPoolAnnounce):
                fault_point("driver.before_announce")
                self._announces.send(message)
                fault_point("driver.after_announce")
            else:
                self._control.send(message)

    def _save_state(self) -> None:
        if self._saved_changes == self._streams.changes:
            return
        record = StateRecord(
            highest_epoch=self._streams.highest_epoch,
            streams=self._streams.remembered,
            shutdown_requests=self._shutdown.granted,
        )
        try:
            self._state.save(record)
        except OSError as e:
            # Epochs also grow with the clock and the directories; only names could get other ids.
            _LOG.warning("names and epochs can't be saved: %s", e.strerror)
            self._is_unsaved = True
        self._saved_changes = self._streams.changes

    # --- messages ---

    def _on_message(self, data: bytes, header: Header) -> None:
        self._received = data
        self._speaker = header.session_id
        self._router.dispatch(data)

    def _answering(self, handler: Callable[[Any, Moment], list[Message]]) -> Callable[[Any], None]:
        def handle(message: Any) -> None:
            self._outgoing += handler(message, self._now())

        return handle

    def _on_malformed(self, error: MalformedMessageError) -> None:
        self.counters[CounterType.DRIVER_MALFORMED].add()
        broken = read_broken_attach(self._received, error.message)
        if broken is not None:
            self._outgoing += self._attach.refuse(broken, self._now(), self._speaker)

    def _on_unsupported_version(self, header: MessageHeader, data: bytes) -> None:
        broken = read_broken_attach(
            data, f"version {header.version} of schema {header.schema_id}; the driver has 1"
        )
        if broken is not None:
            self._outgoing += self._attach.refuse(broken, self._now(), self._speaker)

    def _on_shutdown_request(self, request: m.ShmDriverShutdownRequest, now: Moment) -> list[Message]:
        was_draining = self._shutdown.is_draining
        answer = self._shutdown.request(request, now)
        if answer is None:
            return []
        messages: list[Message] = [answer]
        if self._shutdown.is_draining and not was_draining:
            _LOG.info("the driver was asked to end: %s", request.error_message or request.reason.name)
            self._attach.is_draining = True
            self._streams.changes += 1  # the request itself is remembered
            messages += [self._announcer.announce(s, now) for s in self._streams if s.epoch is not None]
        return messages

    def _on_resolve(self, request: m.ResolveStream, now: Moment) -> list[Message]:
        self._on_request()  # the attach follows
        return self._admin.resolve(request, now)

    def _on_attach(self, request: m.ShmAttachRequest | m.NewerShmAttachRequest, now: Moment) -> list[Message]:
        self._on_request()  # programs open several streams, one after the other
        if now.monotonic_ns < self._hears_attaches_from_ns:
            return []
        return self._attach.attach(request, now, self._speaker)

    def _on_qos(self, report: m.QosProducer, now: Moment) -> list[Message]:
        stream = self._streams.get(report.stream_id)
        if stream is not None and stream.epoch is not None and stream.epoch.number == report.epoch:
            stream.report(report.current_seq, now.monotonic_ns)
        return []

    def _on_hello(self, hello: m.ConsumerHello, _now: Moment) -> list[Message]:
        answer = self._hellos.answer(hello)
        return [] if answer is None else [answer]

    # --- for the process that runs it ---

    def status(self) -> m.DriverStatus:
        """What the driver is, does and allows."""
        return self._admin.status_now(self._now())

    def revoke(self, lease_id: int) -> None:
        """Ends a lease, on the driver's own thread.

        Raises:
            ValueError: There is no such lease, or the driver wants a token for that.
        """
        self._outgoing += self._admin.revoke_now(lease_id, self._now())

    def _now(self) -> Moment:
        return Moment(self._clock.monotonic_ns(), self._clock.realtime_ns())
