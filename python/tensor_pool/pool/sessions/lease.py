"""What a program asks the driver for, and what it gets."""

from __future__ import annotations

from typing import Any, Final, Protocol

import msgspec

from tensor_pool.datatypes import Dtype, MajorOrder
from tensor_pool.errors import AttachRefusedError, TensorPoolError
from tensor_pool.wire.messages import ResponseCode, Role, ShmLeaseKeepalive, ShmPoolAnnounce

__all__ = ["Event", "Granted", "Ids", "Lease", "Lost", "Refused", "StreamWish", "refusal_error"]

_KEEPALIVES_A_TERM: Final = 3
"""As drivers count: a lease ends when three were missed."""
_SHORTEST_PERIOD_NS: Final = 10_000_000


class Ids(Protocol):
    """Where ids come from."""

    def correlation_id(self) -> int:
        """One that no other request of this process has."""
        ...

    def client_id(self) -> int:
        """A random one, not 0; each lease has its own (decision D2)."""
        ...


class StreamWish(msgspec.Struct, frozen=True, kw_only=True):
    """What a program asked for.

    Example:
        >>> StreamWish(role=Role.CONSUMER, name="camera-1").label
        "'camera-1'"
    """

    role: Role
    name: str = ""
    stream_id: int | None = None
    dtype: Dtype = Dtype.UNKNOWN
    major_order: MajorOrder = MajorOrder.UNKNOWN
    shape: tuple[int, ...] = ()
    max_frame_bytes: int | None = None
    nslots: int | None = None
    rate_hz: float | None = None
    consumer_latency_s: float | None = None
    pools: tuple[int, ...] = ()
    """Slot sizes in bytes."""
    require_hugepages: bool | None = None

    @property
    def label(self) -> str:
        """What error messages call the stream."""
        return repr(self.name) if self.name else str(self.stream_id)


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver granted."""

    lease_id: int
    client_id: int
    stream_id: int
    role: Role
    epoch: int
    granted_ns: int
    announce: ShmPoolAnnounce
    """Where its memory is, in the form in which everybody else learns it."""
    address: Any
    """The same, checked."""
    expiry_ns: int | None = None
    """When the driver would end it without another keepalive, if it said so; on the clock of `granted_ns`."""

    def keepalive_period_ns(self, interval_ns: int) -> int:
        """How often to send a keepalive: every `interval_ns`, or more often if the driver's leases are short.

        An expiry that makes no sense, by another clock say, changes nothing.
        """
        term_ns = 0 if self.expiry_ns is None else self.expiry_ns - self.granted_ns
        if term_ns <= 0:
            return interval_ns
        return min(interval_ns, max(term_ns // _KEEPALIVES_A_TERM, _SHORTEST_PERIOD_NS))

    def keepalive(self) -> ShmLeaseKeepalive:
        """The message that keeps it alive; its time is filled in when it is sent."""
        return ShmLeaseKeepalive(
            lease_id=self.lease_id,
            stream_id=self.stream_id,
            client_id=self.client_id,
            role=self.role,
            client_timestamp_ns=0,
        )


class Granted(msgspec.Struct, frozen=True):
    """There is a lease now."""

    lease: Lease


class Lost(msgspec.Struct, frozen=True):
    """The lease is gone; nothing of its memory may be used any more [DRV-4.7-6]."""

    lease: Lease
    reason: str


class Refused(msgspec.Struct, frozen=True):
    """The driver said no, and asking again would not help."""

    error: TensorPoolError


Event = Granted | Lost | Refused


_TAKEN_HINT: Final = (
    "a program that was killed leaves its lease for some seconds: try again, give wait_s=5, or end it with "
    "`tpool revoke LEASE`"
)


_HUGEPAGES_HINT: Final = (
    "leave out hugepages=True (driver.hugepages where the driver insists), or mount hugetlbfs and let the "
    "driver's shm.shm_base_dir lie there"
)


def _rejected_hint(wish: StreamWish, text: str) -> str:
    if wish.role is Role.PRODUCER and "has a producer" in text:
        return _TAKEN_HINT
    if "huge pages are required" in text:
        return _HUGEPAGES_HINT
    return "`tpool leases` shows who holds what, `tpool driver status` the limits"


def refusal_error(wish: StreamWish, code: ResponseCode, text: str) -> AttachRefusedError:
    """The driver's refusal as an error with a hint."""
    hint = {
        ResponseCode.REJECTED: _rejected_hint(wish, text),
        ResponseCode.INVALID_PARAMS: "check the stream's name or id, dtype, shape and slots",
        ResponseCode.UNSUPPORTED: "use the same major version of the library for the driver and its clients",
        ResponseCode.INTERNAL_ERROR: "`tpool doctor` looks for what may be wrong with this machine",
    }.get(code)
    error = AttachRefusedError(
        f"the driver refused stream {wish.label} ({code.name}): {text or 'no reason given'}", hint=hint
    )
    error.may_pass = code is ResponseCode.REJECTED
    return error
