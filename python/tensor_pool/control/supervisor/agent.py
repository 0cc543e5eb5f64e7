"""The supervisor as an agent: hears everybody, tells consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tensor_pool.control.supervisor.liveness import read_activity
from tensor_pool.control.supervisor.overseer import HEARD, Overseer
from tensor_pool.runtime import CounterType, LocalCounters, Periodic, ReasonCounters, SystemClock
from tensor_pool.runtime.clock import realtime_offset_ns
from tensor_pool.transport import OfferResult
from tensor_pool.wire import Router, encode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tensor_pool.control.supervisor.config import Setting
    from tensor_pool.control.supervisor.journal import Journal
    from tensor_pool.control.supervisor.view import SupervisorView
    from tensor_pool.runtime import Clock, CounterFactory
    from tensor_pool.transport import Client, Header, Publication, Subscribe, Subscription
    from tensor_pool.wire import Message
    from tensor_pool.wire.messages import ConsumerConfig

__all__ = ["SupervisorAgent"]

_POLL_LIMIT: Final = 256
_LOOKS_AN_INTERVAL: Final = 2
_LEAST_LOOK_NS: Final = 20_000_000


class SupervisorAgent:
    """Watches the streams of a host, and moves consumers that can't keep up.

    Args:
        client: Aeron, or what stands for it.
        setting: What is configured.
        clock: The time.
        counters: Where its counters come from.
        subscribe: Opens a subscription to certain messages; everything else may be left out of it.
    """

    name = "supervisor"

    def __init__(
        self,
        client: Client,
        setting: Setting,
        *,
        clock: Clock | None = None,
        counters: CounterFactory | None = None,
        subscribe: Subscribe | None = None,
    ) -> None:
        self._client = client
        self._setting = setting
        self._clock = SystemClock() if clock is None else clock
        self._subscribe = subscribe or (lambda *endpoint: client.add_subscription(*endpoint[:2]))
        self.counters = ReasonCounters(LocalCounters() if counters is None else counters, self.name)
        self._overseer = Overseer(
            setting,
            count=lambda reason: self.counters.add(CounterType.SUPERVISOR_REFUSED, reason),
            read_activity=lambda announce: read_activity(
                announce.header_region_uri, announce.epoch, setting.base_dirs
            ),
            realtime_offset_ns=realtime_offset_ns(self._clock),
        )
        self._wanted_dry_run = self._overseer.dry_run
        self._view = self._overseer.view(self._clock.monotonic_ns())
        self._router = Router(
            on_malformed=lambda _: self._overseer.refuse("malformed"),
            on_unsupported_version=lambda _header, _data: self._overseer.refuse("unsupported_version"),
        )
        for kind in HEARD:
            self._router.on(kind, self._on_message)
        self._session_id = 0
        self._subscriptions: list[Subscription] = []
        self._control: Publication | None = None

    @property
    def journal(self) -> Journal:
        """What was decided and noticed; its `on_decision` is called on the agent's thread."""
        return self._overseer.journal

    def view(self) -> SupervisorView:
        """What is known, as of the last look; may be called from any thread."""
        return self._view

    @property
    def dry_run(self) -> bool:
        """Whether decisions are only logged; may be set from any thread, and counts from the next turn."""
        return self._wanted_dry_run

    @dry_run.setter
    def dry_run(self, dry_run: bool) -> None:
        self._wanted_dry_run = dry_run

    def on_start(self) -> None:
        """Opens the streams.

        Raises:
            TransportError: Aeron does not do what it is asked.
        """
        s = self._setting.streams
        # Announces first: what is said of a stream counts once it is known.
        places = dict.fromkeys(
            [
                (s.announce_channel, s.announce_stream_id),
                (s.metadata_channel, s.metadata_stream_id),
                (s.qos_channel, s.qos_stream_id),
                (s.control_channel, s.control_stream_id),
            ]
        )
        self._subscriptions = [self._subscribe(*place, HEARD) for place in places]
        if self._setting.is_authority:
            self._control = self._client.add_publication(s.control_channel, s.control_stream_id)
        now_ns = self._clock.monotonic_ns()
        interval_ns = self._setting.report_interval_ns
        look_ns = max(interval_ns // _LOOKS_AN_INTERVAL, _LEAST_LOOK_NS)
        self._look_due = Periodic(period_ns=look_ns, start_ns=now_ns)
        self._view_due = Periodic(period_ns=max(interval_ns, _LEAST_LOOK_NS), start_ns=now_ns)

    def do_work(self) -> int:
        """One duty cycle."""
        work = sum(subscription.poll(self._on_bytes, _POLL_LIMIT) for subscription in self._subscriptions)
        now_ns = self._clock.monotonic_ns()
        if self._wanted_dry_run != self._overseer.dry_run:
            self._send(self._overseer.set_dry_run(self._wanted_dry_run, now_ns=now_ns))
        if self._look_due.due(now_ns):
            self._look(now_ns)
        return work

    def on_close(self) -> None:
        """Closes everything. Consumers stay as they were told."""
        for subscription in self._subscriptions:
            subscription.close()
        if self._control is not None:
            self._control.close()
        self.counters.close()

    def _look(self, now_ns: int) -> None:
        overseer = self._overseer
        self._send(overseer.look(now_ns, realtime_ns=self._clock.realtime_ns()))
        if self._view_due.due(now_ns):
            self._view = overseer.view(now_ns)
        self.counters.set(CounterType.SUPERVISOR_STREAMS, len(overseer.board.streams))
        self.counters.set(CounterType.SUPERVISOR_CONSUMERS, len(overseer.board.consumers))
        self.counters.set(CounterType.SUPERVISOR_DECISIONS, overseer.journal.decisions)

    def _on_bytes(self, data: bytes, header: Header) -> None:
        if self._control is not None and header.session_id == self._control.session_id:
            return  # our own
        self._session_id = header.session_id
        self._router.dispatch(data)

    def _on_message(self, message: Message) -> None:
        now_ns = self._clock.monotonic_ns()
        self._send(self._overseer.on_message(message, session_id=self._session_id, now_ns=now_ns))

    def _send(self, configs: Iterable[ConsumerConfig]) -> None:
        for config in configs:
            # What does not go out now goes out with the answer to the next hello.
            is_sent = self._control is not None and self._control.offer(encode(config)) is OfferResult.SENT
            self.counters.add(CounterType.SUPERVISOR_CONFIGS if is_sent else CounterType.SUPERVISOR_UNSENT)
