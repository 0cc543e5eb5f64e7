"""A service as an agent: hears the commands that are for it, echoes those it accepts, tells how it is."""

from __future__ import annotations

import logging
import os
import socket
import threading
from typing import TYPE_CHECKING, Final

import msgspec

from tensor_pool.control.access import Commanders, is_ipc
from tensor_pool.control.config import ControlPlaces, ControlSection
from tensor_pool.control.declared import Command, Property
from tensor_pool.control.desk import OWN_KEYS, DeclaredKey, Refusal, ServiceDesk
from tensor_pool.control.ear import EventEar, listen, said_so_far
from tensor_pool.control.events import EventForm, event_message
from tensor_pool.errors import MalformedMessageError
from tensor_pool.runtime import CounterType, LocalCounters, Periodic, ReasonCounters, SystemClock
from tensor_pool.runtime.clock import realtime_offset_ns
from tensor_pool.runtime.repeats import limit_repeats
from tensor_pool.transport.outbox import Outbox

if TYPE_CHECKING:
    from tensor_pool.config import Config
    from tensor_pool.control.values import Value
    from tensor_pool.runtime import Clock, CounterFactory
    from tensor_pool.transport import Client
    from tensor_pool.wire.messages import EventMessage

__all__ = ["ENDED", "INFO", "REFUSED", "ServiceAgent", "ServiceInfo"]

_LOG: Final = limit_repeats(logging.getLogger(__name__))
INFO: Final = f"{OWN_KEYS}info"
"""Key of what a service is, as JSON; comes again and again."""
REFUSED: Final = f"{OWN_KEYS}refused"
"""Key of why a command was not accepted, as JSON. It has no correlation id of its own: only an echo does."""
ENDED: Final = f"{OWN_KEYS}ended"
"""Key of a service's last words."""
_MAX_REFUSALS: Final = 32
"""Refusals that are told in one period; all are counted."""
_MAX_STALE_NS: Final = 600 * 1_000_000_000
"""A time further back than this is none of the clock that this host has."""


class ServiceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a service says that it is.

    Example:
        >>> ServiceInfo(tag="service:camera", host="lab-3", pid=42).tag
        'service:camera'
    """

    tag: str
    host: str
    pid: int
    doc: str = ""
    properties: tuple[DeclaredKey, ...] = ()
    commands: tuple[DeclaredKey, ...] = ()


class ServiceAgent:
    """One service on the control and status streams.

    Args:
        client: Aeron, or what stands for it.
        config: The sections ``control`` and ``streams``.
        tag: Who it is.
        desk: What it has and does.
        doc: What it is, in a line.
        clock: The time.
        counters: Where its counters come from.
    """

    def __init__(
        self,
        client: Client,
        config: Config,
        tag: str,
        desk: ServiceDesk,
        *,
        doc: str = "",
        clock: Clock | None = None,
        counters: CounterFactory | None = None,
    ) -> None:
        self.name = self.tag = tag
        self.desk = desk
        self._client = client
        section = config[ControlSection]
        self._places = ControlPlaces.of(config)
        self._period_ns = section.status_period_ms * 1_000_000
        self._form = EventForm(section.schema_id)
        self._commanders = Commanders(section.access)
        self._clock = SystemClock() if clock is None else clock
        self.counters = ReasonCounters(LocalCounters() if counters is None else counters, tag)
        self._info = ServiceInfo(
            tag=tag,
            host=socket.gethostname(),
            pid=os.getpid(),
            doc=doc,
            properties=tuple(self.desk.describe(Property)),
            commands=tuple(self.desk.describe(Command)),
        )
        self._ears: list[EventEar] = []
        self._status: list[Outbox] = []
        self._refusals_left = _MAX_REFUSALS
        self.thread_id: int | None = None
        """Where commands are carried out, once it has started."""

    @property
    def ignored(self) -> int:
        """Messages for others that were left out before Python saw them."""
        return sum(getattr(ear.subscription, "ignored", 0) for ear in self._ears)

    def on_start(self) -> None:
        """Opens the streams, and tells what it is.

        Raises:
            TransportError: Aeron does not do what it is asked.
        """
        self.thread_id = threading.get_ident()
        self._started_ns = self._clock.monotonic_ns()
        unsent = self.counters.cell(CounterType.CONTROL_UNSENT)
        for endpoint in self._places.told_at:
            self._status.append(Outbox(self._client.add_publication(*endpoint), unsent))
        for endpoint in self._places.heard_at:
            said_before = said_so_far(self._client, endpoint)
            heard = listen(self._client, endpoint, self._form.kind, tags=[self.tag])
            self._ears.append(
                EventEar(heard, self._on_message, said_before=said_before, on_old=self._count_stale)
            )
        self._telling = Periodic(period_ns=self._period_ns, start_ns=self._clock.monotonic_ns())

    def do_work(self) -> int:
        """One duty cycle."""
        work = sum(outbox.flush() for outbox in self._status)
        work += sum(ear.poll() for ear in self._ears)
        work += self._tell_posted()
        for key, value in self.desk.take_changed().items():
            self._tell(key, value)
            work += 1
        if self._telling.due(self._clock.monotonic_ns()):
            self._tell_all()
        return work

    def on_close(self) -> None:
        """Says the last that it has to say, then goodbye, and closes everything."""
        self._tell_posted()
        self._tell(ENDED, None)
        for outbox in self._status:
            outbox.flush()
            outbox.publication.close()
        for ear in self._ears:
            ear.close()
        self.counters.close()

    def _tell(self, key: str, value: Value, *, correlation_id: int = 0) -> None:
        self._send(event_message(self.tag, key, value, correlation_id=correlation_id))

    def _tell_posted(self) -> int:
        posted = self.desk.take_posted()
        for key, value, correlation_id in posted:
            self._tell(key, value, correlation_id=correlation_id)
        return len(posted)

    def _tell_all(self) -> None:
        self._refusals_left = _MAX_REFUSALS
        overflowed = sum(getattr(ear.subscription, "overflowed", 0) for ear in self._ears)
        if overflowed:
            self.counters.cell(CounterType.CONTROL_REFUSED, "overflowed").set(overflowed)
        self._tell(INFO, msgspec.json.encode(self._info).decode())
        for key, value in self.desk.values.items():
            self._tell(key, value)

    def _send(self, message: EventMessage) -> None:
        data = self._form.encode(message)
        for outbox in self._status:
            outbox.send(data)

    def _on_message(self, data: bytes, source: str) -> None:
        try:
            event = self._form.decode(data)
        except MalformedMessageError as e:
            self._count_refused("malformed")
            _LOG.debug("%s: a broken event from %s: %s", self.tag, source, e.message)
            return
        if event is None or event.tag != self.tag:
            return  # another's [SVC-5-3]
        if self._is_stale(event, source):
            self._count_stale()
            return
        if self._commanders.allow(self.tag, source):
            refusal = self.desk.take(event)
        else:
            refusal = Refusal(
                key=event.key,
                correlation_id=event.correlation_id,
                reason="not_allowed",
                text=f"commands from {source} are not allowed",
            )
        if refusal is None:
            self.counters.add(CounterType.CONTROL_ACCEPTED)
            self._echo(event)
        else:
            self._refuse(refusal, source)

    def _is_stale(self, event: EventMessage, source: str) -> bool:
        """Whether a process of this host said it before this service began: it was for another one.

        A new subscriber of Aeron begins where the slowest one is, so it may hear a command again that its
        predecessor has carried out. Of what came from other hosts, whose clocks differ, the ear knows it.
        """
        if not is_ipc(source):
            return False
        said_ns = event.timestamp_ns - realtime_offset_ns(self._clock)
        return 0 < self._started_ns - said_ns < _MAX_STALE_NS

    def _echo(self, event: EventMessage) -> None:
        """The same event, but for the time: this is what makes a command accepted [SVC-6-1]."""
        self._send(msgspec.structs.replace(event, timestamp_ns=self._clock.realtime_ns()))

    def _refuse(self, refusal: Refusal, source: str) -> None:
        self._count_refused(refusal.reason)
        _LOG.warning("%s refuses %s from %s: %s", self.tag, refusal.key, source, refusal.text)
        if self._refusals_left:
            self._refusals_left -= 1
            self._tell(REFUSED, msgspec.json.encode(refusal).decode())

    def _count_stale(self) -> None:
        self._count_refused("stale")

    def _count_refused(self, reason: str) -> None:
        self.counters.add(CounterType.CONTROL_REFUSED, reason)
