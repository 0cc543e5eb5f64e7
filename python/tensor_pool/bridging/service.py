"""A running bridge: the mappings of a configuration, sent and received."""

from __future__ import annotations

import contextlib
import itertools
import time
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from tensor_pool.bridging.chunk_poll import ChunkPoll
from tensor_pool.bridging.config_rules import check_found_destination
from tensor_pool.bridging.counting import BridgeCounters
from tensor_pool.bridging.forwarding import Forwarder
from tensor_pool.bridging.ports import Ports
from tensor_pool.bridging.receiving import ReceivedStats, ReceiveLane
from tensor_pool.bridging.republishing import Republisher
from tensor_pool.bridging.sending import SendLane, SentStats
from tensor_pool.closing import Closing
from tensor_pool.errors import ConfigError
from tensor_pool.runtime import AgentRunner, CompositeAgent, make_idle
from tensor_pool.transport import AeronCounters
from tensor_pool.transport.drain import Drain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tensor_pool.bridging.config import BridgeSection, ResolvedMapping
    from tensor_pool.config import StreamsSection
    from tensor_pool.driver.config import StreamProfile
    from tensor_pool.pool.pool import Pool
    from tensor_pool.runtime import Agent
    from tensor_pool.transport import AeronClient

__all__ = ["Bridge", "MappingStats"]

_LONGEST_NAP_S: Final = 0.1


class MappingStats(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one mapping so far."""

    source_stream_id: int
    dest_stream_id: int
    sent: SentStats | None = None
    received: ReceivedStats | None = None
    error: str | None = None
    """Why it carries nothing at the moment."""


class Bridge(Closing):
    """Sends and receives the streams of some mappings until it is closed.

    Args:
        pool: The host's streams; stays open.
        client: A connection to the host's media driver, for this bridge alone; stays open.
        streams: Where the host's messages are.
        section: The mappings, and how they are carried.
        profiles: What the rings of destinations may be like, by name.
        lease_s: How long the host's driver keeps a stream for a producer that is gone.
        fresh_s: How long a stream counts as there after it was announced.

    Raises:
        ConfigError: Something does not fit together.
        ChannelError: Aeron refuses a channel.
        NoDriverError: No driver answers.
    """

    def __init__(
        self,
        pool: Pool,
        client: AeronClient,
        streams: StreamsSection,
        section: BridgeSection,
        profiles: Mapping[str, StreamProfile],
        *,
        lease_s: float,
        fresh_s: float,
    ) -> None:
        self._own = contextlib.ExitStack()
        self._section = section
        self._profiles = profiles
        self._lease_s = lease_s
        self._fresh_s = fresh_s
        self.trouble: str | None = None
        """What keeps all mappings from working, as whoever watches the bridge has noticed."""
        ids = section.dest_ids
        self._ids = () if ids is None else range(ids.first, ids.last + 1)
        self._next_ids = itertools.cycle(self._ids)
        self._senders: list[SendLane] = []
        self._receivers: list[ReceiveLane] = []
        self._polls: list[ChunkPoll] = []
        self._forwarder: Forwarder | None = None
        with contextlib.ExitStack() as opening:
            drain = opening.enter_context(Drain(client, name="bridge drain"))
            ports = opening.enter_context(Ports(client, drain))
            routes = section.resolved_mappings
            self._receive(pool, ports, [route for route in routes if route.receives], opening)
            self._send(pool, ports, [route for route in routes if route.sends], opening)
            agents: list[Agent] = []
            if self._senders:
                sent = [lane.route for lane in self._senders]
                self._forwarder = Forwarder(ports, streams, section, sent, fresh_s=fresh_s)
                agents.append(self._forwarder)
            if self._receivers:
                agents.append(Republisher(ports, streams, self._receivers))
            if not agents:
                raise ConfigError("the bridge has nothing to do", hint="a mapping in [[bridge.mappings]]")
            counters = AeronCounters(client)
            agents.append(
                BridgeCounters(section.instance_id, counters, lambda: self.stats, now_ns=time.monotonic_ns)
            )
            idle = make_idle("doorbell", bell=drain, max_pause_s=_LONGEST_NAP_S)
            self._runner = opening.enter_context(
                AgentRunner(CompositeAgent(agents, name="bridge"), idle=idle)
            )
            self._own = opening.pop_all()

    def _send(
        self, pool: Pool, ports: Ports, routes: Sequence[ResolvedMapping], opening: contextlib.ExitStack
    ) -> None:
        for route in routes:
            lane = SendLane(pool, partial(ports.chunk_publication, *route.payload), route, self._section)
            self._senders.append(opening.enter_context(lane))

    def _receive(
        self, pool: Pool, ports: Ports, routes: Sequence[ResolvedMapping], opening: contextlib.ExitStack
    ) -> None:
        choose_id = None if self._section.dest_ids is None else self._choose_id
        if choose_id is not None:  # in their order: each has the same id after a restart
            routes = [
                route if route.dest_stream_id else route.with_destination(choose_id()) for route in routes
            ]
        by_payload = sorted(routes, key=lambda route: route.payload)
        for payload, group in itertools.groupby(by_payload, key=lambda route: route.payload):
            poll = ChunkPoll(ports.chunk_subscription(*payload))
            self._polls.append(opening.enter_context(poll))
            for route in group:
                profile = self._profiles.get(route.mapping.profile)
                lane = ReceiveLane(
                    pool,
                    poll.receiver,
                    route,
                    self._section,
                    geometry=None if profile is None else profile.geometry,
                    choose_id=choose_id,
                    lease_s=self._lease_s,
                    check=partial(check_found_destination, self._section.resolved_mappings),
                    fresh_s=self._fresh_s,
                )
                self._receivers.append(opening.enter_context(lane))

    def _choose_id(self) -> int:
        """Ids that nobody got hold of come round again."""
        held = {lane.stream_id or lane.route.dest_stream_id for lane in self._receivers}
        for stream_id in itertools.islice(self._next_ids, len(self._ids)):
            if stream_id not in held:
                return stream_id
        raise ConfigError(
            "no stream id is left for another destination", hint="a longer bridge.dest_stream_id_range"
        )

    @property
    def works(self) -> bool:
        """Whether all of it still runs."""
        parts = [self._runner.is_running, *(sender.is_running for sender in self._senders)]
        parts += (poll.is_running for poll in self._polls)
        return all(parts) and all(receiver.is_running for receiver in self._receivers)

    @property
    def stats(self) -> list[MappingStats]:
        """What became of each mapping so far."""
        sent = [
            MappingStats(
                source_stream_id=lane.route.source_stream_id,
                dest_stream_id=lane.route.dest_stream_id,
                sent=(stats := lane.stats),
                error=stats.error or self.trouble or self._trouble_of(lane),
            )
            for lane in self._senders
        ]
        received = [
            MappingStats(
                source_stream_id=lane.route.source_stream_id,
                dest_stream_id=lane.stream_id or lane.route.dest_stream_id,
                received=(got := lane.stats),
                error=got.error or self.trouble or lane.source_trouble,
            )
            for lane in self._receivers
        ]
        return sent + received

    def _trouble_of(self, lane: SendLane) -> str | None:
        assert self._forwarder is not None, "there are senders"
        trouble = self._forwarder.source_trouble(lane.route.source_stream_id)
        if trouble is None and lane.is_alone:
            return f"not connected: nobody receives at {lane.route.payload.channel}"
        return trouble

    def close(self) -> None:
        """Gives destinations back and ends. May be called again."""
        self._own.close()
