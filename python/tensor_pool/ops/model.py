"""The one model that the command line and the console read: streams, leases, clients, the driver.

Rows have stable names, which are the keys of JSON output. They are made from the answers of schema 906, and
from the reports of quality of service where somebody listened, so whoever can ask the driver sees the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from tensor_pool.datatypes import Dtype, MajorOrder
from tensor_pool.ops.holders import UNKNOWN
from tensor_pool.pool.streams import StreamState, stream_state

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tensor_pool.ops.holders import Holder
    from tensor_pool.pool.admin import AdminClient
    from tensor_pool.pool.qos_board import ConsumerQos, QosBoard
    from tensor_pool.wire.messages import DriverStatus, LeaseEntry, StreamEntry

__all__ = [
    "ClientRow",
    "DriverRow",
    "LeaseRow",
    "StreamRow",
    "as_row",
    "client_rows",
    "driver_row",
    "have_reported",
    "lease_rows",
    "read_clients",
    "read_driver",
    "read_leases",
    "read_streams",
    "stream_row",
]

_NS_PER_S: Final = 1e9
_NOBODY_KNOWN: Final[Mapping[int, Holder]] = {}


class StreamRow(msgspec.Struct, frozen=True, kw_only=True):
    """A stream of the driver; None stands for what it doesn't know."""

    stream_id: int
    name: str | None
    state: StreamState
    dtype: str | None
    shape: tuple[int, ...] | None
    order: str | None
    rate_hz: float | None
    bytes_per_s: float | None
    """From the rate and the frame's size, where both are known."""
    epoch: int | None
    current_seq: int | None
    producer_id: int | None
    consumers: int
    slots: int | None
    max_frame_bytes: int | None
    region_bytes: int
    activity_age_s: float | None
    drops: int | None = None
    """What its consumers say that they have lost; None unless somebody listened to them."""


class LeaseRow(msgspec.Struct, frozen=True, kw_only=True):
    """A lease; ages are on the driver's clock."""

    lease_id: int
    stream_id: int
    stream: str | None
    """The stream's name."""
    client_id: int
    role: str
    epoch: int | None
    age_s: float
    keepalive_age_s: float | None
    expires_in_s: float | None
    """Negative when it is overdue."""
    pid: int | None = None
    """The process that holds it; None unless somebody listened, and for programs of other makers."""
    name: str | None = None
    """What that process calls itself."""


class ClientRow(msgspec.Struct, frozen=True, kw_only=True):
    """Who reads or writes; ours take one client id for each lease (decision D2), others may not."""

    client_id: int
    role: str
    streams: tuple[str, ...]
    """Names, or ids of streams without one."""
    leases: tuple[int, ...]
    age_s: float
    keepalive_age_s: float | None
    lag_frames: int | None = None
    """About how far a consumer is behind its producer (`QosBoard.lag`); None unless somebody listened."""
    drops_gap: int | None = None
    drops_late: int | None = None
    pid: int | None = None
    """See `LeaseRow`."""
    name: str | None = None


class DriverRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a driver is, does and allows."""

    state: str
    pid: int
    instance_id: str
    version: str
    uptime_s: float
    streams: int
    producers: int
    consumers: int
    region_bytes: int
    free_bytes: int | None
    layout_version: int
    announce_interval_ms: int
    keepalive_interval_ms: int
    expiry_grace_intervals: int
    max_results: int


def stream_row(entry: StreamEntry, *, now_ns: int, board: QosBoard | None = None) -> StreamRow:
    """A stream as people see it.

    Args:
        entry: What the driver said.
        now_ns: The driver's monotonic time.
        board: What its producer and its consumers said. A rate that was measured here goes before the
            driver's, which is older.
    """
    shape = tuple(entry.dims[: entry.ndims]) if entry.ndims else None
    rate_hz = None if entry.rate_milli_hz is None else entry.rate_milli_hz / 1e3
    heard = None if board is None else board.producer(entry.stream_id)
    if heard is not None and heard.rate_hz is not None:
        rate_hz = round(heard.rate_hz, 3)
    frame_bytes = _frame_bytes(entry.dtype, shape)
    return StreamRow(
        stream_id=entry.stream_id,
        name=entry.name or None,
        state=stream_state(entry),
        dtype=None if entry.dtype is Dtype.UNKNOWN else entry.dtype.name.lower(),
        shape=shape,
        order=None if entry.major_order is MajorOrder.UNKNOWN else entry.major_order.name.lower(),
        rate_hz=rate_hz,
        bytes_per_s=None if rate_hz is None or frame_bytes is None else round(rate_hz * frame_bytes, 1),
        epoch=entry.epoch,
        current_seq=entry.current_seq,
        producer_id=entry.producer_id,
        consumers=entry.consumer_count,
        slots=entry.nslots,
        max_frame_bytes=entry.max_frame_bytes,
        region_bytes=entry.region_bytes,
        activity_age_s=_age_s(entry.activity_timestamp_ns, now_ns),
        drops=None if board is None else board.drops_of(entry.stream_id),
    )


def _frame_bytes(dtype: Dtype, shape: tuple[int, ...] | None) -> int | None:
    if shape is None or dtype is Dtype.UNKNOWN:
        return None
    size = _ELEMENT_BYTES[dtype]
    for dim in shape:
        size *= max(0, dim)
    return size


_ELEMENT_BYTES: Final[Mapping[Dtype, int]] = {
    **dict.fromkeys((Dtype.UINT8, Dtype.INT8, Dtype.BOOLEAN, Dtype.BYTES, Dtype.BIT), 1),
    **dict.fromkeys((Dtype.UINT16, Dtype.INT16), 2),
    **dict.fromkeys((Dtype.UINT32, Dtype.INT32, Dtype.FLOAT32), 4),
    **dict.fromkeys((Dtype.UINT64, Dtype.INT64, Dtype.FLOAT64), 8),
}


def lease_rows(
    entries: Iterable[LeaseEntry],
    names: Mapping[int, str],
    *,
    now_ns: int,
    holders: Mapping[int, Holder] = _NOBODY_KNOWN,
) -> list[LeaseRow]:
    """Leases as people see them.

    Args:
        entries: What the driver said.
        names: Names of streams by their ids.
        now_ns: The driver's monotonic time.
        holders: Processes by client id, as far as they are known.
    """
    return [
        LeaseRow(
            lease_id=entry.lease_id,
            stream_id=entry.stream_id,
            stream=names.get(entry.stream_id) or None,
            client_id=entry.client_id,
            role=entry.role.name.lower(),
            epoch=entry.epoch,
            age_s=round((now_ns - entry.granted_timestamp_ns) / _NS_PER_S, 3),
            keepalive_age_s=_age_s(entry.keepalive_timestamp_ns, now_ns),
            expires_in_s=(
                None
                if entry.expiry_timestamp_ns is None
                else round((entry.expiry_timestamp_ns - now_ns) / _NS_PER_S, 3)
            ),
            pid=holders.get(entry.client_id, UNKNOWN).pid,
            name=holders.get(entry.client_id, UNKNOWN).name,
        )
        for entry in entries
    ]


def client_rows(leases: Iterable[LeaseRow], board: QosBoard | None = None) -> list[ClientRow]:
    """The clients behind leases, producers first.

    Args:
        leases: What they hold.
        board: What consumers said; a consumer's id is that of its client (decision D2).

    Example:
        >>> lease = LeaseRow(lease_id=1, stream_id=10000, stream="camera-1", client_id=7, role="consumer",
        ...     epoch=1, age_s=2.0, keepalive_age_s=0.5, expires_in_s=2.5)
        >>> client_rows([lease])[0].streams
        ('camera-1',)
    """
    by_client: dict[tuple[str, int], list[LeaseRow]] = {}
    for lease in leases:
        by_client.setdefault((lease.role, lease.client_id), []).append(lease)
    rows = []
    for (role, client_id), held in by_client.items():
        ages = [lease.keepalive_age_s for lease in held if lease.keepalive_age_s is not None]
        told = [] if board is None or role != "consumer" else _reports(board, client_id, held)
        rows.append(
            ClientRow(
                client_id=client_id,
                role=role,
                streams=tuple(dict.fromkeys(lease.stream or str(lease.stream_id) for lease in held)),
                leases=tuple(lease.lease_id for lease in held),
                age_s=max(lease.age_s for lease in held),
                keepalive_age_s=max(ages, default=None),
                lag_frames=max((lag for _, lag in told if lag is not None), default=None),
                drops_gap=sum(qos.drops_gap for qos, _ in told) if told else None,
                drops_late=sum(qos.drops_late for qos, _ in told) if told else None,
                pid=held[0].pid,
                name=held[0].name,
            )
        )
    return sorted(rows, key=lambda row: (row.role != "producer", row.streams, row.client_id))


def _reports(
    board: QosBoard, client_id: int, leases: Iterable[LeaseRow]
) -> list[tuple[ConsumerQos, int | None]]:
    found = []
    for lease in leases:
        qos = board.consumer(lease.stream_id, client_id)
        if qos is not None:
            found.append((qos, board.lag(lease.stream_id, client_id)))
    return found


def driver_row(status: DriverStatus) -> DriverRow:
    """A driver's status as people see it."""
    return DriverRow(
        state=status.state.name.lower(),
        pid=status.pid,
        instance_id=status.instance_id,
        version=status.software_version,
        uptime_s=round((status.timestamp_ns - status.start_timestamp_ns) / _NS_PER_S, 3),
        streams=status.stream_count,
        producers=status.producer_count,
        consumers=status.consumer_count,
        region_bytes=status.region_bytes,
        free_bytes=status.free_bytes,
        layout_version=status.layout_version,
        announce_interval_ms=status.announce_interval_ms,
        keepalive_interval_ms=status.keepalive_interval_ms,
        expiry_grace_intervals=status.expiry_grace_intervals,
        max_results=status.max_results,
    )


def read_driver(admin: AdminClient) -> DriverRow:
    """Asks the driver what it is.

    Raises:
        NoDriverError: Nobody answers.
    """
    return driver_row(admin.status())


def read_streams(admin: AdminClient, board: QosBoard | None = None) -> list[StreamRow]:
    """Asks the driver for all streams.

    Args:
        admin: The connection.
        board: What producers and consumers said, if somebody listened.

    Raises:
        NoDriverError: Nobody answers.
    """
    now_ns = admin.status().timestamp_ns  # the driver's clock: ours may be of another time namespace
    return [stream_row(entry, now_ns=now_ns, board=board) for entry in admin.streams()]


def read_leases(
    admin: AdminClient, stream_id: int | None = None, *, holders: Mapping[int, Holder] = _NOBODY_KNOWN
) -> list[LeaseRow]:
    """Asks the driver for the leases of one stream or of all; `holders` are known processes by client id.

    Raises:
        NoDriverError: Nobody answers.
    """
    now_ns = admin.status().timestamp_ns
    names = {entry.stream_id: entry.name for entry in admin.streams()}
    return lease_rows(admin.leases(stream_id), names, now_ns=now_ns, holders=holders)


def read_clients(
    admin: AdminClient, board: QosBoard | None = None, *, holders: Mapping[int, Holder] = _NOBODY_KNOWN
) -> list[ClientRow]:
    """Asks the driver who reads and who writes.

    Args:
        admin: The connection.
        board: What consumers said, if somebody listened.
        holders: Processes by client id, as far as they are known.

    Raises:
        NoDriverError: Nobody answers.
    """
    if board is not None:
        for entry in admin.streams():
            board.suppose_rate(entry.stream_id, (entry.rate_milli_hz or 0) / 1e3)
    return client_rows(read_leases(admin, holders=holders), board)


def have_reported(leases: Iterable[LeaseRow], board: QosBoard) -> bool:
    """Whether everybody who holds a lease was heard.

    Example:
        >>> from tensor_pool.pool.qos_board import QosBoard
        >>> have_reported([], QosBoard())
        True
    """
    return all(
        board.producer(lease.stream_id) is not None
        if lease.role == "producer"
        else board.consumer(lease.stream_id, lease.client_id) is not None
        for lease in leases
    )


def as_row(row: msgspec.Struct) -> dict[str, Any]:
    """A row as commands print it."""
    return msgspec.structs.asdict(row)


def _age_s(timestamp_ns: int | None, now_ns: int) -> float | None:
    # A stamp that is newer than the status is of a moment later, not of the future.
    return None if timestamp_ns is None else round(max(0, now_ns - timestamp_ns) / _NS_PER_S, 3)
