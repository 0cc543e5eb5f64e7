"""Schema 906: names become ids, and everybody may look into the driver (decision D17)."""

from __future__ import annotations

import hmac
import os
from typing import TYPE_CHECKING, Final

from tensor_pool.datatypes import MAX_DIMS, Dtype
from tensor_pool.driver.answers import Refusal, wire_text
from tensor_pool.driver.attach import REFUSAL_COUNTERS
from tensor_pool.driver.registry import TensorShape, Wish
from tensor_pool.driver.requests import Answered
from tensor_pool.errors import ConfigError
from tensor_pool.pool.sizing import choose_geometry
from tensor_pool.wire.messages import (
    DriverState,
    DriverStatus,
    LeaseEntry,
    LeaseRevokeReason,
    LeaseRevokeResult,
    LeasesListed,
    ResponseCode,
    Role,
    StreamEntry,
    StreamResolved,
    StreamsListed,
)
from tensor_pool.wire.shm import LAYOUT_VERSION

if TYPE_CHECKING:
    from tensor_pool.driver.answers import Moment
    from tensor_pool.driver.attach import AttachHandler
    from tensor_pool.driver.config import DriverSection
    from tensor_pool.driver.leases import Lease
    from tensor_pool.driver.lifecycle import Lifecycle
    from tensor_pool.driver.limits import Limits
    from tensor_pool.driver.registry import Stream
    from tensor_pool.pool.sizing import Geometry
    from tensor_pool.runtime import CounterSet
    from tensor_pool.wire import Message
    from tensor_pool.wire.messages import (
        GetDriverStatus,
        ListLeases,
        ListStreams,
        ResolveStream,
        RevokeLease,
    )

__all__ = ["MAX_RESULTS", "AdminHandler", "same_token"]

MAX_RESULTS: Final = 1_000
"""The longest page."""
_WISH_NS: Final = 30_000_000_000
"""How long a producer's description of its frames waits for the attach that it belongs to."""
_SILENT_NS: Final = 5_000_000_000
"""Producers report once a second."""
_PAGE_OVERHEAD_BYTES: Final = 2_048
"""Room for everything in a page but its entries."""
_STREAM_ENTRY_BYTES: Final = 101
_LEASE_ENTRY_BYTES: Final = 49


def same_token(given: str, configured: str) -> bool:
    """Whether a token is right; takes as long for a wrong one, however wrong.

    Example:
        >>> same_token("open", "open"), same_token("shut", "open")
        (True, False)
    """
    return hmac.compare_digest(given.encode(), configured.encode())


class AdminHandler:
    """Answers questions about streams, leases and the driver, and revokes leases.

    Args:
        section: What the driver is called and allows.
        lifecycle: Streams, leases and epochs.
        attach: Enters streams.
        limits: How many names may be asked for.
        counters: What is counted.
        started: When the driver started.
        software_version: What it says it is.
    """

    def __init__(
        self,
        *,
        section: DriverSection,
        lifecycle: Lifecycle,
        attach: AttachHandler,
        limits: Limits,
        counters: CounterSet,
        started: Moment,
        software_version: str = "",
    ) -> None:
        self._section = section
        self._lifecycle = lifecycle
        self._streams = lifecycle.streams
        self._leases = lifecycle.leases
        self._attach = attach
        self._limits = limits
        self._counters = counters
        self._started = started
        self._software_version = software_version
        self._resolved: Answered[StreamResolved] = Answered()
        self._revoked: Answered[LeaseRevokeResult] = Answered()
        self.max_message_bytes = 1 << 19
        """What the control publication takes; pages are cut to fit."""

    # --- names ---

    def resolve(self, request: ResolveStream, now: Moment) -> list[Message]:
        """Answers with the id of a stream; a name that nobody asked for yet gets one."""
        key = (request.client_id, request.correlation_id)
        answer = self._resolved.get(key)
        if answer is None:
            try:
                answer = self._resolve(request, now)
                self._resolved.remember(key, answer)
            except Refusal as refusal:
                self._counters[REFUSAL_COUNTERS[refusal.code]].add()
                answer = StreamResolved(
                    correlation_id=request.correlation_id,
                    client_id=request.client_id,
                    code=refusal.code,
                    name=request.name,
                    error_message=wire_text(refusal.text),
                )
        return [answer]

    def _resolve(self, request: ResolveStream, now: Moment) -> StreamResolved:
        wish = self._wish_of(request, now)
        stream, is_new = self._find_or_reserve(request, now)
        stream.touched_ns = now.monotonic_ns
        if wish is not None:
            stream.wish(request.client_id, wish)
            producer = self._leases.producer_of(stream.stream_id)
            if producer is not None and producer.client_id == request.client_id and wish.shape.ndims:
                stream.shape = wish.shape  # a bridge learns what its frames are when it has attached already
        return StreamResolved(
            correlation_id=request.correlation_id,
            client_id=request.client_id,
            code=ResponseCode.OK,
            epoch=None if stream.epoch is None else stream.epoch.number,
            stream_id=stream.stream_id,
            created=is_new,
            producer_attached=self._leases.producer_of(stream.stream_id) is not None,
            name=stream.name,
        )

    def _find_or_reserve(self, request: ResolveStream, now: Moment) -> tuple[Stream, bool]:
        name, stream_id = request.name, request.stream_id or 0
        if not name and not stream_id:
            raise _invalid("neither a name nor a stream id is given")
        if name and (not name.isprintable() or name != name.strip()):
            raise _invalid("a name has printable ASCII characters and no space at either end")
        by_name = self._streams.by_name(name) if name else None
        by_id = self._streams.get(stream_id) if stream_id else None
        if by_name is not None and stream_id and by_name.stream_id != stream_id:
            raise _invalid(f"{name!r} is the name of stream {by_name.stream_id}, not of {stream_id}")
        if by_name is not None:
            return by_name, False
        if by_id is not None:
            return self._named(by_id, name), False
        if stream_id and not self._streams.is_creatable(stream_id):
            ranges = ", ".join(map(str, self._streams.creatable_ranges)) or "none"
            raise _invalid(f"stream id {stream_id} may not be created; driver.creatable_ranges are {ranges}")
        self._limits.check_new_stream(self._streams.unclaimed_count, now.monotonic_ns)
        self._attach.make_room(now)
        if stream_id:
            return self._streams.add(stream_id, name=name, now_ns=now.monotonic_ns), True
        return self._attach.reserve(name, now), True

    def _named(self, stream: Stream, name: str) -> Stream:
        if name and stream.name:
            raise _invalid(f"stream {stream.stream_id} is called {stream.name!r}, not {name!r}")
        if name:
            self._streams.rename(stream, name)
        return stream

    def _wish_of(self, request: ResolveStream, now: Moment) -> Wish | None:
        """What a producer says about its frames; None when it says nothing."""
        if request.role is not Role.PRODUCER:
            return None
        shape = request.dims[: request.ndims]
        says_size = bool(request.pools) or request.max_frame_bytes is not None or bool(shape)
        if not says_size:
            if request.nslots is None and request.rate_milli_hz is None:
                return None
            pools = list(self._section.default_profile.geometry.strides)
        else:
            pools = [pool.stride_bytes for pool in request.pools]
        return Wish(self._geometry(request, pools), _shape_of(request), now.monotonic_ns + _WISH_NS)

    @staticmethod
    def _geometry(request: ResolveStream, pools: list[int]) -> Geometry:
        if request.ndims > MAX_DIMS:
            raise _invalid(f"{request.ndims} dimensions; a tensor has at most {MAX_DIMS}")
        try:
            return choose_geometry(
                dtype=request.dtype,
                shape=request.dims[: request.ndims],
                max_frame_bytes=request.max_frame_bytes,
                pools=pools,
                nslots=request.nslots,
                rate_hz=None if request.rate_milli_hz is None else request.rate_milli_hz / 1_000,
                consumer_latency_s=(
                    None if request.consumer_latency_ms is None else request.consumer_latency_ms / 1_000
                ),
            )
        except ConfigError as e:
            raise _invalid(f"{e.message}: {e.hint}" if e.hint else e.message) from None

    # --- lists ---

    def list_streams(self, request: ListStreams, now: Moment) -> list[Message]:
        """A page of streams."""
        entries = []
        room = self.max_message_bytes - _PAGE_OVERHEAD_BYTES
        for stream in self._streams.page(request.offset, min(request.max_results, MAX_RESULTS)):
            room -= _STREAM_ENTRY_BYTES + len(stream.name)
            if room < 0:
                break
            entries.append(self._stream_entry(stream, now))
        return [
            StreamsListed(
                correlation_id=request.correlation_id,
                client_id=request.client_id,
                code=ResponseCode.OK,
                offset=request.offset,
                total_count=len(self._streams),
                streams=tuple(entries),
            )
        ]

    def _stream_entry(self, stream: Stream, now: Moment) -> StreamEntry:
        epoch = stream.epoch
        producer = self._leases.producer_of(stream.stream_id)
        lease_count = self._leases.count_of_stream(stream.stream_id)
        # A producer that ended or is stuck has no rate, whatever it was while it reported.
        is_heard = producer is not None and now.monotonic_ns - stream.report_ns <= _SILENT_NS
        return StreamEntry(
            epoch=None if epoch is None else epoch.number,
            current_seq=stream.current_seq,
            activity_timestamp_ns=stream.activity_ns,
            max_frame_bytes=None if epoch is None else epoch.geometry.max_frame_bytes,
            region_bytes=0 if epoch is None else epoch.allocated_bytes,
            stream_id=stream.stream_id,
            producer_id=None if producer is None else producer.client_id,
            consumer_count=lease_count - (producer is not None),
            nslots=None if epoch is None else epoch.geometry.nslots,
            rate_milli_hz=stream.rate_milli_hz if is_heard else None,
            dims=stream.shape.dims,
            dtype=stream.shape.dtype,
            major_order=stream.shape.major_order,
            ndims=stream.shape.ndims,
            name=stream.name,
        )

    def list_leases(self, request: ListLeases, _now: Moment) -> list[Message]:
        """A page of leases."""
        leases = (
            list(self._leases) if request.stream_id is None else self._leases.of_stream(request.stream_id)
        )
        fitting = (self.max_message_bytes - _PAGE_OVERHEAD_BYTES) // _LEASE_ENTRY_BYTES
        end = request.offset + min(request.max_results, MAX_RESULTS, fitting)
        return [
            LeasesListed(
                correlation_id=request.correlation_id,
                client_id=request.client_id,
                code=ResponseCode.OK,
                offset=request.offset,
                total_count=len(leases),
                leases=tuple(_lease_entry(lease) for lease in leases[request.offset : end]),
            )
        ]

    # --- administration ---

    def revoke(self, request: RevokeLease, now: Moment) -> list[Message]:
        """Ends a lease against its holder's will."""
        key = (request.client_id, request.correlation_id)
        answer = self._revoked.get(key)
        if answer is not None:
            return [answer]
        messages: list[Message] = []
        code, text = ResponseCode.OK, ""
        try:
            messages = self._revoke(request, now)
        except Refusal as refusal:
            self._counters[REFUSAL_COUNTERS[refusal.code]].add()
            code, text = refusal.code, wire_text(refusal.text)
        answer = LeaseRevokeResult(
            correlation_id=request.correlation_id,
            client_id=request.client_id,
            code=code,
            lease_id=request.lease_id,
            error_message=text,
        )
        if code is ResponseCode.OK:
            self._revoked.remember(key, answer)
        return [answer, *messages]

    def _revoke(self, request: RevokeLease, now: Moment) -> list[Message]:
        token = self._section.shutdown_token
        if token and not same_token(request.token, token):
            raise Refusal(ResponseCode.REJECTED, "the token is not that of driver.shutdown_token")
        lease = self._leases.get(request.lease_id)
        if lease is None or lease.stream_id != request.stream_id:
            raise _invalid(f"stream {request.stream_id} has no active lease {request.lease_id}")
        text = request.reason or "revoked by administration"
        return self._lifecycle.end(lease, LeaseRevokeReason.REVOKED, now, text)

    def revoke_now(self, lease_id: int, now: Moment) -> list[Message]:
        """The same without a request.

        Raises:
            ValueError: There is no such lease, or a token is needed, which can't be given here.
        """
        if self._section.shutdown_token:
            raise ValueError("the driver wants its token for that: tpool revoke --token")
        lease = self._leases.get(lease_id)
        if lease is None:
            raise ValueError(f"there is no active lease {lease_id}")
        return self._lifecycle.end(lease, LeaseRevokeReason.REVOKED, now, "revoked by a command")

    def status(self, request: GetDriverStatus, now: Moment) -> list[Message]:
        """What the driver is, does and allows."""
        return [self.status_now(now, correlation_id=request.correlation_id, client_id=request.client_id)]

    def status_now(self, now: Moment, *, correlation_id: int = 0, client_id: int = 0) -> DriverStatus:
        """The same without a request."""
        producers = self._leases.producer_count
        return DriverStatus(
            correlation_id=correlation_id,
            client_id=client_id,
            code=ResponseCode.OK,
            timestamp_ns=now.monotonic_ns,
            start_timestamp_ns=self._started.monotonic_ns,
            pid=os.getpid(),
            region_bytes=self._lifecycle.total_bytes,
            free_bytes=self._lifecycle.files.free_bytes(),
            layout_version=LAYOUT_VERSION,
            keepalive_interval_ms=self._section.keepalive_interval_ms,  # [DRV-4.4-7]
            expiry_grace_intervals=self._section.expiry_grace_intervals,
            announce_interval_ms=self._section.announce_interval_ms,
            stream_count=len(self._streams),
            producer_count=producers,
            consumer_count=len(self._leases) - producers,
            max_results=MAX_RESULTS,
            state=DriverState.DRAINING if self._attach.is_draining else DriverState.RUNNING,
            instance_id=self._section.instance_id,
            software_version=self._software_version,
        )


def _shape_of(request: ResolveStream) -> TensorShape:
    if request.dtype is Dtype.UNKNOWN and not request.ndims:
        return TensorShape()
    unused = MAX_DIMS - request.ndims
    return TensorShape(
        request.dtype, request.major_order, request.ndims, (*request.dims[: request.ndims], *(0,) * unused)
    )


def _lease_entry(lease: Lease) -> LeaseEntry:
    return LeaseEntry(
        lease_id=lease.lease_id,
        granted_timestamp_ns=lease.granted_ns,
        keepalive_timestamp_ns=lease.keepalive_ns,
        expiry_timestamp_ns=lease.expiry_ns,
        epoch=lease.epoch,
        stream_id=lease.stream_id,
        client_id=lease.client_id,
        role=lease.role,
    )


def _invalid(text: str) -> Refusal:
    return Refusal(ResponseCode.INVALID_PARAMS, text)
