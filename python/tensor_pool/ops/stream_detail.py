"""All there is to know of one stream without reading a frame of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tensor_pool.ops.frame_clock import clock_row
from tensor_pool.ops.holders import UNKNOWN
from tensor_pool.ops.model import as_row, read_leases, read_streams
from tensor_pool.ops.stream_lookup import find_stream
from tensor_pool.pool.metadata import MetadataView
from tensor_pool.wire.messages import DataSourceAnnounce, DataSourceMeta, ShmPoolAnnounce

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tensor_pool.ops.holders import Holder
    from tensor_pool.ops.listening import Listener
    from tensor_pool.ops.model import LeaseRow, StreamRow
    from tensor_pool.pool.admin import AdminClient
    from tensor_pool.pool.qos_board import QosBoard

__all__ = ["StreamDetail", "StreamHeard", "plain_value", "read_detail"]

_MOST_VALUES: Final = 64
"""Longer bytes and arrays are described and not shown."""


class StreamHeard:
    """What is heard about one stream: its announce and its metadata.

    Example:
        >>> heard = StreamHeard(10000)
        >>> heard.on_meta(DataSourceMeta(10000, 1, timestamp_ns=0, attributes=()), 0)
        >>> heard.metadata.meta_version, heard.announce
        (1, None)
    """

    def __init__(self, stream_id: int) -> None:
        self.stream_id = stream_id
        self.announce: ShmPoolAnnounce | None = None
        self.metadata = MetadataView(stream_id)

    def on_announce(self, announce: ShmPoolAnnounce, _now_ns: int) -> None:
        """Takes an announce; one of an earlier epoch may come from a lingering log (decision L11)."""
        if announce.stream_id == self.stream_id:
            before = self.announce
            if before is None or announce.epoch >= before.epoch:
                self.announce = announce

    def on_meta(self, message: DataSourceAnnounce | DataSourceMeta, _now_ns: int) -> None:
        """Takes metadata."""
        self.metadata.on_message(message)

    def attach_to(self, listener: Listener) -> None:
        """Lets a listener of ``announce`` and ``metadata`` tell it everything."""
        listener.on(ShmPoolAnnounce, self.on_announce)
        listener.on(DataSourceAnnounce, self.on_meta)
        listener.on(DataSourceMeta, self.on_meta)

    @property
    def is_complete(self) -> bool:
        """Whether there is nothing more to wait for."""
        return self.announce is not None and self.metadata.complete


class StreamDetail(msgspec.Struct, frozen=True, kw_only=True):
    """One stream in full; the names are the keys of JSON output."""

    stream: StreamRow
    pools: list[dict[str, int]] | None
    """None when nobody announced the stream meanwhile."""
    clock: dict[str, Any]
    meta_version: int
    metadata: dict[str, Any]
    clients: list[dict[str, Any]]

    def as_row(self) -> dict[str, Any]:
        """As JSON prints it: what the stream is, then its parts."""
        parts = {name: getattr(self, name) for name in self.__struct_fields__ if name != "stream"}
        return {**as_row(self.stream), **parts}


def read_detail(
    admin: AdminClient,
    listener: Listener,
    board: QosBoard,
    wanted: str,
    *,
    listen_s: float,
    where: str | None = None,
    holders: Callable[[], Mapping[int, Holder]] = dict,
) -> StreamDetail:
    """Asks the driver and listens to the stream's clients.

    Args:
        admin: The connection to the driver.
        listener: Listens to ``qos``, ``announce`` and ``metadata``.
        board: Where it keeps quality of service.
        wanted: The stream's name or id.
        listen_s: How long to listen at most.
        where: The place that is asked, for errors.
        holders: Asked for processes by client id, once everybody was heard.

    Raises:
        NoDriverError: Nobody answers.
        NoStreamError: There is no such stream.
    """
    found = find_stream(read_streams(admin), wanted, where=where)
    leases = read_leases(admin, found.stream_id)
    heard = StreamHeard(found.stream_id)
    heard.attach_to(listener)
    is_produced = any(lease.role == "producer" for lease in leases)

    def is_told() -> bool:
        told = all(
            board.consumer(lease.stream_id, lease.client_id) for lease in leases if lease.role == "consumer"
        )
        return told and (
            not is_produced or (heard.is_complete and board.producer(found.stream_id) is not None)
        )

    listener.listen(listen_s, until=is_told)
    if found.rate_hz is not None:
        board.suppose_rate(found.stream_id, found.rate_hz)
    again = find_stream(read_streams(admin, board), str(found.stream_id), where=where)
    return detail(again, leases, heard, board, holders())


def detail(
    stream: StreamRow,
    leases: list[LeaseRow],
    heard: StreamHeard,
    board: QosBoard,
    holders: Mapping[int, Holder],
) -> StreamDetail:
    """Puts together what was answered and what was heard."""
    announce = heard.announce
    return StreamDetail(
        stream=stream,
        pools=None
        if announce is None
        else [
            {"pool_id": pool.pool_id, "slots": pool.pool_nslots, "stride_bytes": pool.stride_bytes}
            for pool in announce.payload_pools
        ],
        clock=clock_row(heard.metadata),
        meta_version=heard.metadata.meta_version,
        metadata={key: plain_value(value) for key, value in heard.metadata.items()},
        clients=[
            _client(lease, board, holders.get(lease.client_id, UNKNOWN))
            for lease in sorted(leases, key=lambda lease: lease.role != "producer")
        ],
    )


def _client(lease: LeaseRow, board: QosBoard, holder: Holder) -> dict[str, Any]:
    row = {
        name: getattr(lease, name)
        for name in ("role", "client_id", "lease_id", "age_s", "keepalive_age_s", "expires_in_s")
    }
    is_consumer = lease.role == "consumer"
    qos = board.consumer(lease.stream_id, lease.client_id) if is_consumer else None
    return {
        **row,
        "mode": None if qos is None else qos.mode,
        "lag_frames": None if qos is None else board.lag(lease.stream_id, lease.client_id),
        "drops_gap": None if qos is None else qos.drops_gap,
        "drops_late": None if qos is None else qos.drops_late,
        "pid": holder.pid,
        "name": holder.name,
    }


def plain_value(value: Any) -> Any:
    """A value of metadata as JSON can show it; long ones are described.

    Example:
        >>> import numpy as np
        >>> plain_value(b"12"), plain_value(np.zeros((480, 640))), plain_value(np.arange(3))
        ('0x3132', 'array of float64 480x640', [0, 1, 2])
    """
    if isinstance(value, bytes):
        return f"0x{value.hex()}" if len(value) <= _MOST_VALUES else f"{len(value)} bytes"
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        if math.prod(value.shape) <= _MOST_VALUES:
            return value.tolist()
        return f"array of {value.dtype} {'x'.join(map(str, value.shape))}"
    return value
