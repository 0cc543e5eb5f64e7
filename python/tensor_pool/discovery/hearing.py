"""What a provider hears from drivers, and whose it is."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from tensor_pool.discovery.authority import Authority
from tensor_pool.runtime import CounterType
from tensor_pool.wire import Router
from tensor_pool.wire import messages as m
from tensor_pool.wire.repeats import Repeats

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensor_pool.discovery.index import Refused, StreamIndex
    from tensor_pool.discovery.places import HeardDriver
    from tensor_pool.runtime import Clock, ReasonCounters
    from tensor_pool.transport import Header, Subscription

__all__ = ["HEARD", "DriverEar"]

HEARD: Final = (
    m.ShmPoolAnnounce,
    m.DataSourceAnnounce,
    m.DataSourceMeta,
    m.ShmDriverShutdown,
    m.DriverAnnounce,
)
_LOG: Final = logging.getLogger(__name__)
_POLL_LIMIT: Final = 16
"""Few at a time: who asks does not wait until a thousand streams were told of again."""
_MAX_SESSIONS: Final = 4_096
_REPEATED: Final = (m.ShmPoolAnnounce, m.DataSourceAnnounce, m.DataSourceMeta)


class DriverEar:
    """Listens to drivers, and notes in an index what they have.

    Args:
        index: Where to note it.
        subscriptions: Where announces and metadata come.
        driver: Whose they are; without an authority drivers say it themselves, each on publications of its
            own.
        counters: What is counted.
        clock: The time.
    """

    def __init__(
        self,
        index: StreamIndex,
        subscriptions: Sequence[Subscription],
        driver: HeardDriver,
        *,
        counters: ReasonCounters,
        clock: Clock,
    ) -> None:
        self._index = index
        self._subscriptions = tuple(subscriptions)
        self._authority = driver.authority
        self._speaks = driver.speaks
        self._counters = counters
        self._clock = clock
        self._speakers: dict[int, Authority] = {}
        self._last_session: dict[str, int] = {}
        self._clashing: set[str] = set()
        self._session_id = 0
        self._router = Router(
            on_malformed=lambda _: self._count("malformed"),
            repeats=Repeats(*_REPEATED, most=len(_REPEATED) * index.max_streams),
        )
        self._router.on(m.ShmPoolAnnounce, self._on_pool_announce)
        self._router.on(m.DataSourceAnnounce, self._on_data_source)
        self._router.on(m.DataSourceMeta, self._on_meta)
        self._router.on(m.ShmDriverShutdown, self._on_shutdown)
        self._router.on(m.DriverAnnounce, self._on_driver)

    @property
    def overflowed(self) -> int:
        """Messages that came faster than they could be heard, and are lost."""
        return sum(getattr(subscription, "overflowed", 0) for subscription in self._subscriptions)

    def poll(self) -> int:
        """Takes what came; how many messages."""
        return sum(subscription.poll(self._on_message, _POLL_LIMIT) for subscription in self._subscriptions)

    def close(self) -> None:
        """Stops listening."""
        for subscription in self._subscriptions:
            subscription.close()

    def _on_message(self, data: bytes, header: Header) -> None:
        self._session_id = header.session_id
        self._router.dispatch(data)

    def _speaker(self) -> Authority | None:
        speaker = self._authority or self._speakers.get(self._session_id)
        if speaker is None:
            self._count("unknown_driver")
        return speaker

    def _on_pool_announce(self, announce: m.ShmPoolAnnounce) -> None:
        speaker = self._speaker()
        if speaker is not None and self._speaks(self._session_id):
            now_ns = self._clock.monotonic_ns()
            self._count(self._index.on_pool_announce(speaker, announce, now_ns=now_ns))

    def _on_data_source(self, announce: m.DataSourceAnnounce) -> None:
        speaker = self._speaker()
        if speaker is not None:
            now_ns = self._clock.monotonic_ns()
            self._count(self._index.on_data_source_announce(speaker, announce, now_ns=now_ns))

    def _on_meta(self, meta: m.DataSourceMeta) -> None:
        speaker = self._speaker()
        if speaker is not None:
            self._index.on_meta(speaker, meta)

    def _on_shutdown(self, _notice: m.ShmDriverShutdown) -> None:
        speaker = self._speaker()
        if speaker is not None and self._speaks(self._session_id):
            self._index.forget(speaker)

    def _on_driver(self, driver: m.DriverAnnounce) -> None:
        """A driver says who it is; only for its own publication, and not where it is known already."""
        if self._authority is not None or not driver.instance_id:
            return
        if self._session_id not in self._speakers and len(self._speakers) >= _MAX_SESSIONS:
            self._forget_oldest()
        self._look_for_clash(driver)
        self._speakers[self._session_id] = Authority(
            driver.instance_id, driver.control_channel, driver.control_stream_id, driver.host
        )

    def _look_for_clash(self, driver: m.DriverAnnounce) -> None:
        """Two drivers of one name speak in turns; one that started again is silent where it spoke before."""
        name = driver.instance_id
        last = self._last_session.get(name, self._session_id)
        self._last_session[name] = self._session_id
        before = self._speakers.get(self._session_id)
        if last == self._session_id or before is None or before.instance_id != name:
            return
        self._count("same_name")
        if name not in self._clashing:
            self._clashing.add(name)
            _LOG.warning(
                "two drivers are called %s (one on host %s): their streams hide each other; "
                "give each a discovery.host or a driver.instance_id of its own",
                name,
                driver.host or "?",
            )

    def _forget_oldest(self) -> None:
        forgotten = self._speakers.pop(next(iter(self._speakers)))  # comes back with its next word
        self._last_session.pop(forgotten.instance_id, None)
        self._clashing.discard(forgotten.instance_id)

    def _count(self, reason: Refused | None) -> None:
        if reason is not None:
            self._counters.add(CounterType.DISCOVERY_REFUSED, reason)
