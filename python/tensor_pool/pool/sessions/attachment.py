"""One lease on one stream: from the wish for it to its loss, and back again.

A state machine without thread, clock or socket: it takes messages and the time, and says what to send and
what happened. `session.StreamSession` moves the bytes.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from tensor_pool.errors import RegionError
from tensor_pool.pool.mapping import ring_address
from tensor_pool.pool.sessions.lease import Granted, Lease, Lost, Refused, refusal_error
from tensor_pool.wire.messages import (
    ClockDomain,
    NewerShmAttachRequest,
    NewerShmAttachResponse,
    PublishMode,
    ResolveStream,
    ResponseCode,
    Role,
    ShmAttachRequest,
    ShmAttachResponse,
    ShmDetachRequest,
    ShmPoolAnnounce,
    StreamPool,
)
from tensor_pool.wire.shm import LAYOUT_VERSION

if TYPE_CHECKING:
    from tensor_pool.pool.config import AttachDialect
    from tensor_pool.pool.sessions.lease import Event, Ids, StreamWish
    from tensor_pool.wire import Message
    from tensor_pool.wire.messages import ShmDriverShutdown, ShmLeaseRevoked, StreamResolved

__all__ = ["Attachment", "AttachmentState"]

MAX_DIMS: Final = 8
_ANSWER_NS: Final = 250_000_000
"""A request without answer for this long is sent again; the driver does it only once (decision L11)."""
_FIRST_PAUSE_NS: Final = 100_000_000
_LONGEST_PAUSE_NS: Final = 1_000_000_000
_TRIES_WITH_SAME_IDS: Final = 4
"""After a second of silence the other dialect gets its turn, or the id without the name."""
_GRACE_INTERVALS: Final = 3
FOR_EVER_NS: Final = 2**62


class AttachmentState(enum.Enum):
    """How far it is."""

    RESOLVING = enum.auto()
    ATTACHING = enum.auto()
    WAITING = enum.auto()
    """For a stream to appear, or for the time to ask again."""
    ATTACHED = enum.auto()
    CLOSED = enum.auto()


class Attachment:
    """Asks for a lease, keeps an eye on it, and asks for another when it is lost.

    Args:
        wish: Which stream, in which role.
        ids: Where ids come from.
        dialect: The form of attach requests.
        keepalive_interval_ns: How often the lease is kept alive.
        freshness_ns: A driver that announced nothing for so long is dead.
    """

    def __init__(
        self,
        wish: StreamWish,
        *,
        ids: Ids,
        dialect: AttachDialect,
        keepalive_interval_ns: int,
        freshness_ns: int,
    ) -> None:
        self.wish = wish
        self.state = AttachmentState.RESOLVING
        self.stream_id = wish.stream_id
        """None until the driver has told the id of the name."""
        self.lease: Lease | None = None
        self.last_refusal = ""
        self.waited_for_stream = False
        """Whether the stream did not exist when it was first asked for."""
        self._ids = ids
        self._dialects = _dialects(dialect)
        self._lifetime_ns = _GRACE_INTERVALS * keepalive_interval_ns
        self._freshness_ns = freshness_ns
        self._client_id = ids.client_id()
        self._correlation_id = 0
        self._attach_ids: set[int] = set()
        """Of all attach requests that ask for the same: a driver that was slow answers the first."""
        self._tries = 0
        self._next_ns = 0
        self._pause_ns = _FIRST_PAUSE_NS
        self._heard_ns = 0
        self._looked_ns = 0
        self._was_attached = False
        self._stream_exists = False
        self._answers_names = False
        self._driver_session: int | None = None

    @property
    def due_ns(self) -> int:
        """When `step` may next have something to do, unless something comes before."""
        if self.state is AttachmentState.ATTACHED:
            # Half a term: keepalives are looked at too.
            return min(self._heard_ns + self._freshness_ns, self._looked_ns + self._lifetime_ns // 2)
        return FOR_EVER_NS if self.state is AttachmentState.CLOSED else self._next_ns

    # --- what to send ------------------------------------------------------------------------------

    def step(self, now_ns: int, last_keepalive_ns: int | None = None) -> tuple[list[Message], list[Event]]:
        """What is due now: requests to send, and whether the lease was lost."""
        self._looked_ns = now_ns
        if self.state is AttachmentState.ATTACHED:
            reason = self._silence(now_ns, last_keepalive_ns)
            if reason is None:
                return [], []
            # Should the driver only have been slow, it gives the stream to nobody else until it hears this.
            return self._detach_requests(self.lease), [self._lose(reason, now_ns)]
        if self.state is AttachmentState.CLOSED or now_ns < self._next_ns:
            return [], []
        if self.state is AttachmentState.WAITING:
            self._begin(AttachmentState.RESOLVING, now_ns)
        if self.state is AttachmentState.RESOLVING:
            return self._ask_for_id(now_ns), []
        return [self._attach_request(now_ns)], []

    def _silence(self, now_ns: int, last_keepalive_ns: int | None) -> str | None:
        if now_ns - self._heard_ns > self._freshness_ns:
            return f"the driver announced nothing for {(now_ns - self._heard_ns) / 1e9:.1f} s"
        # The client's own deadline, whatever the driver's is (decision D9).
        if last_keepalive_ns is not None and now_ns - last_keepalive_ns > self._lifetime_ns:
            return f"no keepalive could be sent for {(now_ns - last_keepalive_ns) / 1e9:.1f} s"
        return None

    def _ask_for_id(self, now_ns: int) -> list[Message]:
        if (
            self._tries >= _TRIES_WITH_SAME_IDS
            and self.wish.stream_id is not None
            and not self._answers_names
        ):
            # A driver of others does not know our messages; an id is all that it needs (decision D17).
            self._begin(AttachmentState.ATTACHING, now_ns)
            return [self._attach_request(now_ns)]
        if self._tries == 0:
            self._correlation_id = self._ids.correlation_id()
        self._tries += 1
        self._next_ns = now_ns + _ANSWER_NS
        return [self._resolve_request()]

    def _resolve_request(self) -> ResolveStream:
        wish = self.wish
        return ResolveStream(
            correlation_id=self._correlation_id,
            client_id=self._client_id,
            stream_id=wish.stream_id,
            max_frame_bytes=wish.max_frame_bytes,
            nslots=wish.nslots,
            rate_milli_hz=None if wish.rate_hz is None else max(1, round(1000 * wish.rate_hz)),
            consumer_latency_ms=(
                None if wish.consumer_latency_s is None else max(1, round(1000 * wish.consumer_latency_s))
            ),
            dims=(*wish.shape, *(0,) * (MAX_DIMS - len(wish.shape))),
            dtype=wish.dtype,
            major_order=wish.major_order,
            role=wish.role,
            ndims=len(wish.shape),
            pools=tuple(StreamPool(stride) for stride in wish.pools),
            name=wish.name,
        )

    def _attach_request(self, now_ns: int) -> Message:
        if self._tries % _TRIES_WITH_SAME_IDS == 0:
            self._correlation_id = self._ids.correlation_id()
        if self._tries and self._tries % _TRIES_WITH_SAME_IDS == 0:
            self._dialects = (*self._dialects[1:], self._dialects[0])
        self._attach_ids.add(self._correlation_id)
        self._tries += 1
        self._next_ns = now_ns + _ANSWER_NS
        assert self.stream_id is not None
        # A consumer has nothing to put into a stream that nobody produces: it waits for it to appear.
        creates = self.wish.role is Role.PRODUCER
        mode = PublishMode.EXISTING_OR_CREATE if creates else PublishMode.REQUIRE_EXISTING
        if self._dialects[0] == "newer":
            return NewerShmAttachRequest(
                correlation_id=self._correlation_id,
                stream_id=self.stream_id,
                client_id=self._client_id,
                role=self.wish.role,
                expected_layout_version=LAYOUT_VERSION,
                publish_mode=mode,
            )
        return ShmAttachRequest(
            correlation_id=self._correlation_id,
            stream_id=self.stream_id,
            client_id=self._client_id,
            role=self.wish.role,
            expected_layout_version=LAYOUT_VERSION,
            max_dims=MAX_DIMS,
            publish_mode=mode,
            require_hugepages=self.wish.require_hugepages,
        )

    def detach(self) -> list[Message]:
        """Gives the lease back, or stops asking for one. Nothing follows."""
        lease, self.lease, self.state = self.lease, None, AttachmentState.CLOSED
        return self._detach_requests(lease)

    def _detach_requests(self, lease: Lease | None) -> list[Message]:
        if lease is None:
            return []
        return [
            ShmDetachRequest(
                correlation_id=self._ids.correlation_id(),
                lease_id=lease.lease_id,
                stream_id=lease.stream_id,
                client_id=lease.client_id,
                role=lease.role,
            )
        ]

    # --- what comes --------------------------------------------------------------------------------

    def on_resolved(self, answer: StreamResolved, now_ns: int) -> list[Event]:
        """The id of the name."""
        if (
            self.state is not AttachmentState.RESOLVING
            or answer.correlation_id != self._correlation_id
            or answer.client_id != self._client_id
        ):
            return []
        self._answers_names = True
        if answer.code is not ResponseCode.OK or answer.stream_id is None:
            return self._refused(answer.code, answer.error_message, now_ns, final=not self._was_attached)
        self.stream_id = answer.stream_id
        self._stream_exists = answer.epoch is not None and answer.producer_attached
        if self.wish.role is Role.CONSUMER and not self._stream_exists:
            self.waited_for_stream = not self._was_attached
            self._wait_for_stream(now_ns)
            return []
        self._begin(AttachmentState.ATTACHING, now_ns)
        return []

    def on_attach_response(
        self, answer: ShmAttachResponse | NewerShmAttachResponse, now_ns: int
    ) -> list[Event]:
        """The lease, or why not."""
        if self.state is not AttachmentState.ATTACHING or answer.correlation_id not in self._attach_ids:
            return []
        if answer.code is not ResponseCode.OK:
            if answer.correlation_id != self._correlation_id:
                return []  # the last request counts; what was asked before may be out of date
            # What was asked again may be answered by the next driver, to which the stream that the last one
            # knew is not back yet: start over. Who refuses at the first try means it.
            is_there = self._stream_exists and self._tries == 1
            final = not self._was_attached and (self.wish.role is Role.PRODUCER or is_there)
            return self._refused(answer.code, answer.error_message, now_ns, final=final)
        try:
            lease = self._lease(answer, now_ns)
        except RegionError as e:
            # An answer that lacks something is no lease: ask anew [DRV-4.2-17..19].
            self.last_refusal = e.message
            self._retry_later(now_ns)
            return []
        self.lease = lease
        self._driver_session = None
        self.state = AttachmentState.ATTACHED
        self._was_attached = True
        self._stream_exists = True
        self._heard_ns = now_ns
        self._pause_ns = _FIRST_PAUSE_NS
        return [Granted(lease)]

    def _lease(self, answer: ShmAttachResponse | NewerShmAttachResponse, now_ns: int) -> Lease:
        if (
            answer.lease_id is None
            or answer.stream_id is None
            or answer.epoch is None
            or answer.layout_version is None
            or answer.header_nslots is None
            or answer.header_slot_bytes is None
            or (isinstance(answer, ShmAttachResponse) and answer.max_dims is None)
            or not answer.header_region_uri
        ):
            raise RegionError("the driver's answer lacks a field that it must have")
        if self.wish.stream_id not in (None, 0, answer.stream_id):
            raise RegionError(f"the driver answered for stream {answer.stream_id}")
        # The same checks as for an announce, by the same code.
        announce = ShmPoolAnnounce(
            stream_id=answer.stream_id,
            producer_id=0,
            epoch=answer.epoch,
            announce_timestamp_ns=now_ns,
            announce_clock_domain=ClockDomain.MONOTONIC,
            layout_version=answer.layout_version,
            header_nslots=answer.header_nslots,
            header_slot_bytes=answer.header_slot_bytes,
            payload_pools=answer.payload_pools,
            header_region_uri=answer.header_region_uri,
        )
        address = ring_address(announce)
        self.stream_id = answer.stream_id
        return Lease(
            lease_id=answer.lease_id,
            client_id=self._client_id,
            stream_id=answer.stream_id,
            role=self.wish.role,
            epoch=answer.epoch,
            granted_ns=now_ns,
            announce=announce,
            address=address,
            expiry_ns=answer.lease_expiry_timestamp_ns,
        )

    def on_announce(
        self, announce: ShmPoolAnnounce, now_ns: int, session_id: int | None = None
    ) -> list[Event]:
        """A fresh announce of the stream: its driver lives, and a stream that was waited for may be there.

        Args:
            announce: The announce.
            now_ns: Monotonic time.
            session_id: The publication that it came from.
        """
        if not self.is_of_driver(session_id):
            return self._on_stranger(announce, now_ns)
        self._heard_ns = now_ns
        if self.state is AttachmentState.WAITING:
            if self.wish.role is Role.CONSUMER and announce.producer_id != 0:
                self._stream_exists = True
                self._begin(AttachmentState.ATTACHING, now_ns)
            return []
        lease = self.lease
        if lease is None:
            return []
        is_producer = lease.role is Role.PRODUCER
        if announce.epoch == lease.epoch and (announce.producer_id == lease.client_id or not is_producer):
            self._driver_session = session_id
        usurper = _usurper(announce, lease) if is_producer else None
        return [] if usurper is None else [self._lose(usurper, now_ns)]

    def _on_stranger(self, announce: ShmPoolAnnounce, now_ns: int) -> list[Event]:
        """Only who announced our lease can take it back; another may say what it likes while that one lives.

        One that has fallen silent may have been followed by another driver, which the next attach will tell.
        """
        lease, silence_ns = self.lease, now_ns - self._heard_ns
        if lease is None or announce.epoch <= lease.epoch or silence_ns <= self._freshness_ns // 2:
            return []
        return [self._lose("another driver announces the stream", now_ns)]

    def is_of_driver(self, session_id: int | None) -> bool:
        """Whether an announce that came from a publication may be the driver's, as far as is known.

        The driver announces what it has granted before anything else; from then on its publication is known.
        """
        return self._driver_session in (None, session_id)

    def on_revoked(self, notice: ShmLeaseRevoked, now_ns: int) -> list[Event]:
        """A lease was revoked; only ours matters, and only if it is not an old message (decision L11)."""
        lease = self.lease
        if lease is None or (notice.lease_id, notice.client_id, notice.stream_id, notice.role) != (
            lease.lease_id,
            lease.client_id,
            lease.stream_id,
            lease.role,
        ):
            return []
        detail = f": {notice.error_message}" if notice.error_message else ""
        return [self._lose(f"the driver ended the lease ({notice.reason.name.lower()}){detail}", now_ns)]

    def on_shutdown(self, notice: ShmDriverShutdown, now_ns: int) -> list[Event]:
        """The driver goes away; an old message of an earlier run does not count (decision L11)."""
        if self.lease is None or notice.timestamp_ns < self.lease.granted_ns:
            return []
        return [self._lose("the driver shut down", now_ns)]

    def lose(self, reason: str, now_ns: int) -> list[Event]:
        """Gives up a lease that turned out to be useless, and asks for another."""
        return [self._lose(reason, now_ns)] if self.lease is not None else []

    # --- steps ---------------------------------------------------------------------------------------

    def _begin(self, state: AttachmentState, now_ns: int) -> None:
        self.state = state
        self._tries = 0
        self._attach_ids.clear()
        self._next_ns = now_ns

    def _wait_for_stream(self, now_ns: int) -> None:
        self.state = AttachmentState.WAITING
        self._tries = 0
        # An announce ends the wait; asking now and then covers announces that got lost.
        self._next_ns = now_ns + _LONGEST_PAUSE_NS

    def _retry_later(self, now_ns: int) -> None:
        """Starts over after a pause, under a new client id: the old one may still have a lease."""
        self.state = AttachmentState.RESOLVING
        self._client_id = self._ids.client_id()
        self._tries = 0
        self._next_ns = now_ns + self._pause_ns
        self._pause_ns = min(2 * self._pause_ns, _LONGEST_PAUSE_NS)

    def _refused(self, code: ResponseCode, text: str, now_ns: int, *, final: bool) -> list[Event]:
        self.last_refusal = f"{code.name}: {text}" if text else code.name
        if not final:
            if self.wish.role is Role.CONSUMER and not self._was_attached:
                self.waited_for_stream = True
            self._retry_later(now_ns)
            return []
        self.state = AttachmentState.CLOSED
        return [Refused(refusal_error(self.wish, code, text))]

    def _lose(self, reason: str, now_ns: int) -> Lost:
        lease, self.lease = self.lease, None
        assert lease is not None
        self._driver_session = None
        self._pause_ns = _FIRST_PAUSE_NS
        self._retry_later(now_ns)
        return Lost(lease, reason)


def _usurper(announce: ShmPoolAnnounce, lease: Lease) -> str | None:
    """Who else writes to a producer's stream now, if so; two writers must never meet (decision D18)."""
    if announce.epoch > lease.epoch:
        return f"the stream is at epoch {announce.epoch} already"
    if announce.epoch == lease.epoch and announce.producer_id not in (0, lease.client_id):
        return f"producer {announce.producer_id} has the stream"
    return None


def _dialects(dialect: AttachDialect) -> tuple[str, ...]:
    return ("seed", "newer") if dialect == "auto" else (dialect,)
