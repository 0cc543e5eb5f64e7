"""A driver that only answers questions of schema 906, from lists that a test wrote."""

from __future__ import annotations

from typing import Any

from tensor_pool import wire
from tensor_pool.datatypes import Dtype, MajorOrder
from tensor_pool.wire.messages import (
    DriverState,
    DriverStatus,
    GetDriverStatus,
    LeaseEntry,
    LeaseRevokeResult,
    LeasesListed,
    ListLeases,
    ListStreams,
    ResponseCode,
    RevokeLease,
    Role,
    StreamEntry,
    StreamsListed,
)

NOW_NS = 50_000_000_000


def stream(stream_id: int, name: str = "", **changes: Any) -> StreamEntry:
    fields: dict[str, Any] = {
        "epoch": 7,
        "current_seq": 41,
        "activity_timestamp_ns": NOW_NS - 250_000_000,
        "max_frame_bytes": 1 << 20,
        "region_bytes": 8 << 20,
        "stream_id": stream_id,
        "producer_id": 99,
        "consumer_count": 2,
        "nslots": 8,
        "rate_milli_hz": 60_000,
        "dims": (480, 640, 0, 0, 0, 0, 0, 0),
        "dtype": Dtype.UINT16,
        "major_order": MajorOrder.ROW,
        "ndims": 2,
        "name": name,
    }
    return StreamEntry(**(fields | changes))


def lease(lease_id: int, stream_id: int = 10000, **changes: Any) -> LeaseEntry:
    fields: dict[str, Any] = {
        "lease_id": lease_id,
        "granted_timestamp_ns": NOW_NS - 9_000_000_000,
        "keepalive_timestamp_ns": NOW_NS - 400_000_000,
        "expiry_timestamp_ns": NOW_NS + 2_600_000_000,
        "epoch": 7,
        "stream_id": stream_id,
        "client_id": 100 + lease_id,
        "role": Role.CONSUMER,
    }
    return LeaseEntry(**(fields | changes))


class ScriptedDriver:
    """An agent; `do_work` answers what came. Give it streams and leases, take what it was asked."""

    name = "scripted driver"

    def __init__(self, client: Any, *, page: int = 1000, control_stream_id: int = 1000) -> None:
        self.streams: list[StreamEntry] = []
        self.leases: list[LeaseEntry] = []
        self.page = page
        self.token = ""
        self.asked: list[wire.Message] = []
        self.ignore = 0
        """How many of the next requests to lose."""
        self.subscription = client.add_subscription("aeron:ipc", control_stream_id)
        self.publication = client.add_publication("aeron:ipc", control_stream_id)
        self.router = wire.Router()
        self.router.on(GetDriverStatus, self._status)
        self.router.on(ListStreams, self._list_streams)
        self.router.on(ListLeases, self._list_leases)
        self.router.on(RevokeLease, self._revoke)

    def on_start(self) -> None:
        """Nothing to do."""

    def on_close(self) -> None:
        """Nothing to do."""

    def do_work(self) -> int:
        return self.subscription.poll(lambda message, _: self.router.dispatch(message))

    def answer(self, message: wire.Message) -> None:
        self.publication.offer(wire.encode(message))

    def _take(self, request: wire.Message) -> bool:
        self.asked.append(request)
        if self.ignore:
            self.ignore -= 1
            return False
        return True

    def _status(self, request: GetDriverStatus) -> None:
        if self._take(request):
            self.answer(self.status_answer(request))

    def status_answer(self, request: GetDriverStatus, **changes: Any) -> DriverStatus:
        fields: dict[str, Any] = {
            "correlation_id": request.correlation_id,
            "client_id": request.client_id,
            "code": ResponseCode.OK,
            "timestamp_ns": NOW_NS,
            "start_timestamp_ns": NOW_NS - 12_000_000_000,
            "pid": 4321,
            "region_bytes": 16 << 20,
            "free_bytes": 1 << 30,
            "layout_version": 1,
            "keepalive_interval_ms": 1000,
            "expiry_grace_intervals": 3,
            "announce_interval_ms": 1000,
            "stream_count": len(self.streams),
            "producer_count": 1,
            "consumer_count": 2,
            "max_results": self.page,
            "state": DriverState.RUNNING,
            "instance_id": "lab",
            "software_version": "0.1.0",
        }
        return DriverStatus(**(fields | changes))

    def _list_streams(self, request: ListStreams) -> None:
        if self._take(request):
            end = request.offset + min(request.max_results, self.page)
            self.answer(
                StreamsListed(
                    correlation_id=request.correlation_id,
                    client_id=request.client_id,
                    code=ResponseCode.OK,
                    offset=request.offset,
                    total_count=len(self.streams),
                    streams=tuple(self.streams[request.offset : end]),
                )
            )

    def _list_leases(self, request: ListLeases) -> None:
        if self._take(request):
            wanted = [e for e in self.leases if request.stream_id in (None, e.stream_id)]
            end = request.offset + min(request.max_results, self.page)
            self.answer(
                LeasesListed(
                    correlation_id=request.correlation_id,
                    client_id=request.client_id,
                    code=ResponseCode.OK,
                    offset=request.offset,
                    total_count=len(wanted),
                    leases=tuple(wanted[request.offset : end]),
                )
            )

    def _revoke(self, request: RevokeLease) -> None:
        if not self._take(request):
            return
        code, text = ResponseCode.OK, ""
        if request.token != self.token:
            code, text = ResponseCode.REJECTED, "the token is wrong"
        self.answer(
            LeaseRevokeResult(
                correlation_id=request.correlation_id,
                client_id=request.client_id,
                code=code,
                lease_id=request.lease_id,
                error_message=text,
            )
        )
        if code is ResponseCode.OK:
            self.leases = [entry for entry in self.leases if entry.lease_id != request.lease_id]
