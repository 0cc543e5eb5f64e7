"""Who may use which stream, and until when. No clock, no messages, no files: only the book."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

import msgspec

from tensor_pool.runtime import TimerQueue
from tensor_pool.wire.messages import LeaseRevokeReason, Role

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Lease", "LeaseBook", "first_lease_id"]

_REMEMBERED_ENDS: Final = 4_096
"""Ended leases whose reason is remembered, for keepalives that come late (decision D18)."""


class Lease(msgspec.Struct, kw_only=True):
    """One client's right to one stream in one role [DRV-4.1-1, DRV-4.1-2]; times are monotonic."""

    lease_id: int
    stream_id: int
    client_id: int
    role: Role
    epoch: int
    granted_ns: int
    expiry_ns: int
    keepalive_ns: int | None = None


def first_lease_id() -> int:
    """Where a driver starts to count: not where another one did, and far below 2^53 for JavaScript's sake.

    Example:
        >>> first_lease_id() != first_lease_id()
        True
    """
    return (1 << 32) + secrets.randbelow(1 << 52)


class LeaseBook:
    """All active leases.

    Args:
        lease_ns: How long a lease lasts after it was granted or kept alive.
        first_id: The first lease id; counts up, so none is ever used twice [DRV-4.8-1, DRV-4.8-2].

    Example:
        >>> book = LeaseBook(lease_ns=3_000, first_id=1)
        >>> lease = book.grant(stream_id=10000, client_id=7, role=Role.PRODUCER, epoch=1, now_ns=0)
        >>> book.keep_alive(lease.lease_id, 10000, 7, Role.PRODUCER, now_ns=2_000)
        True
        >>> [lease.client_id for lease in book.expire(now_ns=5_000)]
        [7]
    """

    def __init__(self, *, lease_ns: int, first_id: int | None = None) -> None:
        self._lease_ns = lease_ns
        self._next_id = first_lease_id() if first_id is None else first_id
        self._leases: dict[int, Lease] = {}
        self._by_client: dict[int, Lease] = {}
        self._by_stream: dict[int, dict[int, Lease]] = {}
        self._producers: dict[int, Lease] = {}
        self._expiries: TimerQueue[int] = TimerQueue()
        self._ended: dict[int, LeaseRevokeReason] = {}

    def __len__(self) -> int:
        return len(self._leases)

    def __iter__(self) -> Iterator[Lease]:
        """The leases in the order of their ids."""
        return iter(self._leases.values())

    def get(self, lease_id: int) -> Lease | None:
        """An active lease."""
        return self._leases.get(lease_id)

    def of_client(self, client_id: int) -> Lease | None:
        """The lease of a client; it has at most one (decision D2)."""
        return self._by_client.get(client_id)

    def of_stream(self, stream_id: int) -> list[Lease]:
        """The leases of a stream in the order of their ids."""
        return list(self._by_stream.get(stream_id, {}).values())

    def count_of_stream(self, stream_id: int) -> int:
        """How many leases a stream has."""
        return len(self._by_stream.get(stream_id, {}))

    def producer_of(self, stream_id: int) -> Lease | None:
        """The lease of a stream's producer; there is at most one [DRV-5-1]."""
        return self._producers.get(stream_id)

    @property
    def producer_count(self) -> int:
        """How many leases are producers'."""
        return len(self._producers)

    def grant(self, *, stream_id: int, client_id: int, role: Role, epoch: int, now_ns: int) -> Lease:
        """Enters a lease.

        Raises:
            ValueError: The client has one already, or the stream has a producer; ask before.
        """
        if client_id in self._by_client:
            raise ValueError(f"client {client_id} has a lease already")
        if role is Role.PRODUCER and stream_id in self._producers:
            raise ValueError(f"stream {stream_id} has a producer already")
        lease = Lease(
            lease_id=self._next_id,
            stream_id=stream_id,
            client_id=client_id,
            role=role,
            epoch=epoch,
            granted_ns=now_ns,
            expiry_ns=now_ns + self._lease_ns,
        )
        self._next_id += 1
        self._leases[lease.lease_id] = lease
        self._by_client[client_id] = lease
        self._by_stream.setdefault(stream_id, {})[lease.lease_id] = lease
        if role is Role.PRODUCER:
            self._producers[stream_id] = lease
        self._expiries.set(lease.lease_id, lease.expiry_ns)
        return lease

    def find(self, lease_id: int, stream_id: int, client_id: int, role: Role) -> Lease | None:
        """The lease if all four belong together."""
        lease = self._leases.get(lease_id)
        if lease is None or (lease.stream_id, lease.client_id, lease.role) != (stream_id, client_id, role):
            return None
        return lease

    def keep_alive(self, lease_id: int, stream_id: int, client_id: int, role: Role, *, now_ns: int) -> bool:
        """Extends a lease if all four belong together [DRV-4.4-3]; says whether it did."""
        lease = self.find(lease_id, stream_id, client_id, role)
        if lease is None:
            return False
        lease.keepalive_ns = now_ns
        lease.expiry_ns = now_ns + self._lease_ns
        self._expiries.set(lease_id, lease.expiry_ns)
        return True

    def end(self, lease: Lease, reason: LeaseRevokeReason) -> None:
        """Strikes a lease out."""
        del self._leases[lease.lease_id]
        del self._by_client[lease.client_id]
        of_stream = self._by_stream[lease.stream_id]
        del of_stream[lease.lease_id]
        if not of_stream:
            del self._by_stream[lease.stream_id]
        if lease.role is Role.PRODUCER:
            del self._producers[lease.stream_id]
        self._expiries.cancel(lease.lease_id)
        self._ended[lease.lease_id] = reason
        if len(self._ended) > _REMEMBERED_ENDS:
            del self._ended[next(iter(self._ended))]

    def end_reason(self, lease_id: int) -> LeaseRevokeReason | None:
        """Why a lease ended, if that is still remembered."""
        return self._ended.get(lease_id)

    def next_expiry_ns(self) -> int | None:
        """When the next lease expires unless it is kept alive."""
        return self._expiries.next_deadline_ns()

    def expire(self, *, now_ns: int) -> list[Lease]:
        """Strikes out the leases whose time is over and returns them, earliest first [DRV-4.4-4]."""
        expired = [self._leases[lease_id] for lease_id in self._expiries.expire(now_ns)]
        for lease in expired:
            self.end(lease, LeaseRevokeReason.EXPIRED)
        return expired

    def postpone(self, until_ns: int) -> None:
        """Lets no lease expire before `until_ns`: for a driver that itself was stopped and heard nothing."""
        for lease in self._leases.values():
            if lease.expiry_ns < until_ns:
                lease.expiry_ns = until_ns
                self._expiries.set(lease.lease_id, until_ns)

    def move(self, stream_id: int, epoch: int) -> None:
        """Lets the leases of a stream refer to its new epoch: who remains maps it from the announce."""
        for lease in self._by_stream.get(stream_id, {}).values():
            lease.epoch = epoch
