"""Attach, keepalive and detach: from a request to its answer and what follows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tensor_pool.datatypes import MAX_DIMS
from tensor_pool.driver.answers import Refusal, refusal_of, wire_text
from tensor_pool.driver.limits import TokenBucket
from tensor_pool.driver.requests import Answered, AttachAnswer, AttachCall
from tensor_pool.errors import RegionError
from tensor_pool.pool.mapping import payload_pools
from tensor_pool.runtime import CounterType
from tensor_pool.wire.messages import (
    LeaseRevokeReason,
    ResponseCode,
    Role,
    ShmDetachResponse,
    ShmLeaseRevoked,
)
from tensor_pool.wire.shm import LAYOUT_VERSION, SLOT_BYTES

if TYPE_CHECKING:
    from tensor_pool.driver.announce import Announcer
    from tensor_pool.driver.answers import Moment
    from tensor_pool.driver.leases import Lease
    from tensor_pool.driver.lifecycle import Lifecycle
    from tensor_pool.driver.limits import Limits
    from tensor_pool.driver.registry import Stream
    from tensor_pool.driver.requests import BrokenAttach
    from tensor_pool.runtime import CounterSet
    from tensor_pool.wire import Message
    from tensor_pool.wire.messages import (
        NewerShmAttachRequest,
        ShmAttachRequest,
        ShmDetachRequest,
        ShmLeaseKeepalive,
    )

__all__ = ["REFUSAL_COUNTERS", "AttachHandler"]

REFUSAL_COUNTERS: Final = {
    ResponseCode.UNSUPPORTED: CounterType.DRIVER_REFUSED_UNSUPPORTED,
    ResponseCode.INVALID_PARAMS: CounterType.DRIVER_REFUSED_INVALID,
    ResponseCode.REJECTED: CounterType.DRIVER_REFUSED_REJECTED,
    ResponseCode.INTERNAL_ERROR: CounterType.DRIVER_REFUSED_INTERNAL,
}

_REVOKED_AGAIN_PER_SECOND: Final = 1_000
"""Answers to keepalives of unknown leases: enough for every client of a driver that was restarted."""
_UNUSED_NS: Final = 60_000_000_000
"""How long nobody asked for a stream that makes room for another."""


class AttachHandler:
    """Grants leases.

    Args:
        lifecycle: Streams, leases and epochs.
        announcer: Every attach is followed by an announce (decision L7).
        limits: What is refused however right it is.
        counters: What is counted.
    """

    def __init__(
        self, *, lifecycle: Lifecycle, announcer: Announcer, limits: Limits, counters: CounterSet
    ) -> None:
        self._lifecycle = lifecycle
        self._streams = lifecycle.streams
        self._leases = lifecycle.leases
        self._announcer = announcer
        self._limits = limits
        self._counters = counters
        self._given: Answered[int] = Answered()  # lease ids by request
        self._revoked_again = TokenBucket(_REVOKED_AGAIN_PER_SECOND)
        self.is_draining = False
        """Whether the driver is about to end: it grants nothing any more (decision D10)."""

    # --- attach ---

    def attach(
        self, request: ShmAttachRequest | NewerShmAttachRequest, now: Moment, session_id: int
    ) -> list[Message]:
        """Answers an attach request in its own dialect; the announce comes behind it (decision D5)."""
        call = AttachCall.of(request)
        messages: list[Message] = []
        try:
            answer, stream = self._grant_or_repeat(call, now, session_id)
            messages.append(self._announcer.announce(stream, now))
        except Refusal as refusal:
            answer = self._refused(call.correlation_id, refusal)
        return [answer.message(is_newer=call.is_newer), *messages]

    def refuse(self, broken: BrokenAttach, now: Moment, session_id: int) -> list[Message]:
        """Answers a request that could not be decoded; too many of them get no answer."""
        try:
            self._limits.check_attach_rate(session_id, now.monotonic_ns)
        except Refusal:
            return []
        answer = self._refused(broken.correlation_id, Refusal(broken.code, broken.reason))
        return [answer.message(is_newer=broken.is_newer)]

    def _grant_or_repeat(self, call: AttachCall, now: Moment, session_id: int) -> tuple[AttachAnswer, Stream]:
        key = (call.client_id, call.correlation_id)
        given = self._given.get(key)
        if given is not None:
            return self._repeated(call, given)
        self._limits.check_attach_rate(session_id, now.monotonic_ns)
        self._check_call(call)
        stream = self._find_or_create(call, now)
        try:
            lease = self._admit(call, stream, now)
        except Refusal:
            self._forget_if_new(stream)
            raise
        self._given.remember(key, lease.lease_id)
        return self._granted(call, lease, stream), stream

    def _repeated(self, call: AttachCall, lease_id: int) -> tuple[AttachAnswer, Stream]:
        """A request that comes twice, from a log that is replayed, gets no second lease (decision L11)."""
        lease = self._leases.get(lease_id)
        stream = None if lease is None else self._streams.get(lease.stream_id)
        if lease is None or stream is None or stream.epoch is None:
            raise Refusal(
                ResponseCode.REJECTED,
                f"lease {lease_id} of this request has ended; ask again with a new correlation id",
            )
        return self._granted(call, lease, stream), stream

    def _check_call(self, call: AttachCall) -> None:
        """What is wrong with a request whichever stream it names."""
        if self.is_draining:
            raise Refusal(ResponseCode.REJECTED, "the driver is shutting down; attach again when it is back")
        if call.client_id == 0:
            raise Refusal(ResponseCode.INVALID_PARAMS, "client id 0; a client chooses a random one")
        if call.max_dims > MAX_DIMS:  # [DRV-4.3-3]
            raise Refusal(ResponseCode.INVALID_PARAMS, f"maxDims {call.max_dims}; the driver has {MAX_DIMS}")
        if call.expected_layout_version not in (0, LAYOUT_VERSION):  # [DRV-4.3-1]
            raise Refusal(
                ResponseCode.REJECTED,
                f"layout version {call.expected_layout_version} is expected; the driver has {LAYOUT_VERSION}",
            )
        own = self._leases.of_client(call.client_id)
        if own is not None:  # [DRV-4.8-5]
            raise Refusal(
                ResponseCode.REJECTED,
                f"client id {call.client_id} holds lease {own.lease_id} of stream {own.stream_id} already; "
                "choose another client id",
            )

    def _find_or_create(self, call: AttachCall, now: Moment) -> Stream:
        stream = self._streams.get(call.stream_id) if call.stream_id else None
        if stream is not None and (stream.is_provisioned or call.may_create):
            return stream
        if not call.may_create:  # [DRV-4.2-8]
            what = f"stream {call.stream_id} does not exist" if call.stream_id else "stream 0 is a new one"
            raise Refusal(ResponseCode.REJECTED, f"{what}; attach with EXISTING_OR_CREATE to create it")
        if call.stream_id and not self._streams.is_creatable(call.stream_id):  # decision D1
            ranges = ", ".join(map(str, self._streams.creatable_ranges)) or "none"
            raise Refusal(
                ResponseCode.INVALID_PARAMS,
                f"stream id {call.stream_id} may not be created; driver.creatable_ranges are {ranges}",
            )
        self.make_room(now)
        if call.stream_id:
            return self._streams.add(call.stream_id, now_ns=now.monotonic_ns)
        return self.reserve("", now)

    def make_room(self, now: Moment) -> None:
        """Sees to it that one more stream may be entered.

        Raises:
            Refusal: There are too many, and all are in use.
        """
        try:
            self._limits.check_streams(len(self._streams))
        except Refusal:
            unused = self._streams.forgettable(now.monotonic_ns, _UNUSED_NS)
            if unused is None:
                raise
            self._streams.remove(unused)

    def reserve(self, name: str, now: Moment) -> Stream:
        """Enters a stream under an id of the driver's choice.

        Raises:
            Refusal: There is no free id.
        """
        stream = self._streams.reserve(name, now_ns=now.monotonic_ns)
        if stream is None:
            raise Refusal(ResponseCode.INVALID_PARAMS, "no id of driver.stream_id_range is free")
        return stream

    def _admit(self, call: AttachCall, stream: Stream, now: Moment) -> Lease:
        """Gives the stream the epoch that the client needs, and the client its lease."""
        self._limits.check_leases(self._leases, stream.stream_id)
        needs_hugepages = call.require_hugepages or stream.profile.hugepages
        if needs_hugepages and not self._lifecycle.files.has_hugepages:  # [DRV-4.3-5]
            raise Refusal(
                ResponseCode.REJECTED, "huge pages are required; shm.shm_base_dir is not on hugetlbfs"
            )
        try:
            if call.role is Role.PRODUCER:
                self._make_epoch_for(call, stream, now, hugepages=needs_hugepages)
            elif stream.epoch is None:
                geometry = stream.geometry or stream.profile.geometry
                self._lifecycle.renew(stream, geometry, now, allocate=False, hugepages=needs_hugepages)
        except RegionError as e:
            raise refusal_of(e) from e
        return self._lifecycle.grant(stream, call.client_id, call.role, now)

    def _make_epoch_for(self, call: AttachCall, stream: Stream, now: Moment, *, hugepages: bool) -> None:
        producer = self._leases.producer_of(stream.stream_id)
        if producer is not None:  # [DRV-5-2]
            raise Refusal(
                ResponseCode.REJECTED,
                f"stream {stream.stream_id} has a producer: client {producer.client_id}, "
                f"lease {producer.lease_id}, which ends in {_seconds_left(producer, now):.1f} s unless it is "
                "kept alive",
            )
        geometry = stream.geometry_for(call.client_id, now.monotonic_ns)
        self._limits.check_bytes(geometry, self._lifecycle.total_bytes, self._lifecycle.ended_bytes)
        self._lifecycle.renew(stream, geometry, now, allocate=True, hugepages=hugepages)
        stream.settle(call.client_id, geometry)

    def _forget_if_new(self, stream: Stream) -> None:
        """A refused attach leaves no stream behind."""
        if not stream.is_provisioned and not stream.name and self._streams.get(stream.stream_id) is stream:
            self._streams.remove(stream)

    @staticmethod
    def _granted(call: AttachCall, lease: Lease, stream: Stream) -> AttachAnswer:
        epoch = stream.epoch
        assert epoch is not None
        return AttachAnswer(
            correlation_id=call.correlation_id,
            code=ResponseCode.OK,
            lease_id=lease.lease_id,
            lease_expiry_timestamp_ns=lease.expiry_ns,
            stream_id=stream.stream_id,
            epoch=epoch.number,
            layout_version=LAYOUT_VERSION,
            header_nslots=epoch.address.nslots,
            header_slot_bytes=SLOT_BYTES,
            max_dims=MAX_DIMS,  # what is configured, whatever was asked for [DRV-4.3-4]
            payload_pools=payload_pools(epoch.address),
            header_region_uri=epoch.address.header_uri,
        )

    def _refused(self, correlation_id: int, refusal: Refusal) -> AttachAnswer:
        self._counters[REFUSAL_COUNTERS[refusal.code]].add()
        return AttachAnswer(
            correlation_id=correlation_id, code=refusal.code, error_message=wire_text(refusal.text)
        )

    # --- keepalive and detach ---

    def keep_alive(self, message: ShmLeaseKeepalive, now: Moment) -> list[Message]:
        """Extends a lease; who holds none any more is told again (decision D18)."""
        ids = (message.lease_id, message.stream_id, message.client_id, message.role)
        if self._leases.keep_alive(*ids, now_ns=now.monotonic_ns):
            self._counters[CounterType.DRIVER_KEEPALIVES].add()
            return []
        self._counters[CounterType.DRIVER_KEEPALIVES_UNKNOWN].add()
        # A keepalive that names somebody else's lease must not make its holder believe it has lost it.
        if self._leases.get(message.lease_id) is not None or not self._revoked_again.take(now.monotonic_ns):
            return []
        reason = self._leases.end_reason(message.lease_id)
        text = "the driver knows no such lease" if reason is None else "the lease has ended"
        return [
            ShmLeaseRevoked(
                timestamp_ns=now.monotonic_ns,
                lease_id=message.lease_id,
                stream_id=message.stream_id,
                client_id=message.client_id,
                role=message.role,
                reason=reason or LeaseRevokeReason.EXPIRED,
                error_message=text,
            )
        ]

    def detach(self, request: ShmDetachRequest, now: Moment) -> list[Message]:
        """Ends a lease at its holder's wish; may be asked again [DRV-4.9-1]."""
        lease = self._leases.find(request.lease_id, request.stream_id, request.client_id, request.role)
        if lease is not None:
            answer = ShmDetachResponse(correlation_id=request.correlation_id, code=ResponseCode.OK)
            return [answer, *self._lifecycle.end(lease, LeaseRevokeReason.DETACHED, now)]
        self._counters[CounterType.DRIVER_REFUSED_REJECTED].add()
        text = (
            f"no active lease {request.lease_id} of client {request.client_id} on stream {request.stream_id}"
        )
        return [
            ShmDetachResponse(
                correlation_id=request.correlation_id, code=ResponseCode.REJECTED, error_message=text
            )
        ]


def _seconds_left(lease: Lease, now: Moment) -> float:
    return max(0, lease.expiry_ns - now.monotonic_ns) / 1e9
