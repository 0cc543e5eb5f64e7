"""The discovery provider as an agent: hears of streams, answers queries."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from tensor_pool.discovery.access import Visibility
from tensor_pool.discovery.desk import DiscoveryDesk, check_request
from tensor_pool.discovery.hearing import HEARD, DriverEar
from tensor_pool.discovery.index import StreamIndex
from tensor_pool.discovery.request_limits import has_too_many_tags, refuse_unread
from tensor_pool.discovery.responses import ResponsePorts
from tensor_pool.runtime import CounterType, LocalCounters, Periodic, ReasonCounters, SystemClock
from tensor_pool.wire import Router
from tensor_pool.wire.messages import DiscoveryRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensor_pool.channels import Endpoint
    from tensor_pool.discovery.config import DiscoverySection
    from tensor_pool.discovery.places import HeardDriver
    from tensor_pool.runtime import Clock, CounterFactory
    from tensor_pool.transport import Client, Header, Subscribe, Subscription

__all__ = ["DiscoveryAgent"]

_LOG: Final = logging.getLogger(__name__)
_POLL_LIMIT: Final = 64
_HOUSEKEEPING_NS: Final = 250_000_000
_LOG_NS: Final = 10_000_000_000
"""One line in so long says what was asked last, and how often [DSC-13-3]."""


class DiscoveryAgent:
    """Answers queries about the streams of one driver, or of many.

    Args:
        client: Aeron, or what stands for it.
        section: Limits and who sees what.
        requests: Where queries come.
        drivers: Whose streams these are, and where they are heard of.
        expiry_ns: How long a stream is there that is not announced again.
        clock: The time.
        counters: Where its counters come from.
        subscribe: Opens a subscription to certain messages; everything else may be left out of it.
    """

    name = "discovery"

    def __init__(
        self,
        client: Client,
        section: DiscoverySection,
        *,
        requests: Endpoint,
        drivers: Sequence[HeardDriver],
        expiry_ns: int,
        clock: Clock | None = None,
        counters: CounterFactory | None = None,
        subscribe: Subscribe | None = None,
    ) -> None:
        self._client = client
        self._section = section
        self._requests_at = requests
        self._drivers = tuple(drivers)
        self._clock = SystemClock() if clock is None else clock
        self._subscribe = subscribe or (lambda *endpoint: client.add_subscription(*endpoint[:2]))
        self.counters = ReasonCounters(LocalCounters() if counters is None else counters, self.name)
        self._index = StreamIndex(expiry_ns=expiry_ns, max_streams=section.max_streams)
        self._desk = DiscoveryDesk(
            self._index,
            Visibility(section.access),
            max_results=section.max_results,
            denies=section.denies,
        )
        self._ports = ResponsePorts(
            client,
            resolves_names=section.resolves_names,
            on_unsent=lambda: self.counters.add(CounterType.DISCOVERY_UNSENT),
        )
        self._router = Router(
            on_malformed=lambda _: self._drop("malformed"),
            on_unsupported_version=lambda _header, _data: self._drop("unsupported_version"),
        )
        self._router.on(DiscoveryRequest, self._on_request)
        self._requests: Subscription | None = None
        self._ears: list[DriverEar] = []
        self._asker = 0
        self._asked_since_log = 0
        self._log_due_ns = 0

    @property
    def open_ports(self) -> int:
        """Endpoints of clients that are kept for their next query."""
        return len(self._ports)

    def on_start(self) -> None:
        """Opens the streams.

        Raises:
            TransportError: Aeron does not do what it is asked.
        """
        for driver in self._drivers:
            places = dict.fromkeys([driver.announces, driver.metadata])
            ear = DriverEar(
                self._index,
                [self._subscribe(*place, HEARD) for place in places],
                driver,
                counters=self.counters,
                clock=self._clock,
            )
            self._ears.append(ear)
        self._requests = self._subscribe(*self._requests_at, [DiscoveryRequest])
        self._housekeeping = Periodic(period_ns=_HOUSEKEEPING_NS, start_ns=self._clock.monotonic_ns())

    def do_work(self) -> int:
        """One duty cycle."""
        assert self._requests is not None
        # What is announced counts before what is asked: an answer is as new as it can be.
        work = sum(ear.poll() for ear in self._ears)
        work += self._requests.poll(self._on_message, _POLL_LIMIT)
        now_ns = self._clock.monotonic_ns()
        work += self._ports.do_work(now_ns)
        if self._housekeeping.due(now_ns):
            self._index.expire(now_ns)
            self.counters.set(CounterType.DISCOVERY_STREAMS, len(self._index))
            overflowed = sum(ear.overflowed for ear in self._ears)
            if overflowed:
                self.counters.cell(CounterType.DISCOVERY_REFUSED, "overflowed").set(overflowed)
        return work

    def on_close(self) -> None:
        """Closes everything."""
        for ear in self._ears:
            ear.close()
        if self._requests is not None:
            self._requests.close()
        self._ports.close()
        self.counters.close()

    def _on_message(self, data: bytes, header: Header) -> None:
        reason = refuse_unread(data)
        if reason is not None:
            self._drop(reason)
            return
        self._asker = header.session_id
        self._router.dispatch(data)

    def _on_request(self, request: DiscoveryRequest) -> None:
        now_ns = self._clock.monotonic_ns()
        reason = check_request(request) or self._ports.send(
            request,
            lambda max_bytes: self._desk.answer(request, now_ns=now_ns, max_bytes=max_bytes),
            now_ns=now_ns,
            asker=self._asker,
        )
        if reason is None and has_too_many_tags(request):
            reason = "too_many_tags"  # which the answer says
        if reason is not None:
            self._drop(reason)
            return
        self.counters.add(CounterType.DISCOVERY_QUERIES)
        self._log(request, now_ns)

    def _drop(self, reason: str) -> None:
        self.counters.add(CounterType.DISCOVERY_DROPPED, reason)

    def _log(self, request: DiscoveryRequest, now_ns: int) -> None:
        self._asked_since_log += 1
        if now_ns >= self._log_due_ns:
            self._log_due_ns = now_ns + _LOG_NS
            _LOG.info("client %d asked; %d queries since", request.client_id, self._asked_since_log)
            self._asked_since_log = 0
