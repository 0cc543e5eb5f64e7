"""A driver written by somebody else: answers over real Aeron what a test tells it to, right or wrong."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from pool_hosts import Ear
from tensor_pool import _native
from tensor_pool.closing import Closing
from tensor_pool.pool.mapping import announce_ring, payload_pools
from tensor_pool.testing import Cluster
from tensor_pool.wire import Message
from tensor_pool.wire.messages import (
    LeaseRevokeReason,
    ResolveStream,
    ResponseCode,
    ShmAttachRequest,
    ShmAttachResponse,
    ShmLeaseRevoked,
    ShmPoolAnnounce,
    StreamResolved,
)

NSLOTS = 8
POOLS = [(1, 4096)]


class ForeignDriver(Closing):
    """Serves one stream from a thread, as a test changes its mind about how.

    Args:
        host: A host without a driver.
        stream_id: The stream.
    """

    def __init__(self, host: Cluster, stream_id: int = 10_000) -> None:
        self.stream_id = stream_id
        self.base = Path(str(host.settings["shm.shm_base_dir"]))
        self.change: Callable[[ShmAttachResponse], list[Message]] = lambda answer: [answer]
        """What is said instead of the right answer to an attach."""
        self.granted: list[tuple[ShmAttachRequest, ShmAttachResponse]] = []
        self.announced: ShmPoolAnnounce | None = None
        """What is announced ten times a second, with the present time."""
        self._lease_ids = itertools.count(4_711)
        self._keepers: list[_native.RingKeeper] = []
        self._answered: set[int] = set()
        self.ear = Ear(host, ["control"])
        self.new_epoch(1)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="foreign driver")
        self._thread.start()

    def new_epoch(self, number: int, directory: str = "") -> ShmPoolAnnounce:
        """Makes the files of another epoch, in a directory of its own choice, and announces them."""
        self.announced = self.prepare_epoch(number, directory)
        return self.announced

    def prepare_epoch(self, number: int, directory: str = "") -> ShmPoolAnnounce:
        """Makes the files of another epoch, and what would announce them; nobody hears of it yet."""
        where = self.base / (directory or f"epoch-{number}")
        where.mkdir(mode=0o700, exist_ok=True)
        self.address = _native.create_ring(
            where, stream_id=self.stream_id, epoch=number, nslots=NSLOTS, pools=POOLS
        )
        self._keepers.append(_native.RingKeeper(self.address, base_dirs=[where]))
        return announce_ring(self.address, producer_id=0, timestamp_ns=0)

    def revoke_last(self, reason: LeaseRevokeReason = LeaseRevokeReason.REVOKED) -> ShmLeaseRevoked:
        """Ends the lease that was granted last."""
        request, answer = self.granted[-1]
        assert answer.lease_id is not None
        notice = ShmLeaseRevoked(
            timestamp_ns=time.monotonic_ns(),
            lease_id=answer.lease_id,
            stream_id=self.stream_id,
            client_id=request.client_id,
            role=request.role,
            reason=reason,
        )
        self.ear.say(notice)
        return notice

    def close(self) -> None:
        self._ends.set()
        self._thread.join()
        for keeper in self._keepers:
            keeper.close()
        self.ear.close()

    def _serve(self) -> None:
        while not self._ends.wait(0.02):
            for request in self.ear.all_of(ResolveStream):
                self._once(request.correlation_id, lambda request=request: [self._resolved(request)])
            for attach in self.ear.all_of(ShmAttachRequest):
                self._once(attach.correlation_id, lambda attach=attach: self._attached(attach))
            for keeper in self._keepers:
                keeper.refresh()
            announced = self.announced  # the test may think otherwise at any time
            if announced is not None:
                now_ns = time.monotonic_ns()
                announce = msgspec.structs.replace(announced, announce_timestamp_ns=now_ns)
                self.ear.say(announce, "announce", wait=False)

    def _once(self, correlation_id: int, answer: Callable[[], list[Message]]) -> None:
        if correlation_id not in self._answered:
            self._answered.add(correlation_id)
            for message in answer():
                self.ear.say(message)

    def _resolved(self, request: ResolveStream) -> StreamResolved:
        return StreamResolved(
            correlation_id=request.correlation_id,
            client_id=request.client_id,
            code=ResponseCode.OK,
            stream_id=self.stream_id,
            epoch=self.address.epoch,
            producer_attached=True,
            name=request.name,
        )

    def _attached(self, request: ShmAttachRequest) -> list[Message]:
        answer = ShmAttachResponse(
            correlation_id=request.correlation_id,
            code=ResponseCode.OK,
            lease_id=next(self._lease_ids),
            stream_id=self.stream_id,
            epoch=self.address.epoch,
            layout_version=1,
            header_nslots=NSLOTS,
            header_slot_bytes=256,
            max_dims=8,
            payload_pools=payload_pools(self.address),
            header_region_uri=self.address.header_uri,
        )
        self.granted.append((request, answer))
        return self.change(answer)
