"""Leases, epochs and their files taken together: what happens when a client comes or goes.

Whatever changes a stream goes through here, so that the rules between the parts hold in one place: an epoch
grows whenever a producer comes or goes [DRV-6-1 to DRV-6-4], a lease that ends is told before the epoch that
follows (decision D5), and what is announced exists.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from tensor_pool.driver.answers import wire_text
from tensor_pool.driver.files import FoundEpoch
from tensor_pool.errors import RegionError
from tensor_pool.runtime import CounterType
from tensor_pool.runtime.faults import fault_point
from tensor_pool.wire.messages import LeaseRevokeReason, Role, ShmLeaseRevoked

if TYPE_CHECKING:
    from tensor_pool.driver.activity import ActivityKeeper, KeeperFactory
    from tensor_pool.driver.announce import Announcer
    from tensor_pool.driver.answers import Moment
    from tensor_pool.driver.files import EpochFiles
    from tensor_pool.driver.garbage import EndedEpochs
    from tensor_pool.driver.leases import Lease, LeaseBook
    from tensor_pool.driver.registry import Epoch, Stream, StreamRegistry
    from tensor_pool.pool.sizing import Geometry
    from tensor_pool.runtime import CounterSet
    from tensor_pool.wire import Message

__all__ = ["Lifecycle"]

_LOG: Final = logging.getLogger(__name__)

_UNCLAIMED_NS: Final = 60_000_000_000
"""How long a name waits for its first attach: longer than an attach takes, however slow its client is."""

_END_COUNTERS: Final = {
    LeaseRevokeReason.DETACHED: CounterType.DRIVER_LEASES_DETACHED,
    LeaseRevokeReason.EXPIRED: CounterType.DRIVER_LEASES_EXPIRED,
    LeaseRevokeReason.REVOKED: CounterType.DRIVER_LEASES_REVOKED,
}


class Lifecycle:
    """Streams from their first epoch to their last.

    Args:
        leases: Who is attached.
        streams: What there is.
        files: Where it lies.
        ended: Epochs that wait to be removed.
        announcer: Tells of each change.
        counters: What is counted.
        open_keeper: Makes what says that a ring is alive.
    """

    def __init__(
        self,
        *,
        leases: LeaseBook,
        streams: StreamRegistry,
        files: EpochFiles,
        ended: EndedEpochs,
        announcer: Announcer,
        counters: CounterSet,
        open_keeper: KeeperFactory,
    ) -> None:
        self.leases = leases
        self.streams = streams
        self.files = files
        self._ended = ended
        self._announcer = announcer
        self._counters = counters
        self._open_keeper = open_keeper
        self._keepers: dict[int, ActivityKeeper] = {}
        self._without_epoch: set[int] = set()
        self._made: set[FoundEpoch] = set()
        self.allocated_bytes = 0
        """Memory of all current epochs."""

    @property
    def total_bytes(self) -> int:
        """Memory of all epochs that exist, ended ones included."""
        return self.allocated_bytes + self.ended_bytes

    @property
    def ended_bytes(self) -> int:
        """Memory of those that have ended and are not yet removed."""
        return self._ended.allocated_bytes

    # --- epochs ---

    def renew(
        self, stream: Stream, geometry: Geometry, now: Moment, *, allocate: bool, hugepages: bool
    ) -> Epoch:
        """Gives a stream a new epoch; the old one ends.

        Raises:
            RegionError: The files can't be made; the stream is as it was.
        """
        self.files.check_unheld(stream.stream_id)
        number = self.streams.take_epoch(now.realtime_ns)
        epoch = self.files.create(stream.stream_id, number, geometry, allocate=allocate, hugepages=hugepages)
        try:
            keeper = self._open_keeper(epoch.address, self.files.base_dirs)
        except RegionError:
            self.files.remove(FoundEpoch(stream.stream_id, number))
            raise
        self._made.add(FoundEpoch(stream.stream_id, number))
        self.retire(stream, now)
        self._keepers[stream.stream_id] = keeper
        stream.begin_epoch(epoch)
        self.allocated_bytes += epoch.allocated_bytes
        self.leases.move(stream.stream_id, number)
        self._without_epoch.discard(stream.stream_id)
        self._announcer.schedule(stream, now)
        self._counters[CounterType.DRIVER_EPOCHS].add()
        return epoch

    def retire(self, stream: Stream, now: Moment) -> None:
        """Ends the current epoch of a stream, if it has one: nobody announces or refreshes it any more."""
        keeper = self._keepers.pop(stream.stream_id, None)
        if keeper is not None:
            keeper.close()
        epoch = stream.epoch
        stream.begin_epoch(None)
        if epoch is None:
            return
        self.allocated_bytes -= epoch.allocated_bytes
        self._announcer.cancel(stream)
        found = FoundEpoch(stream.stream_id, epoch.number)
        if epoch.is_allocated:
            self._ended.add(
                found,
                activity=self.files.activity(found),
                now_ns=now.monotonic_ns,
                allocated_bytes=epoch.allocated_bytes,
            )
        else:  # it was never used: nothing in it is worth keeping (decision D7)
            self._remove(found)

    def refresh_activity(self, stream: Stream, now: Moment) -> None:
        """Says that a stream's current epoch is alive, whether or not it has a producer (decision L8)."""
        keeper = self._keepers.get(stream.stream_id)
        if keeper is not None:
            keeper.refresh()
            stream.activity_ns = now.monotonic_ns

    def provision(self, stream: Stream, now: Moment) -> list[Message]:
        """Makes a sparse epoch for a stream without producer and announces it (decision D7).

        A file system that is full for the moment is no reason to stop; it is tried again by `retry`.
        """
        geometry = stream.geometry or stream.profile.geometry
        try:
            self.renew(stream, geometry, now, allocate=False, hugepages=stream.profile.hugepages)
        except RegionError as e:
            if stream.stream_id not in self._without_epoch:  # once, not at each attempt
                _LOG.warning("stream %d has no epoch for the moment: %s", stream.stream_id, e.message)
            self.retire(stream, now)
            self._without_epoch.add(stream.stream_id)
            return []
        return [self._announcer.announce(stream, now)]

    def retry(self, now: Moment) -> list[Message]:
        """Tries again to provision the streams for which that failed."""
        messages: list[Message] = []
        for stream_id in sorted(self._without_epoch):
            stream = self.streams.get(stream_id)
            if stream is None:
                self._without_epoch.discard(stream_id)
            else:
                messages += self.provision(stream, now)
        return messages

    def retire_idle(self, now: Moment, idle_ns: int) -> int:
        """Ends the epochs of streams made on demand that nobody holds a lease of; says how many.

        Names keep their ids; streams without a name are forgotten.
        """
        retired = 0
        for stream in self.streams:
            is_recent = now.monotonic_ns - stream.touched_ns < idle_ns
            if is_recent or stream.is_static or self.leases.count_of_stream(stream.stream_id):
                continue
            retired += stream.epoch is not None
            self.retire(stream, now)
            self._without_epoch.discard(stream.stream_id)
            if not stream.name:
                self.streams.remove(stream)
        return retired

    def forget_unclaimed(self, now: Moment) -> int:
        """Forgets names and ids that somebody asked for and nobody ever attached to; says how many.

        Whoever still waits for one asks again every few seconds.
        """
        forgotten = [
            stream
            for stream in self.streams.unclaimed
            if stream.epoch is None and now.monotonic_ns - stream.touched_ns >= _UNCLAIMED_NS
        ]
        for stream in forgotten:
            self.streams.remove(stream)
        return len(forgotten)

    def collect(self, now: Moment) -> int:
        """Removes the epochs that nobody can be using any more; says how many."""
        collectable = self._ended.collectable(self.files.activity, now_ns=now.monotonic_ns)
        for found in collectable:
            self._remove(found)
        self._counters[CounterType.DRIVER_EPOCHS_COLLECTED].add(len(collectable))
        return len(collectable)

    def remove_made(self) -> None:
        """Removes every epoch that was made here and still exists: the driver ends."""
        for found in sorted(self._made):
            self._remove(found)

    def _remove(self, found: FoundEpoch) -> None:
        self.files.remove(found)
        self._made.discard(found)

    # --- leases ---

    def grant(self, stream: Stream, client_id: int, role: Role, now: Moment) -> Lease:
        """Enters a lease of the stream's current epoch."""
        assert stream.epoch is not None
        stream.touched_ns = now.monotonic_ns
        self.streams.claim(stream)
        lease = self.leases.grant(
            stream_id=stream.stream_id,
            client_id=client_id,
            role=role,
            epoch=stream.epoch.number,
            now_ns=now.monotonic_ns,
        )
        self._counters[CounterType.DRIVER_LEASES].set(len(self.leases))
        self._counters[CounterType.DRIVER_ATTACHES].add()
        return lease

    def end(self, lease: Lease, reason: LeaseRevokeReason, now: Moment, text: str = "") -> list[Message]:
        """Ends an active lease; what is to be said about it, in this order (decision D5)."""
        self.leases.end(lease, reason)
        return self._after_end(lease, reason, now, text)

    def expire(self, now: Moment) -> list[Message]:
        """Ends the leases whose time is over."""
        messages: list[Message] = []
        for lease in self.leases.expire(now_ns=now.monotonic_ns):
            messages += self._after_end(lease, LeaseRevokeReason.EXPIRED, now, "no keepalive came in time")
        return messages

    def _after_end(self, lease: Lease, reason: LeaseRevokeReason, now: Moment, text: str) -> list[Message]:
        self._counters[CounterType.DRIVER_LEASES].set(len(self.leases))
        self._counters[_END_COUNTERS[reason]].add()
        messages: list[Message] = [
            ShmLeaseRevoked(
                timestamp_ns=now.monotonic_ns,
                lease_id=lease.lease_id,
                stream_id=lease.stream_id,
                client_id=lease.client_id,
                role=lease.role,
                reason=reason,
                error_message=wire_text(text),
            )
        ]
        fault_point("driver.while_revoking")
        stream = self.streams.get(lease.stream_id)
        if stream is not None:
            stream.touched_ns = now.monotonic_ns
            if lease.role is Role.PRODUCER:
                messages += self.provision(stream, now)
        return messages

    def close(self) -> None:
        """Lets go of all rings; may be called again."""
        while self._keepers:
            self._keepers.popitem()[1].close()
