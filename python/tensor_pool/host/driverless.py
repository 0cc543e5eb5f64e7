"""Producers without a driver: they own their files, epochs and announces themselves (decision D16).

The files are made by the driver's code, in the driver's layout; only the leases are missing.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from tensor_pool import _native
from tensor_pool.driver.files import EpochFiles, FoundEpoch
from tensor_pool.driver.lock import BaseDirLock, is_held
from tensor_pool.driver.registry import next_epoch
from tensor_pool.errors import ConfigError, RegionError, TensorPoolError
from tensor_pool.pool.mapping import announce_ring, ring_address
from tensor_pool.pool.sessions.attachment import FOR_EVER_NS, Attachment, AttachmentState
from tensor_pool.pool.sessions.lease import Granted, Lease, Refused
from tensor_pool.pool.sizing import choose_geometry
from tensor_pool.runtime import Periodic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tensor_pool.config import ShmSection
    from tensor_pool.driver.registry import Epoch
    from tensor_pool.pool.sessions.lease import Event, Ids, StreamWish
    from tensor_pool.runtime import Clock
    from tensor_pool.wire import Message
    from tensor_pool.wire.messages import ShmDriverShutdown, ShmLeaseRevoked, ShmPoolAnnounce

__all__ = ["OwnedStream"]

_NO_LEASE: Final = 0
_ANNOUNCE_NS: Final = 1_000_000_000


class OwnedStream(Attachment):
    """A stream that its producer owns: stands in the place of an attachment, and grants itself the lease.

    Args:
        wish: The stream, by id, and what its frames are like.
        ids: Where ids come from.
        shm: Where files lie and who may open them.
        announce: Sends an announce.
        clock: What time it is.
    """

    def __init__(
        self,
        wish: StreamWish,
        *,
        ids: Ids,
        shm: ShmSection,
        announce: Callable[[ShmPoolAnnounce], object],
        clock: Clock,
    ) -> None:
        super().__init__(
            wish, ids=ids, dialect="seed", keepalive_interval_ns=_ANNOUNCE_NS, freshness_ns=FOR_EVER_NS
        )
        if wish.stream_id is None:
            raise ConfigError(
                f"without a driver nobody gives stream {wish.label} an id",
                hint="give an id, such as 10000, and the name with name=",
            )
        self._files = EpochFiles(shm)
        self._send = announce
        self._clock = clock
        self._lock: BaseDirLock | None = None
        self._epoch: Epoch | None = None
        self._keeper: _native.RingKeeper | None = None
        self._timer = Periodic(period_ns=_ANNOUNCE_NS, start_ns=0)

    def step(
        self,
        now_ns: int,
        last_keepalive_ns: int | None = None,  # noqa: ARG002 - nobody asks for keepalives
    ) -> tuple[list[Message], list[Event]]:
        """Makes the files at first; announces them and keeps them alive from then on."""
        if self.state is AttachmentState.CLOSED:
            return [], []
        events: list[Event] = []
        if self._epoch is None:
            try:
                events.append(Granted(self._create(now_ns)))
            except TensorPoolError as e:
                self._let_go()
                self.state = AttachmentState.CLOSED
                return [], [Refused(e)]
        if self._timer.due(now_ns):
            assert self._keeper is not None
            self._keeper.refresh()
            self._send(self._announce())
        return [], events

    @property
    def due_ns(self) -> int:
        """When the next announce is due."""
        return FOR_EVER_NS if self.state is AttachmentState.CLOSED else self._timer.next_ns

    def _create(self, now_ns: int) -> Lease:
        wish = self.wish
        assert wish.stream_id is not None
        geometry = choose_geometry(
            dtype=wish.dtype,
            shape=wish.shape,
            max_frame_bytes=wish.max_frame_bytes,
            nslots=wish.nslots,
            rate_hz=wish.rate_hz,
            consumer_latency_s=wish.consumer_latency_s,
            pools=wish.pools,
        )
        self._files.prepare()
        directory = self._directory
        # What another one without a driver holds is no stream of the driver; taking it says whose it is.
        if directory.exists() and is_held(self._files.directory) and not is_held(directory):
            raise RegionError(
                f"the SHM driver of {self._files.directory} serves stream {wish.stream_id}",
                hint="leave out attach=False, or publish under another id",
            )
        self._lock = self._take(directory)
        older = [int(entry.name) for entry in directory.iterdir() if entry.name.isdecimal()]
        number = next_epoch(max(older, default=0), self._clock.realtime_ns())
        epoch = self._files.create(
            wish.stream_id, number, geometry, allocate=True, hugepages=bool(wish.require_hugepages)
        )
        for old in older:  # of runs that ended: the lock is ours
            self._files.remove(FoundEpoch(wish.stream_id, old))
        self._keeper = _native.RingKeeper(epoch.address, base_dirs=self._files.base_dirs)
        self._epoch = epoch
        announce = self._announce()
        self.lease = Lease(
            lease_id=_NO_LEASE,
            client_id=self._client_id,
            stream_id=wish.stream_id,
            role=wish.role,
            epoch=number,
            granted_ns=now_ns,
            announce=announce,
            address=ring_address(announce),
        )
        self.state = AttachmentState.ATTACHED
        return self.lease

    @property
    def _directory(self) -> Path:
        return self._files.directory / str(self.wish.stream_id)

    def _take(self, directory: Path) -> BaseDirLock:
        while True:
            directory.mkdir(mode=0o700, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):  # who had it removed it between the two
                return BaseDirLock(
                    directory,
                    what=f"producer of stream {self.wish.stream_id} without a driver",
                    hint="a stream has one producer: close that one, or publish under another id",
                )

    def _let_go(self) -> None:
        """Leaves the stream's directory to others, or to nobody."""
        if self._lock is not None:
            self._lock.remove()
            self._lock = None
            with contextlib.suppress(OSError):  # somebody has it already
                self._directory.rmdir()

    def _announce(self) -> ShmPoolAnnounce:
        assert self._epoch is not None
        return announce_ring(
            self._epoch.address, producer_id=self._client_id, timestamp_ns=self._clock.monotonic_ns()
        )

    def on_announce(
        self,
        announce: ShmPoolAnnounce,  # noqa: ARG002 - the mapping decides what it means
        now_ns: int,  # noqa: ARG002
        session_id: int | None = None,  # noqa: ARG002
    ) -> list[Event]:
        """Its own announces come back to it; nobody else's matter."""
        return []

    def on_shutdown(
        self,
        notice: ShmDriverShutdown,  # noqa: ARG002 - whatever driver that was
        now_ns: int,  # noqa: ARG002
    ) -> list[Event]:
        """A driver that serves other streams of the host goes; this one was never its."""
        return []

    def on_revoked(
        self,
        notice: ShmLeaseRevoked,  # noqa: ARG002 - nobody gave it a lease
        now_ns: int,  # noqa: ARG002
    ) -> list[Event]:
        """Nobody can take away what nobody gave."""
        return []

    def detach(self) -> list[Message]:
        """Removes the files; consumers keep what they have mapped, and see that nobody announces it."""
        self.state = AttachmentState.CLOSED
        self.lease = None
        if self._keeper is not None:
            self._keeper.close()
        if self._epoch is not None:
            self._files.remove(FoundEpoch(self._epoch.address.stream_id, self._epoch.number))
        self._let_go()
        return []
