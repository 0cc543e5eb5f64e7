"""The client's side of the control plane: one agent a process and connection, for all its streams.

It owns the publications and subscriptions of the control, announce, metadata and QoS streams, hands what
comes to the sessions that it concerns, and gives every session its turn. Producers and consumers never touch
these streams themselves, so that none of this depends on how often a program polls (decision L9).
"""

from __future__ import annotations

import collections
import logging
import secrets
from typing import TYPE_CHECKING, Final, Protocol

from tensor_pool import wire
from tensor_pool.errors import ClosedError, NoMediaDriverError, TensorPoolError
from tensor_pool.pool.sessions.once import Once
from tensor_pool.runtime import Periodic, StopAgent
from tensor_pool.transport import OfferResult, retry_for
from tensor_pool.wire.messages import (
    ConsumerConfig,
    ConsumerHello,
    ControlResponse,
    DataSourceAnnounce,
    DataSourceMeta,
    DriverStatus,
    FrameProgress,
    LeaseRevokeResult,
    LeasesListed,
    MetaBlobAnnounce,
    MetaBlobChunk,
    MetaBlobComplete,
    NewerShmAttachResponse,
    QosConsumer,
    QosProducer,
    ShmAttachResponse,
    ShmDetachResponse,
    ShmDriverShutdown,
    ShmLeaseRevoked,
    ShmPoolAnnounce,
    StreamResolved,
    StreamsListed,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensor_pool.config import StreamsSection
    from tensor_pool.runtime import Clock
    from tensor_pool.transport import Client, Header, Publication, Subscribe, Subscription
    from tensor_pool.wire import Message

__all__ = ["ClientAgent", "Session"]

_LOG: Final = logging.getLogger(__name__)

_TICK_NS: Final = 50_000_000
"""How often sessions are asked whether they want a turn though nothing came for them."""
_MESSAGES_A_TURN: Final = 256
_MOST_TURNS: Final = 64
"""Twice what an inbox holds: others than a hostile sender are through by then."""
_MOST_PENDING: Final = 4096
_SEND_RETRY_MS: Final = 20
_CONNECT_AGAIN: Final = (
    "a connection ends with its media driver: when one runs again (`tpool up`), "
    "call tensor_pool.connect() anew"
)

_OF_A_STREAM: Final[tuple[type[Message], ...]] = (
    ShmPoolAnnounce, ConsumerHello, ConsumerConfig, QosConsumer, QosProducer, FrameProgress,
    DataSourceAnnounce, DataSourceMeta, MetaBlobAnnounce, MetaBlobChunk, MetaBlobComplete, ShmLeaseRevoked,
)  # fmt: skip
_ANSWERS: Final[tuple[type[Message], ...]] = (
    ShmAttachResponse, NewerShmAttachResponse, ShmDetachResponse, StreamResolved, StreamsListed, LeasesListed,
    LeaseRevokeResult, DriverStatus, ControlResponse,
)  # fmt: skip


_WANTED: Final[tuple[type[Message], ...]] = (
    ShmDriverShutdown, *_ANSWERS, *(kind for kind in _OF_A_STREAM if kind is not FrameProgress),
)  # fmt: skip
"""Progress comes thousands of times a second, and few want it: they listen for it themselves."""


class Session(Protocol):
    """A stream that a program uses, as the agent sees it."""

    def is_due(self, now_ns: int) -> bool:
        """Whether it wants a turn though nothing came for it."""
        ...

    def step(self, now_ns: int) -> None:
        """Does what is due."""
        ...

    def on_message(self, message: Message, header: Header, now_ns: int) -> bool:
        """Takes a message about its stream, or an answer; says whether it wants a turn because of it."""
        ...

    def on_client_lost(self, error: BaseException) -> None:
        """The connection is gone for good."""
        ...


class ClientAgent:
    """Runs all sessions of a connection.

    Args:
        client: The connection to Aeron.
        streams: Channels and stream ids.
        clock: What time it is.
        subscribe: Opens a subscription to certain messages; everything else may be left out of it.
    """

    name = "pool client"

    def __init__(
        self,
        client: Client,
        streams: StreamsSection,
        *,
        clock: Clock,
        subscribe: Subscribe | None = None,
    ) -> None:
        self.clock = clock
        self._subscribe = subscribe or (
            lambda channel, stream_id, _: client.add_subscription(channel, stream_id)
        )
        self.streams = streams
        self._client = client
        self._submitted: collections.deque[Callable[[], object]] = collections.deque()
        self._sessions: dict[Session, None] = {}
        self._told: dict[Session, None] = {}
        self._by_stream: dict[int, list[Session]] = {}
        self._by_name: dict[str, Session] = {}
        self._awaiting: collections.OrderedDict[int, Session | Once[Message]] = collections.OrderedDict()
        self._next_correlation_id = secrets.randbits(62)
        self._tick = Periodic(period_ns=_TICK_NS, start_ns=clock.monotonic_ns())
        self._publications: dict[tuple[str, int], Publication] = {}
        self._subscriptions: list[Subscription] = []
        self._listening_to: Subscription | None = None
        self._header: Header | None = None
        self._router = self._make_router()
        self.lost: TensorPoolError | None = None
        """Why the connection is gone for good, if it is."""
        self.heard_driver_ns: int | None = None
        """When a driver was last heard: an announce, or an answer."""

    def _make_router(self) -> wire.Router:
        router = wire.Router()
        for about_a_stream in _OF_A_STREAM:
            router.on(about_a_stream, self._on_stream_message)
        for answer in _ANSWERS:
            router.on(answer, self._on_answer)
        router.on(ShmDriverShutdown, self._on_shutdown)
        return router

    # --- the agent ----------------------------------------------------------------------------------

    def on_start(self) -> None:
        """Opens the endpoints; one for each channel and id, however many purposes it serves."""
        s = self.streams
        listens = {
            (s.control_channel, s.control_stream_id),
            (s.announce_channel, s.announce_stream_id),
            (s.qos_channel, s.qos_stream_id),
            (s.metadata_channel, s.metadata_stream_id),
        }
        self._subscriptions = [self._subscribe(*endpoint, _WANTED) for endpoint in sorted(listens)]
        self.publication(s.control_channel, s.control_stream_id)

    def do_work(self) -> int:
        """One round: what programs asked for, what came, what is due.

        Raises:
            StopAgent: The connection is lost.
        """
        self._check_connection()
        try:
            return self._work()
        except NoMediaDriverError as e:  # one that does not answer any more, whatever its heartbeat says
            raise self._lose(e) from e

    def _work(self) -> int:
        work = self._run_submitted()
        for subscription in tuple(self._subscriptions):
            work += self._take_all(subscription)
        now_ns = self.clock.monotonic_ns()
        # Only now: a program may have kept this thread from running for seconds, and what came meanwhile
        # shows that nobody was silent (pitfall 20).
        due = [session for session in self._told if session in self._sessions]
        if self._tick.due(now_ns):
            due += [session for session in self._sessions if session.is_due(now_ns)]
        self._told.clear()
        for session in due:
            session.step(now_ns)
        return work

    def _check_connection(self) -> None:
        """Nothing brings a lost client back: programs are told now, and told why."""
        try:
            self._client.check()
        except TensorPoolError as e:
            raise self._lose(e) from e

    def _lose(self, error: TensorPoolError) -> StopAgent:
        """Notes why nothing works any more; with what programs can do, which Aeron does not know."""
        _LOG.error("the connection is lost: %s", error.message)
        if isinstance(error, NoMediaDriverError):
            error = NoMediaDriverError(error.message, where=error.where, hint=_CONNECT_AGAIN)
        self.lost = error
        return StopAgent()

    def _take_all(self, subscription: Subscription) -> int:
        """Everything that waits, within reason."""
        self._listening_to = subscription
        taken = 0
        for _ in range(_MOST_TURNS):
            if subscription not in self._subscriptions:
                break  # what was just heard let a consumer listen elsewhere
            count = subscription.poll(self._on_bytes, _MESSAGES_A_TURN)
            taken += count
            if count < _MESSAGES_A_TURN:
                break
        return taken

    def on_close(self) -> None:
        """Tells all sessions that nothing more will come."""
        try:
            self._run_submitted()
        finally:
            for waiting in self._awaiting.values():
                if isinstance(waiting, Once):
                    waiting.fail(self.end_error())
            for session in list(self._sessions):
                session.on_client_lost(self.end_error())

    def end_error(self) -> TensorPoolError:
        """Why nothing works any more."""
        return self.lost or ClosedError(
            "the pool was closed", hint="connect again with tensor_pool.connect()"
        )

    def _run_submitted(self) -> int:
        done = 0
        while self._submitted:
            self._submitted.popleft()()
            done += 1
        return done

    # --- for sessions and programs --------------------------------------------------------------------

    def submit(self, work: Callable[[], object]) -> None:
        """Lets `work` run on the agent's thread, soon. May be called from any thread."""
        self._submitted.append(work)

    def add(self, session: Session) -> None:
        """Gives a session its turns from now on."""
        self._sessions[session] = None
        session.step(self.clock.monotonic_ns())

    def remove(self, session: Session) -> None:
        """Forgets a session."""
        self._sessions.pop(session, None)
        self._by_name = {name: other for name, other in self._by_name.items() if other is not session}
        for stream_id in [key for key, followers in self._by_stream.items() if session in followers]:
            self._by_stream[stream_id].remove(session)
            if not self._by_stream[stream_id]:
                del self._by_stream[stream_id]

    def follow(self, stream_id: int, session: Session) -> None:
        """Hands the session what concerns a stream."""
        followers = self._by_stream.setdefault(stream_id, [])
        if session not in followers:
            followers.append(session)

    def follow_name(self, name: str, session: Session) -> None:
        """Hands the session what producers say of a stream of this name, where no driver knows it."""
        self._by_name[name] = session

    def correlation_id(self) -> int:
        """One that no other request of this connection has; the start is random (decision L11)."""
        self._next_correlation_id = (self._next_correlation_id + 1) & (2**63 - 1)
        return self._next_correlation_id

    def client_id(self) -> int:
        """A random id for one lease."""
        return secrets.randbelow(2**32 - 2) + 1

    def publication(self, channel: str, stream_id: int) -> Publication:
        """The publication of an endpoint, opened when it is first asked for."""
        key = (channel, stream_id)
        if key not in self._publications:
            self._publications[key] = self._client.add_publication(
                channel, stream_id, policy=retry_for(_SEND_RETRY_MS)
            )
        return self._publications[key]

    def listen_for_progress(self, channel: str, stream_id: int) -> Callable[[], None]:
        """Receives progress messages too, until the returned function is called."""
        subscription = self._subscribe(channel, stream_id, (FrameProgress,))
        self._subscriptions.append(subscription)

        def stop() -> None:
            if subscription in self._subscriptions:
                self._subscriptions.remove(subscription)
                subscription.close()

        return stop

    def open_publication(self, channel: str, stream_id: int) -> Publication:
        """A publication of its own, which drops what nobody takes; whoever asked for it closes it."""
        return self._client.add_publication(channel, stream_id)

    def send(self, message: Message, *, answer_to: Session | Once[Message] | None = None) -> bool:
        """Sends on the control stream; the answer, if there will be one, goes to `answer_to`."""
        if answer_to is not None:
            self._awaiting[message.correlation_id] = answer_to  # type: ignore[attr-defined]
            while len(self._awaiting) > _MOST_PENDING:
                self._awaiting.popitem(last=False)
        publication = self.publication(self.streams.control_channel, self.streams.control_stream_id)
        return publication.offer(wire.encode(message)) is OfferResult.SENT

    def send_qos(self, message: Message) -> bool:
        """Sends on the QoS stream."""
        publication = self.publication(self.streams.qos_channel, self.streams.qos_stream_id)
        return publication.offer(wire.encode(message)) is OfferResult.SENT

    def send_announce(self, message: Message) -> bool:
        """Sends on the announce stream; only who owns files may."""
        publication = self.publication(self.streams.announce_channel, self.streams.announce_stream_id)
        return publication.offer(wire.encode(message)) is OfferResult.SENT

    def send_metadata(self, message: Message) -> bool:
        """Sends on the metadata stream."""
        publication = self.publication(self.streams.metadata_channel, self.streams.metadata_stream_id)
        return publication.offer(wire.encode(message)) is OfferResult.SENT

    def is_own(self, header: Header) -> bool:
        """Whether a message was sent by this connection."""
        return any(publication.session_id == header.session_id for publication in self._publications.values())

    def join_time_ns(self, header: Header) -> int | None:
        """When the publication that a message came from became available."""
        assert self._listening_to is not None
        return self._listening_to.join_time_ns(header.session_id)

    # --- what comes -------------------------------------------------------------------------------------

    def _on_bytes(self, data: bytes, header: Header) -> None:
        self._header = header
        self._router.dispatch(data)

    def _on_stream_message(self, message: Message) -> None:
        now_ns = self.clock.monotonic_ns()
        if type(message) is ShmPoolAnnounce:
            self.heard_driver_ns = now_ns
        if type(message) is DataSourceAnnounce and message.name in self._by_name:
            self._give(self._by_name.pop(message.name), message, now_ns)
        for session in tuple(self._by_stream.get(message.stream_id, ())):  # type: ignore[attr-defined]
            self._give(session, message, now_ns)

    def _on_answer(self, message: Message) -> None:
        waiting = self._awaiting.pop(message.correlation_id, None)  # type: ignore[attr-defined]
        if waiting is None:
            return  # somebody else's (decision D13)
        self.heard_driver_ns = self.clock.monotonic_ns()
        if isinstance(waiting, Once):
            waiting.give(message)
        else:
            self._give(waiting, message, self.heard_driver_ns)

    def _on_shutdown(self, message: ShmDriverShutdown) -> None:
        for session in list(self._sessions):
            self._give(session, message, self.clock.monotonic_ns())

    def _give(self, session: Session, message: Message, now_ns: int) -> None:
        assert self._header is not None
        if session.on_message(message, self._header, now_ns):
            self._told[session] = None
